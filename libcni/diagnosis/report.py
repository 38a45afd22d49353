"""The doctor's report: findings, the objects that were checked, and those that could not be checked."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

__all__ = ["Checked", "Disruption", "DoctorReport", "NodeFinding", "NotChecked"]

NodeCheck = Literal[
    "configuration", "plugins", "disk", "records", "namespaces", "interfaces", "rules", "ipam", "drift", "containers",
]  # fmt: skip
"""The name of a check; ``containers`` is the one of the command line, about containers that have ended."""

_PLAIN = frozenset(range(ord(" "), ord("~") + 1)) - {ord("'"), ord("\\")}

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Disruption:
    """A command that would help, and that interrupts or cuts off containers.

    Attributes:
        command: the shell command.
        containers: the containers, as ``ID:IFNAME``.

    Examples:
        >>> Disruption("libcni del front -c web", containers=("web",)).containers
        ('web',)
    """

    command: str
    containers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeFinding:
    """A difference between the node's state and its correct state.

    Attributes:
        check: the name of the check that found it.
        severity: ``error`` (something does not work), ``warning`` (something will fail, or is lost), ``note``.
        subject: the file, directory, network, plugin or attachment.
        seen: the observation.
        meaning: the consequence.
        remedy: what to do, in words; "" if the commands are enough.
        commands: the shell commands to type, in order. None of them takes from a container that works its interface,
            address or rules.
        disrupts: the commands that would help at a price, for the time when it can be paid.
        containers: the attachments that it is about, as ``ID:IFNAME``.

    Examples:
        >>> NodeFinding("bridge", "error", "cni0", "the bridge is down", commands=("ip link set cni0 up",)).commands
        ('ip link set cni0 up',)
    """

    check: NodeCheck
    severity: Severity
    subject: str
    seen: str
    meaning: str = ""
    remedy: str = ""
    commands: tuple[str, ...] = ()
    disrupts: tuple[Disruption, ...] = ()
    containers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Checked:
    """Something that a check looked at.

    Attributes:
        check: the name of the check.
        what: the objects, with their number.

    Examples:
        >>> print(Checked("records", "12 records in /var/lib/cni").what)
        12 records in /var/lib/cni
    """

    check: NodeCheck
    what: str


@dataclass(frozen=True, slots=True)
class NotChecked:
    """Something that a check could not look at, so that nothing is known about it.

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


Observation = NodeFinding | Checked | NotChecked
Observations = Iterator[Observation]


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """The state of a node.

    Attributes:
        findings: the problems, in the order of the checks.
        checked: the objects that were checked. Without a finding they are in order; nothing is known of others.
        not_checked: the objects that could not be checked.

    Examples:
        >>> report = diagnose(cni)
        >>> for finding in report.findings:
        ...     print(finding.subject, finding.commands)
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


def counted(number: int, noun: str) -> str:
    """Return ``1 record`` or ``2 records``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def quoted(text: str) -> str:
    """Return ``text`` as one word of a shell command.

    A terminal obeys control characters, so the command shows them as escapes, in the form that bash, zsh and ksh read.
    """
    if text.isprintable():
        return shlex.quote(text)
    # Bytes: a file's name need not be UTF-8.
    escaped = (chr(one) if one in _PLAIN else f"\\{one:03o}" for one in os.fsencode(text))
    return f"$'{''.join(escaped)}'"
