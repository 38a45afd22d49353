"""Drive plans: blocking, or on asyncio. Only the library's own errors are thrown into a plan.

Anything else, such as KeyboardInterrupt or cancellation, ends it as it stands; what is attached by then is in the
records, for a tear-down or GC.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any, TypeVar

from libcni.aio import AsyncCNIConfig
from libcni.client import CNIConfig
from libcni.manager.course import Course
from libcni.manager.events import Event
from libcni.manager.steps import Ask, Call, Plan, Step, Turn, Turns, Work

__all__ = ["run", "run_async"]

_T = TypeVar("_T")
Tell = Callable[[Event], None]


def run(plan: Plan[_T], cni: CNIConfig, tell: Tell) -> _T:
    """Drive a plan to its end, blocking."""
    course = Course(plan)
    with closing(Turns(cni.cache_dir)) as turns:
        for step in course:
            with course:
                course.answer = _perform(step, cni, turns, tell)
    return course.value


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
    course = Course(plan)
    with closing(Turns(cni.cache_dir)) as turns:
        for step in course:
            with course:
                course.answer = await _perform_async(step, cni, turns, tell)
    return course.value


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
