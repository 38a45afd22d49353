"""AsyncCNIConfig: the verbs of CNIConfig on asyncio, and batches of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack, cast
from weakref import WeakKeyDictionary

from libcni.config.network import NetworkConfigList, PluginConfig
from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import CNIError, CNIErrorGroup, LockTimeoutError
from libcni.executor.async_process import MAX_PROCESSES, AsyncProcessExecutor
from libcni.executor.protocol import AsyncExecutor, AsyncPreparingExecutor, CallOptions
from libcni.executor.semaphore import AsyncSemaphore
from libcni.observe.protocol import Operation
from libcni.protocol.invocation import Invocation, Outcome
from libcni.protocol.result import Result
from libcni.store.attachments import Attachment
from libcni.store.records import RecordStore
from libcni.verbs.add import add
from libcni.verbs.check import check
from libcni.verbs.client_base import (
    DEFAULT,
    ClientBase,
    Network,
    Timeout,
    attachment_conf,
    attachment_operation,
    operation,
    single,
)
from libcni.verbs.delete import delete
from libcni.verbs.forget import forget, take_over
from libcni.verbs.gc import gc
from libcni.verbs.node import Node, Settings, VersionCache
from libcni.verbs.reports import (
    AddOptions,
    CheckOptions,
    DelOptions,
    DelPolicy,
    DelReport,
    ForgetReport,
    GCReport,
    NetworkStatus,
    OnCancel,
    OnExisting,
    PluginInfo,
    RetryPolicy,
    ValidationReport,
    ValidAttachment,
)
from libcni.verbs.status import status, status_or_raise
from libcni.verbs.version import negotiate, validate, version

__all__ = ["AsyncCNIConfig", "Batch", "BatchItem"]

AnswerT = TypeVar("AnswerT")

_LEAST_VERBS = 256
"""How many verbs run at once at least, also if fewer plugins can: most of a verb's waits are for something else."""

_P = ParamSpec("_P")


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
        CNIErrorGroup.raise_any(f"{{}} of {len(self.items)} failed", self.errors, self)


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
    def _slots(self) -> AsyncSemaphore:
        return AsyncSemaphore(max(_LEAST_VERBS, getattr(self._executor, "max_processes", MAX_PROCESSES)))

    @cached_property
    def _queues(self) -> WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Queue]]:
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
        allow_own_netns: bool = False,
        on_cancel: OnCancel = "keep",
        timeout: Timeout = DEFAULT,
    ) -> Result:
        """Attach a container to a network; as ``CNIConfig.add_network_list`` (spec 1.1.0, section 3)."""
        named = self._named(net)
        return await self._run(
            operation("ADD", named.name, rt),
            timeout,
            add,
            named,
            rt,
            rollback=rollback,
            on_existing=on_existing,
            strict=strict,
            negotiate_version=negotiate_version,
            retry=retry,
            allow_own_netns=allow_own_netns,
            on_cancel=on_cancel,
        )

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
        name, given = self._named_or_gone(net)
        call = operation("CHECK", name, rt)
        return await self._run(call, timeout, check, name, given, rt, use_given=use_given, retry=retry)

    async def del_network_list(
        self, net: Network, rt: RuntimeConf, *, policy: DelPolicy | None = None, timeout: Timeout = DEFAULT
    ) -> DelReport:
        """Detach a container from a network; as ``CNIConfig.del_network_list`` (spec 1.1.0, section 3)."""
        name, given = self._named_or_gone(net)
        return await self._run(operation("DEL", name, rt), timeout, delete, name, given, rt, policy or DelPolicy())

    async def del_attachment(
        self, attachment: Attachment, *, policy: DelPolicy | None = None, timeout: Timeout = DEFAULT
    ) -> DelReport:
        """Detach a recorded attachment; as ``CNIConfig.del_attachment`` (spec 1.1.0, section 3)."""
        rt = attachment_conf(attachment)
        call = attachment_operation("DEL", attachment)
        chosen = policy or DelPolicy()
        return await self._run(call, timeout, delete, attachment.network, None, rt, chosen, listed=attachment.record)

    async def gc_network_list(
        self,
        net: Network,
        valid: Iterable[ValidAttachment],
        *,
        dry_run: bool = False,
        negotiate_version: bool = False,
        timeout: Timeout = DEFAULT,
    ) -> GCReport:
        """Detach what is not valid any more; as ``CNIConfig.gc_network_list`` (spec 1.1.0, section 2, GC)."""
        name, given = self._named_or_gone(net)
        call = Operation("GC", name)
        return await self._run(
            call, timeout, gc, name, given, valid, dry_run=dry_run, negotiate_version=negotiate_version
        )

    async def status_network_list(
        self, net: Network, *, negotiate_version: bool = False, timeout: Timeout = DEFAULT
    ) -> NetworkStatus:
        """Ask whether a network can serve ADD; as ``CNIConfig.status_network_list`` (spec 1.1.0, section 2, STATUS)."""
        named = self._named(net)
        call = Operation("STATUS", named.name)
        return await self._run(call, timeout, status_or_raise, named, negotiate_version=negotiate_version)

    async def network_status(
        self, net: Network, *, negotiate_version: bool = False, timeout: Timeout = DEFAULT
    ) -> NetworkStatus:
        """Ask all plugins whether they can serve ADD; as ``CNIConfig.network_status`` (spec 1.1.0, section 2)."""
        named = self._named(net)
        call = Operation("STATUS", named.name)
        return await self._run(call, timeout, status, named, negotiate_version=negotiate_version)

    async def validate_network_list(self, net: Network, *, timeout: Timeout = DEFAULT) -> ValidationReport:
        """Find plugins and ask for their versions; as ``CNIConfig.validate_network_list`` (spec 1.1.0, section 2)."""
        named = self._named(net)
        return await self._run(Operation("VERSION", named.name), timeout, validate, named)

    async def validate_network(self, plugin: PluginConfig, *, timeout: Timeout = DEFAULT) -> ValidationReport:
        """Validate a single plugin; as ``CNIConfig.validate_network`` (spec 1.1.0, section 2, VERSION)."""
        return await self.validate_network_list(NetworkConfigList.from_plugin(plugin), timeout=timeout)

    async def negotiate_version(self, net: Network, *, timeout: Timeout = DEFAULT) -> NetworkConfigList:
        """Return a network at its best common version; as ``CNIConfig.negotiate_version`` (spec 1.1.0, section 2)."""
        named = self._named(net)
        return await self._run(Operation("VERSION", named.name), timeout, negotiate, named)

    async def get_version_info(self, plugin: str, *, timeout: Timeout = DEFAULT) -> PluginInfo:
        """Ask a plugin type for its versions; as ``CNIConfig.get_version_info`` (spec 1.1.0, section 2, VERSION)."""
        return await self._run(Operation("VERSION"), timeout, version, plugin)

    async def forget_attachment(self, attachment: Attachment, *, timeout: Timeout = DEFAULT) -> ForgetReport:
        """Drop an attachment's record and run nothing; as ``CNIConfig.forget_attachment``."""
        return await self._run(attachment_operation("FORGET", attachment), timeout, forget, attachment)

    async def take_over_attachment(self, attachment: Attachment, *, timeout: Timeout = DEFAULT) -> Attachment:
        """Make an attachment this client's own; as ``CNIConfig.take_over_attachment``."""
        return await self._run(attachment_operation("TAKE-OVER", attachment), timeout, take_over, attachment)

    async def add_network(self, plugin: PluginConfig, rt: RuntimeConf, **options: Unpack[AddOptions]) -> Result:
        """Attach with a single plugin; as ``CNIConfig.add_network`` (spec 1.1.0, section 3)."""
        return await self.add_network_list(single(plugin), rt, **options)

    async def check_network(self, plugin: PluginConfig, rt: RuntimeConf, **options: Unpack[CheckOptions]) -> None:
        """Check what was attached with ``add_network``; as ``CNIConfig.check_network`` (spec 1.1.0, section 3)."""
        return await self.check_network_list(single(plugin), rt, **options)

    async def del_network(self, plugin: PluginConfig, rt: RuntimeConf, **options: Unpack[DelOptions]) -> DelReport:
        """Detach what was attached with ``add_network``; as ``CNIConfig.del_network`` (spec 1.1.0, section 3)."""
        return await self.del_network_list(single(plugin), rt, **options)

    async def add_many(
        self,
        requests: Iterable[tuple[Network, RuntimeConf]],
        *,
        parallel: int = 64,
        on_item: Callable[[BatchItem[Result]], object] | None = None,
        **options: Unpack[AddOptions],
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
        **options: Unpack[DelOptions],
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
        self, requests: Iterable[tuple[Network, RuntimeConf]], *, parallel: int = 64, **options: Unpack[AddOptions]
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
        self, requests: Iterable[tuple[Network, RuntimeConf]], *, parallel: int = 64, **options: Unpack[DelOptions]
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

    async def _run(
        self,
        call: Operation,
        timeout: Timeout,
        verb: Callable[Concatenate[Node, _P], Coroutine[Any, Any, AnswerT]],
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> AnswerT:
        seconds = self._seconds(timeout)
        with _AsyncNode(self._settings, self._executor, self._store, self._versions, seconds, call) as node:
            # A lock that somebody waited for belongs to its event loop for ever, so each loop has its own queues.
            queues = self._queues.setdefault(asyncio.get_running_loop(), {})
            async with _InOrder(queues, call.container_id, node), _Slot(self._slots, node):
                try:
                    return await verb(node, *args, **kwargs)
                finally:
                    await node.discard_prepared()


class _AsyncNode(Node):
    """A node whose operations that can wait are awaited."""

    def __init__(  # noqa: PLR0913, PLR0917 - those of Node
        self,
        settings: Settings,
        executor: AsyncExecutor,
        store: RecordStore,
        versions: VersionCache,
        timeout: float | None,
        operation: Operation,
    ) -> None:
        super().__init__(settings, store, versions, timeout, operation)
        self._executor = executor
        self.starts_ahead = settings.start_ahead != "never" and hasattr(executor, "prepare")

    def prepare_plugin(self, invocation: Invocation, options: CallOptions) -> Any:
        return cast("AsyncPreparingExecutor", self._executor).prepare(invocation, options)

    async def feed_plugin(self, plugin: Any, stdin: bytes, timeout: float | None) -> Outcome:
        outcome: Outcome = await plugin.feed(stdin, timeout)
        return outcome

    async def discard_plugin(self, plugin: Any) -> None:
        await plugin.discard()

    async def run_plugin(self, invocation: Invocation, options: CallOptions) -> Outcome:
        return await self._executor.execute(invocation, options)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def on_disk(self, work: Callable[[], AnswerT]) -> AnswerT:
        return await _in_thread(work)

    async def shielded(self, work: Coroutine[Any, Any, AnswerT]) -> AnswerT:
        return await _to_the_end(asyncio.ensure_future(work))

    def find(self, plugin: str) -> str:
        return self._executor.find(plugin, self.path)


class _Queue:
    """The queue of one container's verbs; it is dropped when no verb is left."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class _InOrder:
    """A context in which no other verb of the container runs; verbs enter it in the order of their calls."""

    def __init__(self, queues: dict[str, _Queue], container_id: str, node: Node) -> None:
        self._queues = queues
        self._container_id = container_id
        self._node = node

    async def __aenter__(self) -> None:
        if not self._container_id:
            return
        queue = self._queues.setdefault(self._container_id, _Queue())
        queue.users += 1
        try:
            await _acquired(queue, self._node)
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


class _Slot:
    """A context that only as many verbs enter at once as plugins can run.

    More verbs would begin, and then wait for a plugin's start with a part of their work done, until their deadline.
    """

    def __init__(self, slots: AsyncSemaphore, node: Node) -> None:
        self._slots = slots
        self._node = node

    async def __aenter__(self) -> None:
        try:
            self._acquired = await self._slots.acquire(self._node.seconds_left())
        except TimeoutError:
            what = f"{self._slots.value} verbs of this program"
            raise LockTimeoutError(f"{what} ran until the deadline; it was not begun", what=what) from None

    async def __aexit__(self, *_: object) -> None:
        self._acquired.release()


async def _acquired(queue: _Queue, node: Node) -> None:
    # Not "if the lock is free": it is free between its release and the waking of the next verb, and belongs to that.
    if queue.users == 1:
        await queue.lock.acquire()
        return
    async with asyncio.timeout(node.seconds_left()):
        await queue.lock.acquire()


async def _in_thread(work: Callable[[], AnswerT]) -> AnswerT:
    """Do what may wait for the disk in a thread. A cancelled caller still waits for its end.

    Otherwise the record would be written after its locks are released, perhaps over that of a later verb.
    """
    return await _to_the_end(asyncio.get_running_loop().run_in_executor(None, work))


async def _to_the_end(future: asyncio.Future[AnswerT]) -> AnswerT:
    """Wait for a future. A caller that is cancelled meanwhile is cancelled when the future is done, not before."""
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
