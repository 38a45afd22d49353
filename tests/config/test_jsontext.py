"""JSON as text: spans found as they stand, numbers kept as written, bad text refused with its location."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libcni.config import jsontext
from libcni.config.jsontext import JSONTextError

NUMBERS = ["9007199254740993", "1e400", "0.10000000000000000001", "-0.0", "-0", "1.0", "1E+2", "0e-7"]

space = st.sampled_from(["", " ", "\t", "\n", "\r", " \t", "\r\n", "\n\n\t"])  # st.text() would take most of the time
numbers = st.sampled_from(NUMBERS) | st.from_regex(
    r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,4})?", fullmatch=True
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
strings = texts.map(json.dumps) | texts.map(lambda text: json.dumps(text, ensure_ascii=False))
scalars = st.sampled_from(["true", "false", "null", '""', '"\\u0041\\/"', '"\\ud83d\\ude00"']) | numbers | strings


def _array(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(st.tuples(space, inner, space).map("".join), max_size=4).map(lambda parts: f"[{','.join(parts)}]")


def _object(inner: st.SearchStrategy[str], keys: st.SearchStrategy[str] = strings) -> st.SearchStrategy[str]:
    member = st.tuples(space, keys, space, st.just(":"), space, inner, space).map("".join)
    return st.lists(member, max_size=4).map(lambda parts: "{" + ",".join(parts) + "}")


values = st.recursive(scalars, lambda inner: _array(inner) | _object(inner), max_leaves=12)
objects = _object(values)
arrays = _array(values)


@given(objects, space)
def test_members_are_found_as_they_stand(text: str, around: str) -> None:
    found = jsontext.members(around + text + around)
    assert all(member.text in text and member.key_text in text for member in found)
    assert [jsontext.parse(member.text) for member in found] == [member.value for member in found]
    assert [json.loads(member.key_text) for member in found] == [member.key for member in found]
    again = jsontext.join_object([(member.key_text, member.text) for member in found])
    assert jsontext.members(again) == found
    assert jsontext.parse(again) == jsontext.parse(text)


@given(arrays, space)
def test_elements_are_found_as_they_stand(text: str, around: str) -> None:
    found = jsontext.elements(around + text + around)
    assert [jsontext.parse(element) for element in found] == jsontext.parse(text)
    assert all(element in text for element in found)
    assert jsontext.elements(jsontext.join_array(found)) == found


def test_duplicates_and_order_are_kept() -> None:
    found = jsontext.members('{"b":1,"a":2,"b":3}')
    assert [(member.key, member.value) for member in found] == [("b", 1), ("a", 2), ("b", 3)]


def test_of_duplicates_the_last_member_counts() -> None:
    assert {key: member.text for key, member in jsontext.last_members('{"a":1,"b":2,"a":3}').items()} == {
        "a": "3",
        "b": "2",
    }


BAD = [
    ("", "empty", None),
    (" \n", "empty", None),
    ("{", "", "line 1, column 2"),
    ('{"a":1', "it is not JSON: ',' or '}' was expected, not the end of the document", "line 1, column 7"),
    ('{"a"', "it is not JSON: ':' was expected, not the end of the document", "line 1, column 5"),
    ('{"a":', "it is not JSON: Expecting value", "line 1, column 6"),
    ('{"a":1}\n{}', "more text after the end", "line 2, column 1"),
    ('{"a":1}x', "more text after the end", "line 1, column 8"),
    ('{\n "a" 1}', "it is not JSON: ':' was expected, not '1'", "line 2, column 6"),
    ('{"a":1 "b":2}', "it is not JSON: ',' or '}' was expected, not '\"'", "line 1, column 8"),
    ('{"a":1,}', "it is not JSON: another member was expected, not '}'", "line 1, column 8"),
    ('{"a":[1,]}', "", "line 1, column"),
    ("{a:1}", "member's name in double quotes", "line 1, column 2"),
    ("{'a':1}", "member's name in double quotes", "line 1, column 2"),
    ('{"a":01}', "it is not JSON: ',' or '}' was expected, not '1'", "line 1, column 7"),
    ('{"NaN":"Infinity",\n"b":[1,NaN]}', "NaN is not JSON", "line 2, column 8"),
    ('{"a":-Infinity}', "-Infinity is not JSON", "line 1, column 6"),
    ('{"a":"\\"NaN","b":1,"c":Infinityx}', "Infinity is not JSON", "line 1, column 24"),
    ('{"a":[' + "9" * 5000 + "]}", "an integer with too many digits", None),
    ('{"a":"b\nc"}', "Invalid control character", "line 1, column 8"),
    ("[" * 100_000, "nested too deeply", None),
    ('{"a":' * 100_000, "nested too deeply", None),
]


@pytest.mark.parametrize(("text", "problem", "location"), BAD, ids=[repr(text[:12]) for text, _, _ in BAD])
def test_bad_text_is_refused_with_its_location(text: str, problem: str, location: str | None) -> None:
    with pytest.raises(JSONTextError) as caught:
        (jsontext.parse if text.strip()[:1] in {"", "["} else jsontext.members)(text)
    assert problem in caught.value.problem
    assert (caught.value.location or "").startswith(location or "")
    assert bool(caught.value.location) == bool(location)
    assert str(caught.value) == (f"{caught.value.location}: " if location else "") + caught.value.problem
    if text.strip():
        with pytest.raises(JSONTextError):
            jsontext.parse(text)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('// c\n{"a":1}', "no comments"),
        ('{"a":1, // c\n"b":2}', "no comments"),
        ('{"a":1 # c\n}', "no comments"),
        ('{/* c */"a":1}', "no comments"),
        ('{"a":[1, /* c */ 2]}', "no comments"),
        ('{"a":1} // c', "no comments"),
        ('{"a":', "ends too early"),
        ("{'a':1}", "double quotes"),
        ("{\"a\":'b'}", "double quotes"),
        ('{"a":[1,]}', "comma before"),
    ],
)
def test_bad_text_comes_with_a_hint(text: str, hint: str) -> None:
    with pytest.raises(JSONTextError) as caught:
        jsontext.members(text)
    assert caught.value.hint is not None
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("text", "problem"), [("[]", "not an object"), ("5", "not an object"), ("", "^it is empty$"), ('"a"', "not an")]
)
def test_what_is_no_object_has_no_members(text: str, problem: str) -> None:
    with pytest.raises(JSONTextError, match=problem):
        jsontext.members(text)


@pytest.mark.parametrize("text", ["{}", "[1", "[1 2]", "[1]]", "[1,]"])
def test_what_is_no_array_has_no_elements(text: str) -> None:
    with pytest.raises(JSONTextError):
        jsontext.elements(text)


@pytest.mark.parametrize("data", [b'{"a":"\xc3\xa4"}', '{"a":"ä"}'])
def test_decode(data: Any) -> None:
    assert jsontext.decode_utf8(data) == '{"a":"ä"}'


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\xff\xfe{\0}\0", "not UTF-8"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        ("\ufeff{}", "byte order mark"),
        ('{"a":"\ud800"}', "a lone surrogate"),
        (b'{"a":"\xe4"}', "not UTF-8: invalid continuation byte at byte 6"),
    ],
)
def test_what_is_not_utf_8_is_refused(data: bytes | str, problem: str) -> None:
    with pytest.raises(JSONTextError, match=problem):
        jsontext.decode_utf8(data)


@pytest.mark.parametrize(
    ("text", "update", "merged"),
    [
        ('{"a":1e400}', {}, '{"a":1e400}'),
        ('{"a":1e400,"b":2}', {"b": 3}, '{"a":1e400,"b":3}'),
        ('{"a":{"x":-0.0,"y":1}}', {"a": {"y": 2, "z": 3}}, '{"a":{"x":-0.0,"y":2,"z":3}}'),
        ('{"a":[1]}', {"a": {"y": 2}}, '{"a":{"y":2}}'),
        ('{"a":{"y":2}}', {"a": [1]}, '{"a":[1]}'),
        ("{}", {"b": 1, "a": None}, '{"b":1,"a":null}'),
    ],
)
def test_merge(text: str, update: dict[str, Any], merged: str) -> None:
    assert jsontext.merge(text, update) == merged


@given(objects, st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers() | st.text(max_size=3), max_size=3))
def test_merge_changes_only_the_given_members(text: str, update: dict[str, Any]) -> None:
    assert jsontext.parse(jsontext.merge(text, update)) == {**jsontext.parse(text), **update}


class Typed:
    def to_json(self) -> dict[str, Any]:
        return {"typed": True}


def test_dumps_is_compact_and_keeps_order() -> None:
    assert jsontext.dumps({"b": [1, "ä"], "a": Typed()}) == '{"b":[1,"\\u00e4"],"a":{"typed":true}}'


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, b"x", object()])
def test_dumps_refuses_what_json_cannot_say(value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        jsontext.dumps({"a": value})


@pytest.mark.parametrize(
    ("text", "merged"),
    [
        ('{"a":1,"a":2}', '{"a":{"x":0}}'),
        ('{"a":1,"b":5,"a":{"y":2}}', '{"b":5,"a":{"y":2,"x":0}}'),
        ('{"a":{"x":1,"x":2}}', '{"a":{"x":0}}'),
        ('{"\\u0061":{"y":2},"b":1,"b":2}', '{"\\u0061":{"y":2,"x":0},"b":1,"b":2}'),
    ],
)
def test_of_duplicates_the_last_is_merged(text: str, merged: str) -> None:
    assert jsontext.merge(text, {"a": {"x": 0}}) == merged


def test_an_empty_document_is_laid_out() -> None:
    assert jsontext.reindent(' {"a" : [ ] ,"b":{ }, "c":"" }', 2) == '{\n  "a": [],\n  "b": {},\n  "c": ""\n}'
    assert jsontext.reindent('[ 1 ,{"a":[2,3]}]', None) == '[1, {"a": [2, 3]}]'


@given(values, st.sampled_from([None, 0, 4]))
def test_a_document_is_laid_out_without_changing_it(text: str, indent: int | None) -> None:
    laid_out = jsontext.reindent(text, indent)
    assert jsontext.reindent(laid_out, indent) == laid_out
    assert jsontext.parse(laid_out) == jsontext.parse(text)


@given(
    st.recursive(
        st.integers() | st.booleans() | st.text('a"\\{}[],: \n'),
        lambda s: st.lists(s) | st.dictionaries(st.text('a"\\'), s),
        max_leaves=8,
    ),
    st.sampled_from([None, 0, 2]),
)
def test_the_layout_is_that_of_the_standard_library(value: Any, indent: int | None) -> None:
    assert jsontext.reindent(json.dumps(value, separators=(",", ":")), indent) == json.dumps(value, indent=indent)
