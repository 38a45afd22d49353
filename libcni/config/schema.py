"""The keys of a configuration document that the runtime reads, with checks of their values.

The checks are plain functions: importing pydantic takes longer than most plugins run, and every ADD reads a document.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from libcni.errors import short_repr

Check = Callable[[Any], Any]
"""A function that returns a decoded value in the library's form, or raises WrongValueError."""

_T = TypeVar("_T")


class WrongValueError(ValueError):
    """A decoded value is not valid for its key. ``path``: the keys and indexes that lead to the value."""

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
an_object: Callable[[Any], dict[str, Any]] = _of_type(dict, "an object")
boolean: Callable[[Any], bool] = _of_type(bool, "true or false")
_list = _of_type(list, "a list")


def _flag(value: Any) -> bool:
    """Check for a boolean. A string is accepted as well, because the 0.4.0 specification shows a string."""
    if isinstance(value, str) and value.lower() in {"true", "false"}:
        return value.lower() == "true"
    return boolean(value)


def nullable(check: Check) -> Check:
    """Return a check that also allows null."""
    return lambda value: None if value is None else check(value)


def list_of(check: Check) -> Check:
    """Return a check for a list whose elements pass ``check``."""
    return lambda value: [_at(check, index, item) for index, item in enumerate(_list(value))]


def object_of(check: Check) -> Check:
    """Return a check for an object whose values pass ``check``."""
    return lambda value: {key: _at(check, key, item) for key, item in an_object(value).items()}


def _object_with(checks: Mapping[str, Check]) -> Check:
    return lambda value: check_keys(an_object(value), checks)


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
PLUGIN_KEYS: dict[str, Check] = {
    "type": string,
    "name": nullable(string),
    "cniVersion": nullable(string),
    "capabilities": nullable(object_of(boolean)),
    "ipam": nullable(_object_with({"type": nullable(string)})),
    "dns": nullable(_object_with(_DNS_KEYS)),
    "args": nullable(an_object),
}
LIST_KEYS: dict[str, Check] = {
    "name": string,
    "cniVersion": string,
    "cniVersions": list_of(string),
    "disableCheck": _flag,
    "disableGC": _flag,
    "loadOnlyInlinedPlugins": _flag,
    "plugins": _list,
}


def format_location(where: str, path: tuple[int | str, ...]) -> str:
    """Return a location in a document as text: ``plugins[1].capabilities.mac``."""
    location = where
    for part in path:
        location += f"[{part}]" if isinstance(part, int) else f".{part}" if location else str(part)
    return location
