"""Read CNI_ARGS, as pairs and as a typed object (spec 1.1.0, section 2, Parameters; CONVENTIONS.md, CNI_ARGS)."""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from libcni.plugin.failure import INVALID_ENVIRONMENT_VARIABLES, VerbError

_T = TypeVar("_T")
_IGNORE = "IgnoreUnknown"
_BOOLS = {"1": True, "true": True, "0": False, "false": False}


def split_args(text: str) -> list[tuple[str, str]]:
    """Return the pairs of a CNI_ARGS text in order. A pair without exactly one ``=`` raises VerbError with code 4."""
    pairs = []
    for part in text.split(";") if text else ():
        name, *values = part.split("=")
        if len(values) != 1:
            raise _invalid(f'invalid pair "{part}"')
        pairs.append((name, values[0]))
    return pairs


def load_args(text: str, into: type[_T]) -> _T:
    """Return an object of the class ``into`` whose annotated attributes have the values of ``text``.

    An attribute whose name is not in ``text`` keeps the class's default, or becomes None. The annotation converts the
    value: str, bool (1, true, 0 or false in any case), int, or any class that takes one string. The class is called
    without arguments. Errors are those of ``Request.load_args``.
    """
    pairs = split_args(text)
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
    # An optional attribute: text is never None, so the other part of the union converts it.
    if get_origin(kind) in {Union, UnionType}:
        kind = next(part for part in get_args(kind) if part is not NoneType)
    if kind is bool:
        return _bool(name, value)
    try:
        return kind(value)
    except (TypeError, ValueError) as error:
        raise _unparsable(name, value, str(error)) from error


def _bool(name: str, value: str) -> bool:
    # Not bool(value), for which every text but the empty one is true.
    if value.lower() not in _BOOLS:
        raise _unparsable(name, value, "it must be 1, true, 0 or false")
    return _BOOLS[value.lower()]


def _unparsable(name: str, value: str, problem: str) -> VerbError:
    return _invalid(f'error parsing value of pair "{name}={value}": {problem}')


def _invalid(problem: str) -> VerbError:
    return VerbError(f"CNI_ARGS: {problem}", code=INVALID_ENVIRONMENT_VARIABLES)
