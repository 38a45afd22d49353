"""What has to change on a node: each container of the desired state compared with its records."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from libcni import Attachment
from libcni.manager import Container, NetworkRequest, PlannedAttachment

Kind = Literal["attach", "reattach", "detach", "repair"]


@dataclass(frozen=True)
class Change:
    """One change to a container. Interfaces that it does not name stay as they are.

    Attributes:
        kind: ``attach`` (nothing is attached yet), ``reattach`` (something differs from the desired state), ``detach``
            (the container is not desired any more), ``repair`` (CHECK failed).
        container_id: the container.
        reasons: what is missing, or differs, by interface name.
        detach: the interfaces to detach first.
        attach: what to set up afterwards, or None.
        disruptive: whether it detaches a complete attachment, which may carry traffic.
    """

    kind: Kind
    container_id: str
    reasons: tuple[str, ...] = ()
    detach: tuple[str, ...] = ()
    attach: Container | None = None
    disruptive: bool = False

    def __str__(self) -> str:
        reasons = f": {'; '.join(self.reasons)}" if self.reasons else ""
        return f"{self.kind} {self.container_id}{reasons}"


def compare(container_id: str, planned: Sequence[PlannedAttachment], recorded: Sequence[Attachment]) -> Change | None:
    """Return the change that makes the records those of the plan, or None if they are."""
    wanted = {(one.net.name, one.rt.ifname): one for one in planned}
    found = {(one.network, one.ifname): one for one in recorded}
    reasons: dict[str, str] = {}
    for key, attachment in found.items():
        problem = difference(wanted[key], attachment) if key in wanted else f"network {key[0]} is not wanted there"
        if problem:
            reasons[attachment.ifname] = problem
    detach = tuple(dict.fromkeys(one.ifname for one in recorded if one.ifname in reasons))
    missing = [one for key, one in wanted.items() if key not in found or one.rt.ifname in detach]
    for one in missing:
        reasons.setdefault(one.rt.ifname, f"network {one.net.name} is not attached")
    if not reasons:
        return None
    return Change(
        kind="reattach" if recorded else "attach",
        container_id=container_id,
        reasons=tuple(f"{ifname}: {reason}" for ifname, reason in reasons.items()),
        detach=detach,
        attach=as_container(container_id, missing),
        disruptive=any(one.state == "ready" and one.ifname in detach for one in recorded),
    )


def repair(container_id: str, planned: Sequence[PlannedAttachment], failed: dict[str, str]) -> Change:
    """Return the change that attaches interfaces again whose CHECK failed; ``failed``: interface name to the error."""
    again = [one for one in planned if one.rt.ifname in failed]
    reasons = tuple(f"{ifname}: {error}" for ifname, error in failed.items())
    return Change("repair", container_id, reasons, tuple(failed), as_container(container_id, again), disruptive=True)


def removal(container_id: str, recorded: Sequence[Attachment]) -> Change:
    """Return the change that detaches a container."""
    ifnames = tuple(dict.fromkeys(one.ifname for one in recorded))
    disruptive = any(one.state == "ready" for one in recorded)
    return Change("detach", container_id, ("it is not in the desired state",), ifnames, disruptive=disruptive)


def as_container(container_id: str, planned: Sequence[PlannedAttachment]) -> Container | None:
    """Return a container that has these attachments and no other, or None if there are none.

    The plan has shared the container's arguments out among its networks already, so each network gets its own.
    """
    requests = [
        NetworkRequest(
            one.net,
            one.rt.ifname,
            one.rt.args or (),
            one.rt.capability_args,
            one.rt.network_args,
            one.reference,
            one.default_route,
        )
        for one in planned
    ]
    return Container(container_id, planned[0].rt.netns, requests, loopback=False) if requests else None


def difference(wanted: PlannedAttachment, recorded: Attachment) -> str:
    """Return what of an attachment differs from the plan, or ""."""
    if recorded.state != "ready":
        return f"its record is {recorded.state}"
    net, rt, record = wanted.net, wanted.rt, recorded.record
    if rt.netns is not None and rt.netns != recorded.netns:
        return f"netns is {rt.netns}, and was {recorded.netns}"
    # the plugins as ADD used them, drop-in files included; spaces and the order of keys do not count
    pairs = {
        "args": (dict(rt.args or ()), dict(recorded.args)),
        "capabilities": (dict(rt.capability_args or {}), dict(recorded.capability_args)),
        "network_args": (dict(rt.network_args or {}), _decoded(record.network_args)),
        f"the cniVersion of network {net.name}": (net.cni_version, record.version),
        f"the configuration of network {net.name}": (
            [_decoded(plugin.text) for plugin in net.plugins],
            [_decoded(text) for text in record.plugins],
        ),
    }
    changed = [name for name, (now, then) in pairs.items() if now != then]
    return f"changed: {', '.join(changed)}" if changed else ""


def _decoded(text: str) -> Any:
    return json.loads(text) if text else {}


class ChangeLimit:
    """At most so many disruptive changes in any 60 seconds; None: no limit."""

    def __init__(self, per_minute: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_minute = per_minute
        self._clock = clock
        self._taken: deque[float] = deque()

    def take(self) -> bool:
        """Count one change, and return whether it may be done now."""
        if self.per_minute is None:
            return True
        while self._taken and self._taken[0] <= self._clock() - 60:
            self._taken.popleft()
        if len(self._taken) >= self.per_minute:
            return False
        self._taken.append(self._clock())
        return True

    def next(self) -> float:
        """Return when the next change may be done, by the clock."""
        return self._taken[0] + 60 if self._taken else self._clock()
