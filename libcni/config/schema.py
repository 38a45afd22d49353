"""The keys of a configuration document that the runtime reads, and errors with the location of a problem.

The checks are plain functions: importing pydantic takes longer than most plugins run, and every ADD reads a document.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from libcni.config import jsontext
from libcni.config.jsontext import JSONTextError, Member
from libcni.errors import ConfigError, short_repr

Check = Callable[[Any], Any]
"""Returns the decoded value in the form that the library uses, or raises WrongValueError."""

_T = TypeVar("_T")

MAX_CONFIG_ELEMENTS = 100_000
"""How many elements a configuration may have in its lists and objects together."""


class WrongValueError(ValueError):
    """A decoded value is not valid for its key. ``path`` leads to it from the checked object."""

    def __init__(self, problem: str, path: tuple[int | str, ...] = ()) -> None:
        super().__init__(f"{format_location('', path)}: {problem}" if path else problem)
        self.problem = problem
        self.path = path


def _of_type(kind: type[_T], words: str) -> Callable[[Any], _T]:
    def check(value: Any) -> _T:
        # In Python True is an integer, in JSON it is not.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise WrongValueError(f"it must be {words}, not {'null' if value is None else short_repr(value)}")
        return value

    return check


string: Callable[[Any], str] = _of_type(str, "a string")
integer: Callable[[Any], int] = _of_type(int, "an integer")
_boolean, _object, _list = _of_type(bool, "true or false"), _of_type(dict, "an object"), _of_type(list, "a list")


def _flag(value: Any) -> bool:
    """Check for a boolean. A string is accepted as well, because the 0.4.0 specification shows it as one."""
    if isinstance(value, str) and value.lower() in {"true", "false"}:
        return value.lower() == "true"
    return _boolean(value)


def nullable(check: Check) -> Check:
    """Return a check that also allows null."""
    return lambda value: None if value is None else check(value)


def list_of(check: Check) -> Check:
    """Return a check for a list of such values."""
    return lambda value: [_at(check, index, item) for index, item in enumerate(_list(value))]


def _object_of(check: Check) -> Check:
    return lambda value: {key: _at(check, key, item) for key, item in _object(value).items()}


def _object_with(checks: Mapping[str, Check]) -> Check:
    return lambda value: check_keys(_object(value), checks)


def _at(check: Check, key: int | str, value: Any) -> Any:
    try:
        return check(value)
    except WrongValueError as error:
        raise WrongValueError(error.problem, (key, *error.path)) from None


def check_keys(document: Mapping[str, Any], checks: Mapping[str, Check], required: str | None = None) -> dict[str, Any]:
    """Return the checked values of the keys that are in ``checks``; raises WrongValueError for the first problem."""
    if required is not None and required not in document:
        raise WrongValueError(f'missing "{required}"', (required,))
    return {key: _at(check, key, document[key]) for key, check in checks.items() if key in document}


_STRINGS = nullable(list_of(string))
_DNS_KEYS = {"nameservers": _STRINGS, "domain": nullable(string), "search": _STRINGS, "options": _STRINGS}
_PLUGIN_KEYS: dict[str, Check] = {
    "type": string,
    "name": nullable(string),
    "cniVersion": nullable(string),
    "capabilities": nullable(_object_of(_boolean)),
    "ipam": nullable(_object_with({"type": nullable(string)})),
    "dns": nullable(_object_with(_DNS_KEYS)),
    "args": nullable(_object),
}
_LIST_KEYS: dict[str, Check] = {
    "name": string,
    "cniVersion": string,
    "cniVersions": list_of(string),
    "disableCheck": _flag,
    "disableGC": _flag,
    "loadOnlyInlinedPlugins": _flag,
    "plugins": _list,
}


def read_list_keys(by_key: Mapping[str, Member], file: str | None) -> dict[str, Any]:
    """Return the keys of a configuration list that the runtime reads (spec 1.1.0, section 1); raises ConfigError."""
    return _read(by_key, _LIST_KEYS, "name", file, "")


def read_plugin_keys(
    by_key: Mapping[str, Member], file: str | None, where: str, *, lenient: bool = False
) -> dict[str, Any]:
    """Return the keys of a plugin object that the runtime reads (spec 1.1.0, section 1); raises ConfigError.

    Args:
        by_key: the object's members.
        file: the document's path, for errors.
        where: the location of the object in the document, for errors.
        lenient: read an object that Go libcni accepted. Go finds keys in any case and checks only the values that it
            uses. So an unusable value is left out, except for ``type``.
    """
    if not lenient:
        return _read(by_key, _PLUGIN_KEYS, "type", file, where)
    folded = {**{key.lower(): member for key, member in by_key.items()}, **by_key}
    found = {key: folded.get(key) or folded.get(key.lower()) for key in _PLUGIN_KEYS}
    usable = {key: member for key, member in found.items() if member is not None and _is_usable(key, member)}
    return _read(usable, _PLUGIN_KEYS, "type", file, where)


def _is_usable(key: str, member: Member) -> bool:
    try:
        _PLUGIN_KEYS[key](member.value)
    except WrongValueError:
        return key == "type"
    return True


def _read(
    by_key: Mapping[str, Member], checks: Mapping[str, Check], required: str, file: str | None, where: str
) -> dict[str, Any]:
    try:
        return check_keys({key: member.value for key, member in by_key.items()}, checks, required)
    except WrongValueError as error:
        hint = None
        if required not in by_key:
            # Go accepts "Name" for "name", so such a file may have worked with another runtime. The hint tells the
            # reason.
            near = next((key for key in by_key if key.lower() == required), None)
            hint = f'there is "{near}", but keys are case-sensitive' if near else None
        raise ConfigError(
            error.problem, file=file, location=format_location(where, error.path) or None, hint=hint
        ) from None


def document_text(data: bytes | str, file: str | None, *, lenient: bool = False) -> str:
    """Return a document's bytes as text. Raises ConfigError if it is not text, or too large to be decoded safely.

    ``lenient``: accept any number of elements and levels, and replace bytes that are not UTF-8, as Go libcni does.
    """
    try:
        if lenient:
            return jsontext.decode_utf8(data if isinstance(data, str) else data.decode(errors="replace"))
        return jsontext.check_nesting(jsontext.check_elements(jsontext.decode_utf8(data), MAX_CONFIG_ELEMENTS))
    except JSONTextError as error:
        raise ConfigError(error.problem, file=file, location=error.location, hint=error.hint) from error


def split(text: str, file: str | None, where: str, *, objects: str | None = None) -> list[Member]:
    """Return the members of the object ``text`` at ``where`` in ``file``; as ``jsontext.members``, with ConfigError."""
    try:
        return jsontext.members(text, objects=objects)
    except JSONTextError as error:
        location = ": ".join(part for part in (where, error.location) if part)
        raise ConfigError(error.problem, file=file, location=location or None, hint=error.hint) from error


def describe(found: Any, where: str = "") -> tuple[str, str]:
    """Return the location and the problem, in words, of one of pydantic's errors in the object at ``where``."""
    location = format_location(where, found["loc"])
    if found["type"] == "missing":
        return location, f'missing "{found["loc"][-1]}"'
    if found["type"] == "sequence_str":
        return location, f"it must be a list, not {short_repr(found['input'])}"
    message = str(found["msg"]).removeprefix("Value error, ")
    if found["type"] == "value_error":
        return location, message
    return location, f"{message[0].lower()}{message[1:]}, not {short_repr(found['input'])}"


def format_location(where: str, path: tuple[int | str, ...]) -> str:
    """Return a location in a document in words: ``plugins[1].capabilities.mac``."""
    location = where
    for part in path:
        location += f"[{part}]" if isinstance(part, int) else f".{part}" if location else str(part)
    return location
