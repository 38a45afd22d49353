"""Load decoded JSON into annotated classes, and name the key that is wrong.

A plugin that loads its configuration into a plain class needs neither ``dataclasses`` nor ``typing``, whose imports
take as long as the rest of its start.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from libcni.plugin.failure import INVALID_ENVIRONMENT_VARIABLES, INVALID_NETWORK_CONFIG, VerbError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NONE = type(None)
_UNION = type(int | str)
_JSON_TYPES: Mapping[Any, str] = {
    str: "a string", bool: "true or false", int: "an integer", float: "a number", dict: "an object", list: "a list"
}  # fmt: skip
_IGNORE = "IgnoreUnknown"
_BOOLEANS = {"1": True, "true": True, "0": False, "false": False}


def _is_typing(kind: Any, *names: str) -> bool:
    """Return whether ``kind`` is one of these names of ``typing``; nothing is, unless the author has imported it."""
    typing = sys.modules.get("typing")
    return typing is not None and any(kind is getattr(typing, name) for name in names)


def _origin(kind: Any) -> Any:
    return kind if isinstance(kind, _UNION) else getattr(kind, "__origin__", kind)


def _is_union(origin: Any) -> bool:
    return isinstance(origin, _UNION) or origin is _UNION or _is_typing(origin, "Union")


def _arguments(kind: Any) -> tuple[Any, ...]:
    return getattr(kind, "__args__", ()) if _origin(kind) is not kind or isinstance(kind, _UNION) else ()


def check_kind(kind: Any, path: str = "", seen: tuple[Any, ...] = ()) -> None:
    """Raise TypeError if ``load`` cannot fill ``kind`` from any configuration: a mistake of the plugin's author.

    Args:
        kind: a class or an annotation.
        path: the attribute that has it, for the error.
        seen: the classes around it; one that contains itself is checked once.
    """
    origin, arguments = _origin(kind), _arguments(kind)
    if kind in (_NONE, object, str, bool, int, float) or kind in seen or _is_typing(origin, "Any", "Literal"):
        return
    if _is_object(kind):
        for name, hint in _hints(kind).items():
            if name in _fields(kind):
                check_kind(hint, f"{path or kind.__name__}.{name}", (*seen, kind))
    elif _is_union(origin) or (origin in {list, tuple, dict, Mapping} and _is_uniform(origin, arguments)):
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
            f"{path or shown}: {shown} cannot be loaded from JSON; use str, int, float, bool, object, Literal, list, "
        )
        raise TypeError(
            problem + "tuple[X, ...], dict[str, X], unions, classes with annotations, or classes that take one string"
        )


def _is_object(kind: Any) -> bool:
    return hasattr(kind, "__dataclass_fields__") or hasattr(kind, "_fields") or _is_plain(kind)


def _is_plain(kind: Any) -> bool:
    """Return whether ``kind`` is a class with annotations and without methods of its own that make its objects."""
    if not isinstance(kind, type) or hasattr(kind, "__slots__") or hasattr(kind, "__dataclass_fields__"):
        return False
    makers = getattr(kind, "__init__", None), getattr(kind, "__new__", None)
    return makers == (object.__init__, object.__new__) and bool(_hints(kind))


def _hints(kind: Any) -> dict[str, Any]:
    """Return the annotation of each attribute."""
    if "typing" in sys.modules:
        return sys.modules["typing"].get_type_hints(kind)  # type: ignore[no-any-return]
    hints: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        names = vars(sys.modules[base.__module__])
        for name, hint in getattr(base, "__annotations__", {}).items():
            hint = eval(hint, names) if isinstance(hint, str) else hint  # noqa: S307, PLW2901 - the author's own text
            hints[name] = _NONE if hint is None else hint
    return hints


def _is_typed_dict(kind: Any) -> bool:
    return hasattr(kind, "__total__") and hasattr(kind, "__required_keys__")


def _is_uniform(origin: Any, arguments: tuple[Any, ...]) -> bool:
    """Return whether the annotation of a container is one that JSON has: one kind of parts, strings as keys."""
    if origin is tuple:
        return not arguments or arguments[1:] == (...,)
    return origin is list or not arguments or arguments[0] is str or _is_typing(arguments[0], "Any")


def load_args(pairs: Mapping[str, str], kind: Any) -> Any:
    """Convert CNI_ARGS to the class ``kind``; see ``Request.load_args``."""
    check_kind(kind)
    hints = _hints(kind)
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
    if _is_union(_origin(kind)):
        values = [value for part in _arguments(kind) if (value := _from_text(text, part)) is not text]
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
        kind: a class with annotations, a dataclass or a NamedTuple. Annotations are str, int, float, bool, object
            or Any (any value), Literal, lists, tuples, dicts, unions, other such classes, or any class that takes one
            string.
        path: the key of ``value`` in the configuration, for errors.

    Raises:
        VerbError: with code 7, if a key is missing or a value has another type.
    """
    origin, arguments = _origin(kind), _arguments(kind)
    if kind is object or _is_typing(kind, "Any"):
        return value
    if _is_union(origin):
        return _load_union(value, arguments, path)
    if _is_typing(origin, "Literal"):
        if value not in arguments:
            raise _invalid(path, f"must be one of {', '.join(map(repr, arguments))}, not {value!r}")
        return value
    if origin in {list, tuple}:
        first = arguments[0] if arguments else object
        return origin(load(part, first, f"{path}[{index}]") for index, part in enumerate(_checked(value, list, path)))
    if origin in {dict, Mapping}:
        part_kind = arguments[1] if arguments else object
        members = _checked(value, dict, path).items()
        return {key: load(part, part_kind, _join(path, key)) for key, part in members}
    if _is_object(kind):
        return _load_object(_checked(value, dict, path), kind, path)
    return _load_scalar(value, kind, path)


def find_key(document: Mapping[str, Any], name: str) -> str:
    """Return an attribute's key in ``document``: ``data_dir`` or ``dataDir`` for ``data_dir``, in any case as in Go."""
    first, *others = name.split("_")
    camel = first + "".join(part.capitalize() for part in others)
    exact = [key for key in (name, camel) if key in document]
    return next((key for key in (*exact, *document) if key.lower() in {name.lower(), camel.lower()}), camel)


def _load_object(document: dict[str, Any], kind: Any, path: str) -> Any:
    hints = _hints(kind)
    loaded: dict[str, Any] = {}
    for name, is_needed in _fields(kind).items():
        key = find_key(document, name)
        # null means the default, like in Go: runtimes in Go send null for an empty list.
        if key in document and (is_needed or document[key] is not None):
            loaded[name] = load(document[key], hints[name], _join(path, key))
        elif is_needed:
            raise VerbError(f'missing key "{_join(path, key)}"', code=INVALID_NETWORK_CONFIG)
    if _is_plain(kind):
        filled = kind()
        for name, part in loaded.items():
            setattr(filled, name, part)
        return filled
    try:
        return kind(**loaded)
    except (TypeError, ValueError) as error:  # from the author's __post_init__
        raise _invalid(path, str(error)) from error


def _fields(kind: Any) -> dict[str, bool]:
    """Return the names of a class's fields, and whether each is needed."""
    if hasattr(kind, "_fields"):
        return {name: name not in kind._field_defaults for name in kind._fields}
    if _is_plain(kind):
        return {name: not hasattr(kind, name) for name in _hints(kind)}
    from dataclasses import MISSING, fields

    return {
        field.name: field.default is MISSING and field.default_factory is MISSING
        for field in fields(kind)
        if field.init
    }


def _load_union(value: Any, kinds: tuple[Any, ...], path: str) -> Any:
    if value is None and _NONE in kinds:
        return None
    problem: VerbError | None = None
    for kind in kinds:
        if kind is not _NONE:
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
