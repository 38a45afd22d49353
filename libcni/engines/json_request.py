"""Read an engine's JSON request, and the arguments for plugins in it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from libcni.config.schema import WrongValueError, format_location
from libcni.errors import ConfigError, short_repr, shorten

_T = TypeVar("_T")

MAX_NETWORKS = 64
"""The largest number of networks of one container. Each may take an address: thousands would empty a pool."""
MAX_ENTRIES = 4096
"""The largest number of ports, addresses or other entries that one request names."""
_MAX_KEYS = 64

_JSON_TYPES = {str: "a string", int: "an integer", bool: "true or false", list: "an array", dict: "an object"}


def read_json(text: str | bytes, kind: type[_T], name: str = "object", *, file: str | None = None) -> _T:
    """Return the JSON value in a text, which must be of the type ``kind``.

    Raises ConfigError if the text is not JSON, or the value has another type than ``kind``.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"it is not JSON: {shorten(str(error), 200)}", file=file) from error
    if not isinstance(value, kind):
        raise ConfigError(f"{short_repr(value)} is not a JSON {name}", file=file)
    return value


class Field(NamedTuple):
    """A member of a request.

    Attributes:
        kind: its JSON type.
        default: its value if it is missing or null; None: it is required.
        least, most: the bounds of a number; ``most`` also bounds the length of a string, an array or an object.
        items: the type of an array's or object's values; None: any.
    """

    kind: type[Any]
    default: Any = None
    least: int = 0
    most: int = MAX_ENTRIES
    items: type[Any] | None = None


def read_object(document: Mapping[str, Any], fields: Mapping[str, Field], file: str) -> list[Any]:
    """Return the members of a request in the order of ``fields``. Other members are ignored.

    Raises:
        ConfigError: a member is missing, has another type, or is out of its bounds.
    """
    return [_read_member(document.get(key), key, field, file) for key, field in fields.items()]


def _read_member(value: Any, key: str, field: Field, file: str) -> Any:
    if value is None and field.default is not None:
        return field.default
    if value is None:
        raise ConfigError(f"{key}: it is missing", file=file)
    _check_kind(value, key, field.kind, file)
    if isinstance(value, bool):
        return value
    size = value if isinstance(value, int) else len(value)
    if not field.least <= size <= field.most:
        what = "the number" if isinstance(value, int) else "its length"
        raise ConfigError(
            f"{key}: {what} {shorten(str(size), 20)} is not between {field.least} and {field.most:,}", file=file
        )
    if field.items is not None:
        for name, item in value.items() if isinstance(value, dict) else enumerate(value):
            _check_kind(item, f"{key}[{short_repr(name)}]", field.items, file)
    return value


def _check_kind(value: Any, key: str, kind: type[Any], file: str) -> None:
    # bool is a subclass of int, and no process has the number true
    if not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool):
        raise ConfigError(f"{key}: {short_repr(value)} is not {_JSON_TYPES[kind]}", file=file)


def check_number(number: int, what: str, most: int = MAX_ENTRIES) -> None:
    """Raise ConfigError if one container asks for more than ``most`` things; ``what``: their name, in the plural."""
    if number > most:
        raise ConfigError(f"{number:,} {what}: one container may ask for at most {most:,}")


def check_size(requests: Sequence[Any], capabilities: Iterable[Mapping[str, Any]]) -> None:
    """Raise ConfigError if a container asks for too many networks, or for too many entries of a capability."""
    check_number(len(requests), "networks", MAX_NETWORKS)
    for arguments in (*capabilities, *(getattr(request, "capability_args", None) or {} for request in requests)):
        check_number(len(arguments), "capabilities", _MAX_KEYS)
        for name, value in arguments.items():
            if isinstance(value, list | dict):
                check_number(len(value), name)


def known_capabilities(capabilities: Any) -> dict[str, Any]:
    """Return capability arguments, checked against the conventions; those that the conventions lack stay unchanged."""
    from libcni.config.conventions import CAPABILITY_ARGS  # few containers need it

    try:
        known = CAPABILITY_ARGS(capabilities)
    except WrongValueError as error:
        raise ConfigError(error.problem, location=format_location("", error.path) or "capabilities") from error
    named = {key.lower() for key in known}
    return known | {key: value for key, value in capabilities.items() if key.lower() not in named}
