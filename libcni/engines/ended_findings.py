"""Find attachments of containers that ended without the hook's ``poststop``, for ``doctor`` and ``gc --runtime``."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from libcni import Attachment, CNIConfig, CNIError, Hint
from libcni._dataclass import replace
from libcni.diagnosis import Checked, DoctorReport, NodeFinding, NotChecked
from libcni.engines.netavark import OWNER as PODMAN
from libcni.engines.oci import OWNER, Ended, collect, find_ended
from libcni.manager import Item

_DETACH = Hint("to detach them", "gc", options=("--runtime", "runc", "--runtime", "crun"))
_MEANING = "the container's addresses, ports and firewall rules stay in use"


def with_ended(report: DoctorReport, cni: CNIConfig, command_of: Callable[[Hint], str]) -> DoctorReport:
    """Return a report with a finding for each leftover attachment and pinned namespace of ended containers.

    ``command_of``: a function that returns the command of a hint.
    """
    try:
        ended = find_ended(cni)
    except CNIError as error:
        # Report a failed comparison: this node must not look like a node without findings.
        failed = NotChecked("containers", "containers of libcni oci-hook", str(error))
        return replace(report, not_checked=(*report.not_checked, failed))
    # A node without containers of the hook has nothing to show here.
    looked = (Checked("containers", f"attachments of libcni oci-hook: {ended.seen}"),) if ended.seen else ()
    findings = (*report.findings, *_findings(ended, f"{_DETACH.text}: {command_of(_DETACH)}"))
    return replace(report, findings=findings, checked=(*report.checked, *looked))


def _findings(ended: Ended, remedy: str) -> Iterator[NodeFinding]:
    for attachment in ended.attachments:
        subject = f"container {attachment.container_id}, {attachment.network}, {attachment.ifname}"
        seen = "the container has ended, and its runtime did not run the poststop hook"
        names = (f"{attachment.container_id}:{attachment.ifname}",)
        yield NodeFinding("containers", "warning", "ended", subject, seen, _MEANING, remedy, containers=names)
    recorded = {attachment.netns for attachment in ended.attachments}
    for pin in ended.pins:
        if pin.path not in recorded:
            seen = f"the pinned network namespace of container {pin.container_id}, which has ended"
            yield NodeFinding("containers", "warning", "pinned", pin.path, seen, remedy=remedy)


def collect_ended(
    client_of: Callable[[str], CNIConfig], runtimes: list[str], *, dry_run: bool
) -> list[Attachment | Item]:
    """Detach the attachments of ended containers, and return them; ``dry_run``: only return them.

    ``client_of``: a function that returns the client of an owner. ``runtimes``: the runtimes to ask, as for
    ``libcni.engines.oci.find_ended``.
    """
    from libcni.manager import NetworkManager

    ended: list[Attachment | Item] = []
    for owner in (PODMAN, OWNER):
        asked = [runtime for runtime in runtimes if (runtime == PODMAN) is (owner == PODMAN)]
        if not asked:
            continue
        cni = client_of(owner)
        if dry_run:
            ended += find_ended(cni, asked).attachments
        else:
            ended += collect(NetworkManager(cni), asked)[0].of("detached")
    return ended
