"""Several DELs in order: which of them is repeated, and which errors are left."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

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
from libcni.verbs.detach_each import detach_each

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

    def run(self, targets: Iterable[str]) -> list[tuple[str, str | CNIError]]:
        async def collect() -> list[tuple[str, str | CNIError]]:
            each = detach_each(targets, self.detach, lambda target: target.split("/")[0])
            return [outcome async for outcome in each]

        return run_to_end(collect())


def test_the_answers_come_first_then_the_errors() -> None:
    failed = PluginError("no")
    detacher = Detacher({"a/1": [failed]})
    assert detacher.run(["a/1", "b/1", "b/2"]) == [("b/1", "B/1"), ("b/2", "B/2"), ("a/1", failed)]
    assert detacher.calls == ["a/1", "b/1", "b/2"]


def test_those_of_a_group_of_which_another_interface_left_are_repeated_after_all_others() -> None:
    errors: Errors = {target: [PluginError("no")] for target in ("a/3", "b/2", "a/2")}
    detacher = Detacher(errors)
    outcomes = detacher.run(["a/3", "b/2", "a/2", "a/1", "b/1", "c/1"])
    assert detacher.calls == ["a/3", "b/2", "a/2", "a/1", "b/1", "c/1", "a/3", "b/2", "a/2"]
    assert [target for target, _ in outcomes] == ["a/1", "b/1", "c/1", "a/3", "b/2", "a/2"]
    assert not any(isinstance(outcome, CNIError) for _, outcome in outcomes)


@pytest.mark.parametrize("targets", [["a/1", "b/1"], ["a/1"]], ids=["other", "alone"])
def test_without_a_departure_there_is_no_second_attempt(targets: list[str]) -> None:
    detacher = Detacher({"a/1": [PluginError("no")]})
    detacher.run(targets)
    assert detacher.calls == targets


def test_there_is_no_third_attempt_and_no_error_is_lost() -> None:
    first, second = PluginError("first"), PluginError("second")
    detacher = Detacher({"a/2": [first, second, PluginError("third")]})
    assert detacher.run(["a/2", "a/1"]) == [("a/1", "A/1"), ("a/2", second)]
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
