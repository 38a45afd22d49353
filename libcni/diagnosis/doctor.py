"""Check a node: read it once, run all checks and collect their findings."""

from __future__ import annotations

from collections.abc import Callable

from libcni.client import CNIConfig
from libcni.diagnosis.configuration import check_configuration
from libcni.diagnosis.disk import check_disk
from libcni.diagnosis.drift import check_drift
from libcni.diagnosis.interfaces import check_interfaces, run_checks
from libcni.diagnosis.ipam import check_ipam
from libcni.diagnosis.plugins import check_plugins
from libcni.diagnosis.reading import Reading, read_node
from libcni.diagnosis.records import check_records
from libcni.diagnosis.report import Checked, DoctorReport, NodeCheck, NodeFinding, NotChecked, Observation, Observations
from libcni.diagnosis.rules import check_rules
from libcni.diagnosis.stale import check_namespaces
from libcni.errors import CNIError

__all__ = ["diagnose"]

_CHECKS: tuple[tuple[NodeCheck, Callable[[Reading], Observations]], ...] = (
    ("configuration", check_configuration),
    ("plugins", check_plugins),
    ("disk", check_disk),
    ("records", check_records),
    ("namespaces", check_namespaces),
    ("interfaces", check_interfaces),
    ("rules", check_rules),
    ("ipam", check_ipam),
    ("drift", check_drift),
)


def diagnose(cni: CNIConfig, *, run_check: bool = False) -> DoctorReport:
    """Check a node: configurations, plugins, disks, records, namespaces, interfaces, rules and addresses.

    Changes nothing. Plugins are called with VERSION and STATUS only, and with CHECK if ``run_check`` is true.

    Args:
        cni: the client whose directories are checked.
        run_check: whether to run CHECK of each ready attachment.
    """
    node = read_node(cni)
    observations: list[Observation] = []

    def collect(name: NodeCheck, found: Observations) -> None:
        try:
            observations.extend(found)
        except (OSError, CNIError) as error:
            # A check that fails must not hide the findings of the others, nor look like a check without findings.
            observations.append(NotChecked(name, "the rest of this check", str(error)))

    for name, check in _CHECKS:
        collect(name, check(node))
    # What CHECK says about an attachment with a finding of its own is no second finding.
    explained = {
        container
        for one in observations
        if isinstance(one, NodeFinding) and one.check != "drift"
        for container in one.containers
    }
    collect("interfaces", run_checks(node, explained, run_check=run_check))
    return DoctorReport(
        findings=tuple(one for one in observations if isinstance(one, NodeFinding)),
        checked=tuple(one for one in observations if isinstance(one, Checked)),
        not_checked=tuple(one for one in observations if isinstance(one, NotChecked)),
    )
