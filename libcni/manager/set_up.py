"""Set up a container: attach it to all of its networks, or to none."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from libcni._dataclass import dataclass, field
from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import AttachmentExistsError, CNIError, ConfigError, Hint
from libcni.manager.container import Container, PlannedAttachment, unused_by_all
from libcni.manager.container_result import AttachmentResult, ContainerResult
from libcni.manager.operation import ManagerOperation
from libcni.options import DEFAULT, AddOptions, DelPolicy, Timeout
from libcni.store.model import READY
from libcni.store.place import Place
from libcni.verbs.add import add
from libcni.verbs.client_base import operation as operation_of
from libcni.verbs.del_report import DelReport
from libcni.verbs.delete import delete
from libcni.verbs.each_container import detach_each

if TYPE_CHECKING:  # most runtimes make the namespaces themselves
    from libcni.manager.namespaces import ContainerNamespaces


logger: logging.Logger = logging.getLogger("libcni")


@dataclass(slots=True)
class SetUp:
    """The set-up of one container.

    Attributes:
        planned: the attachments to make, in order.
        namespaces: makes a namespace if the container has none, or None.
        policy: the policy for DEL in a roll-back.
        options: the options of every ADD.
        done: the attachments that were made so far.
        has_made_namespace: whether the set-up makes the namespace: it did not exist before.
    """

    operation: ManagerOperation
    container: Container
    planned: Sequence[PlannedAttachment]
    namespaces: ContainerNamespaces | None
    policy: DelPolicy
    options: AddOptions
    done: list[PlannedAttachment] = field(default_factory=list)
    has_made_namespace: bool = False

    async def run(self) -> ContainerResult:
        """Attach all networks in order. If a network fails, detach the earlier ones and raise its error."""
        operation = self.operation
        unused = unused_by_all(self.container, [planned.net for planned in self.planned])
        if unused:
            problem = f"container {self.container.id}: no plugin of its networks declares the capability "
            problem += ", ".join(unused)
            if self.options.get("strict"):
                hint = f'add "capabilities": {{"{unused[0]}": true}} to the plugin that supports it'
                raise ConfigError(problem, hint=hint)
            logger.warning("%s", problem)
        for planned in self.planned:
            operation.run.find_all(planned.net)
            for plugin in filter(None, (plugin.ipam_type for plugin in planned.net.plugins)):
                operation.run.find(plugin)
        # A caller of locked() has the container already. GC never holds both kinds of lock, so the two cannot deadlock.
        await operation.lock_container(self.container.id)
        await operation.lock_networks([planned.net.name for planned in self.planned], container_id=self.container.id)
        await operation.run.take_turn()
        try:
            netns = await self._netns()
            # Attach all networks in one namespace: another container may get the path while the first is attached.
            first = operation.run.sight.namespace(netns)
            results = [await self._attach(planned, netns, first) for planned in self.planned]
        except Exception as error:
            if type(error) is AttachmentExistsError and error.container_id == self.container.id:
                # The error names one interface. Without it, the next set-up would be refused for the next network.
                text = "use {argument}, or first detach the container from all networks, as tear_down does"
                error.suggest(
                    Hint(text, "del", container_id=self.container.id, argument="on_existing", value="replace")
                )
            await self._undo(error)
            raise
        except GeneratorExit:
            raise  # the event loop has ended, so nothing can be awaited
        except BaseException as error:
            if self.options.get("on_cancel") == "rollback":
                # A second cancellation is raised after the end of the roll-back.
                with suppress(type(error)):
                    await operation.run.shielded(self._undo(error))
            raise
        # Add the unused capabilities of single NetworkRequests. Their ADDs have logged warnings.
        unused += tuple(name for result in results for name in result.result.unused_capabilities)
        return ContainerResult(self.container.id, netns, tuple(results), tuple(dict.fromkeys(unused)))

    async def _netns(self) -> str:
        if self.container.netns is not None:
            return os.fspath(self.container.netns)
        namespaces, container_id = self.namespaces, self.container.id
        assert namespaces is not None, "the manager refuses a container without namespace before this"
        self.has_made_namespace = not await self.operation.run.on_disk(lambda: namespaces.exists(container_id))
        return await self.operation.run.on_disk(lambda: namespaces.ensure(container_id))

    async def _attach(self, planned: PlannedAttachment, netns: str, namespace: Place) -> AttachmentResult:
        net, rt = planned.net, planned.rt.with_netns(netns)
        # Without a timeout of the set-up, the client's timeout applies to each network.
        timeout: Timeout = DEFAULT if self.operation.timeout is DEFAULT else self.operation.seconds_left()
        # With on_existing="allow" an earlier attachment may be in use. A roll-back by DEL would detach it.
        is_new = self.options.get("on_existing") != "allow" or not await self._is_attached(planned)
        run = self.operation.part(operation_of("ADD", net.name, rt), timeout)
        result = await run.complete(add, net, rt, namespace=namespace, **self.options)
        if is_new:
            self.done.append(planned)
        return AttachmentResult(net.name, rt.ifname, result)

    async def _is_attached(self, planned: PlannedAttachment) -> bool:
        wanted = (planned.net.name, planned.rt.ifname, READY)
        recorded = await self.operation.attachments(self.container.id)
        return any((attachment.network, attachment.ifname, attachment.state) == wanted for attachment in recorded)

    async def _undo(self, error: BaseException) -> None:
        """Detach the attachments so far, the latest first. Add the errors of the roll-back as notes to ``error``.

        The ADD that failed or was interrupted has already been rolled back, or its record stays.
        """
        failed: list[CNIError] = []
        done = self.done[::-1]
        outcomes = await detach_each(done, self._detach)
        for planned, outcome in zip(done, outcomes, strict=True):
            if isinstance(outcome, CNIError):
                failed.append(outcome)
                text = f"the roll-back could not detach the container from network {planned.net.name}"
                error.add_note(f"{text}: {outcome}")
        namespaces, container_id = self.namespaces, self.container.id
        # If a DEL failed, its record keeps the namespace: a later DEL needs it. A namespace that existed before also
        # stays. The container may live in it: a tear-down or GC removes it.
        if namespaces is not None and self.has_made_namespace:
            try:
                await self.operation.run.on_disk(lambda: namespaces.remove_if_unused(container_id))
            except CNIError as problem:
                failed.append(problem)
                error.add_note(f"the namespace that this set-up had made could not be removed: {problem}")
        if isinstance(error, CNIError):
            error.rollback_errors = (*error.rollback_errors, *failed)

    async def _detach(self, planned: PlannedAttachment) -> DelReport:
        rt = RuntimeConf(planned.rt.container_id, None, planned.rt.ifname)
        # The roll-back has the client's own timeout, because the set-up's deadline may be the reason for it.
        run = self.operation.part(operation_of("DEL", planned.net.name, rt))
        return await run.complete(delete, planned.net.name, planned.net, rt, self.policy)
