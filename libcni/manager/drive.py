"""Drive plans: blocking, or on asyncio. Only the library's own errors are thrown into a plan.

Anything else, such as KeyboardInterrupt or cancellation, ends it as it stands; what is attached by then is in the
records, for a tear-down or GC.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, Generic, TypeVar, cast

from libcni.aio import AsyncCNIConfig
from libcni.client import CNIConfig
from libcni.errors import CNIError
from libcni.manager.events import Event
from libcni.manager.steps import Ask, Call, Plan, Step, Turn, Turns, Work

__all__ = ["run", "run_async"]

_T = TypeVar("_T")
Tell = Callable[[Event], None]


class _Course(Generic[_T]):
    """A plan on its way: iterate over its steps; put into ``answer`` what each came to, or fail within ``tried``."""

    def __init__(self, plan: Plan[_T]) -> None:
        self._plan = plan
        self._error: CNIError | None = None
        self.answer: Any = None
        self.value: _T | None = None

    def __iter__(self) -> Iterator[Step]:
        while True:
            error, answer = self._error, self.answer
            self._error = self.answer = None
            try:
                yield self._plan.throw(error) if error is not None else self._plan.send(answer)
            except StopIteration as end:
                self.value = end.value
                return

    @contextmanager
    def tried(self) -> Iterator[None]:
        """Keep an error of ours for the plan."""
        try:
            yield
        except CNIError as error:
            self._error = error

    @property
    def result(self) -> _T:
        """What the plan returned, once it has."""
        return cast("_T", self.value)


def run(plan: Plan[_T], cni: CNIConfig, tell: Tell) -> _T:
    """Drive a plan to its end, blocking."""
    course = _Course(plan)
    with closing(Turns(cni.cache_dir)) as turns:
        for step in course:
            with course.tried():
                course.answer = _perform(step, cni, turns, tell)
    return course.result


def _perform(step: Step, cni: CNIConfig, turns: Turns, tell: Tell) -> Any:
    match step:
        case Call():
            return getattr(cni, step.method)(*step.args, **step.options)
        case Event():
            return tell(step)
        case Work(function) | Ask(function):
            return function()
        case Turn():
            for delay in turns.take(step, time.monotonic):
                time.sleep(delay)
    return None


async def run_async(plan: Plan[_T], cni: AsyncCNIConfig, tell: Tell) -> _T:
    """Drive a plan to its end on the running event loop."""
    course = _Course(plan)
    with closing(Turns(cni.cache_dir)) as turns:
        for step in course:
            with course.tried():
                course.answer = await _perform_async(step, cni, turns, tell)
    return course.result


async def _perform_async(step: Step, cni: AsyncCNIConfig, turns: Turns, tell: Tell) -> Any:
    match step:
        case Call():
            return await _awaited(getattr(cni, step.method)(*step.args, **step.options))
        case Event():
            return tell(step)
        case Ask():
            return await _awaited(step.function())
        case Work():
            return await asyncio.to_thread(step.work)
        case Turn():
            for delay in turns.take(step, time.monotonic):
                await asyncio.sleep(delay)
    return None


async def _awaited(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer
