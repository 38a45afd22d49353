"""The reports of the manager's operations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from libcni.errors import CNIError
from libcni.store.attachments import Attachment
from libcni.verbs.reports import DelReport, GCReport, PluginStatus

__all__ = [
    "AttachmentCheck", "CheckReport", "DetachedAttachment", "GCSummary", "ManagerStatus", "NetworkState",
    "TearDownReport",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class DetachedAttachment:
    """An attachment that was detached.

    Attributes:
        network: its network's name.
        ifname: the interface's name.
        report: the report of its DEL.
    """

    network: str
    ifname: str
    report: DelReport


@dataclass(frozen=True, slots=True)
class TearDownReport:
    """The outcome of a tear-down.

    Attributes:
        container_id: the container.
        detached: the attachments that were detached, in that order.
        unreadable: torn records, which do not name their attachment; they were not changed.
        netns_removed: the path of the network namespace that was removed, or "".
        errors: all errors, also those for unreadable records that may be this container's.
    """

    container_id: str
    detached: tuple[DetachedAttachment, ...] = ()
    unreadable: tuple[Attachment, ...] = ()
    netns_removed: str = ""
    errors: tuple[CNIError, ...] = ()


@dataclass(frozen=True, slots=True)
class AttachmentCheck:
    """The outcome of CHECK for one attachment.

    Attributes:
        network: its network's name, "" if the record is torn.
        ifname: the interface's name, or the name of a torn record's file.
        state: ``ok``; ``failed`` (see ``error``); ``unsupported`` (its configuration's version has no CHECK).
        error: the error of CHECK, or None.
    """

    network: str
    ifname: str
    state: Literal["ok", "failed", "unsupported"]
    error: CNIError | None = None


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The outcome of CHECK for all attachments of a container.

    Attributes:
        container_id: the container.
        checks: one for each attachment, in the order of their set-up.
    """

    container_id: str
    checks: tuple[AttachmentCheck, ...] = ()

    @property
    def errors(self) -> tuple[CNIError, ...]:
        """The errors of the checks that failed."""
        return tuple(check.error for check in self.checks if check.error is not None)


@dataclass(frozen=True, slots=True)
class GCSummary:
    """The outcome of a GC of all networks, or of a dry run.

    Attributes:
        reports: network name to the report of its GC, also for networks that only records name.
        errors: all errors.
        netns_removed: the paths of the network namespaces that were removed.
    """

    reports: dict[str, GCReport] = field(default_factory=dict)
    errors: tuple[CNIError, ...] = ()
    netns_removed: tuple[str, ...] = ()

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
        name: the network's name.
        file: the file that it was read from, or None.
        ready: whether it can serve ADD.
        reason: why it cannot, or "".
        is_default: whether it is one of the default networks.
        kept: whether its file is unusable at the moment, so that its last good configuration is in force.
        plugins: each plugin's answer to STATUS.
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
        ready: whether all default networks can serve ADD and there are enough; or whether all requested networks can.
        reason: why not, or "".
        networks: the state of each network that was asked, in order, loopback first.
        problems: the errors of unusable files and directories.
    """

    ready: bool
    reason: str
    networks: tuple[NetworkState, ...] = ()
    problems: tuple[CNIError, ...] = ()

    def network(self, name: str) -> NetworkState | None:
        """Return the state of one network, or None."""
        return next((state for state in self.networks if state.name == name), None)
