"""Set up a container: attach it to all of its networks, or to none."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import CNIError, ConfigError
from libcni.manager.container import Container, PlannedAttachment, unused_by_all
from libcni.manager.container_result import AttachmentResult, ContainerResult
from libcni.manager.context import OperationContext
from libcni.options import DEFAULT, AddOptions, DelPolicy, Timeout
from libcni.store.record import READY
from libcni.verbs.delete import DelReport
from libcni.verbs.detach_each import detach_each

if TYPE_CHECKING:  # most runtimes make the namespaces themselves
    from libcni.manager.namespace_records import ContainerNamespaces


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

    context: OperationContext
    container: Container
    planned: Sequence[PlannedAttachment]
    namespaces: ContainerNamespaces | None
    policy: DelPolicy
    options: AddOptions
    done: list[PlannedAttachment] = field(default_factory=list)
    has_made_namespace: bool = False

    async def run(self) -> ContainerResult:
        """Attach all networks in order. If a network fails, detach the earlier ones and raise its error."""
        context = self.context
        unused = unused_by_all(self.container, [one.net for one in self.planned])
        if unused and self.options.get("strict"):
            problem = f"container {self.container.id}: none of its networks declares the capability arguments "
            raise ConfigError(problem + ", ".join(unused), hint="declare them in a plugin's capabilities")
        # Always networks before the container: GC acquires its locks in the same order, so the two cannot deadlock.
        await context.lock_networks([one.net.name for one in self.planned], container_id=self.container.id)
        await context.lock_container(self.container.id)
        try:
            netns = await self._netns()
            results = [await self._attach(one.in_namespace(netns)) for one in self.planned]
        except Exception as error:
            await self._undo(error)
            raise
        except GeneratorExit:
            raise  # the event loop has ended, so nothing can be awaited
        except BaseException as error:
            if self.options.get("on_cancel") == "rollback":
                # A second cancellation is raised after the end of the roll-back.
                with suppress(type(error)):
                    await context.node.shielded(self._undo(error))
            raise
        return ContainerResult(self.container.id, netns, tuple(results), unused)

    async def _netns(self) -> str:
        if self.container.netns is not None:
            return os.fspath(self.container.netns)
        namespaces, container_id = self.namespaces, self.container.id
        assert namespaces is not None, "the manager refuses a container without namespace before this"
        self.has_made_namespace = not await self.context.node.on_disk(lambda: namespaces.exists(container_id))
        return await self.context.node.on_disk(lambda: namespaces.ensure(container_id))

    async def _attach(self, planned: PlannedAttachment) -> AttachmentResult:
        # Without a timeout of the set-up, the client's timeout applies to each network.
        timeout: Timeout = DEFAULT if self.context.timeout is DEFAULT else self.context.seconds_left()
        # With on_existing="allow" a DEL of this ADD would detach the earlier attachment as well, which is in use.
        is_new = self.options.get("on_existing") != "allow" or not await self._is_attached(planned)
        result = await self.context.call(
            lambda: self.context.cni.add_network_list(planned.net, planned.rt, timeout=timeout, **self.options)
        )
        if is_new:
            self.done.append(planned)
        return AttachmentResult(planned.net.name, planned.rt.ifname, result)

    async def _is_attached(self, planned: PlannedAttachment) -> bool:
        wanted = (planned.net.name, planned.rt.ifname, READY)
        recorded = await self.context.attachments(self.container.id)
        return any((one.network, one.ifname, one.state) == wanted for one in recorded)

    async def _undo(self, error: BaseException) -> None:
        """Detach the attachments so far, the latest first. Add the errors of this as notes to ``error``.

        The ADD that failed or was interrupted has undone its own work, or left it on record.
        """
        failed: list[CNIError] = []
        async for planned, outcome in detach_each(reversed(self.done), self._detach, lambda one: one.net.name):
            if isinstance(outcome, CNIError):
                failed.append(outcome)
                error.add_note(f"when network {planned.net.name} was detached again: {outcome}")
        namespaces, container_id = self.namespaces, self.container.id
        # If a DEL failed, its record keeps the namespace: a later DEL needs it. One that existed before stays, too. The
        # container may live in it: a tear-down or GC removes it.
        if namespaces is not None and self.has_made_namespace:
            try:
                await self.context.node.on_disk(lambda: namespaces.remove_if_unused(container_id))
            except CNIError as problem:
                failed.append(problem)
                error.add_note(f"when the namespace was removed again: {problem}")
        if isinstance(error, CNIError):
            error.rollback_errors = (*error.rollback_errors, *failed)

    async def _detach(self, planned: PlannedAttachment) -> DelReport:
        rt = RuntimeConf(planned.rt.container_id, None, planned.rt.ifname)
        # The roll-back has the client's own timeout, because the set-up's deadline may be the reason for it.
        return await self.context.call(partial(self.context.cni.del_network_list, planned.net, rt, policy=self.policy))
