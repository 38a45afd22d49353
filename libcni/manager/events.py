"""The events of a manager."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from libcni.errors import CNIError

__all__ = ["Event"]

Kind = Literal["network-ready", "network-gone", "attachment-added", "attachment-removed", "reload", "problem"]


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a manager.

    Attributes:
        kind: the kind of event. ``network-ready``: a network is new, has changed, or its last missing plugin appeared.
        network: the network's name, or "".
        container_id: the container's ID, or "".
        ifname: the interface's name, or "".
        detail: a text for people.
        error: the error of a problem, or None.
        when: the time, UTC.

    Examples:
        >>> print(Event("network-added", network="dbnet").network)
        dbnet
    """

    kind: Kind
    network: str = ""
    container_id: str = ""
    ifname: str = ""
    detail: str = ""
    error: CNIError | None = None
    when: datetime = field(default_factory=lambda: datetime.now(UTC), compare=False)


def problem_event(error: CNIError, network: str = "", container_id: str = "", ifname: str = "") -> Event:
    """Return the event for an error."""
    return Event("problem", network, container_id, ifname, str(error), error)
