"""AsyncCNIConfig: the verbs of CNIConfig on asyncio, and batches of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack

from libcni.config.network import NetworkConfigList, PluginConfig
from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import CNIError
from libcni.executor.async_process import AsyncProcessExecutor
from libcni.executor.protocol import AsyncExecutor, CallOptions
from libcni.observe.protocol import Operation
from libcni.protocol.answer import PluginInfo
from libcni.protocol.invocation import Invocation, Outcome
from libcni.protocol.result import Result
from libcni.store.attachments import Attachment
from libcni.verbs.add import add
from libcni.verbs.batch import Batch, BatchItem, collect
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
from libcni.verbs.detach_each import del_attachments, is_repeatable, with_first_error, worth_repeating
from libcni.verbs.forget import forget, take_over
from libcni.verbs.gc import gc
from libcni.verbs.node import Node
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
    RetryPolicy,
    ValidationReport,
    ValidAttachment,
    check_option_names,
)
from libcni.verbs.status import status, status_or_raise
from libcni.verbs.version import negotiate, validate, version

__all__ = ["AsyncCNIConfig"]

AnswerT = TypeVar("AnswerT")

_P = ParamSpec("_P")


class AsyncCNIConfig(ClientBase[AsyncExecutor]):
    """Run the verbs of networks on asyncio; the methods of CNIConfig that run plugins or change records are coroutines.

    Parameters, units, return values and errors are those of CNIConfig.
    If a verb is cancelled, it kills the running plugin and leaves the record pending, for DEL or GC.
    """

    _is_async = True

    def _default_executor(self) -> AsyncExecutor:
        return AsyncProcessExecutor()

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
        return await self._run(
            operation("CHECK", name, rt), timeout, check, name, given, rt, use_given=use_given, retry=retry
        )

    async def del_network_list(
        self, net: Network, rt: RuntimeConf, *, policy: DelPolicy | None = None, timeout: Timeout = DEFAULT
    ) -> DelReport:
        """Detach a container from a network; as ``CNIConfig.del_network_list`` (spec 1.1.0, section 3)."""
        return await self._del(net, rt, policy=policy, timeout=timeout)

    async def _del(
        self,
        net: Network,
        rt: RuntimeConf,
        *,
        is_repeat: bool = False,
        policy: DelPolicy | None = None,
        timeout: Timeout = DEFAULT,
    ) -> DelReport:
        name, given = self._named_or_gone(net)
        chosen, running = policy or DelPolicy(), operation("DEL", name, rt)
        return await self._run(running, timeout, delete, name, given, rt, chosen, is_repeat=is_repeat)

    async def del_attachment(
        self, attachment: Attachment, *, policy: DelPolicy | None = None, timeout: Timeout = DEFAULT
    ) -> DelReport:
        """Detach a recorded attachment; as ``CNIConfig.del_attachment`` (spec 1.1.0, section 3)."""
        running, rt = attachment_operation("DEL", attachment), attachment_conf(attachment)
        network, chosen, listed = attachment.network, policy or DelPolicy(), attachment.record
        return await self._run(running, timeout, delete, network, None, rt, chosen, listed=listed)

    async def del_attachments(
        self,
        attachments: Iterable[Attachment],
        *,
        policy: DelPolicy | None = None,
        on_item: Callable[[BatchItem[DelReport]], object] | None = None,
        timeout: Timeout = DEFAULT,
    ) -> Batch[DelReport]:
        """Detach recorded attachments in order; as ``CNIConfig.del_attachments`` (spec 1.1.0, section 3)."""
        delete_one = partial(self.del_attachment, policy=policy, timeout=timeout)
        return await del_attachments(attachments, delete_one, on_item)

    async def gc_network_list(  # noqa: PLR0913 - the options of the verb
        self,
        net: Network,
        valid: Iterable[ValidAttachment],
        *,
        dry_run: bool = False,
        policy: DelPolicy | None = None,
        negotiate_version: bool = False,
        timeout: Timeout = DEFAULT,
    ) -> GCReport:
        """Detach all attachments that are not valid; as ``CNIConfig.gc_network_list`` (spec 1.1.0, section 2, GC)."""
        name, given = self._named_or_gone(net)
        chosen, running = policy or DelPolicy(), Operation("GC", name)
        return await self._run(
            running, timeout, gc, name, given, valid, chosen, dry_run=dry_run, negotiate_version=negotiate_version
        )

    async def status_network_list(
        self, net: Network, *, negotiate_version: bool = False, timeout: Timeout = DEFAULT
    ) -> NetworkStatus:
        """Ask whether a network can serve ADD; as ``CNIConfig.status_network_list`` (spec 1.1.0, section 2, STATUS)."""
        named = self._named(net)
        return await self._run(
            Operation("STATUS", named.name), timeout, status_or_raise, named, negotiate_version=negotiate_version
        )

    async def network_status(
        self, net: Network, *, negotiate_version: bool = False, timeout: Timeout = DEFAULT
    ) -> NetworkStatus:
        """Ask all plugins whether they can serve ADD; as ``CNIConfig.network_status`` (spec 1.1.0, section 2)."""
        named = self._named(net)
        return await self._run(
            Operation("STATUS", named.name), timeout, status, named, negotiate_version=negotiate_version
        )

    async def validate_network_list(self, net: Network, *, timeout: Timeout = DEFAULT) -> ValidationReport:
        """Find plugins and ask for their versions; as ``CNIConfig.validate_network_list`` (spec 1.1.0, section 2)."""
        named = self._named(net)
        return await self._run(Operation("VERSION", named.name), timeout, validate, named)

    async def validate_network(self, plugin: PluginConfig, *, timeout: Timeout = DEFAULT) -> ValidationReport:
        """Validate a single plugin; as ``CNIConfig.validate_network`` (spec 1.1.0, section 2, VERSION)."""
        return await self.validate_network_list(single(plugin), timeout=timeout)

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

    async def reload_attachment(self, attachment: Attachment, *, timeout: Timeout = DEFAULT) -> Result:
        """Detach and attach a recorded container again in place; as ``CNIConfig.reload_attachment``."""
        from libcni.verbs.reload import reload  # few programs need it, and what it imports

        return await self._run(attachment_operation("RELOAD", attachment), timeout, reload, attachment)

    async def take_over_attachment(self, attachment: Attachment, *, timeout: Timeout = DEFAULT) -> Attachment:
        """Make an attachment this client's own; as ``CNIConfig.take_over_attachment``."""
        return await self._run(attachment_operation("TAKE-OVER", attachment), timeout, take_over, attachment)

    async def add_network(self, plugin: PluginConfig, rt: RuntimeConf, **options: Unpack[AddOptions]) -> Result:
        """Attach with a single plugin; as ``CNIConfig.add_network`` (spec 1.1.0, section 3)."""
        return await self.add_network_list(single(plugin), rt, **options)

    async def check_network(self, plugin: PluginConfig, rt: RuntimeConf, **options: Unpack[CheckOptions]) -> None:
        """Check an attachment of ``add_network``; as ``CNIConfig.check_network`` (spec 1.1.0, section 3)."""
        return await self.check_network_list(single(plugin), rt, **options)

    async def del_network(self, plugin: PluginConfig, rt: RuntimeConf, **options: Unpack[DelOptions]) -> DelReport:
        """Detach an attachment of ``add_network``; as ``CNIConfig.del_network`` (spec 1.1.0, section 3)."""
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

        If the batch is cancelled, it cancels the running verbs and does not start the remaining ones.

        Args:
            requests: (network, parameters) pairs; the next pair is read when a verb can start.
            parallel: the maximum number of verbs that run at the same time.
            on_item: called with each BatchItem when its verb ends, in the event loop. If it raises, the batch ends and
                cancels the running verbs.
            options: the options of ``add_network_list`` for every verb; ``timeout`` is in seconds for each verb.

        Returns:
            The outcomes in the order of the requests. A verb's CNIError is in its item and not raised;
            ``raise_errors`` raises all of them as one group.
        """
        return await collect(self.add_each(requests, parallel=parallel, **options), on_item)

    async def del_many(
        self,
        requests: Iterable[tuple[Network, RuntimeConf]],
        *,
        parallel: int = 64,
        on_item: Callable[[BatchItem[DelReport]], object] | None = None,
        **options: Unpack[DelOptions],
    ) -> Batch[DelReport]:
        """Detach many containers, ``parallel`` at a time (spec 1.1.0, section 3, Deleting an attachment).

        Parameters and outcomes are those of ``add_many``, with the options of ``del_network_list`` and a DelReport for
        each request. As in ``del_attachments``, a DEL is repeated once if another interface of its container has left
        the same network since; ``on_item`` gets an item that may be repeated at the end.
        """
        return await collect(self._del_all(requests, parallel, options), on_item)

    def add_each(
        self, requests: Iterable[tuple[Network, RuntimeConf]], *, parallel: int = 64, **options: Unpack[AddOptions]
    ) -> AsyncGenerator[BatchItem[Result], None]:
        """Attach many containers, and iterate over the outcomes as the verbs end (spec 1.1.0, section 3).

        Nothing runs before the first item is requested. Closing the iterator (``aclose``, or ``contextlib.aclosing``
        around the loop) cancels the running verbs and waits for their end; the remaining ones do not start.

        Args:
            requests: as for ``add_many``.
            parallel: the maximum number of verbs that run at the same time.
            options: the options of ``add_network_list`` for every verb; ``timeout`` is in seconds for each verb.

        Returns:
            An iterator over the outcomes, in the order in which the verbs end; ``index`` is the request's index.
            A verb's CNIError is in its item and not raised.
        """
        check_option_names(options, AddOptions.__annotations__, "add_network_list")
        return _each(requests, lambda net, rt: self.add_network_list(net, rt, **options), parallel)

    def del_each(
        self, requests: Iterable[tuple[Network, RuntimeConf]], *, parallel: int = 64, **options: Unpack[DelOptions]
    ) -> AsyncGenerator[BatchItem[DelReport], None]:
        """Detach many containers, and iterate over the outcomes as the verbs end (spec 1.1.0, section 3).

        Parameters and iterator are those of ``add_each``, with the options of ``del_network_list`` and a DelReport for
        each request. No DEL is repeated: an item is yielded when its verb ends, and not when the others have ended.
        """
        check_option_names(options, DelOptions.__annotations__, "del_network_list")
        return _each(requests, lambda net, rt: self.del_network_list(net, rt, **options), parallel)

    async def _del_all(
        self, requests: Iterable[tuple[Network, RuntimeConf]], parallel: int, options: DelOptions
    ) -> AsyncGenerator[BatchItem[DelReport], None]:
        """Yield the items of ``del_each``, and those last that may be repeated."""
        items: list[BatchItem[DelReport]] = []
        held: dict[int, BatchItem[DelReport]] = {}
        async with aclosing(self.del_each(requests, parallel=parallel, **options)) as ended:
            async for item in ended:
                items.append(item)
                if item.error is not None and is_repeatable(item.error):
                    held[item.index] = item
                else:
                    yield item
        # The verbs of one container have run in this order.
        items.sort(key=lambda item: item.index)
        again = [held.pop(index) for index in worth_repeating([(_group(item), item.error) for item in items])]
        for item in held.values():
            yield item
        repeat = partial(self._del, is_repeat=True, **options)
        async with aclosing(_each([(item.net, item.rt) for item in again], repeat, parallel)) as ended:
            async for item in ended:
                first = again[item.index]
                yield replace(item, index=first.index, error=item.error and with_first_error(item.error, first.error))

    async def _run(
        self,
        operation: Operation,
        timeout: Timeout,
        verb: Callable[Concatenate[Node, _P], Coroutine[Any, Any, AnswerT]],
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> AnswerT:
        with self._node(operation, timeout) as node:
            await node.wait_for_turn()
            try:
                return await verb(node, *args, **kwargs)
            finally:
                # Also after a cancellation: a plugin that was started ahead must not outlive the verb.
                await node.discard_prepared()

    def _node(self, operation: Operation, timeout: Timeout) -> Node:
        return _AsyncNode(self._state, self._executor, self._seconds(timeout), operation)


class _AsyncNode(Node):
    """A node that awaits its executor, sleeps and disk operations on asyncio."""

    _executor: AsyncExecutor

    async def wait_for_turn(self) -> None:
        if self._limit.enter(self._turn):
            return
        loop = asyncio.get_running_loop()
        has_come: asyncio.Future[None] = loop.create_future()
        # The verb that ends may run in another thread.
        self._limit.call_when_it_comes(self._turn, partial(loop.call_soon_threadsafe, _set_result, has_come))
        try:
            async with asyncio.timeout(self.seconds_left()):
                await has_come
        except TimeoutError:
            raise self.turn_timeout() from None

    async def run_plugin(self, invocation: Invocation, options: CallOptions) -> Outcome:
        return await self._executor.execute(invocation, options)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def on_disk(self, work: Callable[[], AnswerT]) -> AnswerT:
        # A cancelled caller still waits for the thread. Otherwise the thread would write the record after the locks of
        # the verb are released, perhaps over a later verb's record.
        return await to_the_end(asyncio.get_running_loop().run_in_executor(None, work))

    async def shielded(self, work: Coroutine[Any, Any, AnswerT]) -> AnswerT:
        return await to_the_end(asyncio.ensure_future(work))


def _set_result(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def to_the_end(future: asyncio.Future[AnswerT]) -> AnswerT:
    """Wait for a future. If the caller is cancelled meanwhile, raise CancelledError only when the future is done."""
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        # In a loop: each further cancellation interrupts the wait, and the locks may only be released after the end.
        while not future.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([future])
        raise


async def _each(
    requests: Iterable[tuple[Network, RuntimeConf]],
    call: Callable[[Network, RuntimeConf], Awaitable[AnswerT]],
    parallel: int,
) -> AsyncGenerator[BatchItem[AnswerT], None]:
    if parallel < 1:  # the batch would end at once without an error
        raise ValueError(f"parallel: {parallel} is less than 1")
    waiting = enumerate(requests)
    running: set[asyncio.Task[BatchItem[AnswerT]]] = set()
    try:
        while True:
            # At most ``parallel`` requests are read ahead, so an iterator over a million containers needs no memory for
            # them.
            for index, (net, rt) in islice(waiting, parallel - len(running)):
                running.add(asyncio.create_task(_item(index, net, rt, call)))
            if not running:
                return
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                yield task.result()
    finally:
        # Runs also when the caller closes the generator. Without the wait, plugins would run after aclose() returns.
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _group(item: BatchItem[DelReport]) -> tuple[str, str]:
    return item.net if isinstance(item.net, str) else item.net.name, item.rt.container_id


async def _item(
    index: int, net: Network, rt: RuntimeConf, call: Callable[[Network, RuntimeConf], Awaitable[AnswerT]]
) -> BatchItem[AnswerT]:
    try:
        return BatchItem(index, net, rt, answer=await call(net, rt))
    except CNIError as error:
        return BatchItem(index, net, rt, error=error)
