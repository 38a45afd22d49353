"""AsyncCNIConfig: the verbs of CNIConfig on asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack

from libcni.client import CNIConfig
from libcni.config.network import PluginConfig
from libcni.config.runtime_conf import RuntimeConf
from libcni.executor.async_process import AsyncProcessExecutor
from libcni.executor.interface import AsyncExecutor
from libcni.executor.loop_events import let_others_run
from libcni.observe.observer import Operation
from libcni.options import DEFAULT, AddOptions, DelPolicy, GCOptions, Network, Timeout, ValidAttachment, check_options
from libcni.protocol.answer import PluginInfo
from libcni.protocol.result import Result
from libcni.store.attachments import Attachment
from libcni.verbs.add import add
from libcni.verbs.check import check
from libcni.verbs.client_base import (
    ClientBase,
    attachment_operation,
    documented_like,
    name_and_config,
    operation,
    single,
)
from libcni.verbs.del_report import DelReport
from libcni.verbs.delete import delete
from libcni.verbs.each_container import del_attachments
from libcni.verbs.forget import ForgetReport, forget
from libcni.verbs.gc import GCReport, gc
from libcni.verbs.status import NetworkStatus, status, status_or_raise
from libcni.verbs.take_over import take_over
from libcni.verbs.verb_run import VerbRun
from libcni.verbs.version import ValidationReport, validate, version

if TYPE_CHECKING:
    from libcni.verbs.check import CheckReport
    from libcni.verbs.reload import Outcomes

__all__ = ["AsyncCNIConfig"]

AnswerT = TypeVar("AnswerT")

_P = ParamSpec("_P")


@documented_like(CNIConfig)
class AsyncCNIConfig(ClientBase[AsyncExecutor]):
    """A CNIConfig for asyncio: the methods that run plugins or change records are coroutines.

    Parameters, units, return values and errors are those of CNIConfig.
    A cancelled verb kills the running plugin and leaves the record pending: DEL or GC can still detach the attachment.

    Examples:
        >>> import asyncio
        >>> async def attach():
        ...     cni = AsyncCNIConfig("/opt/cni/bin", "cache", executor=executor.on_asyncio)
        ...     return (await cni.add_network_list(net, rt)).ips[0].address
        >>> asyncio.run(attach())
        '10.1.0.5/16'
    """

    _is_async = True

    def _default_executor(self) -> AsyncExecutor:
        return AsyncProcessExecutor()

    async def add_network_list(
        self, net: Network, rt: RuntimeConf, *, timeout: Timeout = DEFAULT, **options: Unpack[AddOptions]
    ) -> Result:
        """Attach a container to a network; see ``CNIConfig.add_network_list`` (spec 1.1.0, section 3)."""
        check_options("add_network_list", options, AddOptions)
        named = self._named(net)
        return await self._run(operation("ADD", named.name, rt), timeout, add, named, rt, **options)

    async def check_network_list(
        self, net: Network, rt: RuntimeConf, *, use_given: bool = False, timeout: Timeout = DEFAULT
    ) -> CheckReport:
        """Check an attachment; see ``CNIConfig.check_network_list`` (spec 1.1.0, section 3)."""
        name, config = name_and_config(net)
        return await self._run(operation("CHECK", name, rt), timeout, check, name, config, rt, use_given=use_given)

    async def check_attachment(self, attachment: Attachment, *, timeout: Timeout = DEFAULT) -> CheckReport:
        """Check a recorded attachment; see ``CNIConfig.check_attachment`` (spec 1.1.0, section 3)."""
        running, rt = self._operation_of("CHECK", attachment)
        return await self._run(running, timeout, check, attachment.network, None, rt)

    async def del_network_list(
        self, net: Network, rt: RuntimeConf, *, policy: DelPolicy | None = None, timeout: Timeout = DEFAULT
    ) -> DelReport:
        """Detach a container from a network; see ``CNIConfig.del_network_list`` (spec 1.1.0, section 3)."""
        name, config = name_and_config(net)
        return await self._run(operation("DEL", name, rt), timeout, delete, name, config, rt, policy)

    async def del_attachment(
        self, attachment: Attachment, *, policy: DelPolicy | None = None, timeout: Timeout = DEFAULT
    ) -> DelReport:
        """Detach a recorded attachment; see ``CNIConfig.del_attachment`` (spec 1.1.0, section 3)."""
        running, rt = self._operation_of("DEL", attachment)
        network, listed = attachment.network, attachment.record
        return await self._run(running, timeout, delete, network, None, rt, policy, listed=listed)

    async def del_attachments(
        self, attachments: Iterable[Attachment], *, policy: DelPolicy | None = None, timeout: Timeout = DEFAULT
    ) -> list[DelReport]:
        """Detach recorded attachments, in tasks; see ``CNIConfig.del_attachments`` (spec 1.1.0, section 3)."""
        delete_one = partial(self.del_attachment, policy=policy, timeout=timeout)
        return await del_attachments(attachments, delete_one, self._state.side_by_side)

    async def gc_network_list(
        self,
        net: Network,
        valid: Iterable[ValidAttachment],
        *,
        timeout: Timeout = DEFAULT,
        **options: Unpack[GCOptions],
    ) -> GCReport:
        """Detach all attachments that are not valid; see ``CNIConfig.gc_network_list`` (spec 1.1.0, section 2, GC)."""
        check_options("gc_network_list", options, GCOptions)
        name, config = name_and_config(net)
        return await self._run(Operation("GC", name), timeout, gc, name, config, valid, **options)

    async def status_network_list(self, net: Network, *, timeout: Timeout = DEFAULT) -> NetworkStatus:
        """Ask whether a network can serve ADD; see ``CNIConfig.status_network_list`` (spec 1.1.0, section 2)."""
        named = self._named(net)
        return await self._run(Operation("STATUS", named.name), timeout, status_or_raise, named)

    async def network_status(self, net: Network, *, timeout: Timeout = DEFAULT) -> NetworkStatus:
        """Ask all plugins whether they can serve ADD; see ``CNIConfig.network_status`` (spec 1.1.0, section 2)."""
        named = self._named(net)
        return await self._run(Operation("STATUS", named.name), timeout, status, named)

    async def validate_network_list(self, net: Network, *, timeout: Timeout = DEFAULT) -> ValidationReport:
        """Find plugins and ask for their versions; see ``CNIConfig.validate_network_list`` (spec 1.1.0, section 2)."""
        named = self._named(net)
        return await self._run(Operation("VERSION", named.name), timeout, validate, named)

    async def validate_network(self, plugin: PluginConfig, *, timeout: Timeout = DEFAULT) -> ValidationReport:
        """Validate a single plugin; see ``CNIConfig.validate_network`` (spec 1.1.0, section 2, VERSION)."""
        return await self.validate_network_list(single(plugin), timeout=timeout)

    async def get_version_info(self, plugin: str, *, timeout: Timeout = DEFAULT) -> PluginInfo:
        """Ask a plugin type for its versions; see ``CNIConfig.get_version_info`` (spec 1.1.0, section 2, VERSION)."""
        return await self._run(Operation("VERSION"), timeout, version, plugin)

    async def forget_attachment(self, attachment: Attachment, *, timeout: Timeout = DEFAULT) -> ForgetReport:
        """Remove an attachment's record without running a plugin; see ``CNIConfig.forget_attachment``."""
        return await self._run(attachment_operation("FORGET", attachment), timeout, forget, attachment)

    async def reload_attachment(self, attachment: Attachment, *, timeout: Timeout = DEFAULT) -> Result:
        """Detach a recorded container and attach it again in place; see ``CNIConfig.reload_attachment``."""
        from libcni.verbs.reload import own_result, reload  # few programs need this module and its imports

        outcomes = await self._run(attachment_operation("RELOAD", attachment), timeout, reload, attachment)
        return own_result(outcomes, attachment)

    async def reload_attachments(
        self, attachments: Iterable[Attachment], *, timeout: Timeout = DEFAULT
    ) -> list[Result]:
        """Reload recorded attachments in concurrent tasks; see ``CNIConfig.reload_attachments``."""
        from libcni.verbs.reload import reload, reload_each

        async def reload_one(attachment: Attachment) -> Outcomes:
            return await self._run(attachment_operation("RELOAD", attachment), timeout, reload, attachment)

        return await reload_each(attachments, reload_one, self._state.side_by_side)

    async def take_over_attachment(self, attachment: Attachment, *, timeout: Timeout = DEFAULT) -> Attachment:
        """Make this client the owner of an attachment; see ``CNIConfig.take_over_attachment``."""
        return await self._run(attachment_operation("TAKE-OVER", attachment), timeout, take_over, attachment)

    async def add_network(
        self, plugin: PluginConfig, rt: RuntimeConf, *, timeout: Timeout = DEFAULT, **options: Unpack[AddOptions]
    ) -> Result:
        """Attach a container with a single plugin; see ``CNIConfig.add_network`` (spec 1.1.0, section 3)."""
        return await self.add_network_list(single(plugin), rt, timeout=timeout, **options)

    async def check_network(
        self, plugin: PluginConfig, rt: RuntimeConf, *, use_given: bool = False, timeout: Timeout = DEFAULT
    ) -> CheckReport:
        """Check an attachment of ``add_network``; see ``CNIConfig.check_network`` (spec 1.1.0, section 3)."""
        return await self.check_network_list(single(plugin), rt, use_given=use_given, timeout=timeout)

    async def del_network(
        self, plugin: PluginConfig, rt: RuntimeConf, *, policy: DelPolicy | None = None, timeout: Timeout = DEFAULT
    ) -> DelReport:
        """Detach an attachment of ``add_network``; see ``CNIConfig.del_network`` (spec 1.1.0, section 3)."""
        return await self.del_network_list(single(plugin), rt, policy=policy, timeout=timeout)

    async def _run(
        self,
        operation: Operation,
        timeout: Timeout,
        verb: Callable[Concatenate[VerbRun, _P], Coroutine[Any, Any, AnswerT]],
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> AnswerT:
        return await self._verb_run(operation, timeout).complete(verb, *args, **kwargs)

    @staticmethod
    async def _side_by_side(most: int, works: Sequence[Callable[[], Coroutine[Any, Any, AnswerT]]]) -> list[AnswerT]:
        """Run coroutines in tasks, ``most`` at a time, and return their values in order."""
        slots = asyncio.Semaphore(most)

        async def run(work: Callable[[], Coroutine[Any, Any, AnswerT]]) -> AnswerT:
            async with slots:
                return await work()

        tasks = [asyncio.create_task(run(work)) for work in works]
        try:
            return await asyncio.gather(*tasks)
        except GeneratorExit:
            raise  # the event loop is closed, and can neither cancel nor wait
        except BaseException:
            # After a cancellation or an error, no task may continue.
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    def _verb_run(self, operation: Operation, timeout: Timeout, part_of: VerbRun | None = None) -> VerbRun:
        return _AsyncRun(self._state, self._executor, self._seconds(timeout), operation, part_of)


class _AsyncRun(VerbRun):
    """A run that awaits its executor, sleeps and disk operations on asyncio."""

    async def wait_for_turn(self) -> None:
        if self._turn is not None and not self._turns.enter(self._turn):
            loop = asyncio.get_running_loop()
            has_come: asyncio.Future[None] = loop.create_future()
            # The verb whose end begins this turn may run in another thread.
            self._turns.call_when_it_comes(self._turn, partial(loop.call_soon_threadsafe, _set_result, has_come))
            try:
                async with asyncio.timeout(self.seconds_left()):
                    await has_come
            except TimeoutError:
                raise self._turns.timeout(self._turn, self._seconds or 0.0) from None
        await let_others_run()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def on_disk(self, work: Callable[[], AnswerT], *, is_short: bool = False) -> AnswerT:
        if is_short:
            return work()
        # A cancelled caller still waits for the thread. Otherwise the thread would write the record after the locks of
        # the verb are released, perhaps over a later verb's record.
        return await to_the_end(asyncio.get_running_loop().run_in_executor(None, work))

    async def shielded(self, work: Coroutine[Any, Any, AnswerT]) -> AnswerT:
        return await to_the_end(asyncio.ensure_future(work))


def _set_result(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def to_the_end(future: asyncio.Future[AnswerT]) -> AnswerT:
    """Return a future's value. If the caller is cancelled meanwhile, raise CancelledError only when it is done."""
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        # In a loop: each further cancellation interrupts the wait, and the locks may only be released after the end.
        while not future.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([future])
        raise
