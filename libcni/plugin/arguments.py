"""CNI_ARGS, as pairs and as an object with types (spec 1.1.0, section 2; conventions, CNI_ARGS)."""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from libcni.errors import ErrorCode
from libcni.plugin.failure import VerbError

__all__ = ["load_args", "parse_args"]

_T = TypeVar("_T")
_IGNORE = "IgnoreUnknown"
_BOOLS = {"1": True, "true": True, "0": False, "false": False}


def parse_args(text: str) -> list[tuple[str, str]]:
    """Return the pairs of ``text``, such as ``K8S_POD_NAME=web;IgnoreUnknown=1``, in order.

    Raises:
        VerbError: code 4, a pair has not exactly one ``=``.
    """
    return [_pair(part) for part in text.split(";")] if text else []


def _pair(part: str) -> tuple[str, str]:
    name, *values = part.split("=")
    if len(values) != 1:
        raise _invalid(f'invalid pair "{part}"')
    return name, values[0]


def load_args(text: str, into: type[_T]) -> _T:
    """Return an object of the class ``into`` with the values of ``text`` in its annotated attributes.

    A name that ``text`` does not have keeps the class's default, or becomes None. A value is turned by the
    annotation: str, bool (1, true, 0, false in any case), int, or any class that takes one string. The class is
    made with no arguments.

    Raises:
        VerbError: code 4, a malformed pair or value, or an unknown name without ``IgnoreUnknown=1``.
    """
    pairs = parse_args(text)
    kinds = {name: kind for name, kind in get_type_hints(into).items() if not name.startswith("_")}
    _refuse_unknown(pairs, kinds)
    loaded = into()
    for name in kinds:
        if not hasattr(loaded, name):
            setattr(loaded, name, None)
    for name, value in pairs:
        if name in kinds:
            setattr(loaded, name, _convert(name, value, kinds[name]))
    return loaded


def _refuse_unknown(pairs: list[tuple[str, str]], kinds: dict[str, Any]) -> None:
    unknown = [f'"{name}={value}"' for name, value in pairs if name not in kinds and name != _IGNORE]
    ignored = any(_bool(name, value) for name, value in pairs if name == _IGNORE)
    if unknown and not ignored:
        raise _invalid(f"unknown args [{' '.join(unknown)}]")


def _convert(name: str, value: str, kind: Any) -> object:
    if get_origin(kind) in {Union, UnionType}:
        kind = next(part for part in get_args(kind) if part is not NoneType)
    if kind is bool:
        return _bool(name, value)
    try:
        return kind(value)
    except (TypeError, ValueError) as error:
        raise _unparsable(name, value, str(error)) from error


def _bool(name: str, value: str) -> bool:
    if value.lower() not in _BOOLS:
        raise _unparsable(name, value, "it must be 1, true, 0 or false")
    return _BOOLS[value.lower()]


def _unparsable(name: str, value: str, problem: str) -> VerbError:
    return _invalid(f'error parsing value of pair "{name}={value}": {problem}')


def _invalid(problem: str) -> VerbError:
    return VerbError(f"CNI_ARGS: {problem}", code=ErrorCode.INVALID_ENVIRONMENT_VARIABLES)
