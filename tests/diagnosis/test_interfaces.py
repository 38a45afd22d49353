"""The check of interfaces alone: addresses, routes, bridges and masters, on a reading that is made by hand."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from diagnosis.conftest import OperatorNode
from diagnosis.made import BRIDGE, IPAM, PORTMAP, MadeNode, configure
from libcni.diagnosis import NodeFinding, repair_node
from libcni.diagnosis.doctor import report_on
from libcni.diagnosis.interfaces import check_interfaces
from libcni.diagnosis.reload_mend import HOOK
from libcni.diagnosis.rules import check_rules
from libcni.kernel.namespace import namespace_identity
from libcni.kernel.netlink import BridgeEntry, IPRoute, Link, Neighbour, Network, read_network
from libcni.store.place import Known


def mends_of(found: NodeFinding) -> list[tuple[str, ...]]:
    """Return kind, target and details of the mends, with "!" before the kind if they interrupt."""
    return [("!" * bool(one.interrupts) + one.kind, one.target.rpartition("/")[2], *one.details) for one in found.mends]


RELOAD = [("reload", "net-c1-eth0")]


def test_a_node_in_order_has_no_finding(made: MadeNode) -> None:
    made.attach("c1")
    made.attach("c2", {"type": "bridge"}, state="pending")
    assert made.findings(check_interfaces) == []
    assert made.checked(check_interfaces) == ["interfaces, addresses and routes of 1 ready attachment"]


@pytest.mark.parametrize(
    ("breaking", "seen", "mends"),
    [
        (lambda inside: inside.links.clear(), "there is no interface eth0 in", RELOAD),
        (lambda inside: setattr(inside.links["eth0"], "is_up", False), "eth0 is down in", [("set-up", "eth0")]),
        (
            lambda inside: inside.links["eth0"].addresses.clear(),
            "the address 10.1.0.2 is not on eth0",
            [("add-address", "eth0", "10.1.0.2/24")],
        ),
        (
            lambda inside: object.__setattr__(inside, "routes", ()),
            "the route to 0.0.0.0/0 is not in",
            [("add-route", "eth0", "0.0.0.0/0", "10.1.0.1")],
        ),
        (
            lambda inside: object.__setattr__(inside, "routes", (IPRoute("0.0.0.0/0", "10.1.0.9", 3),)),
            "the route to 0.0.0.0/0 leads to 10.1.0.9; the plugins reported 10.1.0.1",
            [],
        ),
        (
            lambda inside: inside.links["eth0"].addresses.__setitem__(0, "10.1.0.99/24"),
            "the address 10.1.0.2 is not on eth0, which has 10.1.0.99/24 instead",
            [("!remove-address", "eth0", "10.1.0.99/24"), ("!add-address", "eth0", "10.1.0.2/24")],
        ),
    ],
)
def test_what_is_wrong_inside_a_container_is_mended_in_place_if_it_can_be(
    made: MadeNode, breaking: Callable[[Network], None], seen: str, mends: list[tuple[str, ...]]
) -> None:
    breaking(made.attach("c1"))
    made.attach("c2")
    found = made.finding(check_interfaces)
    assert found.seen.startswith(seen)
    assert (mends_of(found), found.containers) == (mends, ("c1:eth0",))
    assert {one.netns for one in found.mends if one.kind != "reload"} <= {str(made.netns("c1"))}


def test_a_route_is_expected_only_if_a_plugin_reported_it(made: MadeNode) -> None:
    """Some plugins replace the kernel's route to the subnet; others than the CNI project's may ignore the gateway."""
    inside = made.attach("c1", {"type": "azure-vnet"})
    object.__setattr__(inside, "routes", (IPRoute("169.254.1.1/32", "", 3), IPRoute("0.0.0.0/0", "169.254.1.1", 3)))
    assert made.findings(check_interfaces) == []
    text = (made.records[0].result or "").replace('"0.0.0.0/0"', '"0.0.0.0/0", "gw": "169.254.1.9"')
    made.records[0] = made.records[0].with_fields(result=text)
    assert made.finding(check_interfaces).name == "route-changed"


def test_a_lost_address_that_is_another_containers_is_not_added_again(made: MadeNode) -> None:
    made.attach("c1").links["eth0"].addresses.clear()
    made.reservations.clear()
    made.reserve("10.1.0.2", "c9")
    assert mends_of(made.finding(check_interfaces)) == [("!reload", "net-c1-eth0")]
    made.attach("c2", address="10.1.0.2")
    found = made.finding(check_interfaces)
    assert (found.containers, found.mends) == (("c1:eth0",), ())


def test_an_address_that_a_plugin_moved_to_another_interface_is_in_order(made: MadeNode) -> None:
    inside = made.attach("c1")
    inside.links["vrf0"] = Link("vrf0", 9, is_up=True, addresses=inside.links["eth0"].addresses)
    inside.links["eth0"].addresses = []
    assert made.findings(check_interfaces) == []


def test_an_interface_that_was_renamed_or_moved_is_told_from_one_that_has_gone(made: MadeNode) -> None:
    inside, other = made.attach("c1"), made.attach("c2")
    link = inside.links.pop("eth0")
    link.name = "net7"
    inside.links["net7"] = link
    found = made.finding(check_interfaces)
    netns = made.netns("c1")
    assert found.seen == f"eth0 of {netns} is net7 in {netns} now"
    assert (found.severity, found.mends) == ("error", ())
    other.links["net7"] = inside.links.pop("net7")
    found = made.finding(check_interfaces)
    assert found.seen == f"eth0 of {netns} is net7 in {made.netns('c2')} now"
    assert found.mends == ()
    other.links["net7"].kind = "ipvlan"
    assert mends_of(made.finding(check_interfaces)) == RELOAD, "all ipvlan interfaces have the address of their device"


def test_a_hardware_address_that_a_user_has_chosen_is_no_moved_interface(made: MadeNode) -> None:
    """Any user can have it in a namespace of his own; the interface of a pod there is tied to the node's."""
    inside = made.attach("c1")
    link = inside.links.pop("eth0")
    users = made.netns("user")
    made.live_in(str(users), Network({"net7": replace(link, name="net7")}, (), 99))
    identity = namespace_identity(str(users))
    assert identity is not None
    made.spaces[identity] = replace(made.spaces[identity], is_trusted=False)
    assert mends_of(made.finding(check_interfaces)) == RELOAD
    made.spaces[identity] = replace(made.spaces[identity], tied=frozenset({link.index}))
    assert made.finding(check_interfaces).seen == f"eth0 of {made.netns('c1')} is net7 in {users} now"


def test_a_renamed_interface_in_a_pods_own_user_namespace_is_known_by_its_index(made: MadeNode) -> None:
    inside = made.attach("c1", netns_cookie=2, interface=Known(3, "02:00:00:00:00:02"))
    identity = namespace_identity(str(made.netns("c1")))
    assert identity is not None
    made.spaces[identity] = replace(made.spaces[identity], is_trusted=False)
    link = inside.links.pop("eth0")
    link.name, link.mac = "net7", "02:00:00:00:00:99"
    inside.links["net7"] = link
    assert made.finding(check_interfaces).name == "interface-moved"


def test_a_bridge_that_has_gone_is_one_finding_for_all(made: MadeNode) -> None:
    made.attach("c1").links.clear()
    made.attach("c2")
    del made.host.links["br0"]
    found = made.finding(check_interfaces)
    assert (found.subject, mends_of(found)) == ("bridge br0", [*RELOAD, ("reload", "net-c2-eth0")])
    assert found.containers == ("c1:eth0", "c2:eth0")


def test_a_bridge_that_is_down_or_has_no_address_is_mended_in_place(made: MadeNode) -> None:
    made.attach("c1")
    made.attach("c2")
    bridge = made.host.links["br0"]
    bridge.is_up, bridge.addresses = False, ["fe80::1/64"]
    mends = [mends_of(one) for one in made.findings(check_interfaces)]
    assert mends == [[("set-up", "br0")], [("add-address", "br0", "10.1.0.1/24")]]


def test_the_gateways_address_on_a_second_bridge_is_found(made: MadeNode) -> None:
    made.attach("c1")
    made.host.links["br1"] = Link("br1", 70, is_up=True, addresses=["10.1.0.1/24"])
    found = made.finding(check_interfaces)
    assert (found.name, found.severity, found.remedy) == (
        "gateway-doubled", "warning", "if nobody uses br1: ip link del br1",
    )  # fmt: skip
    made.host.links["port1"] = Link("port1", 71, master=70)
    assert (
        made.finding(check_interfaces).remedy == "find out who uses port1 on br1, and give one network another subnet"
    )
    made.host.links["br1"].is_up = False
    assert made.findings(check_interfaces) == []


@pytest.mark.parametrize("is_delegate", [False, True])
def test_the_bridge_of_flannels_delegate_counts(made: MadeNode, *, is_delegate: bool) -> None:
    plugin = {"type": "flannel", "delegate": {"bridge": "br0"}} if is_delegate else BRIDGE
    made.attach("c1", plugin)
    made.host.links["br0"].is_up = False
    made.host.links["vethc1"].master = 0
    assert [one.name for one in made.findings(check_interfaces)] == ["link-down", "off-bridge"]


def test_hairpin_mode_and_mtu_are_those_of_the_configuration(made: MadeNode) -> None:
    inside = made.attach("c1", {**BRIDGE, "hairpinMode": True, "mtu": 1450})
    bridge, veth, eth0 = made.host.links["br0"], made.host.links["vethc1"], inside.links["eth0"]
    veth.settings = ("hairpin on",)
    bridge.mtu = veth.mtu = eth0.mtu = 1450
    assert made.findings(check_interfaces) == []
    veth.settings, bridge.mtu, eth0.mtu = (), 900, 1500
    found = {(one.name, one.subject): one.remedy for one in made.findings(check_interfaces)}
    assert found == {
        ("mtu-changed", "bridge br0"): "ip link set br0 mtu 1450",
        ("mtu-changed", "container c1, net, eth0"): f"nsenter --net={made.netns('c1')} ip link set eth0 mtu 1450",
        ("hairpin-off", "container c1, net, eth0"): "bridge link set dev vethc1 hairpin on",
    }
    bridge.mtu = veth.mtu = 900
    assert ("mtu-changed", "bridge br0") not in {(one.name, one.subject) for one in made.findings(check_interfaces)}


@pytest.mark.parametrize(
    ("plugin", "inside", "outside", "command"),
    [
        ({"type": "portmap"}, 1500, 1200, "ip link set vethc1 mtu 1500"),
        ({"type": "tuning"}, 576, 1500, "nsenter --net={} ip link set eth0 mtu 1500"),
        ({"type": "tuning", "mtu": 576}, 576, 1500, ""),
        ({"type": "of-somebody"}, 576, 1500, ""),
        ({"type": "portmap"}, 9000, 9000, ""),
    ],
)
def test_both_ends_of_a_veth_have_one_mtu(
    made: MadeNode, plugin: dict[str, Any], inside: int, outside: int, command: str
) -> None:
    made.attach("c1", BRIDGE, plugin).links["eth0"].mtu = inside
    made.host.links["vethc1"].mtu = outside
    found = [one.remedy for one in made.findings(check_interfaces)]
    expected = f"and start the container again; if the larger one is: {command.format(made.netns('c1'))}"
    assert [one.endswith(expected) for one in found] == [True] * bool(command)


def test_one_cause_of_many_containers_is_one_finding_with_a_command_for_each(made: MadeNode) -> None:
    """An agent has set the MTU of all host interfaces: each command has the name of one of them."""
    for name in ("c1", "c2", "c3", "c4"):
        made.attach(name).links["eth0"].mtu = 1500
        made.host.links[f"veth{name}"].mtu = 1400
    found = made.finding(check_interfaces)
    assert (found.name, found.subject, len(found.containers)) == ("mtu-changed", "4 attachments", 4)
    commands = "; ".join(f"ip link set vethc{number} mtu 1500" for number in (1, 2, 3, 4))
    assert found.remedy.endswith(f"start the container again; if the larger one is: {commands}")


def test_a_port_of_a_bridge_that_forwards_nothing(made: MadeNode) -> None:
    inside = made.attach("c1")
    made.host.links["vethc1"].settings = ("state 4",)
    found = made.finding(check_interfaces)
    assert (found.name, found.remedy) == ("off-bridge", "bridge link set dev vethc1 state 3")
    made.host.links["br0"].is_up = False
    assert "off-bridge" not in [one.name for one in made.findings(check_interfaces)], "a consequence"
    made.host.links["br0"].is_up = True
    inside.links["eth0"].is_up = False
    assert made.finding(check_interfaces).name == "interface-down", "the kernel blocks the port of such a veth"


def test_mtu_and_hairpin_mode_without_a_value_in_the_configuration_may_be_any(made: MadeNode) -> None:
    made.attach("c1").links["eth0"].mtu = 9000
    made.attach("c2", {**BRIDGE, "mtu": 1450}, {"type": "tuning", "mtu": 1300}).links["eth0"].mtu = 1300
    assert made.findings(check_interfaces) == []
    assert "MTU and hairpin mode that no configuration sets" in made.not_checked(check_interfaces)[-1][0]


@pytest.mark.slow
@pytest.mark.real
def test_hairpin_mode_and_mtu_of_a_real_bridge(node: OperatorNode) -> None:
    # With the newest plugins their directory is on PATH, and one of them is called as iproute2's program.
    programs = {**os.environ, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    node.write_bridge(hairpinMode=True, mtu=1400)
    container = node.attach("c1")
    node.assert_healthy()
    [veth] = [one["ifname"] for one in node.host.ip("link") if one["ifname"].startswith("veth")]
    for break_it, name in (
        (f"bridge link set dev {veth} hairpin off", "hairpin-off"), ("ip link set br-node mtu 900", "mtu-changed"),
        (f"bridge link set dev {veth} state 0", "off-bridge"),
    ):  # fmt: skip
        subprocess.run(break_it.split(), env=programs, check=True)
        [found] = node.diagnose().findings
        assert found.name == name
        subprocess.run(found.remedy.split(), env=programs, check=True)
        node.assert_healthy()
    container.run("ip", "link", "set", "eth0", "mtu", "900")
    [found] = node.diagnose().findings
    subprocess.run(found.remedy.split(), env=programs, check=True)
    node.assert_healthy()


def test_a_bridge_without_gateway_needs_no_address(made: MadeNode) -> None:
    made.attach("c1", {"type": "bridge", "bridge": "br0", "ipam": IPAM})
    made.host.links["br0"].addresses = []
    assert made.findings(check_interfaces) == []


def test_a_host_end_is_put_back_on_its_bridge(made: MadeNode) -> None:
    made.attach("c1")
    link = made.host.links["vethc1"]
    link.master, link.is_up = 0, False
    found = made.findings(check_interfaces)
    assert [mends_of(one) for one in found] == [[("join", "vethc1", "br0")], [("set-up", "vethc1")]]


def test_a_host_end_that_was_moved_to_another_namespace(made: MadeNode) -> None:
    for name in ("c1", "c2"):
        eth0 = made.attach(name).links["eth0"]
        eth0.kind, eth0.peer, eth0.peer_namespace = "veth", made.host.links[f"veth{name}"].index, 4
        object.__setattr__(made.spaces[max(made.spaces)].network, "reader", 4)
    assert made.findings(check_interfaces) == []
    moved = made.host.links.pop("vethc2")
    eth0.peer_namespace = 7
    where = made.netns("other")
    for network, remedy in (
        (Network({}, ()), "find out where this interface is, and move it back"),
        (
            Network({"vethc2": moved}, ()),
            f"move it back, then call repair: nsenter --net={where} ip link set vethc2 netns $$",
        ),
    ):
        made.live_in(str(where), network)
        found = made.finding(check_interfaces)
        assert (found.severity, found.name, found.remedy) == ("error", "interface-moved", remedy)
        assert found.containers == ("c2:eth0",)


def test_the_nodes_route_to_a_bridge_is_missing(made: MadeNode) -> None:
    made.attach("c1")
    made.host.links["wan0"] = Link("wan0", 50, is_up=True)
    for route in (IPRoute("10.1.0.0/24", "", 50), IPRoute("10.1.0.0/24", "", 2)):
        object.__setattr__(made.host, "routes", (route,))
        assert made.findings(check_interfaces) == [], "whether it is the right one, the kernel says"
    for routes in ((), (IPRoute("10.1.0.0/24", "", 2, table=100),)):
        object.__setattr__(made.host, "routes", routes)
        found = made.finding(check_interfaces)
        assert mends_of(found) == [("add-route", "br0", "10.1.0.0/24")]
        assert found.mends[0].containers == ("c1:eth0",)


def test_the_nodes_route_to_a_container_on_a_link_of_its_own(made: MadeNode) -> None:
    made.attach("c1", {"type": "ptp", "ipam": IPAM})
    made.host.links["vethc1"].addresses = ["10.1.0.1/32"]
    assert mends_of(made.finding(check_interfaces)) == [("add-route", "vethc1", "10.1.0.2/32")]
    object.__setattr__(made.host, "routes", (IPRoute("10.1.0.2/32", "", 12),))
    assert made.findings(check_interfaces) == []


def test_a_master_that_has_gone_is_brought_back_before_its_containers_are(made: MadeNode) -> None:
    made.attach("c1", {"type": "macvlan", "master": "nic0", "ipam": IPAM}).links.clear()
    found = made.finding(check_interfaces)
    assert (found.subject, found.mends, found.containers) == ("master nic0", (), ("c1:eth0",))
    assert "create nic0 again" in found.remedy
    made.host.links["nic0"] = Link("nic0", 50)
    assert mends_of(made.finding(check_interfaces)) == [("set-up", "nic0")]
    made.host.links["nic0"].is_up = True
    assert mends_of(made.finding(check_interfaces)) == RELOAD


def test_what_could_not_be_read_is_said(made: MadeNode) -> None:
    made.attach("c1")
    made.live_in(made.records[0].netns, None)
    assert made.not_checked(check_interfaces) == [("container c1, net, eth0", f"{made.netns('c1')} cannot be entered")]
    made.more |= {"host": None, "unread": {"this node": "no netlink"}}
    assert made.not_checked(check_interfaces) == [("this node", "no netlink")]


def test_a_route_of_a_network_with_host_bits_is_the_kernels(made: MadeNode) -> None:
    inside = made.attach("c1")
    text = (made.records[0].result or "").replace("0.0.0.0/0", "10.9.0.1/16")
    made.records[0] = made.records[0].with_fields(result=text)
    object.__setattr__(inside, "routes", (IPRoute("10.9.0.0/16", "10.1.0.1", 3), IPRoute("10.1.0.0/24", "", 3)))
    assert made.findings(check_interfaces) == []


def test_a_bridge_that_was_renamed_is_not_made_a_second_time(made: MadeNode) -> None:
    """Its containers work. With a second bridge of the same address nobody outside reaches them."""
    made.attach("c1")
    made.attach("c2")
    made.host.links["old"] = made.host.links.pop("br0")
    made.host.links["old"].name = "old"
    found = made.finding(check_interfaces)
    assert (found.severity, found.mends, found.containers) == ("warning", (), ("c1:eth0", "c2:eth0"))
    assert found.seen == "it does not exist; 2 attachments moved to bridge old"
    for address in ("10.9.0.1/24", "10.1.0.1/24"):
        made.host.links["br0"] = Link("br0", 70, is_up=True, addresses=[address])
        [found] = made.findings(check_interfaces)
        assert (found.name, found.severity, found.mends) == ("bridge-renamed", "error", ())
        assert found.remedy.endswith("do ip link set $port master br0; done; ip link del old")
        assert found.seen == "it is another bridge; 2 attachments moved to bridge old", "nothing is moved to it"


def test_a_reload_that_would_fail_for_its_plugins_is_not_offered(made: MadeNode) -> None:
    made.attach("c1", BRIDGE, PORTMAP).links.clear()
    assert mends_of(made.finding(check_interfaces)) == RELOAD
    (made.root / "bin" / "portmap").chmod(0o644)
    found = made.finding(check_interfaces)
    assert found.mends == ()
    assert found.remedy.startswith(
        'do not attach the container again yet, because the ADD would fail: plugin "portmap" not found in '
    )
    assert found.remedy.endswith(f"make the file executable: chmod +x {made.root / 'bin' / 'portmap'}")
    (made.root / "bin" / "portmap").chmod(0o755)
    (made.root / "bin" / "host-local").unlink()
    assert 'plugin "host-local" not found' in made.finding(check_interfaces).remedy
    del made.host.links["br0"]
    found = made.finding(check_interfaces)
    assert (found.name, found.mends) == ("bridge-missing", ())
    assert 'plugin "host-local" not found' in found.remedy


def test_in_another_network_namespace_than_the_bridge_nothing_of_the_host_is_missing(made: MadeNode) -> None:
    """Rootless, or in a pod without the host's network, the bridge and the host ends are absent without a fault."""
    c1, c2 = made.attach("c1"), made.attach("c2")
    made.host.links.clear()
    c1.links["eth0"].peer_namespace = 5
    c2.links.clear()
    assert made.finding(check_interfaces).mends == (), "nor is c2 attached again here"
    (subject, reason), (_, unknown) = made.not_checked(check_interfaces)
    assert "no plugin and no record says" in unknown
    assert (subject, "another network namespace" in reason) == ("the host's side of 2 attachments", True)
    assert made.findings(check_rules) == []
    c1.links["eth0"].peer_namespace = 0
    object.__setattr__(c1, "reader", 0)
    assert [one.name for one in made.findings(check_interfaces)] == ["bridge-missing"]


def test_a_container_of_the_hook_that_has_ended_is_not_attached_again(made: MadeNode) -> None:
    """The hook's pin holds its namespace, and no process lives there."""
    inside = made.attach("c1", owner=HOOK)
    inside.links.clear()
    found = made.finding(check_interfaces)
    assert (found.mends, "has ended" in found.remedy) == ((), True)
    made.live_in(str(made.netns("c1")), inside, "7")
    assert mends_of(made.finding(check_interfaces)) == RELOAD


def test_no_mend_takes_an_interface_that_exists_without_an_interruption(made: MadeNode) -> None:
    inside = made.attach("c1")
    del made.host.links["br0"]
    [mend] = [mend for one in report_on(made.reading()).findings for mend in one.mends if mend.kind == "reload"]
    assert mend.interrupts == ("c1:eth0",)
    inside.links.clear()
    mends = [mend for one in report_on(made.reading()).findings for mend in one.mends if mend.kind == "reload"]
    assert [mend.interrupts for mend in mends] == [()] * len(mends) != []


@pytest.mark.real
def test_a_repair_beside_the_namespace_of_the_bridge_detaches_nobody(node: OperatorNode) -> None:
    container, beside = node.attach("c1"), node.new_namespace()
    with beside.entered():
        done = repair_node(node.cni, interrupt=["all"])
    assert [one.mend.kind for one in done.outcomes] == []
    assert "eth0" in container.links()
    assert node.repair("all").outcomes == ()


@pytest.mark.slow
@pytest.mark.real
def test_a_bridge_that_has_gone_is_made_again_only_with_an_interruption(node: OperatorNode) -> None:
    """Its containers are cut off, but a check can be wrong about that."""
    node.attach("c1")
    subprocess.run(["ip", "link", "del", "br-node"], check=True)
    [outcome] = node.repair().outcomes
    assert (outcome.state, outcome.needs) == ("left", (("interrupt", "c1:eth0"),))
    node.repair("c1")
    node.assert_healthy()


def test_a_bridge_gets_its_gateway_with_the_prefix_length_of_the_present_file(made: MadeNode) -> None:
    """With the recorded one the next ADD would refuse the bridge, and the next repair would take it away again."""
    made.attach("c1")
    configure(made, {**BRIDGE, "ipam": {**IPAM, "subnet": "10.1.0.0/23"}})
    made.host.links["br0"].addresses = ["10.1.0.1/23"]
    made.host = replace(made.host, routes=(IPRoute("10.1.0.0/23", "", 2),))
    assert made.findings(check_interfaces) == []
    made.host.links["br0"].addresses = ["10.1.0.1/24"]
    made.host = replace(made.host, routes=(IPRoute("10.1.0.0/24", "", 2),))
    assert made.findings(check_interfaces) == [], "one cause, one finding: that of the next container"
    made.host.links["br0"].addresses = []
    found = made.finding(check_interfaces)
    assert [(one.kind, one.details) for one in found.mends] == [("add-address", ("10.1.0.1/23",))]


def test_a_host_end_of_ptp_gets_the_recorded_gateway_again(made: MadeNode) -> None:
    made.attach("c1", {"type": "ptp", "ipam": IPAM})
    link = made.host.links["vethc1"]
    made.host = replace(made.host, routes=(IPRoute("10.1.0.2/32", "", link.index),))
    link.addresses = ["10.1.0.1/32"]
    assert made.findings(check_interfaces) == []
    link.addresses = ["fe80::1/64"]
    found = made.finding(check_interfaces)
    assert (found.name, found.severity) == ("gateway-missing", "error")
    assert [(one.kind, one.target, one.details) for one in found.mends] == [
        ("add-address", "vethc1", ("10.1.0.1/32",))
    ]  # fmt: skip


def test_a_container_without_the_default_route_that_its_network_had(made: MadeNode) -> None:
    """Somebody took the routes out of the file for a while: by its record the container is in order."""
    made.attach("c1")
    inside = made.attach("c2")
    record = made.records[1]
    made.records[1] = record.with_fields(result=(record.result or "").replace("0.0.0.0/0", "10.9.0.0/16"))
    routes = (IPRoute("10.9.0.0/16", "10.1.0.1", 3), IPRoute("10.1.0.0/24", "", 3))
    made.live_in(record.netns, replace(inside, routes=routes))
    found = made.finding(check_interfaces)
    assert (found.name, found.severity, found.containers) == ("route-missing", "warning", ("c2:eth0",))
    assert found.remedy.endswith(f": nsenter --net={record.netns} ip route add default via 10.1.0.1")
    made.live_in(record.netns, replace(inside, routes=(*routes, IPRoute("0.0.0.0/0", "10.1.0.9", 3))))
    assert made.findings(check_interfaces) == [], "it has one of its own"
    made.live_in(record.netns, replace(inside, routes=routes))
    made.records[0] = made.records[0].with_fields(result=made.records[1].result)
    assert "route-missing" not in {
        one.name for one in made.findings(check_interfaces) if one.subject == "network net"
    }, "no container of the network has one"


@pytest.mark.parametrize("is_by_hand", [False, True])
def test_the_kernels_route_to_the_network_of_a_ptp_address(made: MadeNode, is_by_hand: bool) -> None:
    inside = made.attach("c1", {"type": "ptp", "ipam": IPAM})
    made.host = replace(made.host, routes=(IPRoute("10.1.0.2/32", "", 12),))
    made.host.links["vethc1"].addresses = ["10.1.0.1/32"]
    assert made.findings(check_interfaces) == []
    if is_by_hand:
        made.live_in(made.records[0].netns, replace(inside, routes=(inside.routes[0], IPRoute("10.1.0.0/24", "", 3))))
        found = made.finding(check_interfaces)
        commands = (
            "replace 10.1.0.1/32 dev eth0",
            "del 10.1.0.0/24 dev eth0",
            "replace 10.1.0.0/24 via 10.1.0.1 dev eth0",
        )
        assert found.name == "route-changed"
        assert found.remedy == "; ".join(f"nsenter --net={made.netns('c1')} ip route {one}" for one in commands)
    else:
        inside.links["eth0"].addresses = []
        [mend] = made.finding(check_interfaces).mends
        assert (mend.kind, mend.details) == ("add-address", ("10.1.0.2/24 via 10.1.0.1",))


@pytest.mark.real
@pytest.mark.slow
def test_a_restarted_daemon_that_flushed_both_ends_of_ptp(node: OperatorNode) -> None:
    ranges = [[{"subnet": f"{node.net}.0/24"}], [{"subnet": f"{node.net6}::/64"}]]
    routed = [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]
    ipam = {"type": "host-local", "dataDir": str(node.leases), "ranges": ranges, "routes": routed}
    node.configure("net", {"type": "ptp", "ipam": ipam})
    inside = node.attach("c1")
    node.assert_healthy()

    def routes() -> set[tuple[str, str]]:
        return {(route.destination, route.gateway) for route in read_network(inside.path).routes}

    [name] = [name for name in node.host.links() if name.startswith("veth")]
    before, ways = node.host.addresses(name), routes()
    node.type(f"ip address flush dev {name} scope global")
    inside.run("ip", "address", "flush", "dev", "eth0", "scope", "global")
    node.repair()
    assert node.host.addresses(name) == before
    assert routes() == ways, "the kernel's own route would lead to a link on which no other container is"
    node.assert_healthy()


def test_the_interface_of_the_default_route(made: MadeNode) -> None:
    made.attach("c1")
    up0 = made.host.links["up0"] = Link("up0", 50, is_up=True, addresses=["192.0.2.1/24"])
    object.__setattr__(made.host, "routes", (*made.host.routes, IPRoute("0.0.0.0/0", "192.0.2.254", 50)))
    assert made.findings(check_interfaces) == []
    up0.has_carrier = False
    found = made.finding(check_interfaces)
    assert (found.severity, found.name, found.subject) == ("error", "link-down", "interface up0")
    assert found.remedy.endswith(": ip link show dev up0")
    up0.has_carrier, up0.master = True, made.host.links["br0"].index
    made.host.links["br0"].kind = "bridge"
    found = made.finding(check_interfaces)
    assert (found.severity, found.name) == ("error", "link-setting")
    assert found.seen == "it belongs to the bridge br0, which takes its packets"
    assert found.remedy.endswith(": ip link set up0 nomaster")
    made.host.links["br0"].kind = "bond"
    assert made.findings(check_interfaces) == []


def test_an_address_of_the_node_elsewhere_is_none_of_the_bridge(made: MadeNode) -> None:
    """As keepalived has it: the container's own address is right, and that of the other interface is the fault."""
    inside, other = made.attach("c1"), made.attach("c2")
    made.host.links["up0"] = Link("up0", 50, mac="02:00:00:00:00:50", is_up=True, addresses=["10.1.0.3/32"])
    mac = other.links["eth0"].mac
    object.__setattr__(inside, "learned", (Neighbour("10.1.0.3", mac, 3, is_learned=True),))
    object.__setattr__(
        made.host, "bridge_entries", (BridgeEntry(mac, made.host.links["vethc2"].index, is_learned=True),)
    )
    assert [one.name for one in made.findings(check_interfaces)] == []
    made.host.links["br0"].addresses.append("10.1.0.3/32")
    assert [one.name for one in made.findings(check_interfaces)] == ["wrong-neighbour"]
