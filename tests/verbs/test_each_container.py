"""Several attachments: which DEL is repeated, which errors are left, and the order of the outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import pytest

from libcni.client import CNIConfig
from libcni.errors import (
    CNIError,
    CNIErrorGroup,
    LockTimeoutError,
    PluginError,
    PluginNotFoundError,
    PluginTimeoutError,
    RecordError,
)
from libcni.executor.process import run_to_end
from libcni.verbs.each_container import all_or_raise, detach_each, each_container

Errors = dict[str, list[BaseException]]


class Detacher:
    """Detaches targets such as ``net/eth0``. ``errors``: those of a target's first attempts."""

    def __init__(self, errors: Errors) -> None:
        self.errors = errors
        self.calls: list[str] = []

    async def detach(self, target: str) -> str:
        self.calls.append(target)
        if left := self.errors.get(target):
            raise left.pop(0)
        return target.upper()

    def run(self, targets: Sequence[str]) -> list[str | CNIError]:
        return run_to_end(detach_each(targets, self.detach))


def test_the_outcomes_have_the_order_of_the_targets() -> None:
    failed = LockTimeoutError("held")
    detacher = Detacher({"a/1": [failed]})
    assert detacher.run(["a/1", "b/1", "b/2"]) == [failed, "B/1", "B/2"]
    assert detacher.calls == ["a/1", "b/1", "b/2"]


@pytest.mark.parametrize("alone", [False, True])
def test_those_that_a_plugin_has_failed_are_repeated_after_all_others(*, alone: bool) -> None:
    errors: Errors = {target: [PluginError("no")] for target in ("a/3", "b/2", "a/2")}
    detacher, others = Detacher(errors), [] if alone else ["a/1", "b/1", "c/1"]
    outcomes = detacher.run(["a/3", "b/2", "a/2", *others])
    assert detacher.calls == ["a/3", "b/2", "a/2", *others, "a/3", "b/2", "a/2"]
    assert outcomes == ["A/3", "B/2", "A/2", *map(str.upper, others)]


def test_there_is_no_third_attempt_and_no_error_is_lost() -> None:
    first, second = PluginError("first"), PluginError("second")
    detacher = Detacher({"a/2": [first, second, PluginError("third")]})
    assert detacher.run(["a/2", "a/1"]) == [second, "A/1"]
    assert detacher.calls == ["a/2", "a/1", "a/2"]
    assert second.__notes__ == ["at the first attempt: first"]


def test_the_same_error_twice_is_told_once() -> None:
    first, second = PluginError("no"), PluginError("no")
    Detacher({"a/2": [first, second]}).run(["a/2", "a/1"])
    assert not hasattr(second, "__notes__")


@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (PluginError("no"), 2),
        (PluginTimeoutError("it hung"), 1),
        (PluginNotFoundError("a", ()), 1),
        (LockTimeoutError("held"), 1),
        (RecordError("rewritten"), 1),
        (CNIErrorGroup("keep going", [PluginError("no"), PluginError("no")]), 2),
        (CNIErrorGroup("keep going", [PluginError("no"), PluginTimeoutError("it hung")]), 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_only_what_a_plugin_answered_is_repeated(error: CNIError, attempts: int) -> None:
    detacher = Detacher({"a/2": [error]})
    detacher.run(["a/2", "a/1"])
    assert detacher.calls.count("a/2") == attempts


@pytest.mark.parametrize("attempt", [0, 1])
def test_an_interruption_ends_it_at_once(attempt: int) -> None:
    errors: list[BaseException] = [PluginError("no")] * attempt
    detacher = Detacher({"a/3": [*errors, KeyboardInterrupt()]})
    with pytest.raises(KeyboardInterrupt):
        detacher.run(["a/3", "a/2", "a/1"])
    assert detacher.calls == [["a/3"], ["a/3", "a/2", "a/1", "a/3"]][attempt]


class Target(NamedTuple):
    container_id: str
    number: int


def test_the_targets_of_a_container_are_worked_on_together_and_in_order() -> None:
    seen: list[list[Target]] = []

    async def work(targets: Sequence[Target]) -> list[str]:
        seen.append(list(targets))
        return [f"{target.container_id}{target.number}" for target in targets]

    targets = [Target("b", 1), Target("a", 1), Target("b", 2), Target("c", 1)]
    one_by_one = partial(CNIConfig._side_by_side, 1)
    assert run_to_end(each_container(targets, work, one_by_one)) == ["b1", "a1", "b2", "c1"]
    assert seen == [[targets[0], targets[2]], [targets[1]], [targets[3]]]


def test_all_errors_are_raised_with_all_outcomes() -> None:
    assert all_or_raise("moved", ["a", "b"]) == ["a", "b"]
    failed = PluginError("no")
    with pytest.raises(CNIErrorGroup, match="1 of 2 attachments could not be moved") as caught:
        all_or_raise("moved", ["a", failed])
    assert (caught.value.report, caught.value.exceptions) == (["a", failed], (failed,))
