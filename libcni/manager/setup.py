"""Set-up of a container: network after network, all or nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from libcni.config.identifiers import check_container_id
from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import CNIError
from libcni.manager.container import Attach, Container, unused_by_all
from libcni.manager.container_result import Attached, ContainerResult
from libcni.manager.events import Event
from libcni.manager.namespaces import Namespaces
from libcni.manager.steps import Call, Plan, Turn, Work
from libcni.verbs.reports import DelPolicy

__all__ = ["SetUp"]


@dataclass(frozen=True, slots=True)
class SetUp:
    """The set-up of one container, ready to run.

    Attributes:
        container: what is asked for.
        attaches: that as attachments, in order.
        namespaces: makes a namespace where none is given, or None.
        policy: how DEL is done in a roll-back.
        timeout: seconds for all of it but the roll-back, or None: each verb has the client's.
        options: those of ``add_network_list``.
    """

    container: Container
    attaches: Sequence[Attach]
    namespaces: Namespaces | None
    policy: DelPolicy
    timeout: float | None
    options: dict[str, Any]

    def plan(self) -> Plan[ContainerResult]:
        """Attach all networks in order; on the first failure detach what was attached, and raise it."""
        deadline = None if self.timeout is None else time.monotonic() + self.timeout
        attaches = self.attaches
        yield Turn(check_container_id(self.container.id), self.timeout)
        made = ""
        done: list[Attach] = []
        results: list[Attached] = []
        try:
            if self.container.netns is None and self.namespaces is not None:
                made = yield Work(lambda: self._namespaces.create(self.container.id))
                attaches = [Attach(one.net, one.rt.with_netns(made)) for one in attaches]
            for attach in attaches:
                results.append((yield from self._add(attach, deadline)))
                done.append(attach)
                yield Event("attachment-added", attach.net.name, attach.rt.container_id, attach.rt.ifname)
        except CNIError as error:
            yield from self._undo(done, made, error)
            raise
        unused = unused_by_all(self.container, [attach.net for attach in attaches])
        return ContainerResult(self.container.id, made or self.container.netns or "", tuple(results), unused)

    @property
    def _namespaces(self) -> Namespaces:
        if self.namespaces is None:
            raise AssertionError("only asked for where there is one")
        return self.namespaces

    def _add(self, attach: Attach, deadline: float | None) -> Plan[Attached]:
        options = self.options if deadline is None else {**self.options, "timeout": _left(deadline)}
        result = yield Call("add_network_list", (attach.net, attach.rt), options)
        return Attached(attach.net.name, attach.rt.ifname, result)

    def _undo(self, done: Sequence[Attach], made: str, error: CNIError) -> Plan[None]:
        """Detach what was attached, the last first; what goes wrong is added to ``error``."""
        for attach in reversed(done):
            rt = attach.rt
            try:
                yield Call("del_network_list", (attach.net, _bare(rt)), {"policy": self.policy})
                yield Event("attachment-removed", attach.net.name, rt.container_id, rt.ifname, "rolled back")
            except CNIError as problem:
                _note(error, problem, f"when network {attach.net.name} was detached again")
        if made and not error.rollback_errors:  # else it stays, for the tear-down
            try:
                yield Work(lambda: self._namespaces.remove(self.container.id))
            except CNIError as problem:
                _note(error, problem, "when the namespace was removed again")
        yield Event("problem", container_id=self.container.id, detail=str(error), error=error)


def _bare(rt: RuntimeConf) -> RuntimeConf:
    return RuntimeConf(rt.container_id, None, rt.ifname)


def _left(deadline: float) -> float:
    return max(0.001, deadline - time.monotonic())


def _note(error: CNIError, problem: CNIError, when: str) -> None:
    error.rollback_errors = (*error.rollback_errors, problem)
    error.add_note(f"{when}: {problem}")
