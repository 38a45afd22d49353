"""AsyncCNIConfig: every verb as a coroutine, driving the same flows as CNIConfig."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from libcni.config.network import NetworkConfigList, PluginConfig
from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import CNIError, CNIErrorGroup, LockTimeoutError
from libcni.executor import AsyncExecutor
from libcni.executor.async_process import MAX_PROCESSES, AsyncProcessExecutor
from libcni.executor.semaphore import AsyncSemaphore
from libcni.protocol.result import Result
from libcni.store.attachments import Attachment
from libcni.verbs import (
    DelPolicy,
    DelReport,
    GCReport,
    NetworkStatus,
    OnExisting,
    PluginInfo,
    RetryPolicy,
    ValidationReport,
    ValidAttachment,
)
from libcni.verbs.client_base import DEFAULT, ClientBase, Job, Network, Timeout, alone
from libcni.verbs.course import Course
from libcni.verbs.node import Call, Need, Sleep, Verb

__all__ = ["AsyncCNIConfig", "Batch", "BatchItem"]

AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True)
class BatchItem(Generic[AnswerT]):
    """What became of one request of a batch: its place, and either its answer or its error.

    Attributes:
        index: the request's place among the requests, from 0.
        net: the network that was asked for, as it was given.
        rt: the attachment's parameters, as they were given.
        answer: what the verb returned: a Result for ADD, a DelReport for DEL; None where it failed.
        error: what it raised, or None.
    """

    index: int
    net: Network
    rt: RuntimeConf
    answer: AnswerT | None = None
    error: CNIError | None = None


@dataclass(frozen=True, slots=True)
class Batch(Generic[AnswerT]):
    """What became of a batch, in the order of the requests.

    Attributes:
        items: one for each request.
    """

    items: tuple[BatchItem[AnswerT], ...]

    @property
    def answers(self) -> tuple[AnswerT | None, ...]:
        """The answers in order, None for those that failed."""
        return tuple(item.answer for item in self.items)

    @property
    def errors(self) -> tuple[CNIError, ...]:
        """The errors, in order."""
        return tuple(item.error for item in self.items if item.error is not None)

    def raise_errors(self) -> None:
        """Raise all errors as one, if there are any.

        Raises:
            CNIErrorGroup: the errors, in the order of the requests.
        """
        if self.errors:
            raise CNIErrorGroup(f"{len(self.errors)} of {len(self.items)} failed", self.errors)


class AsyncCNIConfig(ClientBase[AsyncExecutor]):
    """Run the verbs of networks on asyncio; the methods are those of CNIConfig, as coroutines.

    Parameters, units (every ``timeout`` is in seconds, the wait for this program's other verbs included), answers and
    errors are those of CNIConfig. Here any verb may raise LockTimeoutError as well: so many others ran until its
    deadline that it was not begun.

    Verbs of one container run in the order in which they were called, those of different containers in parallel.
    Cancelling a verb kills the plugin that runs and leaves the record pending, for DEL or GC.
    """

    def _default_executor(self) -> AsyncExecutor:
        return AsyncProcessExecutor()

    @cached_property
    def _places(self) -> AsyncSemaphore:
        return AsyncSemaphore(max(MAX_PROCESSES, getattr(self._executor, "max_processes", 0)))

    @cached_property
    def _turns(self) -> WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Queue]]:
        return WeakKeyDictionary()

    async def add_network_list(  # noqa: PLR0913 - the options of the verb
        self,
        net: Network,
        rt: RuntimeConf,
        *,
        rollback: bool = True,
        on_existing: OnExisting = "refuse",
        strict: bool = False,
        negotiate_version: bool = False,
        retry: RetryPolicy | None = None,
        timeout: Timeout = DEFAULT,
    ) -> Result:
        """Attach a container to a network; as ``CNIConfig.add_network_list`` (spec 1.1.0, section 3)."""
        options = {"rollback": rollback, "strict": strict, "negotiate_version": negotiate_version, "retry": retry}
        return await self._run(self._add(net, rt, on_existing=on_existing, **options), timeout)

    async def check_network_list(
        self,
        net: Network,
        rt: RuntimeConf,
        *,
        use_given: bool = False,
        retry: RetryPolicy | None = None,
        timeout: Timeout = DEFAULT,
    ) -> None:
        """Check an attachment; as ``CNIConfig.check_network_list`` (spec 1.1.0, section 3)."""
        return await self._run(self._check(net, rt, use_given=use_given, retry=retry), timeout)

    async def del_network_list(
        self, net: Network, rt: RuntimeConf, *, policy: DelPolicy | None = None, timeout: Timeout = DEFAULT
    ) -> DelReport:
        """Detach a container from a network; as ``CNIConfig.del_network_list`` (spec 1.1.0, section 3)."""
        return await self._run(self._del(net, rt, policy), timeout)

    async def del_attachment(
        self, attachment: Attachment, *, policy: DelPolicy | None = None, timeout: Timeout = DEFAULT
    ) -> DelReport:
        """Detach a recorded attachment; as ``CNIConfig.del_attachment`` (spec 1.1.0, section 3)."""
        return await self._run(self._del_attachment(attachment, policy), timeout)

    async def gc_network_list(
        self, net: Network, valid: Iterable[ValidAttachment], *, dry_run: bool = False, timeout: Timeout = DEFAULT
    ) -> GCReport:
        """Detach what is not valid any more; as ``CNIConfig.gc_network_list`` (spec 1.1.0, section 2, GC)."""
        return await self._run(self._gc(net, valid, dry_run=dry_run), timeout)

    async def status_network_list(self, net: Network, *, timeout: Timeout = DEFAULT) -> NetworkStatus:
        """Ask whether a network can serve ADD; as ``CNIConfig.status_network_list`` (spec 1.1.0, section 2, STATUS)."""
        return await self._run(self._status(net, stop=True), timeout)

    async def network_status(self, net: Network, *, timeout: Timeout = DEFAULT) -> NetworkStatus:
        """Ask all plugins whether they can serve ADD; as ``CNIConfig.network_status`` (spec 1.1.0, section 2)."""
        return await self._run(self._status(net, stop=False), timeout)

    async def validate_network_list(self, net: Network, *, timeout: Timeout = DEFAULT) -> ValidationReport:
        """Find plugins and ask for their versions; as ``CNIConfig.validate_network_list`` (spec 1.1.0, section 2)."""
        return await self._run(self._validate(net), timeout)

    async def validate_network(self, plugin: PluginConfig, *, timeout: Timeout = DEFAULT) -> ValidationReport:
        """Validate a single plugin; as ``CNIConfig.validate_network`` (spec 1.1.0, section 2, VERSION)."""
        return await self.validate_network_list(NetworkConfigList.from_plugin(plugin), timeout=timeout)

    async def negotiate_version(self, net: Network, *, timeout: Timeout = DEFAULT) -> NetworkConfigList:
        """Return a network at its best common version; as ``CNIConfig.negotiate_version`` (spec 1.1.0, section 2)."""
        return await self._run(self._negotiate(net), timeout)

    async def get_version_info(self, plugin: str, *, timeout: Timeout = DEFAULT) -> PluginInfo:
        """Ask a plugin type for its versions; as ``CNIConfig.get_version_info`` (spec 1.1.0, section 2, VERSION)."""
        return await self._run(self._version(plugin), timeout)

    async def add_network(self, plugin: PluginConfig, rt: RuntimeConf, **options: Any) -> Result:
        """Attach with a single plugin; as ``CNIConfig.add_network`` (spec 1.1.0, section 3)."""
        return await self.add_network_list(alone(plugin), rt, **options)

    async def check_network(self, plugin: PluginConfig, rt: RuntimeConf, **options: Any) -> None:
        """Check what was attached with ``add_network``; as ``CNIConfig.check_network`` (spec 1.1.0, section 3)."""
        return await self.check_network_list(alone(plugin), rt, **options)

    async def del_network(self, plugin: PluginConfig, rt: RuntimeConf, **options: Any) -> DelReport:
        """Detach what was attached with ``add_network``; as ``CNIConfig.del_network`` (spec 1.1.0, section 3)."""
        return await self.del_network_list(alone(plugin), rt, **options)

    async def add_many(
        self,
        requests: Iterable[tuple[Network, RuntimeConf]],
        *,
        parallel: int = 64,
        on_item: Callable[[BatchItem[Result]], object] | None = None,
        **options: Any,
    ) -> Batch[Result]:
        """Attach many containers, ``parallel`` at a time (spec 1.1.0, section 3, Adding an attachment).

        Cancelling it cancels the verbs that run; the rest is not begun.

        Args:
            requests: (network, parameters) of each; the next is taken when a place is free.
            parallel: how many verbs run at once, at most.
            on_item: is called with each BatchItem as its verb ends, in the event loop. What it raises ends the batch
                and cancels the verbs that run.
            options: those of ``add_network_list``, for each; ``timeout`` is in seconds, for each by itself.

        Returns:
            What became of each, in the order of the requests. A CNIError of a verb is in it and not raised;
            ``raise_errors`` raises them grouped.
        """
        return await _collect(self.add_each(requests, parallel=parallel, **options), on_item)

    async def del_many(
        self,
        requests: Iterable[tuple[Network, RuntimeConf]],
        *,
        parallel: int = 64,
        on_item: Callable[[BatchItem[DelReport]], object] | None = None,
        **options: Any,
    ) -> Batch[DelReport]:
        """Detach many containers, ``parallel`` at a time (spec 1.1.0, section 3, Deleting an attachment).

        Args:
            requests: as for ``add_many``.
            parallel: how many verbs run at once, at most.
            on_item: as for ``add_many``.
            options: those of ``del_network_list``, for each; ``timeout`` is in seconds, for each by itself.

        Returns:
            As ``add_many``, with the report of each DEL.
        """
        return await _collect(self.del_each(requests, parallel=parallel, **options), on_item)

    def add_each(
        self, requests: Iterable[tuple[Network, RuntimeConf]], *, parallel: int = 64, **options: Any
    ) -> AsyncGenerator[BatchItem[Result], None]:
        """Attach many containers, and iterate over what becomes of them as it does (spec 1.1.0, section 3).

        Nothing runs before the first item is asked for. Closing the iterator (``aclose``, or ``contextlib.aclosing``
        around the loop) cancels the verbs that run and waits for their end; the rest is not begun.

        Args:
            requests: as for ``add_many``.
            parallel: how many verbs run at once, at most.
            options: those of ``add_network_list``, for each; ``timeout`` is in seconds, for each by itself.

        Returns:
            An iterator over what became of each, in the order in which the verbs end; ``index`` says which request it
            was. A CNIError of a verb is in it and not raised.
        """
        return _each(requests, lambda net, rt: self.add_network_list(net, rt, **options), parallel)

    def del_each(
        self, requests: Iterable[tuple[Network, RuntimeConf]], *, parallel: int = 64, **options: Any
    ) -> AsyncGenerator[BatchItem[DelReport], None]:
        """Detach many containers, and iterate over what becomes of them as it does (spec 1.1.0, section 3).

        It begins and can be closed as with ``add_each``.

        Args:
            requests: as for ``add_many``.
            parallel: how many verbs run at once, at most.
            options: those of ``del_network_list``, for each; ``timeout`` is in seconds, for each by itself.

        Returns:
            As ``add_each``, with the report of each DEL.
        """
        return _each(requests, lambda net, rt: self.del_network_list(net, rt, **options), parallel)

    async def _run(self, job: Job[AnswerT], timeout: Timeout) -> AnswerT:
        with self._verb(timeout, job.operation) as verb:
            # a lock that somebody waits for belongs to its loop for ever, also when that was closed meanwhile
            queues = self._turns.setdefault(asyncio.get_running_loop(), {})
            async with _Turn(queues, job.operation.container_id, verb), _Place(self._places, verb):
                course = Course(verb.drive(job.flow))
                for need in course:
                    with course:
                        course.answer = await self._meet(need)
        return course.value

    async def _meet(self, need: Need) -> Any:
        if isinstance(need, Call):
            return await self._executor.execute(need.invocation, need.limits)
        return await (asyncio.sleep(need.seconds) if isinstance(need, Sleep) else _in_thread(need.do))


class _Queue:
    """The verbs of one container; forgotten when none is left."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class _Turn:
    """Wait for the verbs of the same container that were called earlier, and let the next ones go on after this."""

    def __init__(self, queues: dict[str, _Queue], container_id: str, verb: Verb) -> None:
        self._queues = queues
        self._container_id = container_id
        self._verb = verb

    async def __aenter__(self) -> None:
        if not self._container_id:
            return
        queue = self._queues.setdefault(self._container_id, _Queue())
        queue.users += 1
        try:
            await _acquired(queue, self._verb)
        except BaseException as error:
            self._leave(queue)
            if isinstance(error, TimeoutError):
                what = f"container {self._container_id}"
                problem = f"{what}: another verb of this program ran until the deadline"
                raise LockTimeoutError(problem, what=what) from None
            raise

    async def __aexit__(self, *_: object) -> None:
        if self._container_id:
            queue = self._queues[self._container_id]
            queue.lock.release()
            self._leave(queue)

    def _leave(self, queue: _Queue) -> None:
        queue.users -= 1
        if not queue.users:
            del self._queues[self._container_id]


class _Place:
    """Let so many verbs run at once as plugins can.

    More could only wait, and each holds lock descriptors: the kernel looks through all of them at each spawn.
    """

    def __init__(self, places: AsyncSemaphore, verb: Verb) -> None:
        self._places = places
        self._verb = verb

    async def __aenter__(self) -> None:
        try:
            self._place = await self._places.acquire(self._verb.seconds_left())
        except TimeoutError:
            what = f"{self._places.value} verbs of this program"
            raise LockTimeoutError(f"{what} ran until the deadline; it was not begun", what=what) from None

    async def __aexit__(self, *_: object) -> None:
        self._place.release()


async def _acquired(queue: _Queue, verb: Verb) -> None:
    # not "if the lock is free": between its release and the next one's waking it is free, and waits for that one
    if queue.users == 1:
        await queue.lock.acquire()
        return
    async with asyncio.timeout(verb.seconds_left()):
        await queue.lock.acquire()


async def _in_thread(work: Callable[[], AnswerT]) -> AnswerT:
    """Do what may wait for the disk in a thread. A cancelled caller still waits for its end.

    Otherwise the record would be written after its locks are gone, perhaps over that of a later verb.
    """
    future = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        while not future.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([future])
        raise


async def _each(
    requests: Iterable[tuple[Network, RuntimeConf]],
    call: Callable[[Network, RuntimeConf], Awaitable[AnswerT]],
    parallel: int,
) -> AsyncGenerator[BatchItem[AnswerT], None]:
    if parallel < 1:  # nothing would be done, without a word
        raise ValueError(f"parallel: {parallel} is less than 1")
    waiting = enumerate(requests)
    running: set[asyncio.Task[BatchItem[AnswerT]]] = set()
    try:
        while True:
            for index, (net, rt) in islice(waiting, parallel - len(running)):
                running.add(asyncio.create_task(_item(index, net, rt, call)))
            if not running:
                return
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                yield task.result()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _item(
    index: int, net: Network, rt: RuntimeConf, call: Callable[[Network, RuntimeConf], Awaitable[AnswerT]]
) -> BatchItem[AnswerT]:
    try:
        return BatchItem(index, net, rt, answer=await call(net, rt))
    except CNIError as error:
        return BatchItem(index, net, rt, error=error)


async def _collect(
    items: AsyncGenerator[BatchItem[AnswerT], None], on_item: Callable[[BatchItem[AnswerT]], object] | None
) -> Batch[AnswerT]:
    found = []
    async with aclosing(items):
        async for item in items:
            found.append(item)
            if on_item is not None:
                on_item(item)
    return Batch(tuple(sorted(found, key=lambda item: item.index)))
