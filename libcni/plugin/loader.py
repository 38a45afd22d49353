"""Load decoded JSON into annotated classes, and name the key that is wrong."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from libcni.plugin.failure import INVALID_NETWORK_CONFIG, VerbError

_UNIONS = (Union, types.UnionType)
_JSON_TYPES: Mapping[Any, str] = {
    str: "a string", bool: "true or false", int: "an integer", float: "a number", dict: "an object", list: "a list"
}  # fmt: skip


def load(value: Any, kind: Any, path: str = "") -> Any:  # noqa: PLR0911 - one return for each kind of annotation
    """Convert ``value``, which ``json`` has decoded, to the class or annotation ``kind``.

    Args:
        value: a configuration or a part of it.
        kind: a dataclass or a NamedTuple, whose annotations are str, int, float, bool, Any, Literal, lists, tuples,
            dicts, unions, other such classes, or any class that takes one string.
        path: the key of ``value`` in the configuration, for errors.

    Raises:
        VerbError: with code 7, if a key is missing or a value has another type.
    """
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    first = arguments[0] if arguments else Any
    if kind is Any:
        return value
    if origin in _UNIONS:
        return _load_union(value, arguments, path)
    if origin is Literal:
        if value not in arguments:
            raise _invalid(path, f"must be one of {', '.join(map(repr, arguments))}, not {value!r}")
        return value
    if origin in {list, tuple}:
        return origin(load(part, first, f"{path}[{index}]") for index, part in enumerate(_checked(value, list, path)))
    if origin in {dict, Mapping}:
        part_kind = arguments[1] if arguments else Any
        members = _checked(value, dict, path).items()
        return {key: load(part, part_kind, _join(path, key)) for key, part in members}
    if hasattr(kind, "__dataclass_fields__") or hasattr(kind, "_fields"):
        return _load_object(_checked(value, dict, path), kind, path)
    return _load_scalar(value, kind, path)


def find_key(document: Mapping[str, Any], name: str) -> str:
    """Return the key for an attribute: ``data_dir`` or ``dataDir`` for ``data_dir``. Case does not matter, as in Go."""
    first, *others = name.split("_")
    camel = first + "".join(part.capitalize() for part in others)
    exact = [key for key in (name, camel) if key in document]
    return next((key for key in (*exact, *document) if key.lower() in {name.lower(), camel.lower()}), camel)


def _load_object(document: dict[str, Any], kind: Any, path: str) -> Any:
    hints = get_type_hints(kind)
    loaded: dict[str, Any] = {}
    for name, is_needed in _fields(kind).items():
        key = find_key(document, name)
        # null means the default, like in Go: runtimes in Go send null for an empty list.
        if key in document and (is_needed or document[key] is not None):
            loaded[name] = load(document[key], hints[name], _join(path, key))
        elif is_needed:
            raise VerbError(f'missing key "{_join(path, key)}"', code=INVALID_NETWORK_CONFIG)
    try:
        return kind(**loaded)
    except (TypeError, ValueError) as error:  # from the author's __post_init__
        raise _invalid(path, str(error)) from error


def _fields(kind: Any) -> dict[str, bool]:
    """Return the names of a class's fields, and whether each is needed."""
    if hasattr(kind, "_fields"):
        return {name: name not in kind._field_defaults for name in kind._fields}
    from dataclasses import MISSING, fields

    return {
        field.name: field.default is MISSING and field.default_factory is MISSING
        for field in fields(kind)
        if field.init
    }


def _load_union(value: Any, kinds: tuple[Any, ...], path: str) -> Any:
    if value is None and types.NoneType in kinds:
        return None
    problem: VerbError | None = None
    for kind in kinds:
        if kind is not types.NoneType:
            try:
                return load(value, kind, path)
            except VerbError as error:
                problem = error
    assert problem is not None
    raise problem


def _load_scalar(value: Any, kind: Any, path: str) -> Any:
    # JSON has one kind of number: 1 is also a valid float.
    if kind is float and type(value) is int:
        return float(value)
    if kind in _JSON_TYPES:
        return _checked(value, kind, path)
    try:
        return kind(_checked(value, str, path))
    except (TypeError, ValueError) as error:
        raise _invalid(path, str(error)) from error


def _checked(value: Any, kind: Any, path: str) -> Any:
    # In Python True is an int, in JSON it is not.
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        raise _invalid(path, f"must be {_JSON_TYPES[kind]}, not {value!r}")
    return value


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _invalid(path: str, problem: str) -> VerbError:
    return VerbError(f"{path or 'the configuration'}: {problem}", code=INVALID_NETWORK_CONFIG)
