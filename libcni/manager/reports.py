"""What the manager's operations report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from libcni.errors import CNIError, CNIErrorGroup
from libcni.store.attachments import Attachment
from libcni.verbs.reports import DelReport, GCReport, PluginStatus

__all__ = ["AttachmentCheck", "CheckReport", "Detached", "GCSummary", "ManagerStatus", "NetworkState", "TearDown"]


@dataclass(frozen=True, slots=True)
class Detached:
    """An attachment that was detached.

    Attributes:
        network: its network's name.
        ifname: the interface's name.
        report: what its DEL did.
    """

    network: str
    ifname: str
    report: DelReport


@dataclass(frozen=True, slots=True)
class TearDown:
    """What a tear-down did.

    Attributes:
        container_id: the container.
        detached: what was detached, in that order.
        unreadable: records that do not say what to detach, and nothing else does; they were left alone.
        netns_removed: the network namespace that was removed, or "".
        errors: what went wrong.
    """

    container_id: str
    detached: tuple[Detached, ...] = ()
    unreadable: tuple[Attachment, ...] = ()
    netns_removed: str = ""
    errors: tuple[CNIError, ...] = ()


@dataclass(frozen=True, slots=True)
class AttachmentCheck:
    """What CHECK said of one attachment.

    Attributes:
        network: its network's name.
        ifname: the interface's name.
        state: ``ok``; ``failed`` (see ``error``); ``unsupported`` (its configuration's version has no CHECK).
        error: what is wrong, or None.
    """

    network: str
    ifname: str
    state: Literal["ok", "failed", "unsupported"]
    error: CNIError | None = None


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What CHECK said of all attachments of a container.

    Attributes:
        container_id: the container.
        checks: one for each attachment, in the order of their set-up.
    """

    container_id: str
    checks: tuple[AttachmentCheck, ...] = ()

    @property
    def errors(self) -> tuple[CNIError, ...]:
        """What is wrong."""
        return tuple(check.error for check in self.checks if check.error is not None)


@dataclass(frozen=True, slots=True)
class GCSummary:
    """What a GC of all networks did, or would do.

    Attributes:
        reports: network name to what its GC reports, also for networks that only records know any more.
        errors: what went wrong.
    """

    reports: dict[str, GCReport] = field(default_factory=dict)
    errors: tuple[CNIError, ...] = ()

    @property
    def stale(self) -> tuple[Attachment, ...]:
        """All attachments that were not live."""
        return tuple(one for report in self.reports.values() for one in report.stale)

    @property
    def detached(self) -> tuple[Attachment, ...]:
        """All attachments that were detached."""
        return tuple(one for report in self.reports.values() for one in report.detached)


@dataclass(frozen=True, slots=True)
class NetworkState:
    """Whether a network can serve ADD.

    Attributes:
        name: its name.
        file: where it was read from, or None.
        ready: whether it can.
        reason: why not, or "".
        is_default: whether a container gets it that asks for none.
        kept: whether its file cannot be used at the moment, so that it is in force as it was.
        plugins: what each plugin answered to STATUS.
    """

    name: str
    file: str | None
    ready: bool
    reason: str = ""
    is_default: bool = False
    kept: bool = False
    plugins: tuple[PluginStatus, ...] = ()


@dataclass(frozen=True, slots=True)
class ManagerStatus:
    """Whether containers can be set up.

    Attributes:
        ready: whether all default networks can serve ADD, and there is one.
        reason: why not, or "".
        networks: each network's state, in order, loopback first.
        problems: files and directories that cannot be used.
    """

    ready: bool
    reason: str
    networks: tuple[NetworkState, ...] = ()
    problems: tuple[CNIError, ...] = ()

    def network(self, name: str) -> NetworkState | None:
        """Return the state of one network, or None."""
        return next((state for state in self.networks if state.name == name), None)


def raise_errors(what: str, report: Any, errors: Sequence[CNIError]) -> None:
    """Raise errors as one group that has the report, if there are any."""
    if errors:
        group = CNIErrorGroup(f"{what}: {len(errors)} failed", list(errors))
        group.report = report
        raise group
