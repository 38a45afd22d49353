"""``dataclass``, ``field`` and ``replace`` of the standard library, without their cost at start.

The standard ``dataclass`` imports ``inspect`` and compiles six functions for each class. That is a fifth of the
start-up time of the OCI hook. This module compiles ``__init__`` when it is first used, and shares the
other methods. Its classes are dataclasses for ``dataclasses.fields``, ``replace`` and ``asdict``, for type checkers,
and as base classes of a standard dataclass.
"""

from __future__ import annotations

from operator import attrgetter

TYPE_CHECKING = False  # typing costs a start 4 ms; type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - the names that this module exports
    from dataclasses import field as field  # noqa: PLC0414
    from dataclasses import replace as replace  # noqa: PLC0414
    from typing import Any

_NAME = "_dataclass_"
"""The attribute of a class that holds its _Fields."""


class _Options:
    """The options of a field, in the place of its default."""

    def __init__(self, **options: Any) -> None:
        self.options = options


class _Factory:
    """The default of a parameter whose field has a default factory."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


class _Fields:
    """The fields of a class, those of its base classes first.

    Attributes:
        options: those of the decorator.
        of: field name to its options.
        types: field name to its annotation.
        compared, hashed: return the values of an object that ``==`` and ``hash`` use.
    """

    def __init__(self, cls: type, options: dict[str, Any]) -> None:
        base: _Fields | None = getattr(cls, _NAME, None)
        annotations = cls.__dict__.get("__annotations__", {})  # noqa: RUF063 - inspect is what this module avoids
        own = {name: text for name, text in annotations.items() if not text.startswith("ClassVar")}
        self.options = options
        self.types: dict[str, Any] = {**(base.types if base else {}), **own}
        self.of: dict[str, dict[str, Any]] = {**(base.of if base else {})}
        for name in own:
            # getattr: a descriptor returns the default for the class, and computes the field for an object.
            default = getattr(cls, name) if name in cls.__dict__ else _FACTORY
            plain = {} if default is _FACTORY else {"default": default}
            self.of[name] = default.options if isinstance(default, _Options) else plain
        compared = [name for name, field in self.of.items() if field.get("compare", True)]
        self.compared = _values(compared)
        self.hashed = _values([name for name in compared if self.of[name].get("hash", True)])
        self.parameters = tuple(name for name, field in self.of.items() if field.get("init", True))


def _values(names: list[str]) -> Callable[[Any], Any]:
    return attrgetter(*names) if names else tuple


class _Later:
    """An attribute of a class that is made when it is first used."""

    def __init__(self, name: str, make: Callable[[type], object]) -> None:
        self._name = name
        self._make = make

    def __get__(self, instance: object, owner: type) -> Any:
        for cls in owner.__mro__:
            if cls.__dict__.get(self._name) is self:  # else another thread has replaced it meanwhile
                setattr(cls, self._name, self._make(cls))
        return getattr(owner if instance is None else instance, self._name)


def _dataclass(cls: Any = None, /, **options: Any) -> Any:
    """Return the class as a dataclass, or a decorator. ``options``: frozen, slots, eq, kw_only."""
    return (lambda decorated: _made(decorated, options)) if cls is None else _made(cls, options)


def _made(cls: type, options: dict[str, Any]) -> type:
    fields = _Fields(cls, options)
    has_hash = cls.__dict__.get("__hash__") is not None
    added = {name: method for name, method in _METHODS.items() if name not in cls.__dict__}
    if options.get("frozen"):
        added.update(_FROZEN)
    if options.get("eq", True):
        added.update({} if "__eq__" in cls.__dict__ else {"__eq__": _equal})
        added.update({} if has_hash else {"__hash__": _hash if options.get("frozen") else None})
    added[_NAME] = fields
    added["__match_args__"] = () if options.get("kw_only") else fields.parameters
    if not options.get("slots"):
        for name, field in fields.of.items():
            if isinstance(cls.__dict__.get(name), _Options):
                delattr(cls, name)
                added.update({name: field["default"]} if "default" in field else {})
        for name, value in added.items():
            setattr(cls, name, value)
        return cls
    # Slots must be named when a class is created, so it is created again.
    rest = {name: value for name, value in cls.__dict__.items() if name not in fields.of}
    for name in ("__dict__", "__weakref__"):
        rest.pop(name, None)
    inherited = getattr(cls.__base__, _NAME).of if hasattr(cls.__base__, _NAME) else {}
    slots = tuple(name for name in fields.of if name not in inherited)
    created = type(cls)(cls.__name__, cls.__bases__, {**rest, **added, "__slots__": slots})
    created.__qualname__ = cls.__qualname__
    return created


def _init(cls: type) -> object:
    fields: _Fields = getattr(cls, _NAME)
    names: dict[str, Any] = {"_put": object.__setattr__, "_factory": _FACTORY}
    parameters, lines = ["self", *(["*"] if fields.options.get("kw_only") else [])], ["pass"]
    for name, field in fields.of.items():
        names[f"_default_{name}"] = field.get("default", _FACTORY)
        names[f"_make_{name}"] = make = field.get("default_factory")
        value = name
        if name not in fields.parameters:
            if make is None and "default" not in field:
                continue
            value = f"_make_{name}()" if make else f"_default_{name}"
        else:
            parameters.append(f"{name}=_default_{name}" if make or "default" in field else name)
            value = f"_make_{name}() if {name} is _factory else {name}" if make else name
        lines.append(_assignment(cls, fields, name, value, names))
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n  " + "\n  ".join(lines), names)  # noqa: S102 - our own names
    made = names["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__module__ = cls.__module__
    made.__annotations__ = {**{name: fields.types[name] for name in fields.parameters}, "return": None}
    return made


def _assignment(cls: type, fields: _Fields, name: str, value: str, names: dict[str, Any]) -> str:
    """Return the line of ``__init__`` that sets a field; ``names`` are those that it may use."""
    if not fields.options.get("frozen"):
        return f"self.{name} = {value}"
    # A slot's own method takes two thirds of the time, and an ADD sets 250 fields.
    put = getattr(getattr(cls, name, None), "__set__", None)
    if put is None:
        return f"_put(self, {name!r}, {value})"
    names[f"_set_{name}"] = put
    return f"_set_{name}(self, {value})"


def _standard(name: str) -> _Later:
    """Return an attribute that ``dataclasses`` reads, made by ``dataclasses`` itself."""

    def make(cls: type) -> object:
        import dataclasses

        fields: _Fields = getattr(cls, _NAME)
        parts = [(name, fields.types[name], dataclasses.field(**field)) for name, field in fields.of.items()]
        # Without slots: they would be another class.
        return getattr(dataclasses.make_dataclass(cls.__name__, parts, **{**fields.options, "slots": False}), name)

    return _Later(name, make)


def _repr(self: Any) -> str:
    fields: _Fields = getattr(self, _NAME)
    shown = [f"{name}={getattr(self, name)!r}" for name, field in fields.of.items() if field.get("repr", True)]
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _equal(self: Any, other: object) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    compared = getattr(self, _NAME).compared
    return compared(self) == compared(other)


def _hash(self: Any) -> int:
    return hash(getattr(self, _NAME).hashed(self))


def _refuse(self: Any, name: str, *value: object) -> None:
    # A class derived without the decorator may have attributes of its own.
    if name in getattr(self, _NAME).of or _NAME in type(self).__dict__:
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot {'assign to' if value else 'delete'} field {name!r}")
    (object.__setattr__ if value else object.__delattr__)(self, name, *value)


def _refuse_to_delete(self: Any, name: str) -> None:
    _refuse(self, name)


def _set_state(self: Any, state: Any) -> None:
    for part in state if isinstance(state, tuple) else (state,):  # of __dict__, and of slots
        for name, value in (part or {}).items():
            object.__setattr__(self, name, value)


def _replace(changed: Any, /, **changes: Any) -> Any:
    """Return a copy of an object of such a class with other values of some fields."""
    fields: _Fields = getattr(changed, _NAME)
    same = {name: getattr(changed, name) for name in fields.parameters if name not in changes}
    return type(changed)(**same, **changes)


_METHODS: dict[str, Any] = {
    "__init__": _Later("__init__", _init),
    "__repr__": _repr,
    "__replace__": _replace,
    "__dataclass_fields__": _standard("__dataclass_fields__"),
    "__dataclass_params__": _standard("__dataclass_params__"),
}
_FROZEN: dict[str, Any] = {"__setattr__": _refuse, "__delattr__": _refuse_to_delete, "__setstate__": _set_state}
for _name, _method in {**_METHODS, **_FROZEN, "__eq__": _equal, "__hash__": _hash}.items():
    if not isinstance(_method, _Later):
        _method.__name__ = _method.__qualname__ = _name  # help() shows the names of functions

if not TYPE_CHECKING:  # type checkers know the standard ones
    dataclass, field, replace = _dataclass, _Options, _replace
