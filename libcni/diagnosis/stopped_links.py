"""Find what stops the packets of an interface that is up: settings, the VLAN, or a wrong neighbour entry."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from libcni.diagnosis.node_state import NodeState
from libcni.diagnosis.reading import grouped
from libcni.diagnosis.report import NodeFinding, Severity
from libcni.errors import some
from libcni.kernel.link_settings import FILTERS_VLANS, RUNS_XDP, WITHOUT_IPV6
from libcni.kernel.netlink import Link, Network

Documents = Sequence[Mapping[str, Any]]

_KNOWN = {
    "bandwidth", "bridge", "firewall", "host-device", "ipvlan", "macvlan", "portmap", "ptp", "sbr", "tuning", "vlan",
    "vrf",
}  # fmt: skip
"""The plugins that are known to make none of these settings, except as the table says."""
_WITH_ARP = {"bridge", "macvlan", "veth", "vlan"}
"""The kinds of interfaces that have ARP when they are new."""


class _Setting(NamedTuple):
    """A setting that stops packets.

    Attributes:
        effect: what it does to the packets.
        undo: the command that takes it back, with the interface's name in place of ``{}``.
        severity: the finding's.
        is_wanted: whether a plugin's configuration asks for it.
    """

    effect: str
    undo: str
    severity: Severity = "error"
    is_wanted: Callable[[Mapping[str, Any]], bool] = lambda _: False


_NO_ANSWERS = "the interface does not answer ARP requests for its IP addresses"
_PORT = "bridge link set dev {} "
_SETTINGS = {
    "arp off": _Setting(f"{_NO_ANSWERS}, and sends none", "ip link set {} arp on"),
    "arp_ignore 8": _Setting(_NO_ANSWERS, "sysctl -w net/ipv4/conf/{}/arp_ignore=0"),
    "locked on": _Setting("the bridge drops the packets that come from this port", f"{_PORT}locked off"),
    "isolated on": _Setting(
        "the bridge forwards nothing between this port and other isolated ports", f"{_PORT}isolated off", "warning",
        lambda document: document.get("portIsolation") is True,
    ),
    "flood off": _Setting(
        "the bridge drops packets for this port until the port has sent one", f"{_PORT}flood on", "warning"
    ),
    "bcast_flood off": _Setting(
        "the bridge sends no broadcasts to this port, so nobody finds its hardware address", f"{_PORT}bcast_flood on",
        "warning",
    ),
    "stp_state 1": _Setting(
        "a new port forwards nothing for twice its forward delay, usually 30 s, so each new container waits",
        "ip link set {} type bridge stp_state 0", "note",
    ),
    RUNS_XDP: _Setting("an XDP program decides on each of its packets", "ip link set dev {} xdp off", "warning"),
    "qdisc": _Setting(
        "packets wait there, or are lost", "tc qdisc del dev {} root", "warning",
        lambda document: document.get("type") == "bandwidth",
    ),
}  # fmt: skip


UPLINK = {"qdisc netem"}
"""The settings that are a fault also of an interface that no plugin has made."""


def settings_that_stop(
    link: Link,
    documents: Documents,
    about: partial[NodeFinding],
    netns: str = "",
    only: Collection[str] = (),
) -> Iterator[NodeFinding]:
    """Yield a finding for each setting of an interface that stops packets and that no plugin makes.

    Args:
        link: the interface.
        documents: the configurations of the plugins of its network.
        about: the finding's check, subject and containers.
        netns: the path of the interface's namespace; "": the node's own.
        only: the settings that are examined; (): all.
    """
    if not {document.get("type") for document in documents} <= _KNOWN:
        return
    for text in link.settings:
        name = text.split()[0]
        setting = _SETTINGS.get(text) or _SETTINGS.get(name)
        if setting is None or (only and text not in only) or (text == "arp off" and link.kind not in _WITH_ARP):
            continue
        if not any(setting.is_wanted(document) or _sets(document, text) for document in documents):
            yield about(
                severity=setting.severity, name="link-setting", seen=f"{link.name} has {text!r}: {setting.effect}",
                meaning="no plugin of its network has set this",
                remedy=command_in(netns, setting.undo.format(shlex.quote(link.name))),
            )  # fmt: skip


def _sets(document: Mapping[str, Any], text: str) -> bool:
    """Return whether a plugin's configuration sets a sysctl of an interface to this value, such as ``arp_ignore 8``."""
    name, _, value = text.partition(" ")
    settings = document.get("sysctl")
    pairs = settings.items() if isinstance(settings, dict) else ()
    return any(str(key).replace("/", ".").endswith(f".{name}") and str(found) == value for key, found in pairs)


def in_another_vlan(
    bridge: Link, port: Link, documents: Documents, about: partial[NodeFinding]
) -> Iterator[NodeFinding]:
    """Find a port that is in another VLAN than the configured one, or than the bridge itself."""
    own = next((document for document in documents if document.get("type") == "bridge"), {})
    vlan = own.get("vlan") or (0 if own.get("vlanTrunk") else bridge.pvid)
    if FILTERS_VLANS in bridge.settings and vlan and port.pvid != vlan:
        actual = f"VLAN {port.pvid}" if port.pvid else "no VLAN"
        yield about(
            severity="error", name="link-setting",
            seen=f"{bridge.name} puts the packets of {port.name} into {actual}, but its network is in VLAN {vlan}",
            meaning="the container is cut off",
            remedy=f"bridge vlan add vid {vlan} pvid untagged dev {shlex.quote(port.name)}",
        )  # fmt: skip


class HardwareAddresses:
    """The hardware addresses of the gateways and containers of each network, to check permanent neighbours."""

    def __init__(self, node: NodeState, host: Network) -> None:
        self._of: dict[str, dict[str, set[str]]] = {}
        if not host.neighbours and not any(network.neighbours for _, network in node.live):
            return  # of 10,000 containers the rest takes a while
        own = grouped((text.partition("/")[0], link.mac) for link in host.links.values() for text in link.addresses)
        for attachment, network in node.live:
            if not {document.get("type") for document in node.documents(attachment)} <= _KNOWN:
                continue  # some plugins answer for their containers with an address of their own
            known = self._of.setdefault(attachment.network, {})
            for cidr in node.summary_of(attachment).gateways:
                known.setdefault(cidr.partition("/")[0], set()).update(own.get(cidr.partition("/")[0], ()))
            for name, cidr in node.summary_of(attachment).placed:
                if name in network.links and network.links[name].has_address(cidr):
                    known.setdefault(cidr.partition("/")[0], set()).add(network.links[name].mac)

    def wrong(
        self, network: Network, link: Link, names: Collection[str], about: partial[NodeFinding], netns: str = ""
    ) -> Iterator[NodeFinding]:
        """Yield a finding for each permanent neighbour with another hardware address than its interface has.

        Args:
            network: the namespace with the neighbour.
            link: the interface to which the neighbour belongs.
            names: the networks of the interface.
            about: the finding's check, subject and containers.
            netns: the path of the namespace; "": the node's own.
        """
        for entry in network.neighbours if self._of else ():
            right = set().union(*(self._of.get(name, {}).get(entry.address, ()) for name in names))
            if entry.ifindex == link.index and right and entry.mac not in right:
                yield about(
                    severity="error", name="wrong-neighbour",
                    seen=f"a permanent neighbour on {link.name} gives {entry.address} the hardware address "
                    f"{entry.mac or '(none)'}, but its interface has {some(sorted(right))}",
                    meaning="packets to this address are lost",
                    remedy=command_in(netns, f"ip neigh del {entry.address} dev {shlex.quote(link.name)}"),
                )  # fmt: skip


_SMALLEST_MTU_OF_IPV6 = 1280


def takes(link: Link, address: str) -> bool:
    """Return whether the kernel accepts an address on an interface. It may refuse IPv6 addresses."""
    return ":" not in address or (WITHOUT_IPV6 not in link.settings and not 0 < link.mtu < _SMALLEST_MTU_OF_IPV6)


def let_take(link: Link, *mtus: int) -> str:
    """Return the command after which the kernel accepts an IPv6 address; ``mtus``: the interface's wanted MTUs."""
    if WITHOUT_IPV6 in link.settings:
        return f"sysctl -w net/ipv6/conf/{link.name}/disable_ipv6=0"
    return f"ip link set {shlex.quote(link.name)} mtu {max((_SMALLEST_MTU_OF_IPV6, *mtus))}"


def command_in(netns: str, command: str) -> str:
    """Return a command for the namespace at a path, or for the node's own."""
    return f"nsenter --net={shlex.quote(netns)} {command}" if netns else command
