"""The real plugins of Debian, each with surroundings in which its ADD succeeds, and with its known faults.

The reasons of the faults are in testdata/evidence/plugin-conformance.md.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testing.faulty import ip

from libcni.testing import ConformanceReport, NetworkNamespace, call_plugin, check_plugin, network_namespace
from libcni.testing.conformance import GROUPS

DIRECTORY = Path("/usr/lib/cni")
HOST_LINK, MASTER, BRIDGE, IFNAME = "cnitesthost0", "cnitestdev0", "cnitestbr0", "cnitest0"

NOT_FORWARDED = ("GC is forwarded to the IPAM plugin",)
EVERY_GO_PLUGIN = ("VERSION echoes cniVersion", "an error has the cniVersion")
DELETED_ONCE = ("DEL again", "DEL without namespace", "DEL without prevResult", "DEL without an earlier ADD")
WITHOUT_IPAM = ("DEL without CNI_PATH",)


@contextmanager
def _lo(namespace: NetworkNamespace) -> Iterator[None]:
    # The kernel gives lo its address when it first goes up, and leaves it there.
    for state in ("up", "down"):
        ip("-netns", namespace.name, "link", "set", "lo", state)
    yield


@contextmanager
def _bridge(namespace: NetworkNamespace) -> Iterator[None]:
    try:
        yield
    finally:
        subprocess.run(["ip", "link", "delete", BRIDGE], check=False, capture_output=True)


@contextmanager
def _master(namespace: NetworkNamespace) -> Iterator[None]:
    ip("link", "add", MASTER, "type", "veth", "peer", "name", f"{MASTER}p")
    try:
        ip("link", "set", MASTER, "up")
        yield
    finally:
        ip("link", "delete", MASTER)


@contextmanager
def _veth(namespace: NetworkNamespace) -> Iterator[None]:
    ip("link", "add", HOST_LINK, "type", "veth", "peer", "name", IFNAME, "netns", namespace.name)
    try:
        ip("link", "set", HOST_LINK, "up")
        # Otherwise the kernel adds its link-local address at some time during the test.
        ip("-netns", namespace.name, "link", "set", IFNAME, "addrgenmode", "none")
        ip("-netns", namespace.name, "address", "add", "10.98.7.2/24", "dev", IFNAME)
        ip("-netns", namespace.name, "link", "set", IFNAME, "up")
        ip("-netns", namespace.name, "link", "set", "lo", "up")
        yield
    finally:
        ip("link", "delete", HOST_LINK)


@dataclass(frozen=True)
class Subject:
    """One plugin and what it needs. ``older``: faults of those without spec 1.1.0, ``newer``: of those with it."""

    config: Mapping[str, Any] = field(default_factory=dict)
    ipam: bool = False
    chained: bool = False
    around: Callable[[NetworkNamespace], Any] = nullcontext
    faults: tuple[str, ...] = ()
    older: tuple[str, ...] = ()
    newer: tuple[str, ...] = ()
    kernel: str = ""
    needs: str = ""

    def faults_in(self, versions: Sequence[str]) -> set[str]:
        """Return the faults of a plugin that supports ``versions``."""
        return {*EVERY_GO_PLUGIN, *self.faults, *(self.newer if "1.1.0" in versions else self.older)}


# The check of an IPAM plugin uses each address of the subnet once.
IPAM: Mapping[str, Any] = {"ipam": {"type": "host-local", "subnet": "10.98.7.0/28"}}

SUBJECTS: Mapping[str, Subject] = {
    "host-local": Subject(
        IPAM,
        ipam=True,
        faults=WITHOUT_IPAM,
        newer=("GC without valid attachments frees all", "STATUS fails if no address is free"),
    ),
    "static": Subject(
        {"ipam": {"type": "static", "addresses": [{"address": "10.98.7.9/24"}]}}, ipam=True, faults=WITHOUT_IPAM
    ),
    "bridge": Subject({"bridge": BRIDGE, **IPAM}, around=_bridge, newer=NOT_FORWARDED),
    "ptp": Subject(IPAM, newer=NOT_FORWARDED),
    "macvlan": Subject({"master": MASTER, **IPAM}, around=_master, newer=NOT_FORWARDED, kernel="macvlan"),
    "ipvlan": Subject({"master": MASTER, **IPAM}, around=_master, kernel="ipvlan"),
    "vlan": Subject({"master": MASTER, "vlanId": 7, **IPAM}, around=_master, kernel="vlan id 7"),
    "tap": Subject(
        IPAM,
        faults=(
            "an ADD whose interface name is taken fails",
            "DEL leaves nothing of an ADD whose interface name is taken",
        ),
        newer=NOT_FORWARDED,
    ),
    "dummy": Subject(IPAM, kernel="dummy"),
    "host-device": Subject({"device": MASTER, **IPAM}, around=_master, faults=DELETED_ONCE, newer=NOT_FORWARDED),
    "loopback": Subject(around=_lo, faults=(*WITHOUT_IPAM, "ADD")),
    "tuning": Subject({"sysctl": {"net.core.somaxconn": "500"}}, chained=True, around=_veth, faults=WITHOUT_IPAM),
    "portmap": Subject(
        {"runtimeConfig": {"portMappings": [{"hostPort": 18080, "containerPort": 80, "protocol": "tcp"}]}},
        chained=True,
        around=_veth,
        faults=(*WITHOUT_IPAM, "DEL keeps other attachments"),
        older=("CHECK",),
        newer=("GC keeps a valid interface",),
    ),
    "firewall": Subject({"backend": "iptables"}, chained=True, around=_veth, faults=WITHOUT_IPAM),
    "bandwidth": Subject(
        {"runtimeConfig": {"bandwidth": {"ingressRate": 8000, "ingressBurst": 80000}}},
        chained=True,
        around=_veth,
        faults=WITHOUT_IPAM,
    ),
    "sbr": Subject(
        chained=True,
        around=_veth,
        faults=(
            *WITHOUT_IPAM,
            "CHECK fails after DEL",
            "DEL without CNI_NETNS",
            "DEL without namespace",
            "DEL creates no namespace file",
        ),
    ),
    "vrf": Subject({"vrfname": "cnivrf0"}, chained=True, around=_veth, kernel="vrf table 7", faults=WITHOUT_IPAM),
    "dhcp": Subject(needs="its daemon and a DHCP server"),
}


def _previous(namespace: NetworkNamespace) -> dict[str, Any]:
    return {
        "interfaces": [{"name": HOST_LINK}, {"name": IFNAME, "sandbox": namespace.path}],
        "ips": [{"address": "10.98.7.2/24", "gateway": "10.98.7.1", "interface": 1}],
    }


def why_not(name: str) -> str:
    """Return why a plugin cannot be examined here, or ""."""
    subject = SUBJECTS[name]
    if not (DIRECTORY / name).exists():
        return "this release has none"
    if subject.kernel:
        with network_namespace() as namespace, _master(namespace):
            kind = [*subject.kernel.split()]
            link = ["link", "add", "link", MASTER, "name", "cnitestkind", "netns", namespace.name, "type", *kind]
            if subprocess.run(["ip", *link], check=False, capture_output=True).returncode:
                return f"this kernel has no {kind[0]}"
    return subject.needs


def examine(name: str, versions: Sequence[str]) -> ConformanceReport:
    """Run one plugin through the conformance helper, with new surroundings for each version."""
    reports: list[ConformanceReport] = []
    supported = call_plugin(DIRECTORY / name, "VERSION", {"cniVersion": "0.4.0"}).document["supportedVersions"]
    for version in [version for version in reversed(versions) if version in supported]:
        reports.insert(0, _examine_in(DIRECTORY / name, version, ["life"] if reports else GROUPS))
    merged = ConformanceReport(name, tuple(version for report in reports for version in report.versions))
    merged.findings += [finding for finding in reports[-1].findings if not finding.version]
    merged.findings += [finding for report in reports for finding in report.findings if finding.version]
    return merged


def _examine_in(plugin: Path, version: str, groups: Collection[str]) -> ConformanceReport:
    subject = SUBJECTS[plugin.name]
    with tempfile.TemporaryDirectory() as data, network_namespace() as namespace, subject.around(namespace):
        config = {"type": plugin.name, **subject.config}
        if "ipam" in config:
            config["ipam"] = {**config["ipam"], "dataDir": data}
        return check_plugin(
            plugin,
            config,
            namespace=namespace,
            path=str(plugin.parent),
            ipam=subject.ipam,
            prev_result=_previous(namespace) if subject.chained else None,
            versions=(version,),
            only=groups,
        )


def row(report: ConformanceReport) -> str:
    """Return the row of ``testdata/evidence/plugin-conformance.md`` for a report over all versions."""
    versions: dict[str, list[str]] = {}
    for finding in report.failures:
        versions.setdefault(finding.check, []).append(finding.version)
    own = {check: found for check, found in versions.items() if check not in {*EVERY_GO_PLUGIN, *WITHOUT_IPAM}}
    failed = [
        f"{check} ({', '.join(found)})" if len(found) < len(report.versions) else check for check, found in own.items()
    ]
    passed = f"{len(report.findings) - len(report.failures)} of {len(report.findings)}"
    return f"| {report.plugin} | {report.versions[0]} to {report.versions[-1]} | {passed} | {'; '.join(failed)} |"
