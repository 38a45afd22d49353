"""The ways that the kernel chooses for packets: of the node, through it, and inside of containers."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import replace

import pytest
from nodes import Namespace

from diagnosis.made import BRIDGE, IPAM, MadeNode
from libcni.diagnosis.interfaces import check_interfaces
from libcni.diagnosis.report import NodeFinding, NotChecked, Observations
from libcni.kernel.foreign import ways_in
from libcni.kernel.namespace import NamespaceId, namespace_identity
from libcni.kernel.netlink import IPRoute, Link, RouteAnswer, RouteQuestion, read_network
from libcni.kernel.rules import Table
from libcni.testing import wait_until

pytestmark = pytest.mark.real

PTP = {"type": "ptp", "ipam": IPAM}
Place = tuple[str, NamespaceId] | None


class Routed:
    """A node whose own interfaces, routes and rules are real: an uplink, br0 with b1 and b2, and p1 on its own link."""

    def __init__(self, made: MadeNode, host: Namespace) -> None:
        self.made, self.host = made, host
        self.table, self.rules = "mangle", list[str]()
        made.attach("b1")
        made.attach("b2")
        made.attach("p1", PTP, address="10.2.0.2", gateway="10.2.0.1")
        self.type(
            "link add br0 type bridge", "link set br0 up", "addr add 10.1.0.1/24 dev br0", "link add up0 type bridge",
            "link set up0 up", "addr add 192.0.2.7/24 dev up0", "route add default via 192.0.2.254",
            "link add vethp1 type veth peer name p", "link set vethp1 up", "link set p up",
            "addr add 10.2.0.1/32 dev vethp1", "route add 10.2.0.2 dev vethp1",
            *(f"link add veth{name} type veth peer name {name}" for name in ("b1", "b2")),
            *(f"link set veth{name} master br0 up" for name in ("b1", "b2")), "link set b1 up", "link set b2 up",
        )  # fmt: skip
        with open("/proc/sys/net/ipv4/conf/all/forwarding", "w", encoding="ascii") as file:
            file.write("1")
        self.containers: dict[str, str] = {}
        # The kernel lets the ports forward a moment later. Until then the containers are cut off for another reason.
        wait_until(lambda: not any("state 0" in link.settings for link in read_network().links.values()))

    def type(self, *commands: str) -> None:
        self.host.run("sh", "-ec", "; ".join(f"ip {command}" for command in commands))

    def look_up(self, place: Place, questions: Sequence[RouteQuestion]) -> list[RouteAnswer]:
        if place is None:
            return ways_in(None, questions)
        path = self.containers.get(place[0], "")
        if not path:
            return [RouteAnswer(ifindex=3) for _ in questions]
        identity = namespace_identity(path)
        assert identity is not None
        return ways_in((path, identity), questions)

    def observations(self) -> Observations:
        reading = replace(self.made.reading(), host=read_network(), look_up=self.look_up)
        for rule in self.rules:
            reading.rules["iptables"].setdefault(self.table, Table()).add(rule.split()[1], tuple(rule.split()))
        return check_interfaces(reading)

    def not_checked(self) -> list[tuple[str, str]]:
        found = [one for one in self.observations() if isinstance(one, NotChecked)]
        return [(one.subject, one.reason) for one in found if "mark" in one.subject]

    def findings(self) -> list[NodeFinding]:
        found = [one for one in self.observations() if isinstance(one, NodeFinding)]
        return [one for one in found if "route" in one.name or one.name == "other-way-out"]


@pytest.fixture
def routed(made: MadeNode, host: Namespace) -> Routed:
    return Routed(made, host)


STOLEN = (
    # command, seen, command that removes it, containers
    ("ip route add to local 10.1.0.0/24 dev up0 proto 66", "Google's guest agent",
     "ip route del local 10.1.0.0/24 dev up0 table local", "b1 b2"),
    ("ip route add 10.2.0.0/24 dev up0 table 52; ip rule add pref 5270 lookup 52",
     "of table 52 leads over up0, not over vethp1",
     "ip route del 10.2.0.0/24 dev up0 table 52", "p1"),
    ("ip route add 10.1.0.2 dev up0", "leads over up0, not over br0", "ip route del 10.1.0.2/32 dev up0", "b1"),
    ("ip rule flush", "no rule leads to the table main",
     "ip rule add pref 32766 lookup main; ip rule add pref 32767 lookup default", "b1 b2 p1"),
    ("ip rule add pref 100 prohibit", "this rule drops the packets from everywhere",
     "ip rule del priority 100", "b1 b2 p1"),
    ("ip rule add pref 100 from 10.1.0.0/24 blackhole", "this rule drops the packets from 10.1.0.0/24",
     "ip rule del priority 100 from 10.1.0.0/24", "b1 b2"),
    ("ip rule add pref 100 iif br0 prohibit", "this rule drops the packets over br0",
     "ip rule del priority 100 iif br0", "b1 b2"),
    ("ip rule add pref 100 iif br0 lookup 100; ip route add unreachable default table 100",
     "to table 100, whose route to 0.0.0.0/0 drops them", "ip rule del priority 100 iif br0 lookup 100", "b1 b2"),
    ("ip rule add pref 100 to 10.2.0.0/24 unreachable", "this rule drops the packets to 10.2.0.0/24",
     "ip rule del priority 100 to 10.2.0.0/24", "p1"),
    ("ip rule add pref 9 from 9.9.9.9; ip rule add pref 9 to 10.2.0.0/24 lookup 8; ip route add prohibit 0/0 table 8",
     "to table 8", "ip rule del priority 9 to 10.2.0.0/24 lookup 8", "p1"),
    ("ip route add blackhole 10.1.0.2", "the blackhole route to 10.1.0.2/32 drops the packets",
     "ip route del blackhole 10.1.0.2/32", "b1"),
    ("ip route add prohibit 10.1.0.9", "the prohibit route to 10.1.0.9/32 drops the packets",
     "ip route del prohibit 10.1.0.9/32", ""),
    ("ip rule add pref 100 lookup 100; ip route add default dev up0 table 100",
     "the route to 0.0.0.0/0 of table 100 leads over up0, not over br0, vethp1",
     "ip route del 0.0.0.0/0 dev up0 table 100", "b1 b2 p1"),
)  # fmt: skip


@pytest.mark.parametrize(("command", "seen", "remedy", "containers"), STOLEN)
def test_what_takes_the_packets_of_containers(
    routed: Routed, command: str, seen: str, remedy: str, containers: str
) -> None:
    assert routed.findings() == []
    routed.host.run("sh", "-ec", command)
    found = routed.findings()
    assert found, "nothing is found"
    assert {(one.name, one.severity) for one in found} == {("route-stolen", "error")}
    assert any(seen in one.seen for one in found), [one.seen for one in found]
    assert {name for one in found for name in one.containers} == {f"{name}:eth0" for name in containers.split()}
    printed = [one.remedy.partition("run: ")[2].partition("; Google")[0] for one in found]
    assert remedy in printed
    routed.host.run("sh", "-ec", "; ".join(printed))
    assert routed.findings() == []


@pytest.mark.parametrize(
    ("ends", "seen"),
    [
        ("to 10.1.0.0/24 iif up0", "this rule drops the packets to 10.1.0.0/24 over up0"),
        ("from 10.2.0.0/24 to 10.1.0.0/24", "from 10.2.0.0/24 to 10.1.0.0/24"),
    ],
)
def test_what_somebody_may_want_is_a_note(routed: Routed, ends: str, seen: str) -> None:
    routed.host.run(*f"ip rule add pref 100 {ends} prohibit".split())
    [found] = routed.findings()
    assert (found.severity, found.name, found.remedy) == (
        "note",
        "route-stolen",
        f"if nobody wants this: ip rule del priority 100 {ends}",
    )
    assert seen in found.seen


WG = "ip link add wg0 type bridge; ip link set wg0 up"
QUICK = (
    "ip route add default dev wg0 table 51820; ip rule add not fwmark 51820 table 51820 pref 32765; "
    "ip rule add table main suppress_prefixlength 0 pref 32764"
)
OF_WG = "the route to 0.0.0.0/0 of table 51820 leads over wg0"
NEAR = (
    ("ip rule add pref 2000 from 10.1.0.0/24 to 192.0.2.0/24 iif br0 prohibit", "warning",
     "this rule drops the packets from 10.1.0.0/24 to 192.0.2.0/24 over br0",
     "ip rule del priority 2000 from 10.1.0.0/24 to 192.0.2.0/24 iif br0", "b1 b2"),
    ("ip rule add pref 100 from 10.1.0.3 lookup 3; ip route add unreachable 192.0.2.0/24 table 3", "warning",
     "leads the packets from 10.1.0.3/32 to table 3, whose route to 192.0.2.0/24 drops them",
     "ip rule del priority 100 from 10.1.0.3/32 lookup 3", "b2"),
)  # fmt: skip
ELSEWHERE = (
    # command, seen, remedy, containers, severity
    (f"{WG}; ip rule add pref 100 from 10.1.0.0/24 lookup 51; ip route add default dev wg0 table 51",
     "because of the routing rule 100, the route to 0.0.0.0/0 of table 51 leads over wg0, not over up0",
     "ip route del 0.0.0.0/0 dev wg0 table 51", "b1 b2", "note"),
    (f"{WG}; {QUICK}", f"because of the routing rule 32765, {OF_WG}, not over up0",
     "ip route del 0.0.0.0/0 dev wg0 table 51820", "b1 b2 p1", "note"),
    (f"ip tuntap add wg0 mode tun; ip link set wg0 up; {QUICK}",
     f"because of the routing rule 32765, {OF_WG}, not over up0",
     "ip route del 0.0.0.0/0 dev wg0 table 51820", "b1 b2 p1", "warning"),
    (f"{WG}; ip route add 0.0.0.0/1 dev wg0; ip route add 128.0.0.0/1 dev wg0",
     "the route to 0.0.0.0/1 of table main leads over wg0, not over up0", "ip route del 0.0.0.0/1 dev wg0",
     "b1 b2 p1", "note"),
)  # fmt: skip


def found_and_undone(routed: Routed, command: str, remedy: str, containers: str) -> NodeFinding:
    """Run a command; return the only finding, after its remedy has taken the command back."""
    routed.host.run("sh", "-ec", command)
    [found] = routed.findings()
    assert found.containers == tuple(f"{name}:eth0" for name in containers.split())
    assert found.remedy.endswith(f": {remedy}")
    routed.host.run("sh", "-ec", remedy)
    assert routed.findings() == []
    return found


@pytest.mark.parametrize(("command", "severity", "seen", "remedy", "containers"), NEAR)
def test_a_rule_that_keeps_containers_from_the_network_of_the_gateway_alone(
    routed: Routed, command: str, severity: str, seen: str, remedy: str, containers: str
) -> None:
    found = found_and_undone(routed, command, remedy, containers)
    assert (found.severity, found.name) == (severity, "route-stolen")
    assert seen in found.seen
    assert found.meaning.startswith("the containers cannot reach the network of this node's gateway")


@pytest.mark.parametrize(("command", "seen", "remedy", "containers", "severity"), ELSEWHERE)
def test_packets_to_other_networks_that_do_not_take_the_default_route(
    routed: Routed, command: str, seen: str, remedy: str, containers: str, severity: str
) -> None:
    """As wg-quick and OpenVPN lead all packets into their tunnels."""
    found = found_and_undone(routed, command, remedy, containers)
    assert (found.name, found.severity, found.seen) == ("other-way-out", severity, seen)


SECOND = "ip link add up1 type bridge; ip link set up1 up; ip addr add 198.51.100.1/24 dev up1"


WAN = (
    "link add wan2 type bridge; ip link set wan2 up; ip addr add 198.51.100.1/24 dev wan2; "
    "ip route add default dev wan2 table 101"
)
OUT = "of table 101 leads over wan2, not over up0"
MARKED = (
    # table, rules, routing rule, name, what is seen, containers
    ("mangle", ["-i br0 -j MARK --set-xmark 0x1/0xffffffff"], "fwmark 1 lookup 101", "other-way-out",
     ("and the mark 0x1 of the rule -A PREROUTING -i br0 -j MARK", OUT), "b1 b2"),
    ("mangle", ["-s 10.1.0.2/32 -j MARK --set-xmark 0x5/0xff"], "fwmark 5/0xf lookup 101", "other-way-out",
     ("the mark 0x5 of", OUT), "b1"),
    ("raw", ["-i br0 -p tcp -m tcp --dport 443 -j MARK --set-xmark 0x1/0xffffffff"], "fwmark 1 lookup 101",
     "other-way-out", ("for tcp 443, ", OUT), "b1 b2"),
    ("mangle", ["-i br0 -p udp -j MARK --set-xmark 0x1/0xffffffff"], "fwmark 1 lookup 101",
     "other-way-out", ("for udp, ", OUT), "b1 b2"),
    ("mangle", ["-i br0 -j OWN", "OWN -j MARK --set-xmark 0x2/0x2",
                "OWN -m mark --mark 0x2/0x2 -j MARK --set-xmark 0x1/0x0"],
     "fwmark 3 lookup 101", "other-way-out", ("the mark 0x3 of", OUT), "b1 b2"),
    ("mangle", ["-i br0 -j MARK --set-xmark 0x1/0xffffffff"], "fwmark 1 prohibit", "route-stolen",
     ("because of the mark 0x1 of", "this rule drops the packets with the mark 0x1"), "b1 b2"),
    ("mangle", ["-i up0 -j MARK --set-xmark 0x1/0xffffffff"], "fwmark 1 lookup 101", "route-stolen",
     ("because of the mark 0x1 of", "leads over wan2, not over"), "b1 b2 p1"),
    ("mangle", ["-i br0 ! -d 198.51.100.0/24 -j MARK --set-xmark 0x7/0xffffffff"], "fwmark 7 lookup 101",
     "other-way-out", ("the mark 0x7 of", OUT), "b1 b2"),
    # These packets get no mark, or none that the routing rule asks for.
    ("mangle", ["-i br0 -j ACCEPT", "-i br0 -j MARK --set-xmark 0x1/0xffffffff"], "fwmark 1 lookup 101", "", (), ""),
    ("mangle", ["-i br0 -g OWN", "OWN -p tcp -j RETURN", "-j MARK --set-xmark 0x1/0xffffffff"],
     "iif br0 fwmark 1 lookup 101", "", (), ""),
    ("mangle", ["-i br0 -j MARK --set-xmark 0x2/0xffffffff"], "fwmark 1 lookup 101", "", (), ""),
    ("mangle", ["-i br9 -j MARK --set-xmark 0x1/0xffffffff"], "fwmark 1 lookup 101", "", (), ""),
    ("mangle", ["-m addrtype --dst-type LOCAL -j MARK --set-xmark 0x1/0xffffffff"], "fwmark 1 lookup 101", "", (), ""),
    ("filter", ["-i br0 -j MARK --set-xmark 0x1/0xffffffff"], "fwmark 1 lookup 101", "", (), ""),
)  # fmt: skip


@pytest.mark.parametrize(("table", "rules", "routing_rule", "name", "seen", "containers"), MARKED)
def test_a_mark_that_leads_packets_to_another_table(
    routed: Routed, table: str, rules: list[str], routing_rule: str, name: str, seen: tuple[str, ...], containers: str
) -> None:
    routed.host.run("sh", "-ec", f"ip {WAN}; ip rule add {routing_rule}")
    chain = "FORWARD" if table == "filter" else "PREROUTING"
    routed.rules = [f"-A {rule}" if rule.startswith("OWN") else f"-A {chain} {rule}" for rule in rules]
    routed.table = table
    found = routed.findings()
    assert {one.name for one in found} == ({name} if name else set())
    for text in seen:
        assert any(text in one.seen for one in found), [one.seen for one in found]
    assert {one for each in found for one in each.containers} == {f"{one}:eth0" for one in containers.split()}
    for one in found:
        routed.host.run("sh", "-ec", one.remedy.partition(": " if "run: " not in one.remedy else "run: ")[2])
    assert routed.findings() == []


def test_a_mark_that_is_not_known_is_not_checked(routed: Routed) -> None:
    routed.rules = ["-A PREROUTING -i br0 -m set --match-set own src -j MARK --set-xmark 0x1/0xffffffff"]
    assert routed.not_checked() == []
    routed.host.run("sh", "-ec", f"ip {WAN}; ip rule add fwmark 1 lookup 101")
    [(subject, reason)] = routed.not_checked()
    assert subject == "routes of packets with a mark (ip rule fwmark)"
    assert "--match-set own src" in reason


@pytest.mark.parametrize(("value", "is_found"), [(1, True), (2, False), (0, False)])
def test_a_second_uplink_that_drops_what_another_one_leads_to(routed: Routed, value: int, is_found: bool) -> None:
    routed.host.run("sh", "-ec", f"{SECOND}; ip route add default via 198.51.100.254 dev up1 table 7")
    routed.host.run("sysctl", "-qw", f"net.ipv4.conf.up1.rp_filter={value}")
    found = routed.findings()
    assert [one.severity for one in found] == ["note"] * is_found
    assert [one.remedy for one in found] == ["if nobody wants this: sysctl -w net/ipv4/conf/up1/rp_filter=2"] * is_found


def test_the_interface_of_a_vlan_is_the_one_that_the_plugin_makes(made: MadeNode) -> None:
    made.attach("c1", {**BRIDGE, "vlan": 7})
    [attachment] = made.reading().attachments
    assert made.reading().gateway_interfaces(attachment) == ["br0"]
    made.host.links["vlan7"] = Link("vlan7", 71, kind="vlan", peer=2)
    assert made.reading().gateway_interfaces(attachment) == ["vlan7"]
    made.host.links["br0.7"] = Link("br0.7", 72, kind="veth", peer=73)
    assert made.reading().gateway_interfaces(attachment) == ["br0.7"]


QUIET = (
    "ip rule add pref 100 from 10.1.0.0/24 lookup 7; ip route add default dev up0 table 7",  # egress by another way
    "ip rule add pref 100 fwmark 1 prohibit",
    "ip rule add pref 100 to 10.9.0.0/24 prohibit; ip route add blackhole 10.1.0.0/16",
    "ip route add unreachable default metric 4000; ip route add blackhole 203.0.113.0/24",
    "ip route add blackhole 1.0.0.0/8; ip route add blackhole 203.0.113.0/24",
    "ip rule add pref 100 lookup 52; ip route add throw 10.1.0.0/24 table 52",
    "ip route del default",
    "ip route append 10.1.0.0/24 dev up0 metric 7",
    "sysctl -qw net.ipv4.conf.all.rp_filter=1",
    "sysctl -qw net.ipv4.conf.all.forwarding=0",
    "ip rule add pref 32765 lookup main suppress_prefixlength 0",
    "sysctl -qw net.ipv4.conf.up0.forwarding=0",  # the check of forwarding says so
    "ip addr add 10.1.0.3/32 dev up0",  # doubled: another finding says so
)  # fmt: skip


@pytest.mark.parametrize("command", QUIET)
def test_ways_that_are_in_order(routed: Routed, command: str) -> None:
    routed.host.run("sh", "-ec", command)
    reading = routed.made.more
    reading["forwards"] = dict.fromkeys(reading["forwards"], "forwarding=0" not in command)
    assert routed.findings() == []


def test_a_bridge_in_a_vrf_has_its_own_tables(made: MadeNode) -> None:
    """The kernel of a test's machine may have no VRF."""
    made.attach("c1")
    made.host.links["red"] = Link("red", 70, kind="vrf", is_up=True)
    made.host.links["br0"].master = 70
    object.__setattr__(made.host, "routes", (IPRoute("10.1.0.0/24", "", 2, table=70),))
    answers = {True: RouteAnswer(errno.ENETUNREACH), False: RouteAnswer(ifindex=3)}
    nowhere = replace(made.reading(), look_up=lambda place, asked: [answers[place is None] for _ in asked])
    assert [one for one in check_interfaces(nowhere) if isinstance(one, NodeFinding)] == []


def in_container(routed: Routed, container: Namespace, name: str, *commands: str) -> None:
    """Let a container be real: with what ``attach`` says, and these commands."""
    address = "10.2.0.2" if name == "p1" else "10.1.0.2"
    for command in (
        "link set lo up", "link add eth0 type bridge", "link set eth0 up", f"addr add {address}/24 dev eth0",
        "route add default via 10.1.0.1 dev eth0 onlink", *commands,
    ):  # fmt: skip
        container.run("ip", *command.split())
    path = str(routed.made.netns(name))
    routed.containers[path] = container.path
    routed.made.live_in(path, read_network(container.path))


VPN = ("link add tun0 type bridge", "link set tun0 up", "addr add 10.8.0.6/24 dev tun0")
SBR = (
    "link add net1 type bridge", "link set net1 up", "addr add 10.7.0.2/24 dev net1",
    "route add default via 10.7.0.1 table 100", "rule add from 10.7.0.2 lookup 100",
)  # fmt: skip


FLUSHED = "ip rule add pref 32766 lookup main; ip rule add pref 32767 lookup default"


@pytest.mark.parametrize(
    ("commands", "severity", "printed"),
    [
        ((), "", ""),
        ((*VPN, "route add 10.9.0.0/16 dev tun0"), "", ""),
        ((*VPN, "rule add pref 9 fwmark 1 lookup 100", "route add default dev tun0 table 100"), "", ""),
        (SBR, "", ""),
        (
            (*VPN, "route add 0.0.0.0/1 dev tun0", "route add 128.0.0.0/1 dev tun0"),
            "warning", "ip route del 0.0.0.0/1 dev tun0; ip route del 128.0.0.0/1 dev tun0",
        ),
        (
            (*VPN, "route add default dev tun0 table 51", "rule add not fwmark 9 lookup 51 pref 9"),
            "warning", "ip route del 0.0.0.0/0 dev tun0 table 51",
        ),
        (("rule add pref 9 prohibit",), "error", "ip rule del priority 9"),
        (("route add blackhole 0.0.0.0/1",), "error", "ip route del blackhole 0.0.0.0/1"),
        (("rule del pref 32766",), "error", FLUSHED),
    ],
)  # fmt: skip
def test_ways_inside_of_a_container(
    routed: Routed, container: Namespace, commands: tuple[str, ...], severity: str, printed: str
) -> None:
    in_container(routed, container, "b1", *commands)
    found = routed.findings()
    assert [(one.name, one.severity, one.containers) for one in found] == [
        ("route-changed", severity, ("b1:eth0",))
    ] * bool(severity)
    for one in found:
        netns = routed.made.netns("b1")
        commands_printed = one.remedy.partition(": ")[2]
        assert commands_printed == "; ".join(f"nsenter --net={netns} {command}" for command in printed.split("; "))
    if printed:
        for command in printed.split("; "):
            container.run(*command.split())
        routed.made.live_in(str(routed.made.netns("b1")), read_network(container.path))
        assert routed.findings() == []


def test_the_kernel_is_asked_a_few_times_for_each_container(made: MadeNode) -> None:
    asked: list[int] = []

    def look_up(_place: Place, questions: Sequence[RouteQuestion]) -> list[RouteAnswer]:
        asked.append(len(questions))
        return [RouteAnswer(0, "", "10.1.0.0/24", ifindex=2) for _ in questions]

    for number in range(40):
        made.attach(f"c{number}")
    list(check_interfaces(replace(made.reading(), look_up=look_up)))
    assert sum(asked) <= 40 * 4
    assert len(asked) <= 2 + 40
