"""Load decoded JSON into annotated classes, and name the key that is wrong."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from libcni.plugin.failure import INVALID_ENVIRONMENT_VARIABLES, INVALID_NETWORK_CONFIG, VerbError

_UNIONS = (Union, types.UnionType)
_JSON_TYPES: Mapping[Any, str] = {
    str: "a string", bool: "true or false", int: "an integer", float: "a number", dict: "an object", list: "a list"
}  # fmt: skip
_IGNORE = "IgnoreUnknown"
_BOOLEANS = {"1": True, "true": True, "0": False, "false": False}


def check_kind(kind: Any, path: str = "", seen: tuple[Any, ...] = ()) -> None:
    """Raise TypeError if ``load`` cannot fill ``kind``, whatever the configuration has: the author must know.

    Args:
        kind: a class or an annotation.
        path: the attribute that has it, for the error.
        seen: the classes around it; one that contains itself is checked once.
    """
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if kind in (Any, types.NoneType, str, bool, int, float) or origin is Literal or kind in seen:
        return
    if _is_object(kind):
        hints = get_type_hints(kind)
        for name in _fields(kind):
            check_kind(hints[name], f"{path or kind.__name__}.{name}", (*seen, kind))
    elif origin in _UNIONS or (origin in {list, tuple, dict, Mapping} and _is_uniform(origin, arguments)):
        for part in arguments:
            if part is not ...:
                check_kind(part, path, seen)
    # Any other class must take one string, such as IPv4Network or an Enum. No built-in one does.
    elif (
        arguments
        or not callable(kind)
        or kind.__module__ in {"builtins", "collections.abc", "typing"}
        or _is_typed_dict(kind)
    ):
        shown = kind.__name__ if isinstance(kind, type) and not arguments else str(kind)
        problem = (
            f"{path or shown}: {shown} cannot be loaded from JSON; use str, int, float, bool, Any, Literal, list, "
        )
        raise TypeError(
            problem + "tuple[X, ...], dict[str, X], unions, dataclasses, NamedTuples or classes that take one string"
        )


def _is_object(kind: Any) -> bool:
    return hasattr(kind, "__dataclass_fields__") or hasattr(kind, "_fields")


def _is_typed_dict(kind: Any) -> bool:
    return hasattr(kind, "__total__") and hasattr(kind, "__required_keys__")


def _is_uniform(origin: Any, arguments: tuple[Any, ...]) -> bool:
    """Return whether the annotation of a container is one that JSON has: one kind of parts, strings as keys."""
    if origin is tuple:
        return not arguments or arguments[1:] == (...,)
    return origin is list or not arguments or arguments[0] in {str, Any}


def load_args(pairs: Mapping[str, str], kind: Any) -> Any:
    """Convert CNI_ARGS to the class ``kind``; see ``Request.load_args``."""
    check_kind(kind)
    hints = get_type_hints(kind)
    kinds = {find_key(pairs, name): hints[name] for name in _fields(kind)}
    unknown = [f"{name}={value}" for name, value in pairs.items() if name not in {*kinds, _IGNORE}]
    try:
        if unknown and not load(_from_text(pairs.get(_IGNORE, "0"), bool), bool, f"CNI_ARGS.{_IGNORE}"):
            raise _invalid("CNI_ARGS", f"unknown arguments {', '.join(unknown)}; {_IGNORE}=1 allows them")
        known = {name: _from_text(value, kinds[name]) for name, value in pairs.items() if name in kinds}
        return load(known, kind, "CNI_ARGS")
    except VerbError as error:
        raise VerbError(error.msg, code=INVALID_ENVIRONMENT_VARIABLES) from error


def _from_text(text: str, kind: Any) -> object:
    """Return the value of ``text`` for ``load``; the text itself if it is none of ``kind``."""
    if get_origin(kind) in _UNIONS:
        values = [value for part in get_args(kind) if (value := _from_text(text, part)) is not text]
        return values[0] if values else text
    try:
        if kind is bool:
            return _BOOLEANS[text.lower()]
        return kind(text) if kind in {int, float} else text
    except (KeyError, ValueError):
        return text


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
    if _is_object(kind):
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
    except (ValueError, ArithmeticError) as error:  # ArithmeticError: decimal's
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
