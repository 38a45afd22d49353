"""JSON as text: parse strictly, find the spans of values, and put documents together without re-encoding them.

A plugin must receive what the administrator wrote. Decoding and encoding again would change it: 1e400 becomes
Infinity, 0.10000000000000000001 becomes 0.1, and a 5,000-digit integer is refused. So values are moved as text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = [
    "BigNumber",
    "Element",
    "JSONTextError",
    "Member",
    "bounded",
    "decode",
    "dumps",
    "elements",
    "join_array",
    "join_object",
    "laid_out",
    "members",
    "merge",
    "parse",
]

_SPACE = re.compile(r"[ \t\n\r]*")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_OPENING, _CLOSING = {"{", "["}, {"}", "]"}
MAX_DEPTH = 200
_COMMENT = re.compile(r"//|/\*|#")


class JSONTextError(ValueError):
    """The text is not one JSON document. ``location`` is ``line L, column C``, or None."""

    def __init__(self, problem: str, location: str | None = None, hint: str | None = None) -> None:
        super().__init__(f"{location}: {problem}" if location else problem)
        self.problem = problem
        self.location = location
        self.hint = hint


class BigNumber:
    """Hold the text of an integer that has too many digits to be worth decoding; no number, and no string."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text: str = text

    def __repr__(self) -> str:
        return f"<integer of {len(self.text)} digits>"

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BigNumber) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


class Element(NamedTuple):
    """One value: its text as it stands in the document, and what it decodes to."""

    text: str
    value: Any


class Member(NamedTuple):
    """One member of an object: its key and its value, each decoded and as text as it stands in the document."""

    key: str
    key_text: str
    text: str
    value: Any


def _refuse_constant(name: str) -> Any:
    raise JSONTextError(f"{name} is not JSON", hint="JSON has no NaN and no Infinity")


def _integer(text: str) -> Any:
    try:
        return int(text)
    except ValueError:  # more digits than sys.set_int_max_str_digits allows
        return BigNumber(text)


# int() itself is the fast path of the C scanner; the hook is only for documents with giant integers
_decoder = json.JSONDecoder(parse_constant=_refuse_constant)
_big_decoder = json.JSONDecoder(parse_constant=_refuse_constant, parse_int=_integer)


def decode(data: bytes | bytearray | memoryview | str) -> str:
    """Return ``data`` as text, strictly UTF-8 without a byte order mark; else raise JSONTextError."""
    if isinstance(data, str):
        text = data
        if not _is_unicode(text):
            raise JSONTextError("it has a lone surrogate, which UTF-8 cannot carry")
    else:
        raw = bytes(data)
        if raw[:2] in {b"\xff\xfe", b"\xfe\xff"}:
            raise JSONTextError("it is UTF-16", hint="save it as UTF-8")
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            raise JSONTextError(f"it is not UTF-8: {error.reason} at byte {error.start}") from None
    if text.startswith("\ufeff"):
        raise JSONTextError("it starts with a byte order mark", hint="save it as UTF-8 without BOM")
    return text


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def bounded(text: str, depth: int = MAX_DEPTH) -> str:
    """Return ``text`` unless it is nested deeper than ``depth``; else raise JSONTextError.

    Python's own limit depends on how deep the program's stack is at that moment: what was accepted when a container was
    attached could not be read back from its record, which nests it a little deeper.
    """
    if text.count("[") + text.count("{") <= depth:
        return text
    level = 0
    for match in _TOKEN.finditer(text):
        level += (match[0] in _OPENING) - (match[0] in _CLOSING)
        if level > depth:
            raise JSONTextError(f"it is nested too deeply: more than {depth} levels")
    return text


def parse(text: str) -> Any:
    """Return the one JSON document in ``text``, decoded; integers of thousands of digits come as BigNumber.

    Raises:
        JSONTextError: empty, not JSON, more than one document, NaN or Infinity, or nested too deeply.
    """
    start = _skip(text, 0)
    if start == len(text):
        raise JSONTextError("it is empty")
    value, end = _scan(text, start)
    end = _skip(text, end)
    if end != len(text):
        raise JSONTextError("there is more after the end of the document", _place(text, end), _hint(text, end))
    return value


def members(text: str) -> list[Member]:
    """Return the members of the object that ``text`` is, in order, duplicates included.

    Raises:
        JSONTextError: as for ``parse``, or if the document is not an object.
    """
    found: list[Member] = []
    index = _open(text, "{", "an object")
    while text[index : index + 1] != "}":
        if text[index : index + 1] != '"':
            raise _unexpected(text, index, "a member's name in double quotes")
        key, end = _scan(text, index)
        key_text = text[index:end]
        if text[end : end + 1] != ":":
            end = _expect(text, _skip(text, end), ":") - 1
        index = _skip(text, end + 1)
        value, end = _scan(text, index)
        found.append(Member(key, key_text, text[index:end], value))
        index = _next(text, end, "}")
    _close(text, index)
    return found


def elements(text: str) -> list[Element]:
    """Return the elements of the array that ``text`` is; raises as ``members`` does."""
    found: list[Element] = []
    index = _open(text, "[", "an array")
    while text[index : index + 1] != "]":
        value, end = _scan(text, index)
        found.append(Element(text[index:end], value))
        index = _next(text, end, "]")
    _close(text, index)
    return found


def join_object(parts: list[tuple[str, str]]) -> str:
    """Return an object of (key text, value text) pairs."""
    return "{" + ",".join(f"{key}:{value}" for key, value in parts) + "}"


def join_array(parts: list[str]) -> str:
    """Return an array of element texts."""
    return "[" + ",".join(parts) + "]"


def laid_out(text: str, indent: int | None) -> str:
    """Return the JSON document ``text`` with other white space, ``indent`` spaces a level; None: in one line."""
    parts: list[str] = []
    depth = 0
    before = ""
    for part in _TOKEN.findall(text):
        depth -= part in _CLOSING
        if (before in _OPENING) != (part in _CLOSING) or before == ",":
            parts.append(_line_break(depth, indent, after=before))
        parts.append(": " if part == ":" else part)
        depth += part in _OPENING
        before = part
    return "".join(parts)


def _line_break(depth: int, indent: int | None, *, after: str) -> str:
    if indent is not None:
        return "\n" + " " * (indent * depth)
    return " " if after == "," else ""


def merge(text: str, update: Mapping[str, Any]) -> str:
    """Return the object ``text`` with the mapping ``update`` merged in: objects member by member, all else replaced."""
    found = members(text)
    last = {member.key: member for member in found}  # of duplicates, that is the one that counts
    parts: list[tuple[str, str]] = []
    for member in found:
        if member.key not in update:
            parts.append((member.key_text, member.text))
        elif member is last[member.key]:
            new = update[member.key]
            both_objects = isinstance(new, Mapping) and isinstance(member.value, dict)
            parts.append((member.key_text, merge(member.text, new) if both_objects else dumps(new)))
    parts.extend((dumps(key), dumps(value)) for key, value in update.items() if key not in last)
    return join_object(parts)


def dumps(value: Any) -> str:
    """Return ``value`` as compact ASCII JSON, keys in their order.

    Raises:
        ValueError, TypeError, RecursionError: NaN or Infinity, something that JSON has no form for, or a cycle.
    """
    return _encoder.encode(value)


def _encode_other(value: Any) -> Any:
    dump = getattr(value, "to_json", None)
    if dump is not None:
        return dump()
    raise TypeError(f"{type(value).__name__} has no JSON form")


# json.dumps would make an encoder for each call, and there are thirty calls in an ADD
_encoder = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=_encode_other)


def _scan(text: str, index: int, decoder: json.JSONDecoder = _decoder) -> tuple[Any, int]:
    try:
        return decoder.raw_decode(text, index)
    except json.JSONDecodeError as error:
        raise JSONTextError(error.msg, _place(text, error.pos), _hint(text, error.pos)) from None
    except RecursionError:
        raise JSONTextError("it is nested too deeply") from None
    except JSONTextError:
        raise
    except ValueError:
        return _scan(text, index, _big_decoder)


def _skip(text: str, index: int) -> int:
    if text[index : index + 1] > " ":
        return index
    match = _SPACE.match(text, index)
    return match.end() if match else index


def _open(text: str, bracket: str, kind: str) -> int:
    index = _skip(text, 0)
    if text[index : index + 1] != bracket:
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
        raise JSONTextError("there is a comma before the closing bracket", _place(text, index))
    return following


def _close(text: str, index: int) -> None:
    end = _skip(text, index + 1)
    if end != len(text):
        raise JSONTextError("there is more after the end of the document", _place(text, end), _hint(text, end))


def _expect(text: str, index: int, char: str) -> int:
    if text[index : index + 1] != char:
        raise _unexpected(text, index, f"'{char}'")
    return index + 1


def _unexpected(text: str, index: int, wanted: str) -> JSONTextError:
    found = f"'{text[index]}'" if index < len(text) else "the end"
    return JSONTextError(f"expected {wanted}, found {found}", _place(text, index), _hint(text, index))


def _place(text: str, index: int) -> str:
    line = text.count("\n", 0, index) + 1
    return f"line {line}, column {index - text.rfind(chr(10), 0, index)}"


def _hint(text: str, index: int) -> str | None:
    at = _skip(text, index)
    if _COMMENT.match(text, at):
        return "JSON has no comments"
    if at >= len(text):
        return "the document ends too early"
    if text[at] in "}]" and text[:at].rstrip().endswith(","):
        return "there is a comma before the closing bracket"
    return "JSON strings stand in double quotes" if text[at] == "'" else None
