"""What stops the packets of an interface that is up, on a reading that is made by hand; and once on a real node."""

from __future__ import annotations

import json
import struct
import subprocess
from typing import Any

import pytest

from diagnosis.conftest import OperatorNode
from diagnosis.made import BRIDGE, PORTMAP, PORTS, MadeNode
from libcni.diagnosis.interfaces import check_interfaces
from libcni.diagnosis.ports import check_ports
from libcni.diagnosis.reading import LOCALNET
from libcni.diagnosis.rules import check_rules
from libcni.kernel.link_settings import settings_of
from libcni.kernel.netlink import BridgeEntry, IPRoute, Link, Neighbour

SHAPED = {"type": "bandwidth", "capabilities": {"bandwidth": True}}


@pytest.mark.parametrize(
    ("where", "setting", "remedy"),
    [
        ("br0", "arp off", "ip link set br0 arp on"),
        ("br0", "arp_ignore 8", "sysctl -w net/ipv4/conf/br0/arp_ignore=0"),
        ("vethc1", "isolated on", "bridge link set dev vethc1 isolated off"),
        ("vethc1", "locked on", "bridge link set dev vethc1 locked off"),
        ("vethc1", "bcast_flood off", "bridge link set dev vethc1 bcast_flood on"),
        ("vethc1", "qdisc tbf", "tc qdisc del dev vethc1 root"),
        ("eth0", "arp off", "nsenter --net={netns} ip link set eth0 arp on"),
        ("eth0", "qdisc netem", "nsenter --net={netns} tc qdisc del dev eth0 root"),
        ("eth0", "xdp on", "nsenter --net={netns} ip link set dev eth0 xdp off"),
        ("up0", "qdisc netem", "tc qdisc del dev up0 root"),
    ],
)
def test_a_setting_that_no_plugin_makes_is_named_with_the_command_that_takes_it_back(
    made: MadeNode, where: str, setting: str, remedy: str
) -> None:
    inside = made.attach("c1")
    add_uplink(made)
    assert made.findings(check_interfaces) == []
    link = {**made.host.links, **inside.links}[where]
    link.settings = (setting,)
    link.kind = link.kind or "veth"
    found = made.finding(check_interfaces)
    assert (found.name, found.remedy) == ("link-setting", remedy.format(netns=made.netns("c1")))
    assert f"{where} has {setting!r}: " in found.seen


@pytest.mark.parametrize(
    ("plugins", "where", "setting"),
    [
        ([{**BRIDGE, "portIsolation": True}], "vethc1", "isolated on"),
        ([BRIDGE, SHAPED], "vethc1", "qdisc tbf"),
        ([BRIDGE, {"type": "tuning", "sysctl": {"net.ipv4.conf.eth0.arp_ignore": "8"}}], "eth0", "arp_ignore 8"),
        ([{"type": "azure-vnet"}], "eth0", "arp off"),  # what other plugins make is not known
        ([{"type": "ipvlan", "master": "up0", "mode": "l3"}], "eth0", "arp off"),  # the kernel makes it so
        ([BRIDGE], "eth0", "forwarding 0"),
        ([BRIDGE], "up0", "qdisc htb"),  # the node's own way out may be limited
    ],
)
def test_a_setting_that_a_plugin_or_the_kernel_makes_is_none(
    made: MadeNode, plugins: list[dict[str, Any]], where: str, setting: str
) -> None:
    inside = made.attach("c1", *plugins)
    add_uplink(made)
    inside.links["eth0"].kind = str(plugins[0]["type"])
    {**made.host.links, **inside.links}[where].settings = (setting,)
    assert made.findings(check_interfaces) == []


def test_a_bridge_with_the_spanning_tree_protocol_is_a_note(made: MadeNode) -> None:
    made.attach("c1")
    assert "stp_state 1" in settings_of(0, {}, {5: struct.pack("=I", 1)}, {}, lambda _: {})
    assert settings_of(0, {}, {5: struct.pack("=I", 0)}, {}, lambda _: {}) == ()
    made.host.links["br0"].settings = ("stp_state 1",)
    found = made.finding(check_interfaces)
    assert (found.severity, found.subject) == ("note", "bridge br0")
    assert found.remedy == "ip link set br0 type bridge stp_state 0"


def test_a_setting_with_another_value_than_the_plugins_is_found(made: MadeNode) -> None:
    tuning = {"type": "tuning", "sysctl": {"net.ipv4.conf.eth0.arp_ignore": "1"}}
    made.attach("c1", BRIDGE, tuning).links["eth0"].settings = ("arp_ignore 8",)
    assert made.finding(check_interfaces).name == "link-setting"


@pytest.mark.parametrize(
    ("vlan", "port", "bridge", "seen"),
    [
        ({}, 1, 1, ""),
        ({}, 100, 1, "into VLAN 100, but its network is in VLAN 1"),
        ({}, 0, 1, "into no VLAN, but its network is in VLAN 1"),
        ({"vlan": 100}, 100, 1, ""),
        ({"vlan": 100}, 1, 1, "into VLAN 1, but its network is in VLAN 100"),
        ({"vlanTrunk": [{"id": 5}]}, 0, 1, ""),
    ],
)
def test_a_port_in_another_vlan(made: MadeNode, vlan: dict[str, Any], port: int, bridge: int, seen: str) -> None:
    made.attach("c1", {**BRIDGE, **vlan})
    made.host.links["br0"].pvid, made.host.links["vethc1"].pvid = bridge, port
    assert made.findings(check_interfaces) == [], "the bridge does not filter"
    made.host.links["br0"].settings = ("vlan_filtering 1",)
    assert [one.seen.partition("vethc1 ")[2] for one in made.findings(check_interfaces)] == [seen] * bool(seen)


RIGHT, WRONG = "02:00:00:00:00:02", "02:00:00:00:00:99"


@pytest.mark.parametrize(
    ("place", "address", "mac", "is_wrong"),
    [
        ("container", "10.1.0.1", WRONG, True),
        ("container", "10.1.0.1", "02:00:00:00:00:01", False),
        ("container", "10.1.0.3", WRONG, True),
        ("container", "10.1.0.9", WRONG, False),  # nobody knows who that is
        ("node", "10.1.0.2", WRONG, True),
        ("node", "10.1.0.2", RIGHT, False),
        ("node", "192.0.2.9", WRONG, False),
    ],
)
def test_a_permanent_neighbour_with_the_wrong_hardware_address(
    made: MadeNode, place: str, address: str, mac: str, is_wrong: bool
) -> None:
    inside, bridge = made.attach("c1"), made.host.links["br0"]
    made.attach("c2")
    bridge.mac = "02:00:00:00:00:01"
    network, link = (inside, inside.links["eth0"]) if place == "container" else (made.host, bridge)
    object.__setattr__(network, "neighbours", (Neighbour(address, mac, link.index),))
    remedies = [one.remedy for one in made.findings(check_interfaces) if one.name == "wrong-neighbour"]
    command = f"ip neigh del {address} dev {link.name}"
    assert remedies == [command if place == "node" else f"nsenter --net={made.netns('c1')} {command}"] * is_wrong


def test_a_plugin_may_answer_for_its_containers_with_an_address_of_its_own(made: MadeNode) -> None:
    inside = made.attach("c1", {"type": "azure-vnet"})
    object.__setattr__(inside, "neighbours", (Neighbour("10.1.0.1", WRONG, 3),))
    assert made.findings(check_interfaces) == []


def test_an_address_with_another_prefix_length(made: MadeNode) -> None:
    inside = made.attach("c1")
    inside.links["eth0"].addresses = ["10.1.0.2/32"]
    object.__setattr__(inside, "routes", ())
    found = made.finding(check_interfaces)
    assert (found.name, found.seen) == (
        "prefix-changed", "the address on eth0 is 10.1.0.2/32, but 10.1.0.2/24 is recorded"
    )  # fmt: skip
    assert [(one.kind, one.details, one.interrupts) for one in found.mends] == [
        ("remove-address", ("10.1.0.2/32",), ("c1:eth0",)), ("add-address", ("10.1.0.2/24",), ("c1:eth0",)),
    ]  # fmt: skip
    made.records[0] = made.records[0].with_fields(
        config=(made.records[0].config or b"").replace(b"bridge", b"azure-vnet")
    )
    assert "prefix-changed" not in [one.name for one in made.findings(check_interfaces)]


def change_config(made: MadeNode, old: bytes, new: bytes) -> None:
    config = made.records[0].config or b""
    assert old in config
    made.records[0] = made.records[0].with_fields(config=config.replace(old, new))


def add_uplink(made: MadeNode, address: str = "192.0.2.1/24", kind: str = "", gateway: str = "192.0.2.2") -> None:
    """Give the node an interface of its own, with the default route if there is a gateway."""
    made.host.links["up0"] = Link("up0", 90, is_up=True, kind=kind, addresses=[address])
    routes = [IPRoute("0.0.0.0/0", gateway, 90)] if gateway else []
    object.__setattr__(made.host, "routes", (*made.host.routes, *routes))


@pytest.mark.parametrize(
    ("uplink", "is_found"),
    [
        ({}, False),
        ({"gateway": ""}, True),
        ({"gateway": "", "kind": "vlan"}, True),
        ({"gateway": "", "kind": "bridge"}, False),
        ({"gateway": "", "kind": "vxlan"}, False),
        ({"gateway": "", "address": "fe80::1/64"}, False),
    ],
)
def test_a_node_that_masquerades_needs_a_default_route(made: MadeNode, uplink: dict[str, str], is_found: bool) -> None:
    made.attach("c1")
    made.make_rules("c1", "10.1.0.2")
    assert made.findings(check_rules) == [], "a node without a way out"
    add_uplink(made, **uplink)
    found = made.findings(check_rules)
    assert [(one.name, one.containers) for one in found] == [("no-default-route", ("c1:eth0",))] * is_found
    change_config(made, b'"ipMasq": true', b'"ipMasq": false')
    assert made.findings(check_rules) == [], "the network may be one of the node alone"


@pytest.mark.parametrize(
    ("address", "routes", "is_lost", "command"),
    [
        ("192.0.2.1/32", (), True, "via GATEWAY dev up0 onlink"),
        ("192.0.2.1/32", (IPRoute("192.0.2.2/32", "", 90),), False, "via 192.0.2.2 dev up0"),
        ("192.0.2.1/32", (IPRoute("198.51.100.0/24", "192.0.2.2", 90),), False, "via GATEWAY dev up0 onlink"),
        ("192.0.2.1/24", (IPRoute("192.0.2.0/24", "", 90),), False, "via GATEWAY dev up0"),
    ],
)
def test_the_command_for_a_default_route_is_one_that_the_kernel_accepts(
    made: MadeNode, address: str, routes: tuple[IPRoute, ...], is_lost: bool, command: str
) -> None:
    """Without a route to the gateway it says "Nexthop has invalid gateway"."""
    made.attach("c1")
    made.make_rules("c1", "10.1.0.2")
    add_uplink(made, address, gateway="")
    object.__setattr__(made.host, "routes", (*made.host.routes, *routes))
    found = made.finding(check_rules)
    assert (found.name, found.severity) == ("no-default-route", "warning")
    assert found.remedy.endswith(f": ip route add default {command}")
    assert ("up0 has only 192.0.2.1/32, and no route leads over it" in found.seen) == is_lost


def test_the_answers_from_outside_need_forwarding_on_the_way_out_too(made: MadeNode) -> None:
    made.attach("c1", {**BRIDGE, "ipMasq": False})
    add_uplink(made)
    made.host.links["up0"].settings = ("forwarding 0",)
    found = made.finding(check_rules)
    path = "/proc/sys/net/ipv4/conf/up0/forwarding"
    assert (found.name, found.subject, found.mends) == ("no-forwarding", path, ())
    assert found.remedy == "sysctl -w net/ipv4/conf/up0/forwarding=1"


def test_two_containers_with_one_hardware_address(made: MadeNode) -> None:
    first, second = made.attach("c1"), made.attach("c2")
    second.links["eth0"].mac = first.links["eth0"].mac
    found = made.finding(check_interfaces)
    assert (found.name, found.subject) == ("duplicate-mac", "hardware address 02:00:00:00:00:02")
    assert found.containers == ("c1:eth0", "c2:eth0")
    assert found.seen.endswith("; c2:eth0 had another one after the ADD")
    assert found.remedy == f"nsenter --net={made.netns('c2')} ip link set eth0 address 02:00:00:00:00:03"
    second.links["eth0"].kind = "ipvlan"
    assert made.findings(check_interfaces) == []


def test_a_bridge_that_drops_what_the_node_sends_to_its_own_ports(made: MadeNode) -> None:
    made.attach("c1", {**BRIDGE, "ipMasq": False}, PORTMAP, capability_args=json.dumps(PORTS))
    assert made.findings(check_ports) == []
    made.make_rules("c1", "10.1.0.2")
    assert made.findings(check_ports) == []
    made.host.links["br0"].settings = ()
    found = made.finding(check_ports)
    assert (found.name, found.remedy) == ("localnet-off", "sysctl -w net/ipv4/conf/br0/route_localnet=1")
    made.more["forwards"][LOCALNET] = True
    assert made.findings(check_ports) == []
    made.more["forwards"][LOCALNET] = False
    change_config(made, b'"portMappings": true}', b'"portMappings": true}, "snat": false')
    assert made.findings(check_ports) == []


def test_a_machine_on_the_bridge_that_says_it_has_the_gateways_address(made: MadeNode) -> None:
    """A neighbour that the kernel has learned may be old: it counts if the bridge has seen it behind another port."""
    inside = made.attach("c1")
    made.host.links["br0"].mac = "02:00:00:00:00:01"
    made.host.links["vnet0"] = Link("vnet0", 70, master=2, is_up=True)
    learned = Neighbour("10.1.0.1", WRONG, 3, is_learned=True)
    object.__setattr__(inside, "learned", (learned, Neighbour("10.1.0.1", "02:00:00:00:00:01", 3, is_learned=True)))
    assert made.findings(check_interfaces) == []
    object.__setattr__(made.host, "bridge_entries", (BridgeEntry(WRONG, 70, is_learned=True),))
    found = made.finding(check_interfaces)
    assert (found.name, found.subject, found.containers) == ("wrong-neighbour", "bridge br0", ("c1:eth0",))
    assert f"behind its port vnet0, which no record names: the hardware address {WRONG}" in found.seen
    made.host.links["vnet0"].master = 0
    assert made.findings(check_interfaces) == []


def test_a_static_entry_of_a_bridge_that_leads_to_another_port(made: MadeNode) -> None:
    mac = made.attach("c1").links["eth0"].mac
    made.attach("c2")
    ports = {name: made.host.links[f"veth{name}"].index for name in ("c1", "c2")}
    object.__setattr__(made.host, "bridge_entries", (BridgeEntry(mac, ports["c1"]),))
    assert made.findings(check_interfaces) == []
    object.__setattr__(made.host, "bridge_entries", (BridgeEntry(mac, ports["c2"], is_learned=True),))
    assert made.findings(check_interfaces) == []
    object.__setattr__(made.host, "bridge_entries", (BridgeEntry(mac, ports["c2"]),))
    found = made.finding(check_interfaces)
    assert (found.name, found.containers) == ("wrong-neighbour", ("c1:eth0",))
    assert found.remedy == f"bridge fdb del {mac} dev vethc2 master"


@pytest.mark.parametrize(
    ("settings", "mtu", "remedy"),
    [
        (("disable_ipv6 1",), 1500, "sysctl -w net/ipv6/conf/{}/disable_ipv6=0"),
        ((), 1000, "ip link set {} mtu 1280"),
        ((), 999, "ip link set {} mtu 1400"),
    ],
)
def test_an_address_of_ipv6_is_not_added_to_an_interface_that_takes_none(
    made: MadeNode, settings: tuple[str, ...], mtu: int, remedy: str
) -> None:
    """The kernel has removed it, and refuses it."""
    inside = made.attach("c1", {**BRIDGE, "mtu": 1400} if "1400" in remedy else BRIDGE)
    result = (made.records[0].result or "").replace("10.1.0.2/24", "fd01::2/64").replace("10.1.0.1", "fd01::1")
    made.records[0] = made.records[0].with_fields(result=result.replace("0.0.0.0/0", "fd09::/64"))
    for link in (inside.links["eth0"], made.host.links["br0"]):
        link.settings, link.mtu, link.addresses = settings, mtu, []
    found = {one.name: (one.remedy, one.mends) for one in made.findings(check_interfaces)}
    netns = made.netns("c1")
    assert found["gateway-missing"] == (remedy.format("br0"), ())
    assert found["address-lost"] == (
        f"call repair again after: nsenter --net={netns} {remedy.format('eth0')}", (),
    )  # fmt: skip


def test_a_fault_of_a_bridge_hides_none_of_its_containers(made: MadeNode) -> None:
    made.attach("c1").links["eth0"].is_up = False
    made.host.links["br0"].addresses = []
    assert {one.name for one in made.findings(check_interfaces)} == {"gateway-missing", "interface-down"}


def test_a_port_that_repair_puts_on_its_bridge_again_has_hairpin_mode_as_before(made: MadeNode) -> None:
    made.attach("c1", {**BRIDGE, "hairpinMode": True})
    made.host.links["vethc1"].master = 0
    [mend] = made.finding(check_interfaces).mends
    assert (mend.kind, mend.details) == ("join", ("br0", "hairpin on"))


def test_the_way_out_without_ipv6_is_a_note(made: MadeNode) -> None:
    made.attach("c1", {**BRIDGE, "ipMasq": True})
    record = made.records[0]
    result = (record.result or "").replace("10.1.0.2/24", "fd01::2/64").replace("10.1.0.1", "fd01::1")
    made.records[0] = record.with_fields(result=result.replace("0.0.0.0/0", "::/0"))
    add_uplink(made)
    assert "no-default-route" not in [one.name for one in made.findings(check_rules)]
    made.host.links["up0"].settings = ("disable_ipv6 1",)
    [found] = [one for one in made.findings(check_rules) if one.name == "no-default-route"]
    assert found.severity == "note"
    assert found.remedy.endswith("configure up0 again, for its addresses and routes, after: "
                                 "sysctl -w net/ipv6/conf/up0/disable_ipv6=0")  # fmt: skip
    # Once it is on again, nothing tells this node from one that never had IPv6.
    made.host.links["up0"].settings = ()
    object.__setattr__(made.host, "routes", tuple(one for one in made.host.routes if ":" not in one.destination))
    made.host.links["up0"].addresses = [one for one in made.host.links["up0"].addresses if ":" not in one]
    assert "no-default-route" not in [one.name for one in made.findings(check_rules)]
    assert "IPv6 of 1 container to other networks" in [subject for subject, _ in made.not_checked(check_rules)]


def test_of_several_routes_the_one_with_the_lowest_metric_counts(made: MadeNode) -> None:
    inside = made.attach("c1")
    routes = [
        IPRoute("0.0.0.0/0", gateway, 3, metric=metric) for gateway, metric in [("10.1.0.1", 0), ("10.1.0.9", 10)]
    ]
    object.__setattr__(inside, "routes", tuple(routes))
    assert made.findings(check_interfaces) == []
    object.__setattr__(inside, "routes", (IPRoute("0.0.0.0/0", "10.1.0.1", 3, metric=1024), routes[1]))
    found = made.finding(check_interfaces)
    command = f"nsenter --net={made.netns('c1')} ip route"
    wrong = "0.0.0.0/0 via 10.1.0.9 metric 10"
    assert (found.name, found.remedy.partition("then: ")[2]) == ("route-changed", f"{command} del {wrong}")
    object.__setattr__(inside, "routes", (routes[1],))
    assert made.finding(check_interfaces).remedy.endswith(f"{command} replace 0.0.0.0/0 via 10.1.0.1 dev eth0")


def test_an_address_on_lo_alone_is_lost(made: MadeNode) -> None:
    inside = made.attach("c1")
    inside.links["lo"] = Link("lo", 1, is_up=True, addresses=["10.1.0.2/32"])
    assert made.findings(check_interfaces) == []
    inside.links["eth0"].addresses = []
    found = made.finding(check_interfaces)
    assert (found.name, [one.kind for one in found.mends]) == ("address-lost", ["add-address"])


@pytest.mark.slow
@pytest.mark.real
def test_a_veth_off_its_bridge_comes_back_with_hairpin_mode(node: OperatorNode) -> None:
    node.configure("net", node.bridge(f"{node.net}.0/24", hairpinMode=True))
    node.attach("c1")
    [veth] = [one for one in node.host.links() if one.startswith("veth")]
    subprocess.run(["ip", "link", "set", veth, "nomaster"], check=True)
    assert node.mend("is not on bridge").name == "off-bridge"
    node.assert_healthy()


@pytest.mark.slow
@pytest.mark.real
def test_what_was_set_by_hand_on_a_real_node_is_found_and_its_command_mends_it(node: OperatorNode) -> None:
    node.configure("net", node.bridge(f"{node.net}.0/24", isDefaultGateway=True), PORTMAP)
    containers = [node.attach("c1"), node.attach("c2")]
    node.assert_healthy()
    address, netns = f"{node.net}.2", containers[0].path
    [veth] = [one for one in node.host.links() if one.startswith("veth")][:1]
    broken = {
        "'arp off'": "ip link set br-node arp off",
        "'isolated on'": f"bridge link set dev {veth} isolated on",
        "'locked on'": f"bridge link set dev {veth} locked on",
        "'qdisc tbf'": f"tc qdisc add dev {veth} root tbf rate 8bit burst 10 latency 1ms",
        "eth0 has 'arp off'": f"nsenter --net={netns} ip link set eth0 arp off",
        f"gives {address} the": f"ip neigh replace {address} lladdr 02:00:00:00:00:77 dev br-node nud permanent",
        f"gives {node.net}.1 the": f"nsenter --net={netns} ip neigh replace {node.net}.1 lladdr 02:00:00:00:00:77"
        " dev eth0 nud permanent",
    }
    # One after the other: the kernel forgets its neighbours with the change of ARP.
    for seen, command in broken.items():
        subprocess.run(command.split(), check=True)
        subprocess.run(node.finding(seen).remedy.split(), check=True)
    node.assert_healthy()
    for command in (f"add {address}/8 dev eth0", f"del {address}/24 dev eth0"):
        containers[0].run("ip", "address", *command.split())
    assert node.mend(f"the address on eth0 is {address}/8", interrupt="c1").name == "prefix-changed"
    assert containers[0].addresses("eth0") == [f"{address}/24"]
    node.assert_healthy()
