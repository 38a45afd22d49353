"""The reports of the manager's operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from libcni.errors import CNIError
from libcni.verbs.reports import PluginStatus

__all__ = ["Item", "ManagerStatus", "NetworkState", "Report"]

Outcome = Literal[
    "detached",
    "stale",
    "made-by-go",
    "ok",
    "unsupported",
    "failed",
    "unreadable",
    "namespace-removed",
    "namespace-stale",
]


@dataclass(frozen=True, slots=True)
class Item:
    """The outcome for one attachment, one record or one namespace.

    Attributes:
        outcome: of a tear-down or GC: ``detached``; ``stale`` (a dry run: it would be detached); ``made-by-go`` (stale,
            and left alone without ``include_go``); ``namespace-removed``; ``namespace-stale`` (a dry run). Of a check:
            ``ok``; ``unsupported`` (its version has no CHECK). Of each: ``failed``; ``unreadable`` (a record that does
            not name its attachment; it was not changed).
        network: the attachment's network, or "".
        container_id: the container, or "".
        ifname: the interface's name, or "".
        path: the file of an unreadable record or of the namespace, or "".
        error: the error of this item alone, or None. The report has all errors.
    """

    outcome: Outcome
    network: str = ""
    container_id: str = ""
    ifname: str = ""
    path: str = ""
    error: CNIError | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of a tear-down, a check or a GC.

    Attributes:
        items: one for each attachment, in the order of the calls; then one for each namespace.
        errors: all errors.
    """

    items: tuple[Item, ...] = ()
    errors: tuple[CNIError, ...] = ()

    def of(self, outcome: Outcome) -> tuple[Item, ...]:
        """Return the items of one outcome."""
        return tuple(item for item in self.items if item.outcome == outcome)


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
