"""The doctor finds values that the CNI project's plugins, or the kernel, refuse at ADD."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from nodes import PLUGINS

from diagnosis.made import BRIDGE, MadeNode, configure
from libcni import NetworkConfigList
from libcni.diagnosis.config_drift import check_drift
from libcni.diagnosis.next_container import check_next
from libcni.diagnosis.refused_values import refused_values
from libcni.kernel.netlink import Link

NO_NETWORK = "it must be a network such as 10.1.0.0/16, not"
NO_ADDRESS = "it must be an address such as 10.1.0.7, not"
SUBNET = {"subnet": "10.9.0.0/24"}


def problems(*plugins: dict[str, Any], versions: tuple[str, ...] = ()) -> list[str]:
    text = json.dumps({"cniVersion": "1.0.0", "name": "net", "plugins": plugins})
    net = NetworkConfigList.from_bytes(text.encode())
    return [f"{where}: {problem}" for where, problem in refused_values(net, lambda _: versions)]


RANGES: list[tuple[dict[str, Any], str]] = [
    (SUBNET, ""),
    ({"subnet": "10.9.0.1/24"}, ".subnet: 10.9.0.1/24 is the address of a host; its network is 10.9.0.0/24"),
    ({"ranges": [[{"subnet": "10.9.0.1/24"}]]}, ".ranges[0][0].subnet: 10.9.0.1/24 is the address of a host"),
    ({"SubNet": "10.9.0.1/24"}, ".subnet: 10.9.0.1/24 is the address of a host"),
    ({"subnet": "10.9.0.0"}, f".subnet: {NO_NETWORK} '10.9.0.0'"),
    ({"subnet": "10.9.0.0/255.255.255.0"}, f".subnet: {NO_NETWORK}"),
    ({"subnet": "10.9.0.0/33"}, f".subnet: {NO_NETWORK}"),
    ({"subnet": ""}, f".subnet: {NO_NETWORK}"),
    ({"subnet": 7}, f".subnet: {NO_NETWORK} 7"),
    ({"subnet": "10.9.0.0/31"}, ".subnet: 10.9.0.0/31 has no address for a container: host-local needs /30 or more"),
    ({"subnet": "10.9.0.0/30"}, ""),
    ({"subnet": "fd00::/127"}, ".subnet: fd00::/127 has no address for a container: host-local needs /126 or more"),
    ({"subnet": "fd00::/126"}, ""),
    ({**SUBNET, "rangeEnd": "10.9.1.9"}, ".rangeEnd: 10.9.1.9 is not in the subnet 10.9.0.0/24"),
    ({**SUBNET, "rangeStart": "fd00::1"}, ".rangeStart: fd00::1 is not in the subnet 10.9.0.0/24"),
    (
        {**SUBNET, "rangeStart": "10.9.0.20", "rangeEnd": "10.9.0.10"},
        ".rangeStart: 10.9.0.20 comes after the last address, 10.9.0.10",
    ),
    ({**SUBNET, "rangeStart": "10.9.0.0", "rangeEnd": "10.9.0.255", "gateway": ""}, ""),
    ({**SUBNET, "rangeStart": "10.9.0.03"}, f".rangeStart: {NO_ADDRESS} '10.9.0.03'"),
    ({**SUBNET, "gateway": "10.9.0.1/24"}, f".gateway: {NO_ADDRESS} '10.9.0.1/24'"),
    ({"subnet": "fd00::/64", "gateway": "fd00::1%eth0"}, f".gateway: {NO_ADDRESS}"),
    (
        {**SUBNET, "ranges": [[{"subnet": "10.9.0.0/25"}]]},
        ".ranges[0]: it has the addresses from 10.9.0.1 to 10.9.0.126",
    ),
    ({"ranges": [[SUBNET, {"subnet": "10.9.0.128/25"}]]}, ".ranges[0][1]: it has the addresses from 10.9.0.129"),
    ({"ranges": [[{**SUBNET, "rangeEnd": "10.9.0.9"}], [{**SUBNET, "rangeStart": "10.9.0.10"}]]}, ""),
    ({"ranges": [[SUBNET, {"subnet": "fd00::/64"}]]}, ".ranges[0][1]: the ranges of one set must all be IPv4, or all"),
    ({"ranges": [[SUBNET], [{"subnet": "fd00::/64"}]]}, ""),
    ({"ranges": [[]]}, ".ranges[0]: it has no range"),
    ({"ranges": [SUBNET]}, ".ranges[0]: it must be a list"),
    ({"ranges": [[{"rangeStart": "10.9.0.2"}]]}, ".ranges[0][0].subnet: it must be a network"),
    ({"ranges": []}, ": it has neither subnet nor ranges"),
    ({**SUBNET, "rangeStart": "10.9.0.1", "rangeEnd": "10.9.0.1"}, ": its ranges have no address but the gateway's"),
    ({**SUBNET, "resolvConf": "/nowhere"}, ".resolvConf: there is no file /nowhere"),
    ({**SUBNET, "routes": [{"dst": "0.0.0.0"}]}, f".routes[0].dst: {NO_NETWORK} '0.0.0.0'"),
    ({**SUBNET, "routes": [{"dst": "0.0.0.0/0", "gw": "x"}]}, f".routes[0].gw: {NO_ADDRESS} 'x'"),
    ({**SUBNET, "routes": {"dst": "0.0.0.0/0"}}, ".routes: it must be a list"),
    ({**SUBNET, "routes": [{"dst": "0.0.0.0/0", "gw": "10.9.0.7"}, {"dst": "fd00::/8"}]}, ""),
]  # fmt: skip


@pytest.mark.real
@pytest.mark.parametrize(("ipam", "problem"), RANGES)
def test_what_host_local_refuses(tmp_path: Path, ipam: dict[str, Any], problem: str) -> None:
    """The plugin itself is asked as well: whoever knows better than it hides a network that works."""
    own = {"type": "host-local", **ipam}
    [found, *_] = [*problems({"type": "bridge", "ipam": own}), ""]
    assert found.startswith(f"plugins[0].ipam{problem}") if problem else found == ""
    config = {"cniVersion": "1.0.0", "name": "net", "type": "bridge", "ipam": {**own, "dataDir": str(tmp_path)}}
    env = {"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c1", "CNI_NETNS": "/n", "CNI_IFNAME": "eth0", "CNI_PATH": PLUGINS}
    ran = subprocess.run(
        [os.path.join(PLUGINS, "host-local")], input=json.dumps(config), env=env, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert (ran.returncode != 0) == bool(problem), ran.stdout


def local(**keys: Any) -> dict[str, Any]:
    return {"type": "host-local", **SUBNET, **keys}


OUTSIDE, DEFAULT = {"gateway": "10.8.0.1"}, [{"dst": "0.0.0.0/0"}]
REFUSED = "10.8.0.1 is not in the container's subnet (10.9.0.0/24), so the kernel refuses the route to 0.0.0.0/0"
TWO = {"type": "host-local", "ranges": [[SUBNET], [{"subnet": "10.8.0.0/24"}]]}
LONG = "has more than 15 characters, and no interface can have that name"


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        # Asked: bridge, ptp and macvlan 1.1.1 and 1.9 with a network namespace.
        ({"type": "bridge", "ipam": local(**OUTSIDE)}, ""),
        ({"type": "bridge", "isDefaultGateway": True, "ipam": local(**OUTSIDE)}, f".ipam.gateway: {REFUSED}"),
        ({"type": "bridge", "ipam": local(**OUTSIDE, routes=DEFAULT)}, f".ipam.gateway: {REFUSED}"),
        ({"type": "ptp", "ipam": local(**OUTSIDE, routes=DEFAULT)}, f".ipam.gateway: {REFUSED}"),
        ({"type": "azure-vnet", "ipam": local(**OUTSIDE, routes=DEFAULT)}, ""),
        ({"type": "bridge", "ipam": local(**OUTSIDE, routes=[{**DEFAULT[0], "gw": "10.9.0.9"}])}, ""),
        (
            {"type": "bridge", "ipam": local(routes=[{**DEFAULT[0], "gw": "10.8.0.1"}])},
            f".ipam.routes[0].gw: {REFUSED}",
        ),
        ({"type": "bridge", "ipam": local(routes=[{**DEFAULT[0], "gw": "10.9.0.255"}])}, ".ipam.routes[0].gw: 10.9"),
        ({"type": "bridge", "ipam": local(routes=[{"dst": "10.7.0.1/16"}])}, ".ipam.routes[0].dst: 10.7.0.1/16 is the"),
        ({"type": "bridge", "ipam": local(routes=DEFAULT * 2)}, ".ipam.routes: the route to 0.0.0.0/0 is there twice"),
        ({"type": "bridge", "ipam": local(routes=[{**DEFAULT[0], "priority": one} for one in (5, 6)])}, ""),
        (
            {"type": "bridge", "isDefaultGateway": True, "ipam": local(routes=DEFAULT)},
            ".ipam.routes: the route to 0.0.0.0/0 is there twice (isDefaultGateway adds it as well)",
        ),
        ({"type": "bridge", "isDefaultGateway": True, "ipam": local(routes=[{**DEFAULT[0], "gw": "10.9.0.1"}])}, ""),
        (
            {"type": "bridge", "ipam": {
                "type": "host-local", "subnet": "fd00::/64", "gateway": "fe80::1", "routes": [{"dst": "::/0"}]
            }}, "",
        ),
        ({"type": "bridge", "isGateway": True, "ipam": TWO}, ".ipam: the plugin gives a bridge only one IPv4 address"),
        ({"type": "bridge", "isGateway": True, "forceAddress": True, "ipam": TWO}, ""),
        ({"type": "bridge", "ipam": TWO}, ""),
        ({"type": "bridge", "capabilities": {"ipRanges": True}, "ipam": {"type": "host-local"}}, ""),
        ({"type": "flannel", "delegate": {"mtu": 90000}}, ", delegate bridge.mtu: it must be 68 to 65535, not 90000"),
        ({"type": "calico", "ipam": {"type": "host-local", "subnet": "usePodCidr"}}, ""),
        (
            {"type": "ptp", "ipam": {"type": "static", "addresses": [{"address": "10.9.0.2"}]}},
            ".ipam.addresses[0].address: it must be an address with its prefix length",
        ),
        (
            {"type": "ptp", "ipam": {"type": "static", "addresses": [{"address": "10.9.0.2/24"}]}},
            ".ipam.addresses[0]: ptp needs the gateway of each address",
        ),
        (
            {"type": "macvlan", "ipam": {"type": "static", "addresses": [{"address": "10.9.0.2/24", **OUTSIDE}]}}, "",
        ),
        ({"type": "bridge", "isGateway": "true"}, ".isGateway: it must be true or false, not 'true', without"),
        ({"type": "bridge", "ISGATEWAY": 1}, ".ISGATEWAY: it must be true or false, not 1"),
        ({"type": "bridge", "mtu": "1400"}, ".mtu: it must be an integer, not '1400', without quotation marks"),
        ({"type": "bridge", "mtu": 1400.5}, ".mtu: it must be an integer, not 1400.5"),
        ({"type": "bridge", "mtu": 90000}, ".mtu: it must be 68 to 65535, not 90000"),
        ({"type": "ptp", "mtu": 67}, ".mtu: it must be 68 to 65535, not 67"),
        ({"type": "bridge", "mtu": -1}, ""),
        ({"type": "macvlan", "mtu": -1}, ".mtu: it must be 0 to 65535, not -1"),
        (
            {"type": "bridge", "mtu": 1279, "ipam": {"type": "host-local", "subnet": "fd00::/64"}},
            ".ipam: the kernel refuses IPv6 addresses with an MTU of 1279: it needs 1280",
        ),
        ({"type": "bridge", "mtu": 1280, "ipam": {"type": "host-local", "subnet": "fd00::/64"}}, ""),
        ({"type": "bridge", "bridge": 7}, ".bridge: it must be a string, not 7"),
        ({"type": "bridge", "bridge": "a-name-of-17-char"}, f".bridge: a-name-of-17-char {LONG}"),
        ({"type": "bridge", "bridge": "ä" * 8}, f".bridge: {'ä' * 8} {LONG}"),
        ({"type": "bridge", "bridge": "fifteen-letters"}, ""),
        *(({"type": "bridge", "bridge": name}, ".bridge: no interface can have") for name in ("", "a/b", "a b", "all")),
        ({"type": "bridge", "bridge": None, "own": "true", "hairpinMode": True, "vlan": 4094}, ""),
        ({"type": "bridge", "vlan": 5000}, ".vlan: it must be 0 to 4094, not 5000"),
        ({"type": "bridge", "hairpinMode": True, "promiscMode": True}, ": hairpinMode and promiscMode exclude"),
        ({"type": "macvlan", "mode": "BRIDGE"}, ".mode: it must be bridge, private, vepa or passthru, not 'BRIDGE'"),
        ({"type": "ipvlan", "mode": "l3s"}, ""),
        ({"type": "vlan", "vlanId": 7}, ": it has no master"),
        ({"type": "vrf"}, ": it has no vrfname"),
        ({"type": "host-device"}, ": it has neither device nor hwaddr, kernelpath or pciBusID"),
        ({"type": "host-device", "capabilities": {"deviceID": True}}, ""),
        ({"type": "portmap", "markMasqBit": 32}, ".markMasqBit: it must be 0 to 31, not 32"),
        ({"type": "portmap", "conditionsV4": "-i eth0"}, ".conditionsV4: it must be a list, not '-i eth0'"),
        ({"type": "portmap", "markMasqBit": 3, "externalSetMarkChain": "X"}, ": markMasqBit and externalSetMarkChain"),
        ({"type": "firewall", "ingressPolicy": "closed"}, ".ingressPolicy: it must be open, same-bridge or isolated"),
        ({"type": "bandwidth", "ingressRate": 1000}, ": ingressRate and ingressBurst must be set together"),
        ({"type": "tuning", "mtu": 10}, ".mtu: it must be 68 to 65535, not 10"),
        ({"type": "tuning", "sysctl": {"net.ipv4.conf.IFNAME.arp_ignore": 1}}, ".sysctl.net.ipv4.conf.IFNAME.arp_ig"),
        ({"type": "tuning", "sysctl": {"kernel.shmmax": "1"}}, ".sysctl: tuning changes only settings that begin"),
        *(
            ({"type": "tuning", "sysctl": {name: "1"}}, f".sysctl: the kernel has no setting {name}")
            for name in ("net.ipv4.conf.IFNAME.arp_ignroe", "net/ipv4/conf/eth0.7/forwardin", "net.ipv4.tcp_no")
        ),
        *(
            ({"type": "tuning", "sysctl": {name: "1"}}, "")
            for name in (
                "net.ipv4.conf.IFNAME.arp_ignore", "net/ipv4/conf/eth0.7/forwarding", "net.core.no",
                "net.ipv4.conf.eth0/7.forwarding", "net.ipv4.neigh.eth0.retrans_time_ms", "net/../b",
                "net.ipv4.ip_unprivileged_port_start", "net.ipv4.nowhere.no",
            )
        ),
    ],
)  # fmt: skip
def test_what_other_plugins_and_the_kernel_refuse(document: dict[str, Any], problem: str) -> None:
    [found, *_] = [*problems(document), ""]
    assert found.startswith(f"plugins[0]{problem}") if problem else found == ""


OLD, NEW = ("0.4.0", "1.0.0"), ("0.4.0", "1.0.0", "1.1.0")


@pytest.mark.parametrize(
    ("document", "by", "problem"),
    [
        (
            {"type": "bridge", "ipMasq": True, "ipMasqBackend": ""},
            NEW,
            ".ipMasqBackend: it must be iptables or nftables",
        ),
        ({"type": "bridge", "ipMasq": False, "ipMasqBackend": "x"}, None, ""),
        ({"type": "ptp", "ipMasq": True, "ipMasqBackend": "nftables"}, None, ""),
        ({"type": "portmap", "backend": "nft"}, NEW, ".backend: it must be iptables or nftables, not 'nft'"),
        ({"type": "bridge", "vlanTrunk": [{"id": 7}, {"ID": 5000}]}, NEW, ".vlanTrunk[1]: id: it must be 1 to 4094"),
        ({"type": "bridge", "vlanTrunk": [{"minID": 5}]}, NEW, ".vlanTrunk[0]: it must have minID and maxID"),
        ({"type": "bridge", "vlanTrunk": [{"minID": 5, "maxID": 4}]}, NEW, ".vlanTrunk[0]: it must have minID and"),
        ({"type": "bridge", "vlanTrunk": {"id": 7}}, NEW, ".vlantrunk: it must be a list"),
        ({"type": "bridge", "vlanTrunk": [{"minID": 5, "maxID": 9}, {"id": None}]}, None, ""),
        ({"type": "firewall", "ingressPolicy": "isolated"}, OLD, ": it must be open or same-bridge, not 'isolated'"),
        ({"type": "firewall", "ingressPolicy": "open"}, None, ""),
    ],
)
def test_what_only_older_or_only_newer_releases_refuse(
    document: dict[str, Any], by: tuple[str, ...] | None, problem: str
) -> None:
    for versions in (OLD, NEW, ()):
        [found, *_] = [*problems(document, versions=versions), ""]
        assert found.startswith(f"plugins[0]{problem}") if versions == by else found == ""


def test_a_device_of_the_node_that_the_next_container_needs(made: MadeNode) -> None:
    macvlan = {"type": "macvlan", "master": "eth9", "mtu": 9000, "ipam": {"type": "static"}}
    configure(made, macvlan)
    found = made.finding(check_next)
    assert (found.severity, found.name, found.subject) == ("error", "master-missing", "master eth9")
    made.host.links["eth9"] = Link("eth9", 9, mtu=1500, is_up=True)
    found = made.finding(check_next)
    assert found.seen == "mtu: 9000 is larger than the MTU of eth9, 1500, and macvlan refuses that"
    configure(made, {**macvlan, "mtu": 1500})
    assert made.findings(check_next) == []
    configure(made, {"type": "bridge", "bridge": "eth9"})
    assert made.finding(check_next).seen == "bridge: eth9 is an interface of the node, but no bridge"
    configure(made, {**macvlan, "master": "eth1", "linkInContainer": True})
    assert made.findings(check_next) == []


def test_a_change_that_would_be_refused_is_not_called_fine(made: MadeNode) -> None:
    made.attach("c1")
    configure(made, {**BRIDGE, "mtu": 90000})
    assert made.checked(check_next) == ["bridges of net"], "no pod is attached to it"
    assert made.finding(check_drift).remedy.startswith("correct the file: a value in it is refused; to see")
    configure(made, {**BRIDGE, "mtu": 9000})
    assert made.finding(check_drift).remedy.startswith("if the change is wanted, do nothing; to see")
