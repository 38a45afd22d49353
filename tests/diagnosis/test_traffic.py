"""Packets that are sent between the containers, their gateways and the node."""

from __future__ import annotations

import errno
import resource
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from nodes import Namespace

import libcni.diagnosis.probes
import libcni.kernel.echo
from diagnosis.conftest import OperatorNode
from diagnosis.made import BRIDGE, MadeNode
from libcni.diagnosis import NodeFinding, traffic
from libcni.diagnosis.report import Checked, NotChecked, Observation
from libcni.diagnosis.ways import Routes
from libcni.kernel.echo import Echo, EchoRequest, send_echoes
from libcni.kernel.namespace import namespace_identity
from libcni.kernel.netlink import IPRoute, Link, Network, RouteAnswer
from libcni.testing import wait_until

GATEWAY = "10.1.0.1"


class Answers:
    """The network of a made node: all requests are answered but those of ``lost``, (source, target) of addresses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.requests: list[tuple[str, str]] = []
        self.batches: list[int] = []
        self.lost: dict[tuple[str, str], Echo] = {}
        self.unresolved: set[str] = set()
        self.gone: set[str] = set()
        self.calls: Echo | None = None
        monkeypatch.setattr(traffic, "send_echoes", self.send)
        monkeypatch.setattr(traffic, "_unresolved", lambda _: self.unresolved)
        monkeypatch.setattr(traffic, "_is_there", lambda end: end.address not in self.gone)
        monkeypatch.setattr(libcni.diagnosis.probes, "_neighbours", lambda _: 1 << 20)

    def send(self, requests: Sequence[EchoRequest]) -> list[Echo]:
        pairs = [(request.source, request.target) for request in requests]
        self.requests += pairs
        self.batches.append(len(pairs))
        if requests[0].port and self.calls is not None:
            return [self.calls for _ in requests]
        return [self.lost.get(pair, Echo(1, is_answered=True)) for pair in pairs]

    def lose(self, *pairs: tuple[str, str], error: int = 0, reporter: str = "", problem: str = "") -> None:
        for pair in pairs:
            self.lost[pair] = Echo(3, error=error, reporter=reporter, problem=problem)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    return Answers(monkeypatch)


def check(made: MadeNode, *earlier: NodeFinding) -> list[Observation]:
    return list(traffic.check_traffic(made.reading(), earlier))


def findings(made: MadeNode, *earlier: NodeFinding) -> list[NodeFinding]:
    return [one for one in check(made, *earlier) if isinstance(one, NodeFinding)]


def address(number: int) -> str:
    return f"10.1.0.{number}"


@pytest.fixture
def three(made: MadeNode) -> MadeNode:
    """Return a node with the containers c2, c3 and c4, whose addresses end with these numbers."""
    for number in (2, 3, 4):
        made.attach(f"c{number}", {**BRIDGE, "ipMasq": False})
    return made


def test_each_container_is_asked_by_the_node_and_asks_its_gateway_and_the_next_one(
    three: MadeNode, answers: Answers
) -> None:
    assert findings(three) == []
    numbers = (2, 3, 4)
    assert answers.requests[:3] == [("", address(number)) for number in numbers], "first: a request teaches the node"
    asked = {(address(number), GATEWAY) for number in numbers} | {
        (address(one), address(other)) for one, other in ((2, 3), (3, 4), (4, 2))
    }
    assert (set(answers.requests[3:]), len(answers.requests)) == (asked, 9)
    assert answers.batches == [3, 6]


ASKED = [("", address(2)), (address(2), GATEWAY), (address(2), address(3)), (address(4), address(2))]


@pytest.mark.parametrize(
    ("lost", "unresolved", "error", "reporter", "severity", "said"),
    [
        (ASKED, "", 0, "", "warning", "3 echo requests from the node to c2:eth0 (10.1.0.2): no answer; "),
        (ASKED, address(2), 113, address(1), "error", "no answer, and none to the question who has 10.1.0.2 (ARP)"),
        (ASKED[:1], "", 13, "", "error", "does not send them: a route or a routing rule of the type prohibit"),
        (ASKED[1:2], "", 1, "", "warning", "does not send them: a rule or a policy of IPsec (xfrm) forbids it"),
        (ASKED[1:2], "", 113, GATEWAY, "warning", "(10.1.0.2) to its gateway 10.1.0.1: 10.1.0.1 answers: No route"),
        (ASKED[2:], "", 0, "", "warning", "from c2:eth0 (10.1.0.2) to c3:eth0 (10.1.0.3): no answer"),
    ],
)  # fmt: skip
def test_one_cause_is_one_finding(
    three: MadeNode, answers: Answers, lost: list[tuple[str, str]], unresolved: str, error: int, reporter: str,
    severity: str, said: str,
) -> None:  # fmt: skip
    answers.lose(*lost, error=error, reporter=reporter)
    answers.unresolved = {unresolved}
    [found] = findings(three)
    assert (found.check, found.name, found.severity, found.containers) == (
        "traffic",
        "no-reply",
        severity,
        ("c2:eth0",),
    )
    assert said in found.seen
    assert ("; ip rule; " in found.remedy) == (not unresolved and error in {0, errno.EHOSTUNREACH})
    assert found.subject == "container c2, net, eth0"


def test_what_a_whole_network_does_not_reach_is_one_finding(three: MadeNode, answers: Answers) -> None:
    numbers = (2, 3, 4)
    answers.lose(*((address(number), GATEWAY) for number in numbers))
    [found] = findings(three)
    assert found.subject == "all 3 attachments of network net"
    assert found.containers == ("c2:eth0", "c3:eth0", "c4:eth0")
    answers.lost.clear()
    answers.lose(*((address(one), address(other)) for one, other in ((2, 3), (3, 4), (4, 2))))
    [found] = findings(three)
    assert found.subject == "all 3 attachments of network net"
    answers.lost.clear()
    answers.lose((address(2), address(3)))
    [found] = findings(three)
    assert (found.subject, found.containers) == ("2 attachments of network net", ("c2:eth0", "c3:eth0"))


def test_a_finding_of_another_check_is_not_said_twice(three: MadeNode, answers: Answers) -> None:
    answers.lose(*ASKED)
    down = NodeFinding("interfaces", "error", "interface-down", "c2", "it is down", containers=("c2:eth0",))
    assert findings(three, down) == []
    assert (address(4), address(3)) in answers.requests, "the others still make a ring"
    changed = NodeFinding("drift", "warning", "changed-configuration", "net", "changed", containers=("c2:eth0",))
    assert len(findings(three, changed)) == 1


def test_a_firewall_of_the_node_hides_no_packets_between_containers(three: MadeNode, answers: Answers) -> None:
    """Many nodes accept only some ports in INPUT."""
    names = tuple(f"c{number}:eth0" for number in (2, 3, 4))
    note = NodeFinding("rules", "note", "policy-drops", "chain INPUT of iptables", "", "", "", (), names)
    answers.lose((address(2), address(3)), (address(3), address(4)), (address(4), address(2)))
    assert [one.severity for one in findings(three, note)] == ["warning"]
    assert set(answers.requests) == {(address(one), address(other)) for one, other in ((2, 3), (3, 4), (4, 2))}
    reason = "another finding already explains why packets may be lost"
    assert NotChecked("traffic", "packets of 3 attachments to this node", reason) in check(three, note)


def test_nothing_is_said_of_what_ended_or_could_not_be_asked(three: MadeNode, answers: Answers) -> None:
    answers.lose(*ASKED)
    answers.gone = {address(2)}
    assert findings(three) == []
    answers.gone = set()
    answers.lose(*ASKED, problem="no raw socket")
    said = [one for one in check(three) if isinstance(one, NotChecked)]
    assert ("container c2, net, eth0", "no raw socket") in [(one.subject, one.reason) for one in said]
    assert findings(three) == []


@pytest.mark.parametrize(
    "plugins",
    [
        [{**BRIDGE, "portIsolation": True}],
        [{"type": "macvlan", "master": "eth0", "mode": "private"}],
        [BRIDGE, {"type": "firewall", "ingressPolicy": "isolated"}],
    ],
)
def test_containers_that_should_not_reach_each_other_are_not_asked(
    made: MadeNode, answers: Answers, plugins: list[dict[str, object]]
) -> None:
    for number in (2, 3):
        made.attach(f"c{number}", *plugins)
    check(made)
    assert len(answers.requests) == 4
    assert (address(2), address(3)) not in answers.requests


def test_a_gateway_that_is_not_the_node_need_not_answer(three: MadeNode, answers: Answers) -> None:
    three.host.links["br0"].addresses.clear()
    answers.lose(*((address(number), GATEWAY) for number in (2, 3, 4)))
    assert findings(three) == [], "a router may drop echo requests"
    assert not any(source == "" for source, _ in answers.requests)
    del answers.lost[address(3), GATEWAY]
    [found] = findings(three)
    assert found.containers == ("c2:eth0", "c4:eth0"), "it answers another one"


def test_some_containers_of_a_masqueraded_network_ask_the_gateway_of_the_node(made: MadeNode, answers: Answers) -> None:
    router = "192.0.2.254"
    made.host.links["up0"] = Link("up0", 9, is_up=True, addresses=["192.0.2.1/24"])
    object.__setattr__(made.host, "routes", (*made.host.routes, IPRoute("0.0.0.0/0", router, 9)))
    numbers = range(2, 11)
    for number in numbers:
        made.attach(f"c{number}")
    assert findings(made) == []
    asked = [(source, target) for source, target in answers.requests if target == router]
    assert asked == [("", router), *((address(number), router) for number in (2, 6, 10))]
    answers.lose(*asked[1:3])
    assert findings(made) == [], "their own policy"
    answers.lose(*asked[1:])
    [found] = findings(made)
    assert (found.severity, found.subject) == ("warning", "network net, packets to other machines")
    assert "from c2:eth0 (10.1.0.2) to the node's gateway 192.0.2.254, which answers the node: no answer" in found.seen
    masquerade = NodeFinding(
        "rules", "error", "rules-missing", "", "", containers=tuple(f"c{number}:eth0" for number in numbers)
    )
    assert findings(made, masquerade) == [], "it explains that"
    answers.lose(*asked)
    assert findings(made) == [], "the gateway answers nobody"


def test_the_gateway_is_the_one_that_the_kernel_chooses_for_packets_of_containers(
    made: MadeNode, answers: Answers
) -> None:
    """A VPN leads them to another one, or into a tunnel in which nobody can be asked."""
    made.host.links["up0"] = Link("up0", 9, is_up=True, addresses=["192.0.2.1/24"])
    object.__setattr__(made.host, "routes", (*made.host.routes, IPRoute("0.0.0.0/0", "192.0.2.254", 9)))
    made.attach("c2")
    way = RouteAnswer(table=51, ifindex=9, gateway="198.51.100.1")
    made.more["look_up"] = lambda _, questions: [way for _ in questions]
    tunnel = NodeFinding("interfaces", "note", "other-way-out", "", "it leads over wg0", containers=("c2:eth0",))
    assert not [one for one in check(made, tunnel) if not isinstance(one, Checked)]
    assert {target for _, target in answers.requests} == {address(2), GATEWAY, "198.51.100.1"}
    way = way._replace(gateway="")
    answers.requests.clear()
    [left] = [one for one in check(made, tunnel) if not isinstance(one, Checked)]
    assert isinstance(left, NotChecked)
    assert (left.subject, left.reason) == (
        "packets of containers to other networks", "it leads over wg0: no gateway there can be asked"
    )  # fmt: skip
    assert {target for _, target in answers.requests} == {address(2), GATEWAY}


def test_a_container_with_nobody_to_ask_is_not_checked(made: MadeNode, answers: Answers) -> None:
    made.host.links["br0"].addresses.clear()
    inside = made.attach("c2", {**BRIDGE, "ipMasq": False})
    object.__setattr__(inside, "routes", tuple(route for route in inside.routes if route.gateway == "none"))
    inside.links["eth0"].addresses = ["10.1.0.2/24"]
    said = [one for one in check(made) if isinstance(one, NotChecked)]
    assert answers.requests == [("10.1.0.2", GATEWAY)]
    assert said == []
    made.records[0] = made.records[0].with_fields(
        result=str(made.records[0].result).replace(', "gateway": "10.1.0.1"', "")
    )
    said = [one for one in check(made) if isinstance(one, NotChecked)]
    assert [one.subject for one in said] == ["container c2, net, eth0"]


def test_what_cannot_be_asked_is_not_checked(
    three: MadeNode, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A virtual machine takes the packets of its container; a node can be told to answer nothing."""
    [_, second, _] = [space.network for space in three.spaces.values()]
    assert second is not None
    second.links["tap0"] = Link("tap0", 8, kind="tun", is_up=True)
    monkeypatch.setattr(traffic, "is_silent", lambda version, end=None: end is None)
    monkeypatch.setattr(libcni.diagnosis.probes, "is_silent", lambda version: True)
    answers.lose(("", address(3)), (address(3), GATEWAY))
    said = {one.subject: one.reason for one in check(three) if isinstance(one, NotChecked)}
    assert said == {
        "container c3, net, eth0": "the packets of this container go to a virtual machine",
        "packets of IPv4 to the node": "the node answers no echo requests: "
        "/proc/sys/net/ipv4/icmp_echo_ignore_all is 1",
    }
    assert set(answers.requests) == {
        ("", address(2)), ("", address(4)), (address(2), address(4)), (address(4), address(2)),
    }  # fmt: skip


def test_packets_of_one_container(three: MadeNode, answers: Answers) -> None:
    assert not [one for one in traffic.check_traffic(three.reading(), (), ["c2"]) if isinstance(one, NodeFinding)]
    assert set(answers.requests) == set(ASKED)


def test_routes_are_found_as_the_kernel_finds_them_and_quickly() -> None:
    hosts = [f"10.2.{high}.{low}" for high in range(40) for low in range(250)]
    routes = Routes(
        Network({}, (
            IPRoute("0.0.0.0/0", "10.1.0.1", 3, metric=7), IPRoute("0.0.0.0/0", "10.1.0.9", 3),
            IPRoute("10.2.0.0/16", "", 4), IPRoute("10.2.0.0/24", "", 5, table=7), IPRoute("fd00::/8", "fd00::1", 6),
            *(IPRoute(f"{host}/32", "", 100) for host in hosts),
        ))
    )  # fmt: skip
    began = time.process_time()
    assert {route.ifindex for route in map(routes.to, hosts) if route is not None} == {100}
    assert time.process_time() - began < 3.0, "0.2 s; one after another takes minutes"
    assert routes.next_hop("192.0.2.1") == "10.1.0.9"
    assert routes.next_hop("10.2.200.1") == "10.2.200.1"
    assert routes.next_hop("fd00::7") == "fd00::1"
    assert routes.to("2001:db8::1") is None


def test_a_table_of_neighbours_is_not_filled(
    three: MadeNode, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(libcni.diagnosis.probes, "_neighbours", lambda _: 16)
    monkeypatch.setattr(time, "sleep", slept.append)
    assert findings(three) == []
    assert answers.batches == [3, 4, 2]
    [seconds] = slept
    assert 4 < seconds <= 5


def test_the_descriptors_of_this_program_are_not_used_up(
    three: MadeNode, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libcni.diagnosis.probes, "most_at_once", lambda: 2)
    assert findings(three) == []
    assert answers.batches == [2, 1, 2, 2, 2]
    monkeypatch.undo()
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    assert 256 < libcni.kernel.echo.most_at_once() < 512


@pytest.mark.real
def test_the_doctor_says_that_it_has_sent_no_packets(node: OperatorNode) -> None:
    node.attach("c1")
    [last] = node.type("libcni doctor").splitlines()[-1:]
    assert "no problems found" in last
    assert last.endswith("; no packets were sent (--traffic)")
    shown = node.type("libcni doctor --traffic")
    assert "2 echo requests: 1 from the node, 1 to gateways" in shown
    assert "(--traffic)" not in shown


# With the kernel's own network.


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for answers as long as two namespaces of an idle machine need; nothing is too young to be cut off."""
    monkeypatch.setattr(libcni.kernel.echo, "_PAUSES", (0.02, 0.03, 0.1))
    monkeypatch.setattr(traffic, "_SETTLED", 0.0)


def lost(node: OperatorNode, severity: str, container: str, seen: str) -> None:
    """Look at the only finding: the other checks see no cause. Its commands work."""

    def look() -> NodeFinding | None:
        *_, found = node.diagnose(send_packets=True).findings or [None]
        return (
            found if found is not None and found.containers == (f"{container}:eth0",) and seen in found.seen else None
        )

    found = wait_until(look, 60)  # the kernel takes a second for a new link
    assert found is not None
    assert (found.check, found.severity, found.mends) == ("traffic", severity, ())
    for command in found.remedy.partition(": ")[2].split("; "):
        subprocess.run(["bash", "-c", command], check="ip route get" not in command, capture_output=True)


@pytest.mark.real
@pytest.mark.usefixtures("fast")
def test_rules_and_routes_that_no_other_check_sees(node: OperatorNode) -> None:
    inside = node.attach("c1")
    inside.run("ip", "rule", "add", "to", f"{node.net}.1", "prohibit", "priority", "7")
    lost(node, "error", "c1", "of the type prohibit")
    inside.run("ip", "rule", "del", "priority", "7")
    inside.run("sysctl", "-q", "-w", "net.ipv4.conf.all.arp_ignore=8")
    node.host.run("ip", "neighbour", "flush", "all")
    lost(node, "error", "c1", "none to the question who has")


@pytest.mark.real
@pytest.mark.usefixtures("fast")
def test_a_policy_may_drop_echo_requests_and_a_setting_need_not_answer_them(node: OperatorNode) -> None:
    inside = node.attach("c1")
    inside.run("iptables", "-A", "INPUT", "-p", "icmp", "-j", "DROP")
    report = node.diagnose(send_packets=True)
    assert [(one.name, one.severity) for one in report.findings] == [("dropped-in-part", "note")], (
        "it explains the loss"
    )
    inside.run("iptables", "-F")
    chain = "add table ip f; add chain ip f i { type filter hook input priority 0; }"
    inside.run("nft", f"{chain}; add rule ip f i icmp type vmap {{ echo-request : drop }}")  # nobody reads maps
    lost(node, "warning", "c1", "no answer")
    inside.run("nft", "flush", "ruleset")
    inside.run("sysctl", "-q", "-w", "net.ipv4.icmp_echo_ignore_all=1")
    report = node.diagnose(send_packets=True)
    assert report.findings == ()
    assert any("icmp_echo_ignore_all is 1 there" in one.reason for one in report.not_checked)


@pytest.mark.slow
@pytest.mark.real
def test_a_gateway_of_the_node_that_does_not_answer_the_node(node: OperatorNode) -> None:
    node.write_bridge(ipMasq=True, isDefaultGateway=True)
    node.attach("c1")
    uplink(node)
    report = node.diagnose(send_packets=True)
    assert "to the node's gateway" in report.checked[-1].what
    node.host.run("ip", "route", "replace", "default", "via", "192.0.2.9")
    report = node.diagnose(send_packets=True)
    [found] = report.findings
    assert (found.name, found.severity, found.subject) == ("no-reply", "error", "this node's gateway 192.0.2.9")
    assert found.remedy.endswith(": ip route get 192.0.2.9; ip neigh show 192.0.2.9")
    assert "to the node's gateway" not in report.checked[-1].what


def uplink(node: OperatorNode) -> None:
    """Give the node a gateway."""
    router = node.new_namespace()
    node.host.run("ip", "link", "add", "up0", "type", "veth", "peer", "name", "eth0", "netns", router.name)
    for space, name, last in ((node.host, "up0", 1), (router, "eth0", 254)):
        space.run("ip", "address", "add", f"192.0.2.{last}/24", "dev", name)
        space.run("ip", "link", "set", name, "up")
    node.host.run("ip", "route", "add", "default", "via", "192.0.2.254")


@pytest.mark.slow
@pytest.mark.real
def test_networks_in_order_are_quiet(node: OperatorNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a gateway, with both versions of IP, over the node, on a device of it, and between networks."""

    def ipam(*subnets: str, **more: object) -> dict[str, object]:
        return {
            "type": "host-local", "dataDir": str(node.leases),
            "ranges": [[{"subnet": subnet}] for subnet in subnets], "routes": [{"dst": "0.0.0.0/0"}], **more,
        }  # fmt: skip

    monkeypatch.setattr(libcni.kernel.echo, "_PAUSES", (0.1, 0.2, 0.3))  # two of the gateways do not exist
    node.host.run("ip", "link", "add", "card", "up", "type", "veth", "peer", "name", "cable")
    node.host.run("ip", "link", "set", "cable", "up")
    node.configure(
        "net",
        {
            "type": "bridge",
            "bridge": "br-node",
            "isGateway": True,
            "ipam": ipam(f"{node.net}.0/24", f"{node.net6}::/64"),
        },
    )
    node.configure("second", {"type": "ptp", "ipMasq": True, "ipam": ipam(f"{node.second}.0/24")})
    net = node.net.rpartition(".")[0]
    for last, plugin in ((1, {"type": "bridge", "bridge": "br-plain"}), (2, {"type": "macvlan", "master": "card"})):
        node.configure(
            plugin["type"], {**plugin, "ipam": ipam(f"{net}.{(int(node.net.split('.')[-1]) + last) % 256}.0/24")}
        )
    for network in ("net", "second", "bridge", "macvlan"):
        for container in ("a", "b"):
            node.attach(f"{container}-{network}", network)
    node.host.run("sysctl", "-q", "-w", "net.ipv4.ip_forward=1")

    def is_quiet() -> bool:  # an address of IPv6 can be used after a second
        report = node.diagnose(send_packets=True)
        assert report.findings == ()
        return not any(one.check == "traffic" for one in report.not_checked)

    uplink(node)
    wait_until(is_quiet)
    assert [one.what for one in node.diagnose(send_packets=True).checked if one.check == "traffic"] == [
        (
            "29 echo requests: 6 from the node, 10 to gateways, 10 between containers of a network, "
            "1 between networks, 2 to the node's gateway"
        ),
        "6 connections of TCP between containers",
    ]
    # The other checks do not follow a translation in a table of another program.
    node.host.run("nft", "add table ip x; add chain ip x p { type nat hook postrouting priority 90; }")
    node.host.run("nft", f"add rule ip x p ip saddr {node.second}.0/24 oif up0 snat to 192.0.2.99")
    monkeypatch.setattr(traffic, "_SETTLED", 0.0)
    found = node.diagnose(send_packets=True).findings
    assert "network second, packets to other machines" in [one.subject for one in found]


def connect(host: Namespace, container: Namespace) -> None:
    """Connect two namespaces: 192.0.2.1 and 192.0.2.2."""
    host.run("ip", "link", "add", "there", "type", "veth", "peer", "name", "eth0", "netns", container.name)
    for space, name, last in ((host, "there", 1), (container, "eth0", 2)):
        space.run("ip", "address", "add", f"192.0.2.{last}/24", "dev", name)
        space.run("ip", "link", "set", name, "up")


@pytest.mark.real
@pytest.mark.usefixtures("fast")
def test_answers_of_others_do_not_count(host: Namespace, container: Namespace) -> None:
    """A container can send what it likes to a socket in its namespace."""
    connect(host, container)
    identity = namespace_identity(container.path)
    request = EchoRequest("192.0.2.1", "192.0.2.2", container.path, identity)
    wait_until(lambda: send_echoes([request])[0].is_answered)  # the kernel takes a second for a new link
    [echo, nowhere, other] = send_echoes([request, EchoRequest("203.0.113.1"), request._replace(source="192.0.2.9")])
    assert (echo.is_answered, echo.sent, echo.error) == (True, 1, 0)
    assert (nowhere.is_answered, nowhere.sent, nowhere.error) == (False, 0, errno.ENETUNREACH)
    assert other.problem == "192.0.2.9 cannot be used: Cannot assign requested address"
    host.run("sysctl", "-q", "-w", "net.ipv4.icmp_echo_ignore_all=1")
    forged = threading.Event()
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as forger:

        def forge() -> None:
            while not forged.wait(0.01):  # answers of the asked one, to requests that nobody has made
                forger.sendto(struct.pack("!BBHHH16x", 0, 0, 0xFFFF, 0, 0), ("192.0.2.2", 0))

        thread = threading.Thread(target=forge)
        thread.start()
        try:
            [echo] = send_echoes([request])
        finally:
            forged.set()
            thread.join()
    assert (echo.is_answered, echo.sent, echo.error) == (False, 3, 0)


def test_without_the_right_to_send_nothing_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(libcni.kernel.echo, "socket_in", lambda *_: -1)
    space = tmp_path / "c1"
    space.touch()
    echoes = send_echoes(
        [EchoRequest("192.0.2.1"), EchoRequest("192.0.2.1", "", str(space), namespace_identity(str(space)))]
    )
    assert {echo.problem for echo in echoes} == {
        "no raw socket can be made in the namespace; this needs CAP_NET_RAW there"
    }


@pytest.mark.real
@pytest.mark.usefixtures("fast")
def test_what_a_rule_refuses_is_told_with_its_sender(host: Namespace, container: Namespace) -> None:
    connect(host, container)
    container.run("iptables", "-A", "INPUT", "-j", "REJECT", "--reject-with", "icmp-host-prohibited")
    [echo] = wait_until(lambda: [one for one in send_echoes([EchoRequest("192.0.2.2")]) if one.reporter])
    assert (echo.is_answered, echo.error, echo.reporter) == (False, errno.EHOSTUNREACH, "192.0.2.2")


@pytest.mark.real
@pytest.mark.usefixtures("fast")
def test_a_connection_of_tcp_is_answered_by_its_other_end_alone(host: Namespace, container: Namespace) -> None:
    connect(host, container)
    request = EchoRequest("192.0.2.2", port=9)
    wait_until(lambda: send_echoes([request])[0].is_answered)  # nothing listens there: it refuses
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        own = EchoRequest("127.0.0.1", port=nobody.getsockname()[1])
        nobody.listen()
        wait_until(lambda: [echo.is_answered for echo in send_echoes([own, request])] == [True, True])
    rule = ("INPUT", "-p", "tcp", "-j")
    container.run("iptables", "-A", *rule, "REJECT")
    [refused] = wait_until(lambda: [one for one in send_echoes([request]) if one.reporter])
    assert (refused.is_answered, refused.error, refused.reporter) == (False, errno.ECONNREFUSED, "192.0.2.2")
    container.run("iptables", "-I", *rule, "DROP")
    [lost, nowhere] = send_echoes([request, EchoRequest("203.0.113.1", port=9)])
    assert (lost.is_answered, lost.error, lost.sent) == (False, 0, 1)
    assert (nowhere.is_answered, nowhere.error) == (False, errno.ENETUNREACH)


def test_a_network_whose_connections_of_tcp_are_lost_is_noted(
    three: MadeNode, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libcni.diagnosis.probes, "_closed_port", lambda _: 9)
    assert findings(three) == []
    assert answers.batches == [3, 6, 1]
    assert Checked("traffic", "1 connection of TCP between containers") in check(three)
    answers.calls = Echo(1)
    [found] = findings(three)
    assert (found.severity, found.name, found.containers) == ("note", "no-reply", ("c2:eth0", "c3:eth0"))
    assert (
        found.seen == f"a connection to port 9 of TCP from c2:eth0 ({address(2)}) to c3:eth0 ({address(3)}): no answer"
    )
    answers.lose((address(2), address(3)), (address(3), address(4)), (address(4), address(2)))
    answers.batches.clear()
    assert [one.severity for one in findings(three)] == ["warning"]
    assert answers.batches == [3, 6], "no pair gets echo requests"
