"""JSON as text: parse strictly, return the text of each value, and build documents from these texts unchanged.

A plugin must receive what the administrator wrote. Decoding and encoding again would change it: 1e400 becomes
Infinity, and 0.10000000000000000001 becomes 0.1. So this module copies values as text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from json.encoder import encode_basestring_ascii
from json.scanner import make_scanner
from typing import Any, NamedTuple, TypeAlias

_SPACE = re.compile(r"[ \t\n\r]*")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_CONSTANTS = ("NaN", "Infinity", "-Infinity")
_OPENING, _CLOSING = {"{", "["}, {"}", "]"}
MAX_DEPTH = 200
"""The number of levels that a document may have."""
MAX_ELEMENTS = 10_000
"""The number of elements that the lists and objects of a result may have together."""
# Strings and other text without structure; then a bracket, a comma, the quote of an endless string, or the end.
_STRUCTURE = re.compile(r'(?s)(?:[^"\[\]{},]|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+([\[\]{},"]|\Z)')
_COMMENT = re.compile(r"//|/\*|#")


class JSONTextError(ValueError):
    """The text is not one JSON document. ``location`` is ``line L, column C``, or None."""

    def __init__(self, problem: str, location: str | None = None, hint: str | None = None) -> None:
        super().__init__(f"{location}: {problem}" if location else problem)
        self.problem = problem
        self.location = location
        self.hint = hint


_Scan: TypeAlias = Callable[[str, int], tuple[Any, int]]
_Span: TypeAlias = tuple[str, int, int, int, int, Any]


class Member(NamedTuple):
    """A member of an object: the key and the value, each as a decoded value and as text of the document."""

    key: str
    key_text: str
    text: str
    value: Any


class _ConstantError(ValueError):
    """The document has NaN, Infinity or -Infinity."""


def _refuse_constant(name: str) -> Any:
    raise _ConstantError(name)


# A scanner decodes the value at an index, and returns it with the index after it. JSONDecoder.raw_decode does the same
# with a Python function around it.
_decoder = json.JSONDecoder(parse_constant=_refuse_constant)
_scan_once: _Scan = make_scanner(_decoder)  # type: ignore[arg-type] # the stubs take it for a class of its own


def decode_utf8(data: bytes | str) -> str:
    """Return ``data`` as text, strictly UTF-8 without a byte order mark; else raise JSONTextError."""
    if isinstance(data, str):
        text = data
        try:
            text.encode()
        except UnicodeEncodeError:
            raise JSONTextError("it has a lone surrogate, which UTF-8 cannot carry") from None
    else:
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise JSONTextError(f"it is not UTF-8: {error.reason} at byte {error.start}") from None
    if text.startswith("\ufeff"):
        raise JSONTextError("it starts with a byte order mark", hint="save it as UTF-8 without a byte order mark")
    return text


def check_size(text: str, elements: float = MAX_ELEMENTS, depth: float = MAX_DEPTH) -> str:
    """Return ``text`` if it has at most ``elements`` elements in lists and objects, and ``depth`` levels of nesting.

    An empty list or object counts as one element. Elements are counted in the text: decoding takes up to 30 times the
    document's size in memory (``[{},{},...]`` of 16 MiB becomes 5.6 million dictionaries). Python's own limit of levels
    depends on the depth of the program's stack, so a document that ADD accepted could be unreadable in its record.

    Raises JSONTextError if a limit is exceeded.
    """
    # Before each element is a comma or the opening bracket of its list or object. Strings may contain these characters
    # too, so this quick count is never too low. Most documents pass it.
    brackets = text.count("[") + text.count("{")
    if brackets <= depth and (len(text) <= elements or text.count(",") + brackets <= elements):
        return text
    count = level = 0
    for match in _STRUCTURE.finditer(text):
        char = match[1]
        level += (char in _OPENING) - (char in _CLOSING)
        if level < 0 or char in {'"', ""}:  # the rest is not JSON
            break
        count += char not in _CLOSING
        if count > elements:
            raise JSONTextError(f"it has more than {elements:,} elements in its lists and objects")
        if level > depth:
            raise JSONTextError(f"it is nested too deeply: more than {depth} levels")
    return text


def parse(text: str) -> Any:
    """Return the one JSON document in ``text``, decoded.

    Raises JSONTextError if the text is empty, not one JSON document, nested too deeply, or has NaN, Infinity or an
    integer of thousands of digits.
    """
    start = _skip(text, 0)
    if start == len(text):
        raise JSONTextError("it is empty")
    value, end = _scan(text, start)
    _check_end(text, end)
    return value


def members(text: str) -> list[Member]:
    """Return the members of the object ``text`` in order, with duplicates; raises JSONTextError as ``parse`` does."""
    return [Member(key, text[at:end], text[start:stop], value) for key, at, end, start, stop, value in _spans(text)]


def last_members(text: str) -> dict[str, Member]:
    """Return the members of the object ``text`` by their keys; of duplicates, the last one counts."""
    return {member.key: member for member in members(text)}


def whole_part(text: str) -> tuple[str, int]:
    """Return (an object with the undamaged first members of ``text``, the index after them in ``text``)."""
    end = 0
    with suppress(JSONTextError):
        for span in _spans(text):
            end = span[4]
    return f"{text[:end]}}}" if end else "{}", end


def elements(text: str) -> list[str]:
    """Return the texts of the elements of the array ``text``; raises JSONTextError as ``members`` does."""
    index = _open(text, "[", "an array")
    texts: list[str] = []
    while text[index : index + 1] != "]":
        _, end = _scan(text, index)
        texts.append(text[index:end])
        index = _next(text, end, "]")
    _check_end(text, index + 1)
    return texts


def join_object(parts: list[tuple[str, str]]) -> str:
    """Return the JSON text of an object with these (key text, value text) pairs."""
    return "{" + ",".join(f"{key}:{value}" for key, value in parts) + "}"


def join_array(parts: list[str]) -> str:
    """Return the JSON text of an array with these element texts."""
    return "[" + ",".join(parts) + "]"


def reindent(text: str, indent: int | None) -> str:
    """Return the JSON document ``text`` indented by ``indent`` spaces a level, or in one line if ``indent`` is None."""
    parts: list[str] = []
    depth = 0
    before = ""
    for part in _TOKEN.findall(text):
        depth -= part in _CLOSING
        if (before in _OPENING) != (part in _CLOSING) or before == ",":
            one_line = " " if before == "," else ""
            parts.append(one_line if indent is None else "\n" + " " * (indent * depth))
        parts.append(": " if part == ":" else part)
        depth += part in _OPENING
        before = part
    return "".join(parts)


def merge(text: str, update: Mapping[str, Any]) -> str:
    """Return the object ``text`` with ``update`` merged in: objects member by member, other values replaced."""
    own = members(text)
    last = {member.key: member for member in own}
    parts: list[tuple[str, str]] = []
    for member in own:
        if member.key not in update:
            parts.append((member.key_text, member.text))
        # A plugin in another language may take the first duplicate, so no old value may stay before the new one.
        elif member is last[member.key]:
            new = update[member.key]
            both_objects = isinstance(new, Mapping) and isinstance(member.value, dict)
            parts.append((member.key_text, merge(member.text, new) if both_objects else dumps(new)))
    parts.extend((dumps(key), dumps(value)) for key, value in update.items() if key not in last)
    return join_object(parts)


quote: Callable[[str], str] = encode_basestring_ascii
"""Return a text as an ASCII JSON string; the same as ``dumps`` for a str."""


def dumps(value: Any) -> str:
    """Return ``value`` as compact ASCII JSON with keys in their order.

    Raises ValueError for NaN, Infinity and a container that holds itself, TypeError for a value without a JSON form,
    and RecursionError for a value that is nested too deeply.
    """
    return _encoder.encode(value)


def _encode_other(value: Any) -> Any:
    dump = getattr(value, "to_json", None)
    if dump is not None:
        return dump()
    raise TypeError(f"{type(value).__name__} has no JSON form")


# json.dumps with options makes an encoder at each call, and an ADD has thirty calls.
_encoder = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=_encode_other)


def _spans(text: str) -> Iterator[_Span]:
    """Yield (key, begin and end of the key's text, begin and end of the value's text, value) of an object's members."""
    index = _open(text, "{", "an object")
    # Calls of _scan, _skip and _next for each member would take as long as the rest. Most documents have no space here.
    while (char := text[index : index + 1]) == '"':
        try:
            key, end = _scan_once(text, index)
            start = (end if text[end : end + 1] == ":" else _colon(text, end)) + 1
            if text[start : start + 1] <= " ":
                start = _skip(text, start)
            value, stop = _scan_once(text, start)
        except (StopIteration, ValueError, RecursionError) as error:
            raise _scan_error(text, error) from None
        yield key, index, end, start, stop, value
        index = stop + 1 if text[stop : stop + 2] == ',"' else _next(text, stop, "}")
    if char != "}":
        raise _unexpected(text, index, "a member's name in double quotes")
    _check_end(text, index + 1)


def _scan(text: str, index: int) -> tuple[Any, int]:
    """Return the value at ``index``, decoded, and the index after it; raises JSONTextError."""
    try:
        return _scan_once(text, index)
    except (StopIteration, ValueError, RecursionError) as error:
        raise _scan_error(text, error) from None


def _scan_error(text: str, error: Exception) -> JSONTextError:
    """Return the error for an exception of a decoder's ``scan_once``."""
    if isinstance(error, StopIteration):
        error = json.JSONDecodeError("Expecting value", text, error.value)
    if isinstance(error, json.JSONDecodeError):
        return JSONTextError(f"it is not JSON: {error.msg}", _position(text, error.pos), _hint(text, error.pos))
    if isinstance(error, RecursionError):
        return JSONTextError("it is nested too deeply")
    if isinstance(error, _ConstantError):  # the decoder does not report the position
        starts = (match.start() for match in _TOKEN.finditer(text) if match[0].startswith(_CONSTANTS))
        return JSONTextError(f"{error} is not JSON", _position(text, next(starts, 0)))
    if isinstance(error, JSONTextError):
        return error
    # int() takes quadratic time, so it refuses thousands of digits (sys.set_int_max_str_digits)
    return JSONTextError("it has an integer with too many digits")


def _skip(text: str, index: int) -> int:
    # Called for each token: a comparison is cheaper than the regular expression.
    if text[index : index + 1] > " ":
        return index
    match = _SPACE.match(text, index)
    return match.end() if match else index


def _open(text: str, bracket: str, kind: str) -> int:
    index = _skip(text, 0)
    if text[index : index + 1] != bracket:
        if index == len(text):
            raise JSONTextError("it is empty")
        raise JSONTextError(f"it is not {kind}", hint=_hint(text, index))
    return _skip(text, index + 1)


def _next(text: str, end: int, close: str) -> int:
    index = end if text[end : end + 1] == "," else _skip(text, end)
    if text[index : index + 1] == close:
        return index
    if text[index : index + 1] != ",":
        raise _unexpected(text, index, f"',' or '{close}'")
    following = _skip(text, index + 1)
    if text[following : following + 1] == close:
        raise _unexpected(text, following, "another member" if close == "}" else "another element")
    return following


def _colon(text: str, end: int) -> int:
    index = _skip(text, end)
    if text[index : index + 1] != ":":
        raise _unexpected(text, index, "':'")
    return index


def _check_end(text: str, end: int) -> None:
    end = _skip(text, end)
    if end != len(text):
        hint = _hint(text, end) or "remove this text: a file must have one document only"
        raise JSONTextError("there is more text after the end of the document", _position(text, end), hint)


def _unexpected(text: str, index: int, wanted: str) -> JSONTextError:
    shown = f"'{text[index]}'" if index < len(text) else "the end of the document"
    problem = f"it is not JSON: {wanted} was expected, not {shown}"
    return JSONTextError(problem, _position(text, index), _hint(text, index))


def _position(text: str, index: int) -> str:
    line = text.count("\n", 0, index) + 1
    return f"line {line}, column {index - text.rfind(chr(10), 0, index)}"


def _hint(text: str, index: int) -> str | None:
    at = _skip(text, index)
    if text[at : at + 1] == ",":  # since Python 3.13 the index is that of the comma before the bracket
        at = _skip(text, at + 1)
    if _COMMENT.match(text, at):
        return "remove the comment: JSON has no comments"
    if at >= len(text):
        return "complete the document: it ends too early"
    if text[at] in "}]" and text[:at].rstrip().endswith(","):
        return "remove the comma before the closing bracket"
    return "write strings in double quotes" if text[at] == "'" else None
