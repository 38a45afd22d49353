"""An event loop in simulated time, and the executor of asyncio, so that the same scenarios run on asyncio."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

from libcni import Invocation, Outcome, PluginTimeoutError
from libcni.executor import CallOptions
from sim.plugins import SimExecutor, outcome_of
from sim.schedule import Code, Killed, Sim


class _Selector:
    """Waits in simulated time instead of for files."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[object]:
        if timeout is None or timeout > 0:
            self._loop.sim.wait(self._loop.has_work, timeout)
        return []


class SimLoop(asyncio.BaseEventLoop):
    """The event loop of one simulated process."""

    def __init__(self, sim: Sim) -> None:
        super().__init__()
        self.sim = sim
        self._selector = _Selector(self)
        self._ended: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self.set_exception_handler(lambda *_: None)  # tasks of killed processes

    def time(self) -> float:
        """Return the simulated time."""
        return self.sim.now

    def has_work(self) -> bool:
        """Return whether a callback is due, and wake what waits for a condition that holds."""
        for one in [one for one in self._ended if one[0]()]:
            self._ended.remove(one)
            if not one[1].done():
                one[1].set_result(None)
        return bool(self._ready)  # type: ignore[attr-defined]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition of the world."""
        future = self.create_future()
        self._ended.append((condition, future))
        await future

    def run_in_executor(self, _executor: object, func: Any, *args: Any) -> Any:  # type: ignore[override]
        """Call a function at once: other actors run meanwhile, but no other task of this loop."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it is raised where the caller awaits it
            future.set_exception(error)
        return future

    def _process_events(self, _events: list[object]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


class SimAsyncExecutor(SimExecutor):
    """Runs plugins of asyncio verbs; a cancelled call kills its plugin."""

    async def execute(self, invocation: Invocation, options: CallOptions) -> Outcome:  # type: ignore[override]
        """Run a plugin to its end."""
        running = self.begin(invocation, options)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        try:
            await asyncio.wait_for(loop.until(lambda: running.done), options.timeout)
        except TimeoutError:
            running.kill()
            raise PluginTimeoutError("it was stopped", invocation) from None
        except BaseException:
            running.kill()
            raise
        return outcome_of(self.sim, running, invocation)


class OnAsyncio:
    """A client or manager whose coroutine methods block. ``tasks``: those that run, for events that cancel them."""

    def __init__(self, sim: Sim, client: object, tasks: dict[Code, asyncio.Task[Any]]) -> None:
        self._sim, self._client, self._tasks = sim, client, tasks

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        if not inspect.iscoroutinefunction(method):
            return method
        return lambda *args, **options: self.run(method(*args, **options))

    def run(self, verb: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in an event loop of its own."""
        actor = self._sim.current
        assert isinstance(actor, Code)
        loop = SimLoop(self._sim)
        task = self._tasks[actor] = loop.create_task(verb)
        try:
            return loop.run_until_complete(task)
        except asyncio.CancelledError as error:
            raise InterruptedError("the verb was cancelled") from error
        except Killed:
            verb.close()
            raise
        finally:
            del self._tasks[actor]
            loop.close()
