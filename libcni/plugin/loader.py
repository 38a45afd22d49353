"""Load decoded JSON and CNI_ARGS into annotated classes, and name the key that is wrong."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from libcni.plugin.failure import INVALID_ENVIRONMENT_VARIABLES, INVALID_NETWORK_CONFIG, VerbError

_T = TypeVar("_T")
_UNIONS = (Union, types.UnionType)
_JSON_TYPES = {str: "a string", bool: "true or false", int: "an integer", float: "a number"}
_JSON_TYPES |= {dict: "an object", list: "a list", types.NoneType: "null"}
_BOOLS = {"1": True, "true": True, "0": False, "false": False}


def load(value: Any, kind: Any, path: str = "") -> Any:  # noqa: PLR0911 - one return for each kind of annotation
    """Return ``value``, as ``json`` decodes it, as an object of the class or annotation ``kind``.

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
    """Return the key for the attribute ``name``: ``data_dir``, ``dataDir``, or as Go reads it, in whatever case."""
    first, *others = name.split("_")
    camel = first + "".join(part.capitalize() for part in others)
    exact = [key for key in (name, camel) if key in document]
    return next((key for key in (*exact, *document) if key.lower() in {name.lower(), camel.lower()}), camel)


def _load_object(document: dict[str, Any], kind: Any, path: str) -> Any:
    hints = get_type_hints(kind)
    loaded: dict[str, Any] = {}
    used = set()
    for name, is_needed in _fields(kind).items():
        key = find_key(document, name)
        # A runtime in Go sends null for an empty list.
        if key in document and not (document[key] is None and hasattr(kind, "_fields")):
            loaded[name] = load(document[key], hints[name], _join(path, key))
            used.add(key)
        elif is_needed:
            raise VerbError(f'missing key "{_join(path, key)}"', code=INVALID_NETWORK_CONFIG)
    if hasattr(kind, "_fields") and "extra" in hints:
        loaded["extra"] = {key: value for key, value in document.items() if key not in used}
    try:
        return kind(**loaded)
    except (TypeError, ValueError) as error:  # from the author's __post_init__
        raise _invalid(path, str(error)) from error


def _fields(kind: Any) -> dict[str, bool]:
    """Return the names of a class's fields, and whether each is needed."""
    if hasattr(kind, "_fields"):
        return {name: name not in kind._field_defaults for name in kind._fields if name != "extra"}
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
    # JSON has one kind of number: 1 is a float, if a float is asked for.
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind is None or kind in _JSON_TYPES:
        return _checked(value, kind or types.NoneType, path)
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


def _invalid(path: str, problem: str, details: str = "") -> VerbError:
    return VerbError(f"{path or 'the configuration'}: {problem}", code=INVALID_NETWORK_CONFIG, details=details)


def split_args(text: str) -> list[tuple[str, str]]:
    """Return the pairs of a CNI_ARGS text in order. A pair without exactly one ``=`` raises VerbError with code 4."""
    pairs = []
    for part in text.split(";") if text else ():
        name, *values = part.split("=")
        if len(values) != 1:
            raise _invalid_args(f'invalid pair "{part}"')
        pairs.append((name, values[0]))
    return pairs


def load_args(text: str, into: type[_T]) -> _T:
    """Return an object of the class ``into`` whose annotated attributes have the values of a CNI_ARGS text.

    The class is called without arguments. An attribute whose name is not in ``text`` keeps the class's default, or
    becomes None. A bool is 1, true, 0 or false in any case. Errors are those of ``Request.load_args``.
    """
    pairs = split_args(text)
    kinds = {name: kind for name, kind in get_type_hints(into).items() if not name.startswith("_")}
    unknown = [f'"{name}={value}"' for name, value in pairs if name not in kinds and name != "IgnoreUnknown"]
    ignored = [_load_text(name, value, bool) for name, value in pairs if name == "IgnoreUnknown"]
    if unknown and True not in ignored:
        raise _invalid_args(f"unknown args [{' '.join(unknown)}]")
    loaded = into()
    for name in kinds:
        setattr(loaded, name, getattr(loaded, name, None))
    for name, value in pairs:
        if name in kinds:
            setattr(loaded, name, _load_text(name, value, kinds[name]))
    return loaded


def _load_text(name: str, text: str, kind: Any) -> Any:
    kinds = get_args(kind) if get_origin(kind) in _UNIONS else (kind,)
    try:
        if bool in kinds:
            # Not bool(text), for which every text but the empty one is true.
            if text.lower() not in _BOOLS:
                raise ValueError("it must be 1, true, 0 or false")
            return _BOOLS[text.lower()]
        numbers = [number for number in (int, float) if number in kinds]
        return numbers[0](text) if numbers else load(text, kind, name)
    except (ValueError, VerbError) as error:
        raise _invalid_args(f'error parsing value of pair "{name}={text}": {error}') from error


def _invalid_args(problem: str) -> VerbError:
    return VerbError(f"CNI_ARGS: {problem}", code=INVALID_ENVIRONMENT_VARIABLES)
