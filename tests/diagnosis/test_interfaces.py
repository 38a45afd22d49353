"""The check of interfaces alone: addresses, routes, bridges and masters, on a reading that is made by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from diagnosis.conftest import OperatorNode
from diagnosis.made import IPAM, MadeNode
from libcni._netlink import IPRoute, Link, Network
from libcni.diagnosis.interfaces import check_interfaces
from libcni.diagnosis.report import Disruption

RELOAD = ("libcni reload c1:eth0",)


def test_a_node_in_order_has_no_finding(made: MadeNode) -> None:
    made.attach("c1")
    made.attach("c2", {"type": "bridge"}, state="pending")
    assert made.findings(check_interfaces) == []
    assert made.checked(check_interfaces) == ["interfaces, addresses and routes of 1 ready attachment"]


@pytest.mark.parametrize(
    ("breaking", "seen"),
    [
        (lambda inside: inside.links.clear(), "there is no interface eth0 in"),
        (lambda inside: setattr(inside.links["eth0"], "is_up", False), "eth0 is down in"),
        (lambda inside: inside.links["eth0"].addresses.clear(), "its address 10.1.0.2 is not on eth0"),
        (lambda inside: object.__setattr__(inside, "routes", ()), "its route to 0.0.0.0/0, 10.1.0.0/24 is not in"),
        (lambda inside: object.__setattr__(inside, "routes", inside.routes[:1]), "its route to 10.1.0.0/24 is not in"),
    ],
)
def test_what_cuts_a_container_off_is_mended_by_a_reload(
    made: MadeNode, breaking: Callable[[Network], None], seen: str
) -> None:
    breaking(made.attach("c1"))
    made.attach("c2")
    found = made.finding(check_interfaces)
    assert found.seen.startswith(seen)
    assert (found.severity, found.commands, found.containers) == ("error", RELOAD, ("c1:eth0",))


def test_another_address_is_not_taken_away(made: MadeNode) -> None:
    """Somebody gave it to the container by hand, and may use it."""
    link = made.attach("c1").links["eth0"]
    link.addresses = ["10.231.0.99/24"]
    found = made.finding(check_interfaces)
    assert (found.commands, found.disrupts) == ((), (Disruption(RELOAD[0], ("c1:eth0",)),))
    link.addresses = ["fe80::1/64", "fd00::1/64"]
    assert made.finding(check_interfaces).commands == RELOAD, "addresses of the other family and of the link are none"


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
    assert (found.severity, found.commands) == ("warning", ())
    other.links["net7"] = inside.links.pop("net7")
    found = made.finding(check_interfaces)
    assert found.seen == f"eth0 of {netns} is net7 in {made.netns('c2')} now"
    assert found.commands == ()
    other.links["net7"].kind = "ipvlan"
    assert made.finding(check_interfaces).commands == RELOAD, "all ipvlan interfaces have the address of their device"


def test_a_bridge_that_has_gone_is_one_finding_for_all(made: MadeNode) -> None:
    made.attach("c1").links.clear()
    made.attach("c2")
    del made.host.links["br0"]
    found = made.finding(check_interfaces)
    assert (found.subject, found.commands) == ("bridge br0", ("libcni reload c1:eth0 c2:eth0",))
    assert found.containers == ("c1:eth0", "c2:eth0")


def test_a_bridge_that_is_down_or_has_no_address_is_mended_in_place(made: MadeNode) -> None:
    made.attach("c1")
    made.attach("c2")
    bridge = made.host.links["br0"]
    bridge.is_up, bridge.addresses = False, ["fe80::1/64"]
    commands = [one.commands for one in made.findings(check_interfaces)]
    assert commands == [("ip link set dev br0 up",), ("ip address add 10.1.0.1/24 dev br0",)]


def test_a_bridge_without_gateway_needs_no_address(made: MadeNode) -> None:
    made.attach("c1", {"type": "bridge", "bridge": "br0", "ipam": IPAM})
    made.host.links["br0"].addresses = []
    assert made.findings(check_interfaces) == []


def test_a_host_end_is_put_back_on_its_bridge_with_words_that_a_shell_reads_as_such(made: MadeNode) -> None:
    made.attach("c;1")
    link = made.host.links["vethc;1"]
    link.master, link.is_up = 0, False
    assert made.finding(check_interfaces).commands == (
        "ip link set dev 'vethc;1' master br0",
        "ip link set dev 'vethc;1' up",
    )


def test_a_master_that_has_gone_is_brought_back_before_its_containers_are(made: MadeNode) -> None:
    made.attach("c1", {"type": "macvlan", "master": "nic0", "ipam": IPAM}).links.clear()
    found = made.finding(check_interfaces)
    assert (found.subject, found.commands, found.containers) == ("master nic0", (), ("c1:eth0",))
    assert "bring nic0 back" in found.remedy
    made.host.links["nic0"] = Link("nic0", 50)
    assert made.finding(check_interfaces).commands == ("ip link set dev nic0 up",)
    made.host.links["nic0"].is_up = True
    assert made.finding(check_interfaces).commands == RELOAD


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
    object.__setattr__(inside, "routes", (IPRoute("10.9.0.0/16", "", 3), IPRoute("10.1.0.0/24", "", 3)))
    assert made.findings(check_interfaces) == []


def test_a_bridge_that_was_renamed_is_not_made_a_second_time(made: MadeNode) -> None:
    """Its containers work. With a second bridge of the same address nobody outside reaches them."""
    made.attach("c1")
    made.attach("c2")
    made.host.links["old"] = made.host.links.pop("br0")
    made.host.links["old"].name = "old"
    found = made.finding(check_interfaces)
    assert (found.severity, found.commands, found.disrupts) == ("warning", (), ())
    assert found.seen == "it does not exist; its containers are on old, which works"


@pytest.mark.real
def test_a_plugin_whose_del_needs_the_interface_is_no_dead_end(node: OperatorNode) -> None:
    node.configure("net", node.bridge(f"{node.net}.0/24", isDefaultGateway=True), {"type": "sbr"})
    container = node.attach("c1")
    node.attach("c2")
    leased = node.leased()
    container.run("ip", "link", "del", "eth0")
    assert node.mend("there is no interface eth0").commands == RELOAD
    assert node.leased() == leased
    assert container.addresses("eth0") == [f"{node.net}.2/24"]
    node.assert_healthy()
