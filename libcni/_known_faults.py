"""A table of known faults of plugins, for hints, for the second try of an ADD, and for CHECKs of healthy containers.

A plugin reports these faults with a general code, so only its text tells them apart. Add a new text here, with its
source, and nowhere else.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, Protocol


class Fault(NamedTuple):
    """A known fault of a plugin, or an error of a plugin that does not name its cause.

    Attributes:
        plugin: the plugin's type; "" for each plugin that uses the same program or library.
        verb: the verb that fails; "" for each verb.
        text: a regular expression in the plugin's message, details or stderr, in lower case.
        meaning: what has happened.
        releases: the releases of the CNI project's plugins that have the fault; "" if other plugins have it too.
        source: where it was reported, or the test that shows it.
        cure: ``again``: a second call succeeds; ``caller``: so it does, but a person decides: two containers with one
            ID cause the same text; ``doctor``: ``libcni doctor`` names the cause; ``none``: nothing is wrong with the
            container.
    """

    plugin: str
    verb: str
    text: str
    meaning: str
    releases: str
    source: str
    cure: Literal["again", "caller", "doctor", "none"]

    @property
    def is_corrected(self) -> bool:
        """Whether newer releases of the CNI project's plugins do not have the fault."""
        return bool(self.releases) and not self.releases.startswith("to ")


_MISSED = "the kernel's answer to the plugin was incomplete, because the network changed meanwhile"

FAULTS = (
    Fault("", "ADD", r"chain already exists|chain_(user_)?add failed \(file exists\)",
        "two plugins created the same chain of iptables at the same time",
        "to 1.9.1", "containernetworking/plugins 335, nerdctl 3518, amazon-vpc-cni-k8s 3782", "again"),
    Fault("bridge", "ADD", r"could not set bridge's mac: invalid argument",
        "the bridge lost its hardware address with its last port, while the plugin was setting that address",
        "to 1.9.1", "containernetworking/plugins 620, nerdctl 4283", "again"),
    Fault("bridge", "ADD", r'could not add ip address to "[^"]+": file exists',
        "two plugins gave the bridge its address at the same time",
        "before 0.8.2", "containernetworking/plugins 366", "again"),
    Fault("", "", r"holding the xtables lock|can't lock /run/xtables\.lock",
        "another program held the lock of iptables",
        "", "kubernetes 57428, containernetworking/plugins 662", "again"),
    Fault("", "", r"iptables[^:]*:[^:]* resource temporarily unavailable",
        "another program changed the table of iptables at the same time",
        "", "kubernetes 88148", "again"),
    Fault("", "", r"results may be incomplete or inconsistent", _MISSED,
        "1.6.0 and 1.6.1", "containernetworking/plugins 1121", "again"),
    Fault("", "", r"interrupted system call", _MISSED,
        "1.6.0 and 1.6.1", "containernetworking/plugins 1121, silk-release 146", "again"),
    Fault("", "ADD", r"fork/exec \S+: text file busy",
        "an installer was writing the executable of a plugin that this plugin runs",
        "", "containernetworking/cni 763", "again"),
    Fault("", "ADD", r"has been allocated to \S+, duplicate allocation is not allowed",
        "an earlier ADD of this container ID has left a reservation, which the roll-back frees; if no other container "
        "has the ID",
        "", "tests/real/test_beliefs.py", "caller"),
    Fault("", "ADD", r"no ip addresses available in range set",
        "all addresses of the range are reserved",
        "", "kubernetes 57280, k3s 4682", "doctor"),
    Fault("", "ADD", r"requested ip address \S+ is not available in range set",
        "the requested address is reserved already",
        "", "podman 19583", "doctor"),
    Fault("", "ADD", r"already has an ip address different from",
        "the bridge already has the address of another network",
        "", "nerdctl 1490, podman 12306, kube-router 689", "doctor"),
    Fault("", "ADD", r"executable file not found in \$path",
        "a program that the plugin runs is missing",
        "", "tests/diagnosis/test_plugins.py", "doctor"),
    Fault("portmap", "CHECK", r"could not check ipv6 dnat", "portmap 1.1.1 looks for IPv4 rules in the IPv6 table",
        "1.1.1", "tests/nodes.py", "none"),
    Fault("bandwidth", "CHECK", r"nil pointer dereference|goroutine 1 \[",
        "CHECK of bandwidth 1.1.1 crashes for a container without limits",
        "1.1.1", "tests/plugin/test_real_plugins.py", "none"),
    Fault("bridge", "CHECK", r"no plugin name provided", "CHECK of bridge fails for every network without IPAM",
        "to 1.9.1", "tests/plugin/test_real_plugins.py", "none"),
    Fault("bridge", "CHECK", r"gw:<nil>\} not found in routing table",
        "CHECK of bridge 1.1.1 ignores the route's gateway, and does not find the route",
        "1.1.1", "tests/plugin/test_real_plugins.py", "none"),
    Fault("bridge", "CHECK", r"failed to find gateway",
        "CHECK of bridge searches only the main routing table, but the plugin sbr moved the routes to another",
        "to 1.9.1", "tests/plugin/test_real_plugins.py", "none"),
    Fault("bridge", "CHECK", r"^bridge interface \S+ mac doesn't match",
        "a bridge without an address changes its MAC when a port is added or removed",
        "to 1.9.1", "tests/plugin/test_real_plugins.py", "none"),
)  # fmt: skip
"""The table. The first row that matches decides."""


NOT_AVAILABLE = re.compile(r"requested IP address (\S+) is not available in range set")
"""host-local's text (allocator.go) if another container has the address, or if somebody else has reserved it."""
OUTSIDE = re.compile(r"failed to allocate all requested IPs: (\S+)")
"""host-local's text (main.go) if no range contains the address."""


class FailedCall(Protocol):
    """The fields of a PluginError that identify its fault. This module cannot import that class."""

    plugin: str
    verb: str
    msg: str
    details: str
    stderr: str


def fault_of(error: FailedCall) -> Fault | None:
    """Return the known fault in the message, details or stderr of an error; None if there is none."""
    text = f"{error.msg} {error.details} {error.stderr}".lower()
    for fault in FAULTS:
        if fault.plugin in {"", error.plugin} and fault.verb in {"", error.verb} and re.search(fault.text, text):
            return fault
    return None
