"""The report of a tear-down, a check or a GC."""

from __future__ import annotations

from typing import Literal

from libcni._dataclass import dataclass
from libcni.errors import CNIError

__all__ = ["Item", "Report"]

ItemOutcome = Literal[
    "detached",
    "stale",
    "made-by-go",
    "ok",
    "unsupported",
    "known-fault",
    "failed",
    "not-recorded",
    "unreadable",
    "namespace-removed",
    "namespace-stale",
]


@dataclass(frozen=True, slots=True)
class Item:
    """The outcome for one attachment, one record or one namespace.

    Attributes:
        outcome: Of a tear-down or GC: ``detached`` or ``namespace-removed``; of a dry run of GC ``stale`` or
            ``namespace-stale`` instead. Of GC without ``include_go``: ``made-by-go`` (a stale record of Go libcni,
            which stays). Of a tear-down by ID: ``not-recorded`` (no record names the container, so nothing was run).
            Of a check: ``ok``, ``unsupported`` (no plugin was asked: the spec version has no CHECK, or the
            configuration has ``disableCheck``) or ``known-fault`` (``error`` has a ``known_fault`` of the plugin: the
            attachment may be healthy). Of each: ``failed`` or ``unreadable`` (a
            record that does not name its attachment, and was not changed).
        network: the attachment's network, or "".
        container_id: the container, or "".
        ifname: the interface's name, or "".
        path: the file of an unreadable record or of the namespace, or "".
        error: the error of this item alone, or None.

    Examples:
        >>> result = manager.set_up(Container("c1", "/run/netns/c1", ["dbnet"]))
        >>> [(item.outcome, item.network, item.ifname) for item in manager.tear_down("c1").items]
        [('detached', 'dbnet', 'eth0')]
    """

    outcome: ItemOutcome
    network: str = ""
    container_id: str = ""
    ifname: str = ""
    path: str = ""
    error: CNIError | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of a tear-down, a check or a GC. If there are errors, it is the ``report`` of the CNIErrorGroup.

    Attributes:
        items: an item for each attachment, in the order of the calls; then an item for each namespace.
        errors: the errors of a ``recover``, which raises none.

    Examples:
        >>> result = manager.set_up(Container("c1", "/run/netns/c1", ["dbnet"]))
        >>> [item.container_id for item in manager.gc([]).of("detached")]
        ['c1']
    """

    items: tuple[Item, ...] = ()
    errors: tuple[CNIError, ...] = ()

    def of(self, outcome: ItemOutcome) -> tuple[Item, ...]:
        """Return the items of one outcome."""
        return tuple(item for item in self.items if item.outcome == outcome)
