"""Who goes on at each step: actors, the loop, and the ways to choose.

An actor runs until its next effect on the world. The default order lets it go on, and lets events come last. Another
choice is a deviation: exploration runs every schedule with one, and a seed chooses some at random. A failing schedule
shrinks to the deviations that it needs.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from itertools import count, takewhile
from typing import Any

from greenlet import getcurrent, greenlet

from sim.disk import File
from sim.world import Process, World

TICK = 5e-5
MAX_STEPS = 60_000
_CHANGES_THE_DISK = {"creates", "makes", "writes", "cuts", "syncs", "renames", "links", "removes"}

Steps = Generator["str | float | Callable[[], bool]", None, object]
"""A plugin, another program, an event: one step up to each ``yield`` of what was done, or of what it waits for.

A number is a time to wait, in seconds.
"""


Events = Generator["str | float | Callable[[], bool]", None, None]
"""The same without a value."""


def _swap_current_task(loop: asyncio.AbstractEventLoop, task: Any) -> Any:
    tasks: Any = asyncio.tasks
    if hasattr(tasks, "_swap_current_task"):
        if task is None and asyncio.current_task(loop) is None:
            return None  # Python 3.12 raises KeyError then
        return tasks._swap_current_task(loop, task)
    before = tasks._current_tasks.pop(loop, None)
    if task is not None:
        tasks._current_tasks[loop] = task
    return before


class Killed(BaseException):
    """Thrown into the code of a process that was killed; every further effect of it raises this, too."""


class Violation(Exception):  # noqa: N818 - no error of the simulation
    """A schedule that does not end."""


class Actor:
    """Something that takes steps. ``is_event``: the default order puts it last."""

    def __init__(self, sim: Sim, name: str, process: Process | None, *, is_event: bool = False) -> None:
        self.sim, self.name, self.process, self.is_event = sim, name, process, is_event
        self.number = next(sim.numbers)
        self.done = False
        self.parent: Actor | None = None
        self.until: Callable[[], bool] | None = None
        self.wake: float | None = None

    def is_ready(self) -> bool:
        """Return whether it can take a step."""
        if self.until is None and self.wake is None:
            return True
        return (self.until is not None and self.until()) or (self.wake is not None and self.wake <= self.sim.now)

    def step(self) -> None:
        """Take a step."""
        raise NotImplementedError

    def kill(self) -> None:
        """End at once."""
        self.done = True
        if self.process is not None:
            self.process.end()
            self.sim.world.processes.pop(self.process.pid, None)


class Code(Actor):
    """The library's code, in a greenlet of its own. Every effect on the world switches back to the loop."""

    def __init__(self, sim: Sim, name: str, process: Process, work: Callable[[], object]) -> None:
        super().__init__(sim, name, process)
        self.own_process = process
        process.threads += 1
        self.work = work
        self.greenlet = greenlet(self._run, sim.loop)

    def _run(self) -> None:
        try:
            self.work()
        except Killed:
            pass
        finally:
            self.done = True
            self.own_process.threads -= 1
            if not self.own_process.threads:
                super().kill()

    def pause(self) -> None:
        """Go back to the loop. An event loop of asyncio that runs here does not run in the other actors."""
        parent = self.greenlet.parent
        assert parent is not None
        running = asyncio._get_running_loop()
        task = _swap_current_task(running, None) if running is not None else None
        asyncio._set_running_loop(None)
        try:
            parent.switch()
        finally:
            asyncio._set_running_loop(running)
            if running is not None:
                _swap_current_task(running, task)

    def step(self) -> None:
        """Go on to the next effect."""
        self.until = self.wake = None
        self.greenlet.switch()

    def kill(self) -> None:
        """Kill the process with all its threads."""
        super().kill()
        before = self.sim.current
        for thread in self.sim.actors:
            if isinstance(thread, Code) and thread.process is self.process and (not thread.done or thread is self):
                thread.done = True
                if thread.greenlet:  # it has begun
                    self.sim.current = thread
                    thread.greenlet.throw(Killed)
        self.sim.current = before


class Program(Actor):
    """A generator: a plugin's process, another program, an event. Each of its steps reads and changes the same."""

    reads: tuple[str, ...] = ()
    changes: tuple[str, ...] = ("network",)

    def __init__(self, sim: Sim, name: str, process: Process | None, steps: Steps, *, is_event: bool = False) -> None:
        super().__init__(sim, name, process, is_event=is_event)
        self.steps = steps
        self.value: object = None
        self.call: Any = None

    def step(self) -> None:
        """Go on to the next yield."""
        self.until = self.wake = None
        self.sim.touch(*self.reads, change=False)
        self.sim.touch(*self.changes, change=True)
        try:
            what = next(self.steps)
        except StopIteration as end:
            self.value = end.value
            self.kill()
            return
        if callable(what):
            self.until = what
        elif isinstance(what, float):
            self.wake = self.sim.now + what
        else:
            self.sim.log(self.name, what)


class Sim:
    """One run of a scenario."""

    def __init__(self, choices: Choices) -> None:
        self.world, self.choices = World(), choices
        self.loop = getcurrent()
        self.numbers = count()
        self.now, self.exploring = 1000.0, False
        self.actors: list[Actor] = []
        self.current: Actor | None = None
        self.story: list[tuple[float, str, str]] = []
        self.violations: list[str] = []
        self.disk_error = 0
        self.readers: list[Callable[[File, bool], None]] = []
        self.random = random.Random(1)

    def log(self, who: str, what: str) -> None:
        """Add a line to the story."""
        self.story.append((self.now, who, what))

    def violate(self, what: str) -> None:
        """Note that something does not hold that must hold."""
        self.log("VIOLATION", what)
        self.violations.append(what)

    def written(self, file: File, *, whole: bool) -> None:
        """Let others read a file that was written, ``whole`` or in a part."""
        for read in self.readers:
            read(file, whole)

    def run_code(self, name: str, work: Callable[[], object], beside: Code | None = None) -> Code:
        """Let library code run, in a process of its own or as a thread of another one's."""
        process = self.world.process(name) if beside is None else beside.own_process
        actor = Code(self, name, process, work)
        self.actors.append(actor)
        return actor

    def run_steps(self, name: str, steps: Steps, process: Process | None = None) -> Program:
        """Let a plugin (with a process) run, or an event."""
        actor = Program(self, name, process, steps, is_event=process is None)
        self.actors.append(actor)
        return actor

    # Called by the code of actors.

    def me(self) -> Process:
        """Return the process that runs."""
        assert self.current is not None
        assert self.current.process is not None
        if not self.current.process.alive:
            raise Killed
        return self.current.process

    def touch(self, *what: str, change: bool) -> None:
        """Note what the actor that runs reads or changes."""
        if self.exploring:
            step = self.choices.steps[-1]
            (step.changed if change else step.read).update(what)

    def point(self, label: str, *what: str, change: bool | None = None) -> None:
        """Let others run before an effect. Only a living process gets past it; a full disk fails here.

        Args:
            label: what changes; "" if this is no change that a story tells.
            what: the names of what it reads or changes.
            change: whether it changes anything, if ``label`` does not tell.
        """
        actor = self.current
        assert isinstance(actor, Code)
        self.me().effects += 1
        self._tick()
        if self.exploring:
            actor.pause()
            self.me()
            self.touch(*what, change=bool(label) if change is None else change)
        if label:
            self.log(actor.name, label)
            if self.disk_error and label.partition(" ")[0] in _CHANGES_THE_DISK:
                number, self.disk_error = self.disk_error, 0
                self.log(actor.name, f"... fails: {os.strerror(number)}")
                raise OSError(number, os.strerror(number))

    def wait(self, until: Callable[[], bool] | None, seconds: float | None) -> None:
        """Wait for a condition, or for a time."""
        actor = self.current
        assert isinstance(actor, Code)
        self.me()
        actor.until, actor.wake = until, None if seconds is None else self.now + seconds
        actor.pause()
        self.me()

    # The loop.

    def _tick(self) -> None:
        self.world.steps += 1
        self.now += TICK
        if self.world.steps > MAX_STEPS:
            raise Violation("it does not end")

    def run(self, *, explore: bool, until: Callable[[], bool] = lambda: False) -> None:
        """Run all actors to their ends, or until something is so."""
        self.exploring = explore
        last: Actor | None = None
        while not until():
            self.actors = live = [actor for actor in self.actors if not actor.done]
            ready = [actor for actor in live if actor.is_ready()]
            if not ready:
                wakes = [actor.wake for actor in live if actor.wake is not None]
                if all(actor.is_event for actor in live):
                    return
                if not wakes:
                    raise Violation(f"a deadlock of {', '.join(actor.name for actor in live)}")
                self.now = max(self.now, min(wakes))
                continue
            ready.sort(key=lambda actor: (actor is not last, actor.is_event))
            last = self.choices.among(ready) if explore else ready[0]
            self._tick()
            self.current = last
            last.step()


@dataclass
class Step:
    """What an actor did until the next choice.

    Attributes:
        candidates: the numbers of the actors that could go on; the first is the default.
        decision: the number of the choice between them, or -1 if there was only one.
        actor: the number of the one that went on.
        read, changed: the names of what it read and changed; "*" is everything.
    """

    candidates: list[int]
    decision: int
    actor: int
    read: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)

    def meets(self, other: Step) -> bool:
        """Return whether the order of two steps matters."""
        return _share(self.changed, other.read | other.changed) or _share(self.read, other.changed)


def _share(one: set[str], other: set[str]) -> bool:
    return bool(one & other) or (bool(one) and "*" in other) or (bool(other) and "*" in one)


class Choices:
    """Follows a plan of deviations, decision to choice, and else takes the default, which is 0.

    Attributes:
        plan: the deviations. With a seed, they are chosen on the way, at random.
        widths: how many choices each decision had.
        spreads: the decisions about what a power cut leaves.
        steps: what was done.
    """

    def __init__(self, plan: dict[int, int] | None = None, seed: int | None = None) -> None:
        self.plan = dict(plan or {})
        self._random = None if seed is None else random.Random(seed)
        self._rate = self._random.choice((0.005, 0.02, 0.06, 0.2, 0.5)) if self._random else 0.0
        self.widths: list[int] = []
        self.spreads: set[int] = set()
        self.steps: list[Step] = []

    def among(self, actors: list[Actor]) -> Actor:
        """Choose who goes on."""
        decision = len(self.widths) if len(actors) > 1 else -1
        chosen = actors[self(len(actors)) if decision >= 0 else 0]
        self.steps.append(Step([one.number for one in actors], decision, chosen.number))
        return chosen

    def turn(self, position: int) -> Step:
        """Return as one step what the actor of a step does from there on, until another one goes on."""
        actor = self.steps[position].actor
        turn = Step([], -1, actor)
        for one in takewhile(lambda one: one.actor == actor, self.steps[position:]):
            turn.read |= one.read
            turn.changed |= one.changed
        return turn

    def __call__(self, number: int) -> int:
        """Choose one of so many."""
        return self._choose(number, self._rate)

    def spread(self, number: int) -> int:
        """Choose what a power cut leaves; at random each with the same chance."""
        self.spreads.add(len(self.widths))
        return self._choose(number, 1.0)

    def _choose(self, number: int, rate: float) -> int:
        at = len(self.widths)
        self.widths.append(number)
        if self._random and self._random.random() < rate and (choice := self._random.randrange(number)):
            self.plan[at] = choice
        return min(self.plan.get(at, 0), number - 1)


def one_deviation() -> Iterator[Choices]:
    """Yield a chooser for each schedule with at most one deviation; run each before the next.

    An actor that goes on one step later does the same if that step meets nothing of what it does. So such a schedule is
    left out. After the deviation, one more choice decides which writes survive a power cut.
    """
    yield (root := Choices())
    yield from _spreads(root)
    ran: list[Choices] = []
    known: dict[int, Step] = {}  # what an actor did when it went on earlier, and would do again
    for position, step in enumerate(root.steps):
        for choice, actor in enumerate(step.candidates):
            if choice and actor not in known:
                ran.append(Choices({step.decision: choice}))
                yield ran[-1]
                known[actor] = ran[-1].turn(position)
        known = {actor: turn for actor, turn in known.items() if not step.meets(turn)}
    for deviating in ran:
        yield from _spreads(deviating)


def _spreads(before: Choices) -> Iterator[Choices]:
    first = max(before.plan, default=-1) + 1
    for at in sorted(at for at in before.spreads if at >= first):
        yield from (Choices({**before.plan, at: choice}) for choice in range(1, before.widths[at]))


def shrink(plan: dict[int, int], fails: Callable[[dict[int, int]], bool]) -> dict[int, int]:
    """Return the plan without the deviations that it does not need to fail: halves first, then one after the other."""
    size = max(len(plan) // 2, 1)
    while plan:
        kept = dict(plan)
        keys = list(plan)
        for at in range(0, len(keys), size):
            without = {key: choice for key, choice in kept.items() if key not in keys[at : at + size]}
            if fails(without):
                kept = without
        if size == 1 and kept == plan:
            break
        plan, size = kept, max(size // 2, 1)
    return plan
