"""Load a configuration into a dataclass, a TypedDict or a pydantic model, and name the key that is wrong."""

from __future__ import annotations

import sys
import types
from typing import (
    Any,
    Literal,
    NotRequired,
    Required,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from libcni.plugin.failure import INVALID_NETWORK_CONFIG, VerbError

_T = TypeVar("_T")
_JSON_TYPES = {str: "a string", bool: "true or false", int: "an integer", float: "a number", dict: "an object"}


def load_config(document: object, into: type[_T], path: str = "") -> _T:
    """Return ``document`` as an object of the class ``into``. Errors are those of ``Request.load_config``.

    Keys that the class does not have are ignored. An attribute ``data_dir`` of a dataclass takes the key ``dataDir``,
    too.

    Args:
        document: the configuration or a part of it, as ``json`` decodes it.
        into: a dataclass, a TypedDict or a pydantic model. The annotations may be str, int, float, bool, Any, Literal,
            lists, tuples, dicts, unions, other such classes, and any class that takes one string.
        path: the key of ``document`` in the configuration, for errors.
    """
    if hasattr(into, "model_validate"):
        return _load_model(document, into, path)
    loaded: _T = _convert(document, into, path)
    return loaded


def _load_model(document: object, into: type[_T], path: str) -> _T:
    # A plugin that has a pydantic model has imported pydantic.
    pydantic = sys.modules["pydantic"]
    try:
        model: _T = into.model_validate(document)  # type: ignore[attr-defined]
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        key = path
        for part in first["loc"]:
            key = f"{key}[{part}]" if isinstance(part, int) else _join(key, part)
        more = error.error_count() - 1
        raise _invalid(key, first["msg"], f"{more} more problems" if more else "") from error
    return model


def _convert(value: Any, kind: Any, path: str) -> Any:  # noqa: C901, PLR0911 - one return for each kind of annotation
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any or kind is object:
        return value
    if origin in {Required, NotRequired}:
        return _convert(value, arguments[0], path)
    if origin in {Union, types.UnionType}:
        return _convert_union(value, arguments, path)
    if origin is Literal:
        if value not in arguments:
            raise _invalid(path, f"must be one of {', '.join(map(repr, arguments))}, not {value!r}")
        return value
    if kind is list or origin is list:
        return _convert_list(value, arguments[0] if arguments else Any, path)
    if kind is tuple or origin is tuple:
        return tuple(_convert_list(value, arguments[0] if arguments else Any, path))
    if kind is dict or origin is dict:
        members = _checked(value, dict, path)
        part_kind = arguments[1] if arguments else Any
        return {key: _convert(part, part_kind, _join(path, key)) for key, part in members.items()}
    if is_typeddict(kind):
        return _convert_typed_dict(_checked(value, dict, path), kind, path)
    if hasattr(kind, "__dataclass_fields__"):
        return _convert_dataclass(_checked(value, dict, path), kind, path)
    return _convert_scalar(value, kind, path)


def _convert_scalar(value: Any, kind: Any, path: str) -> Any:
    if kind is types.NoneType or kind is None:
        if value is not None:
            raise _invalid(path, f"must be null, not {value!r}")
        return None
    # JSON has one kind of number: 1 is a float, if a float is asked for.
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind in _JSON_TYPES:
        return _checked(value, kind, path)
    try:
        return kind(_checked(value, str, path))
    except (TypeError, ValueError) as error:
        raise _invalid(path, str(error)) from error


def _convert_union(value: Any, arguments: tuple[Any, ...], path: str) -> Any:
    problem: VerbError | None = None
    for kind in arguments:
        if value is None and kind is not types.NoneType:
            continue
        try:
            return _convert(value, kind, path)
        except VerbError as error:
            # The last kind but None explains best: ``str | None`` wants a string.
            problem = error if kind is not types.NoneType or problem is None else problem
    raise problem or _invalid(path, "must not be null")


def _convert_list(value: Any, kind: Any, path: str) -> list[Any]:
    return [_convert(part, kind, f"{path}[{index}]") for index, part in enumerate(_checked(value, list, path))]


def _convert_typed_dict(document: dict[str, Any], kind: Any, path: str) -> Any:
    loaded = {}
    for key, hint in get_type_hints(kind, include_extras=True).items():
        if key in document:
            loaded[key] = _convert(document[key], hint, _join(path, key))
        # Python 3.11 does not see NotRequired in __required_keys__ if annotations are strings.
        elif key in kind.__required_keys__ and get_origin(hint) is not NotRequired:
            raise _missing(_join(path, key))
    return loaded


def _convert_dataclass(document: dict[str, Any], kind: Any, path: str) -> Any:
    from dataclasses import MISSING

    hints = get_type_hints(kind)
    loaded = {}
    for name, field in kind.__dataclass_fields__.items():
        first, *others = name.split("_")
        key = name if name in document else first + "".join(part.capitalize() for part in others)
        if not field.init:
            continue
        if key in document:
            loaded[name] = _convert(document[key], hints[name], _join(path, key))
        elif field.default is MISSING and field.default_factory is MISSING:
            raise _missing(_join(path, key))
    try:
        return kind(**loaded)
    except (TypeError, ValueError) as error:  # from the author's __post_init__
        raise _invalid(path, str(error)) from error


def _checked(value: Any, kind: Any, path: str) -> Any:
    # In Python True is an int, in JSON it is not.
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        name = "a list" if kind is list else _JSON_TYPES[kind]
        raise _invalid(path, f"must be {name}, not {value!r}")
    return value


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _missing(path: str) -> VerbError:
    return VerbError(f'missing key "{path}"', code=INVALID_NETWORK_CONFIG)


def _invalid(path: str, problem: str, details: str = "") -> VerbError:
    return VerbError(f"{path or 'the configuration'}: {problem}", code=INVALID_NETWORK_CONFIG, details=details)
