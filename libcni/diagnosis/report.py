"""The doctor's report: findings, the objects that were checked, and those that could not be checked."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterable, Iterator
from typing import ClassVar, Literal, get_args

from libcni._dataclass import dataclass, replace
from libcni.diagnosis.mends import Mend, id_of, merged
from libcni.diagnosis.printed_commands import with_commands
from libcni.errors import CNIError, counted, some
from libcni.store.attachments import Attachment

__all__ = ["Checked", "DoctorReport", "NodeFinding", "NotChecked"]

NodeCheck = Literal[
    "configuration", "plugins", "disk", "records", "namespaces", "interfaces", "rules", "ipam", "drift", "next",
    "traffic", "containers",
]  # fmt: skip
"""The name of a check. ``next``: whether the next container can be attached. ``traffic``: whether echo requests are
answered. ``containers``: the command line's check for attachments of ended containers."""

Severity = Literal["error", "warning", "note"]

FindingName = Literal[
    "address-lost",
    "bridge-address",
    "bridge-missing",
    "bridge-renamed",
    "changed-configuration",
    "check-failed",
    "corrupt-record",
    "dead",
    "default-changed",
    "dropped",
    "dropped-in-part",
    "duplicate-address",
    "duplicate-mac",
    "empty-pod",
    "ended",
    "file-missing",
    "full",
    "gateway-doubled",
    "gateway-missing",
    "hairpin-off",
    "half-done",
    "held-lock",
    "hidden-records",
    "host-end-down",
    "host-route-missing",
    "ignored-addresses",
    "interface-down",
    "interface-missing",
    "interface-moved",
    "junk",
    "known-fault",
    "leak",
    "link-down",
    "link-setting",
    "localnet-off",
    "lost-path",
    "master-missing",
    "misplaced-record",
    "mtu-changed",
    "no-configuration",
    "no-default-route",
    "no-directory",
    "no-file",
    "no-forwarding",
    "no-plugins",
    "no-reply",
    "not-reserved",
    "not-writable",
    "off-bridge",
    "open-lock",
    "other-way-out",
    "pinned",
    "policy-drops",
    "pool-full",
    "pool-low",
    "pools-overlap",
    "port-caught",
    "port-shadowed",
    "prefix-changed",
    "program-missing",
    "read-only",
    "route-changed",
    "route-missing",
    "route-stolen",
    "rules-left",
    "rules-missing",
    "running",
    "set-aside",
    "status",
    "subnet-route-missing",
    "two-records",
    "unrecorded",
    "unreserved",
    "unusable-file",
    "unusable-plugin",
    "writable-by-others",
    "wrong-neighbour",
    "wrong-reservation",
]


@dataclass(frozen=True, slots=True)
class NodeFinding:
    """A fault of the node. One cause is one finding, about one or many containers.

    Attributes:
        check: the name of the check that found it.
        severity: ``error`` (something does not work), ``warning`` (something will fail, or is wasted), ``note``.
        name: the name of the cause, such as ``link-down``; ``NAMES`` has the names of all causes.
        subject: the file, directory, network, plugin or attachment.
        seen: the observation; for many containers, the observations of the first three.
        meaning: the consequence.
        remedy: what the administrator has to do, if no mend can do it; "" if the mends are enough.
        mends: the changes with which ``repair_node`` can solve it.
        containers: the attachments that it is about, as ``ID:IFNAME``.
        pods: the pods of these attachments, as ``NAMESPACE/NAME``, if their records name some.

    Examples:
        >>> finding = NodeFinding("interfaces", "error", "link-down", "bridge cni0", "it is down")
        >>> finding.mends
        ()
    """

    NAMES: ClassVar[frozenset[str]] = frozenset(get_args(FindingName))
    check: NodeCheck
    severity: Severity
    name: FindingName
    subject: str
    seen: str
    meaning: str = ""
    remedy: str = ""
    mends: tuple[Mend, ...] = ()
    containers: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Checked:
    """The objects that a check examined.

    Attributes:
        check: the name of the check.
        what: the objects, with their number.

    Examples:
        >>> print(Checked("records", "12 records in /var/lib/cni").what)
        12 records in /var/lib/cni
    """

    check: NodeCheck
    what: str


FAILED = "a bug of this program stopped this check"
"""The beginning of the reason in a ``NotChecked`` if a check raised an unexpected exception."""


@dataclass(frozen=True, slots=True)
class NotChecked:
    """An object that a check could not examine, so that nothing is known about it.

    Attributes:
        check: the name of the check.
        subject: the object.
        reason: why it was not checked.

    Examples:
        >>> print(NotChecked("firewall", "nat", "nft is not installed").reason)
        nft is not installed
    """

    check: NodeCheck
    subject: str
    reason: str

    @property
    def is_bug(self) -> bool:
        """Whether a bug of this program is the reason."""
        return FAILED in self.reason


Observation = NodeFinding | Checked | NotChecked
Observations = Iterator[Observation]


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """The state of a node.

    Attributes:
        findings: the problems: first full pools of addresses, then the others in the order of the checks.
        checked: the objects that were checked. Those without a finding are in order. Nothing is known of other objects.
        not_checked: the objects that could not be checked.

    Examples:
        >>> report = diagnose(cni)
        >>> for finding in report.findings:
        ...     print(finding.subject, finding.mends)
        /opt/cni/bin ()
    """

    findings: tuple[NodeFinding, ...] = ()
    checked: tuple[Checked, ...] = ()
    not_checked: tuple[NotChecked, ...] = ()

    @property
    def status(self) -> Literal["ok", "warning", "error"]:
        """The worst severity; notes count as ``ok``."""
        severities = {finding.severity for finding in self.findings}
        return "error" if "error" in severities else "warning" if "warning" in severities else "ok"


_OF_RECORDS = {"corrupt-record", "set-aside"}


def by_cause(findings: Iterable[NodeFinding]) -> Iterator[NodeFinding]:
    """Yield the findings. Findings of one cause about several attachments become one finding, with all its commands."""
    causes: dict[tuple[str, ...], list[NodeFinding]] = {}
    for finding in findings:
        # A finding about a device or a directory has a subject that tells more than the names of its containers.
        is_of_containers = finding.subject.startswith("container ") or finding.name in _OF_RECORDS
        subject = "" if finding.containers and is_of_containers else finding.subject
        # The command for a container has the name of its namespace or interface.
        remedy = finding.remedy if subject else with_commands(finding.remedy)[0]
        causes.setdefault((finding.name, finding.severity, remedy, subject), []).append(finding)
    for alike in causes.values():
        containers = tuple(dict.fromkeys(name for finding in alike for name in finding.containers))
        first = replace(alike[0], mends=merged(mend for finding in alike for mend in finding.mends))
        if len(alike) == 1:
            yield first
            continue
        words = with_commands(first.remedy)[0]
        commands = [*dict.fromkeys(command for one in alike for command in with_commands(one.remedy)[1])]
        remedy = f"{words}{': ' * bool(words and commands)}{'; '.join(commands)}"
        meaning = first.meaning if len({finding.meaning for finding in alike}) == 1 else ""
        seen = [f"{finding.containers[0]}: {finding.seen}" for finding in alike if finding.containers]
        yield replace(
            first, subject=f"{counted(len(containers), 'attachment')}", seen=some(seen, "; "), meaning=meaning,
            containers=containers, remedy=remedy,
        )  # fmt: skip


def name_of(attachment: Attachment) -> str:
    """Return an attachment's name for a finding."""
    return f"container {attachment.container_id}, {attachment.network}, {attachment.ifname}"


def finding_about(  # noqa: PLR0913, PLR0917 - the fields of a finding
    check: NodeCheck,
    severity: Severity,
    attachment: Attachment,
    name: FindingName,
    seen: str,
    meaning: str = "",
    remedy: str = "",
    mends: tuple[Mend, ...] = (),
) -> NodeFinding:
    """Return a finding about one attachment."""
    return NodeFinding(check, severity, name, name_of(attachment), seen, meaning, remedy, mends, (id_of(attachment),))


def problem_of(error: Exception) -> str:
    """Return the reason for a ``NotChecked``: an error's text. An unexpected exception is a bug of this program."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, (OSError, CNIError)):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno})" if frames else ""
    return f"{FAILED}: {type(error).__name__}: {error}{place}; please report it"
