"""libcni gc: detach the attachments of a network that are not valid any more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import libcni
from libcni._dataclass import replace
from libcni.cli.completion import containers
from libcni.cli.failures import UsageError
from libcni.cli.gc_valid import others, pairs_of, unknown
from libcni.cli.inputs import network_of, read_bytes
from libcni.cli.listing import identity_data, identity_row, note_left
from libcni.cli.options import IGNORED_NETNS, INCLUDE_GO, NETWORK, Argument
from libcni.cli.render import Table, note
from libcni.cli.session import Session
from libcni.engines.ended_findings import collect_ended

if TYPE_CHECKING:
    from libcni.manager import Item


ARGUMENTS = (
    NETWORK.but(nargs="?", default=""), IGNORED_NETNS,
    Argument("--valid", action="append", metavar="CONTAINER[:IFNAME]", complete=containers,
        help="A container whose attachments are valid: its ID, or its pod; repeatable."),
    Argument("--from-file", default="", metavar="FILE", help="A file with one such container on each line; -: stdin."),
    Argument("--none-valid", action="store_true", help="No attachment is valid: detach all."),
    INCLUDE_GO,
    Argument("--dry-run", action="store_true", help="Only print the attachments that would be detached."),
    Argument("--runtime", action="append", metavar="NAME|DIR",
        help="In place of NETWORK: detach containers of oci-hook that have no process, and that this runtime (runc, "
            "crun, youki, or its --root) does not have; podman: the same for netavark-plugin; repeatable."),
)  # fmt: skip


def gc(  # noqa: PLR0913, PLR0917 - the options of the command
    session: Session,
    network: str,
    netns: str,  # noqa: ARG001 - ignored, as cnitool does
    valid: list[str] | None,
    from_file: str,
    none_valid: bool,
    include_go: bool,
    dry_run: bool,
    runtime: list[str] | None,
) -> None:
    """Detach the attachments of a network except the valid ones.

    The network's plugins get the list of valid attachments.

    Example:
      libcni gc front --valid web --dry-run
    """
    if runtime:
        if network or valid or from_file or none_valid or include_go:
            raise UsageError("--runtime cannot be used with NETWORK, --valid, --from-file, --none-valid, --include-go")
        ended = collect_ended(lambda owner: replace(session, owner=owner).client(), runtime, dry_run=dry_run)
        _show(session, ended, dry_run=dry_run, data={})
        return
    if not network:
        raise UsageError("give NETWORK, or the containers' runtime with --runtime")
    wanted = _wanted(valid, from_file, none_valid=none_valid)
    cni = session.client()
    net = network_of(network)
    recorded = cni.get_cached_attachments()
    for text, near in unknown(recorded, valid or ()):
        note(f"no record names {text}" + (f"; did you mean {near}?" if near else ""))
    pairs = pairs_of(recorded, wanted)
    report = cni.gc_network_list(net, pairs, dry_run=dry_run, include_go=include_go)
    data = {"made_by_go": [identity_data(item) for item in report.made_by_go], "plugins": list(report.plugins)}
    if report.disabled:
        note("the configuration sets disableGC, so nothing was done")
    _show(session, report.stale if dry_run else report.detached, dry_run=dry_run, data=data)
    if session.output == "text":
        note_left(len(report.made_by_go), "of Go libcni (--include-go)")
        # Without output there seem to be none.
        name = net if isinstance(net, str) else net.name
        for owner, count in others(cni.get_cached_attachments(), name, set(pairs), session.owner).items():
            note_left(count, f"of owner {owner} (--owner)" if owner else "without owner")


def _wanted(valid: list[str] | None, from_file: str, *, none_valid: bool) -> list[str]:
    """Return the words that name the valid attachments."""
    wanted = [*(valid or []), *(read_bytes(from_file).decode(errors="replace").split() if from_file else [])]
    if not wanted and not none_valid:
        # An empty file is more often a failed pipe than a node without containers.
        problem = f"{'stdin' if from_file == '-' else from_file} is empty; " if from_file else ""
        raise UsageError(f"{problem}give the valid attachments with --valid or --from-file, or --none-valid if none is")
    if wanted and none_valid:
        raise UsageError("--none-valid cannot be used with --valid or --from-file")
    return wanted


def _show(session: Session, items: Sequence[libcni.Attachment | Item], *, dry_run: bool, data: dict[str, Any]) -> None:
    """Print the detached attachments. Like cnitool, print nothing if there were none and the output is text."""
    word = "would be detached" if dry_run else "detached"
    table = Table(
        ("container", "network", "interface"), [identity_row(item) for item in items], f"{word}:",
        f"nothing {word}" if dry_run else "",
    )  # fmt: skip
    stale = [identity_data(item) for item in items]
    session.show({"dry_run": dry_run, "stale": stale, "detached": [] if dry_run else stale, **data}, table)
