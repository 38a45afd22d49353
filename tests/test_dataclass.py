"""The library's ``dataclass`` makes what that of the standard library makes."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import pydoc
import subprocess
import sys
from threading import Barrier, Thread
from typing import Any, ClassVar

import pytest

import libcni
import libcni._dataclass as own

MAKERS: list[Any] = [own, dataclasses]
OPTIONS: list[dict[str, bool]] = [
    {},
    {"frozen": True},
    {"slots": True},
    {"frozen": True, "slots": True},
    {"frozen": True, "slots": True, "eq": False},
    {"frozen": True, "slots": True, "kw_only": True},
]


def classes(maker: Any, options: dict[str, bool]) -> tuple[type, type]:
    """Return a class with a field of each kind, and one derived from it."""

    @maker.dataclass(**options)
    class Base:
        """An example."""

        CONSTANT: ClassVar[int] = 1
        first: int
        second: str = "x"
        third: list[int] = maker.field(default_factory=list, repr=False)
        fourth: int = maker.field(default=4, compare=False)
        fifth: int = maker.field(default=5, hash=False)
        sixth: int = maker.field(init=False, default=6)

        def __post_init__(self) -> None:
            object.__setattr__(self, "fourth", self.fourth + 1)

        def method(self) -> int:
            return self.first

    @maker.dataclass(**options)
    class Derived(Base):
        """Another one."""

        second: str = "y"
        seventh: tuple[int, ...] = ()

    return Base, Derived


def facts(maker: Any, options: dict[str, bool]) -> list[Any]:
    found: list[Any] = []
    cls: Any
    for cls in classes(maker, options):
        one, same, other = cls(first=1), cls(first=1, fourth=7), cls(first=2, third=[1])
        found += [repr(one), repr(other), str(inspect.signature(cls)), cls.__doc__]
        found += [one == same, one == other, one != same, one == 1, one.method(), one.third is not same.third]
        found += [cls.__match_args__, cls.__hash__ is None, cls.__qualname__, cls.__module__, hasattr(one, "__dict__")]
        found += [getattr(cls, "__slots__", None), [field.name for field in dataclasses.fields(cls)]]
        found += [
            dataclasses.asdict(one),
            repr(dataclasses.replace(one, first=3)),
            repr(maker.replace(one, second="z")),
        ]
        found += [repr(copy.copy(other)), repr(copy.deepcopy(other)), copy.deepcopy(other).third, cls.__annotations__]
        for wrong in (
            lambda cls=cls: cls(),
            lambda cls=cls: cls(first=1, none=1),
            lambda one=one: setattr(one, "first", 9),
        ):
            try:
                found.append((wrong(), one.first))
            except (TypeError, AttributeError) as error:
                found.append((type(error), str(error).replace("'libcni._dataclass._Options' object", "X")))
    return found


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_it_is_a_dataclass(options: dict[str, bool]) -> None:
    mine, standard = facts(own, options), facts(dataclasses, options)
    assert mine == standard


def test_equal_objects_have_one_hash_and_a_field_can_be_left_out_of_it() -> None:
    base, _ = classes(own, {"frozen": True, "slots": True})
    with pytest.raises(TypeError, match="unhashable type: 'list'"):
        hash(base(1))

    @own.dataclass(frozen=True)
    class Hashed:
        name: str
        extra: dict[str, int] = own.field(default_factory=dict, hash=False)

    assert hash(Hashed("a", {"b": 1})) == hash(Hashed("a"))
    assert Hashed("a", {"b": 1}) != Hashed("a")


@own.dataclass(frozen=True, slots=True)
class Pickled:
    name: str
    number: int = 1


@own.dataclass(frozen=True)
class WithDict:
    name: str


class Plain(WithDict):
    pass


def test_frozen_objects_can_be_pickled_and_refuse_changes() -> None:
    for one in (Pickled("a", 2), WithDict("b"), Plain("c")):
        assert pickle.loads(pickle.dumps(one)) == one
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'name'"):
            one.name = "b"  # type: ignore[misc]
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'name'"):
            del one.name
    with pytest.raises(dataclasses.FrozenInstanceError):
        WithDict("b").other = 1  # type: ignore[attr-defined]
    plain = Plain("c")
    plain.other = 1  # type: ignore[attr-defined]
    del plain.other  # type: ignore[attr-defined]


def test_a_standard_dataclass_can_be_derived_from_one() -> None:
    @dataclasses.dataclass(frozen=True)
    class Derived(Pickled):
        more: int = 3

    assert repr(Derived("a", more=4)).endswith("Derived(name='a', number=1, more=4)")
    assert dataclasses.replace(Derived("a"), number=2) == Derived("a", 2)


def test_threads_that_make_the_first_objects_at_once() -> None:
    for _ in range(50):

        @own.dataclass(slots=True)
        class Made:
            name: str

        barrier = Barrier(4)
        made: list[Any] = []

        def make(cls: Any = Made, barrier: Barrier = barrier, made: list[Any] = made) -> None:
            barrier.wait()
            made.append(cls("a").name)

        threads = [Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made == ["a"] * 4


def test_a_client_is_made_without_the_standard_one() -> None:
    """From Python 3.14 on, logging itself imports it."""
    code = """import sys
import logging
before = {name: name in sys.modules for name in ("dataclasses", "inspect")}
import libcni
libcni.CNIConfig(["/nowhere"], "/nowhere")
libcni.RuntimeConf("c", None, "eth0")
libcni.Result.from_bytes(b'{"cniVersion": "1.0.0"}')
print(before == {name: name in sys.modules for name in before})
"""
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "True\n"


@pytest.mark.parametrize("maker", MAKERS)
def test_a_descriptor_gives_the_default_of_a_field_and_computes_the_field_of_an_object(maker: Any) -> None:
    class Later:
        def __get__(self, instance: object, _owner: type | None = None) -> Any:
            return "default" if instance is None else "computed"

    @maker.dataclass(frozen=True)
    class Example:
        text: Any = Later()

    made: Any = Example
    assert (made().text, made("given").text) == ("default", "given")
    assert object.__new__(Example).text == "computed"


def test_help_has_no_name_of_this_module() -> None:
    shown = pydoc.plain(pydoc.render_doc(libcni.DelPolicy))
    assert "__setattr__(" in shown
    assert " = _" not in shown.replace(" = _DataclassParams", "")
