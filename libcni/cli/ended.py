"""Containers that have ended without the hook's ``poststop``: for ``doctor`` and ``gc --runtime``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from libcni import CNIConfig, CNIError, GCReport
from libcni.cli.session import Session
from libcni.diagnosis import Checked, DoctorReport, NodeFinding, NotChecked
from libcni.oci import OWNER, Ended, collect, find_ended

_COMMANDS = ("libcni gc --runtime runc --runtime crun",)
_MEANING = "its addresses, ports and firewall rules stay in use"


def with_ended(report: DoctorReport, cni: CNIConfig) -> DoctorReport:
    """Return a report with a finding for each attachment and pinned namespace that an ended container has left."""
    try:
        ended = find_ended(cni)
    except CNIError as error:
        # If the comparison fails, report that: it must not look like a node without findings.
        failed = NotChecked("containers", "containers of libcni oci-hook", str(error))
        return replace(report, not_checked=(*report.not_checked, failed))
    # A node without containers of the hook has nothing to show here.
    looked = (Checked("containers", f"attachments of libcni oci-hook: {ended.seen}"),) if ended.seen else ()
    findings = (*report.findings, *_findings(ended))
    return replace(report, findings=findings, checked=(*report.checked, *looked))


def _findings(ended: Ended) -> Iterator[NodeFinding]:
    for one in ended.attachments:
        subject = f"container {one.container_id}, {one.network}, {one.ifname}"
        seen = "the container has ended, and its runtime did not run the poststop hook"
        yield NodeFinding("containers", "warning", subject, seen, _MEANING, commands=_COMMANDS)
    recorded = {one.netns for one in ended.attachments}
    for pin in ended.pins:
        if pin.path not in recorded:
            seen = f"the pinned network namespace of container {pin.container_id}, which has ended"
            yield NodeFinding("containers", "warning", pin.path, seen, commands=_COMMANDS)


def collect_ended(session: Session, runtimes: list[str], *, dry_run: bool) -> GCReport:
    """Detach the attachments of ended containers, and return them; ``dry_run``: only return them.

    ``runtimes``: the runtimes to ask, as for ``libcni.oci.find_ended``.
    """
    from libcni.manager import NetworkManager

    cni = replace(session, owner=OWNER).client()
    ended = find_ended(cni, runtimes).attachments
    if dry_run:
        return GCReport(stale=ended)
    report, _ = collect(NetworkManager(cni), runtimes)
    detached = {(one.network, one.container_id, one.ifname) for one in report.of("detached")}
    found = tuple(one for one in ended if (one.network, one.container_id, one.ifname) in detached)
    return GCReport(stale=found, detached=found)
