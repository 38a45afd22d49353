"""Check a node: read it once, run all checks and collect their findings."""

from __future__ import annotations

from collections.abc import Callable, Collection

from libcni._dataclass import replace
from libcni.client import CNIConfig
from libcni.diagnosis.config_drift import check_drift
from libcni.diagnosis.configuration import check_configuration
from libcni.diagnosis.container_rules import check_container_rules
from libcni.diagnosis.containerd import check_containerd
from libcni.diagnosis.contradictions import without_contradictions, without_repetitions
from libcni.diagnosis.disk import check_disk
from libcni.diagnosis.interfaces import check_interfaces
from libcni.diagnosis.ipam import check_ipam
from libcni.diagnosis.ipsec import check_ipsec
from libcni.diagnosis.mends import id_of
from libcni.diagnosis.namespaces import check_namespaces
from libcni.diagnosis.next_container import check_next
from libcni.diagnosis.node_state import NodeState, read_node
from libcni.diagnosis.outside import check_outside
from libcni.diagnosis.plugins import check_plugins, run_checks
from libcni.diagnosis.pool import check_pools
from libcni.diagnosis.ports import check_ports
from libcni.diagnosis.reading import PENDING_AFTER
from libcni.diagnosis.records import check_records
from libcni.diagnosis.report import (
    Checked,
    DoctorReport,
    NodeCheck,
    NodeFinding,
    NotChecked,
    Observation,
    Observations,
    problem_of,
)
from libcni.diagnosis.rules import check_rules
from libcni.diagnosis.traffic import check_traffic
from libcni.store.model import LIVING

__all__ = ["diagnose"]

_CHECKS: tuple[tuple[NodeCheck, Callable[[NodeState], Observations]], ...] = (
    ("configuration", check_configuration),
    ("plugins", check_plugins),
    ("plugins", check_containerd),
    ("disk", check_disk),
    ("records", check_records),
    ("namespaces", check_namespaces),
    ("interfaces", check_interfaces),
    ("rules", check_rules),
    ("rules", check_ports),
    ("rules", check_outside),
    ("rules", check_ipsec),
    ("rules", check_container_rules),
    ("ipam", check_ipam),
    ("drift", check_drift),
    ("next", check_next),
)


def diagnose(
    cni: CNIConfig, *, run_check: bool = False, send_packets: bool = False, pending_after: float = PENDING_AFTER
) -> DoctorReport:
    """Check a node: configurations, plugins, disks, records, namespaces, interfaces, rules and addresses.

    Also find out whether the next container could be attached.

    Changes nothing. Plugins are called with VERSION and STATUS only, and with CHECK if ``run_check`` is true.

    Args:
        cni: the client whose directories are checked.
        run_check: whether to run CHECK of each ready attachment.
        send_packets: whether to send echo requests (ICMP) between the containers, their gateways and the node. This
            needs CAP_NET_RAW in their namespaces, and takes some seconds if a request has no answer.
        pending_after: seconds after which an unfinished ADD, and a reservation without a record, are treated as
            abandoned.
    """
    node = read_node(cni, pending_after=pending_after)
    return report_on(node, checked=None if run_check else (), send_packets=send_packets)


def report_on(
    node: NodeState,
    *,
    checked: Collection[str] | None = (),
    skip: Collection[NodeCheck] = (),
    send_packets: bool = False,
    only: Collection[str] = (),
) -> DoctorReport:
    """Run the checks, except those in ``skip``, on a state of a node; return the report.

    ``checked``: the paths of the records for which the plugins' CHECK is run; None: all. ``send_packets``: see
    ``diagnose``; ``only``: send packets only to and from these containers; (): all.
    """
    observations: list[Observation] = []

    def collect(name: NodeCheck, checking: Observations) -> None:
        try:
            observations.extend(checking)
        except Exception as error:  # noqa: BLE001 - what others wrote is read here, and a bug must hide no finding
            # A failed check must not hide the findings of other checks, nor look like a check without findings.
            observations.append(NotChecked(name, "the rest of this check", problem_of(error)))

    for name, check in _CHECKS:
        if name not in skip:
            collect(name, check(node))
    # An error of CHECK is no further finding for an attachment that has a finding already.
    explained = {
        container
        for observation in observations
        if isinstance(observation, NodeFinding) and observation.check not in {"drift", "next"}
        for container in observation.containers
    }
    collect("interfaces", run_checks(node, explained, checked))
    if send_packets:
        seen = [observation for observation in observations if isinstance(observation, NodeFinding)]
        collect("traffic", check_traffic(node, seen, only))
    elif node.live:
        observations.append(NotChecked("traffic", "packets", "none were sent; to send some: libcni doctor --traffic"))
    working = _working(node)
    single = [_guarded(working, observation) for observation in observations if isinstance(observation, NodeFinding)]
    recorded = (*node.misplaced, *node.attachments)
    pods = {id_of(attachment): attachment.pod for attachment in recorded if attachment.pod}
    return DoctorReport(
        findings=tuple(
            replace(finding, pods=tuple(dict.fromkeys(pods[name] for name in finding.containers if name in pods)))
            for finding in without_repetitions(without_contradictions(list(check_pools(node, single))))
        ),
        checked=tuple(observation for observation in observations if isinstance(observation, Checked)),
        not_checked=tuple(observation for observation in observations if isinstance(observation, NotChecked)),
    )


def _guarded(working: frozenset[str], finding: NodeFinding) -> NodeFinding:
    """Mark each mend that runs DEL for an existing interface as interrupting its container.

    A check can mistake a working container for one that is cut off. So ``repair --yes`` alone never detaches it.
    """
    return replace(
        finding,
        mends=tuple(
            replace(mend, interrupts=mend.interrupts or mend.containers)
            if mend.kind in {"reload", "detach"} and mend.target in working
            else mend
            for mend in finding.mends
        ),
    )


def _working(node: NodeState) -> frozenset[str]:
    """Return the paths of the records whose interface exists: a DEL would take it from a container.

    An unfinished attachment counts only if a process lives in the namespace. Otherwise the interface is left of a
    killed ADD.
    """
    spaces = ((attachment, node.space_of(attachment)) for attachment in node.attachments)
    return frozenset(
        attachment.path for attachment, space in spaces
        if space is not None and space.network is not None and attachment.ifname in space.network.links
        and (attachment.state in LIVING or attachment.state == "gone" or space.process)
    )  # fmt: skip
