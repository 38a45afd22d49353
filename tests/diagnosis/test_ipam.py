"""The check of reservations alone, on a reading that is made by hand; and what a person types, on a real node."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from diagnosis.conftest import OperatorNode
from diagnosis.made import BRIDGE, MadeNode
from libcni._netlink import Link, Network
from libcni._rules import masquerade_chain
from libcni.diagnosis.ipam import check_ipam
from libcni.diagnosis.report import Disruption

CONFIG = {"cniVersion": "1.0.0", "name": "net", "plugins": [BRIDGE]}


@pytest.fixture
def made(made: MadeNode) -> MadeNode:
    """Return a node with the file of the network, the container c1, and a reservation of nobody's."""
    Path(made.cni.conf_dir, "net.conflist").write_text(json.dumps(CONFIG), encoding="utf-8")
    made.attach("c1")
    made.reserve("10.1.0.77", "lost")
    return made


def interface_with(address: str) -> Network:
    return Network({"eth0": Link("eth0", 3, is_up=True, addresses=[f"{address}/24"])}, (), 99)


def test_a_reservation_that_nobody_uses_is_a_leak(made: MadeNode) -> None:
    found = made.finding(check_ipam)
    assert found.meaning.startswith("a leak: its address 10.1.0.77 is in no network namespace of this node")
    assert found.commands == ("libcni del net '' -c lost -i eth0",)
    made.make_rules("lost", "10.1.0.77")
    assert any(masquerade_chain("net", "lost") in command for command in made.finding(check_ipam).commands)


def test_leaks_of_a_network_without_a_file_are_files_to_remove(made: MadeNode) -> None:
    Path(made.cni.conf_dir, "net.conflist").unlink()
    made.reserve("fd00::77", "lost")
    found = made.finding(check_ipam)
    assert found.subject == "address 10.1.0.77, fd00::77 of network net"
    assert found.commands == ("rm /leases/net/10.1.0.77", "rm /leases/net/fd00::77")


def test_a_leak_of_another_interface_does_not_cost_a_container_its_ports(made: MadeNode) -> None:
    """DEL of portmap removes the ports of all its interfaces, from nftables even those of other networks."""
    made.reservations["net", "/leases/net"].pop()
    made.reserve("10.1.0.77", "c1", ifname="eth9")
    made.make_nft_rules("c1", "10.1.0.2")
    assert made.finding(check_ipam).commands == ("rm /leases/net/10.1.0.77",)


@pytest.mark.parametrize("backend", ["iptables", "nftables"])
def test_a_leak_does_not_cost_another_runtimes_container_of_the_same_id_its_ports(made: MadeNode, backend: str) -> None:
    make = made.make_rules if backend == "iptables" else made.make_nft_rules
    make("lost", "10.1.0.99")
    assert made.finding(check_ipam).commands == ("rm /leases/net/10.1.0.77",)


def test_the_address_of_a_container_that_lives_is_no_leak(made: MadeNode) -> None:
    """Its record is lost, or another runtime's."""
    netns = str(made.netns("lost"))
    made.live_in(netns, interface_with("10.1.0.77"))
    found = made.finding(check_ipam)
    assert found.commands == ()
    assert f"is on eth0 in {netns}: the container lives" in found.meaning
    assert found.meaning.endswith("libcni gc of this network needs --valid lost:eth0")
    assert "leave it if it is another runtime's" in found.remedy
    given = f"net {netns} -c lost -i eth0"
    chain = masquerade_chain("net", "lost")
    assert found.disrupts == (
        Disruption(f"iptables -t nat -N {chain} && libcni del {given} --use-given", ("lost:eth0",)),
        Disruption(f"libcni add {given} --args 'IgnoreUnknown=1;IP=10.1.0.77'", ("lost:eth0",)),
    )
    made.make_rules("lost", "10.1.0.77")
    assert made.finding(check_ipam).disrupts[0].command == f"libcni del {given} --use-given"
    Path(made.cni.conf_dir, "net.conflist").unlink()
    assert made.finding(check_ipam).disrupts == (), "no configuration to do it with"


def test_who_cannot_look_everywhere_says_nothing_about_leaks(made: MadeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = "address 10.1.0.77 of network net"

    def reason() -> str:
        assert made.findings(check_ipam) == []
        [(about, text)] = made.not_checked(check_ipam)
        assert about == subject
        return text

    made.records[0] = made.records[0].with_fields(pid_namespace=1)
    assert "another PID namespace" in reason()
    made.records[0] = made.records[0].with_fields(pid_namespace=None)
    made.live_in(str(made.netns("secret")), None)
    assert f"{made.netns('secret')} cannot be entered" in reason()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "only root sees the namespaces" in reason()


def test_a_reservation_of_a_moment_ago_may_be_of_an_add_that_runs(made: MadeNode) -> None:
    made.reservations["net", "/leases/net"].pop()
    made.reserve("10.1.0.78", "new", changed=made.more["started"] - 5)
    assert made.findings(check_ipam) == []
    assert [reason for _, reason in made.not_checked(check_ipam)] == [
        "it was reserved a moment ago: its ADD may be running"
    ]


def test_a_reservation_with_another_name_is_not_that_of_the_container_that_has_the_address(made: MadeNode) -> None:
    made.reservations.clear()
    made.reserve("10.1.0.2", "c9")
    unrecorded = made.findings(check_ipam)[1]
    assert "is that of c1:eth0, which is on record" in unrecorded.meaning
    assert (unrecorded.commands, unrecorded.disrupts) == ((), ()), "a DEL for c9 would delete the interface of c1"


def test_the_reservation_of_a_record_that_was_set_aside_is_no_leak(made: MadeNode) -> None:
    made.more["set_aside"] = ("net-lost-eth0.1795338822684574478",)
    assert made.findings(check_ipam) == []


def test_a_missing_reservation_is_made_again_unless_somebody_has_it_by_then(made: MadeNode) -> None:
    made.reservations["net", "/leases/net"].clear()
    found = made.finding(check_ipam)
    assert found.seen == "its address 10.1.0.2 is not reserved in /leases/net"
    make, write = found.commands
    assert make == "mkdir -p /leases/net"
    assert write == r"(set -C; printf '%s\r\n%s' c1 eth0 > /leases/net/10.1.0.2)"


@pytest.mark.parametrize(("reserved_for", "wrong"), [("c1", "c2"), ("c2", "c1"), ("", "c2")])
def test_one_address_in_two_records_costs_the_one_without_reservation_its_own(
    made: MadeNode, reserved_for: str, wrong: str
) -> None:
    made.attach("c2", address="10.1.0.2")
    made.records = [one.with_fields(created=number) for number, one in enumerate(made.records)]
    made.reservations["net", "/leases/net"].clear()
    if reserved_for:
        made.reserve("10.1.0.2", reserved_for)
    found = made.findings(check_ipam)[0]
    assert found.seen == "recorded for several containers: c1:eth0, c2:eth0"
    assert (found.commands, found.disrupts) == (
        (),
        (Disruption(f"libcni reload {wrong}:eth0", (f"{wrong}:eth0",)),),
    )


def test_reservations_of_other_plugins_are_not_read(made: MadeNode) -> None:
    other = {**CONFIG, "name": "other", "plugins": [{"type": "bridge", "ipam": {"type": "whereabouts"}}]}
    Path(made.cni.conf_dir, "other.conflist").write_text(json.dumps(other), encoding="utf-8")
    assert made.not_checked(check_ipam) == [
        ("network other", "reservations of the IPAM plugin whereabouts: unknown form")
    ]


def test_an_address_of_which_everything_is_lost_but_the_interface(made: MadeNode) -> None:
    """Somebody removed all of /var/lib/cni while containers ran."""
    made.reservations["net", "/leases/net"].pop()
    made.attach("c2")
    made.records.pop()
    assert [one.subject for one in made.findings(check_ipam)] == ["address 10.1.0.3 of network net"], "reserved"
    made.reservations["net", "/leases/net"].pop()
    found = made.finding(check_ipam)
    assert found.seen == f"eth0 in {made.netns('c2')} has it, and it is neither reserved nor on record"
    assert (found.commands, found.disrupts) == ((), ())
    made.live_in(str(made.netns("node")), made.host)
    made.live_in(str(made.netns("c3")), interface_with("10.2.0.3"))
    assert made.finding(check_ipam) == found, "the gateway, and an address of another network"


@pytest.mark.real
@pytest.mark.parametrize("flushed", [False, True])
def test_a_container_without_a_record_gets_one_and_its_address_again(node: OperatorNode, *, flushed: bool) -> None:
    node.write_bridge(ipMasq=True)
    container = node.attach("c1")
    address = container.addresses("eth0")
    node.type("libcni forget c1")
    node.age_leases()
    if flushed:
        node.host.run("sh", "-c", "iptables -t nat -F && iptables -t nat -X")
    detach, attach = node.finding("reserved for container c1").disrupts
    node.type(attach.command, code=1)
    assert container.addresses("eth0") == address, "an interface that is there is nobody's to replace"
    node.type(detach.command)
    assert (container.links(), node.leased()) == (["lo"], {})
    node.type(attach.command)
    assert container.addresses("eth0") == address
    assert node.states() == ["ready"]
    node.assert_healthy(run_check=True)


@pytest.mark.real
def test_the_printed_reservation_is_one_of_host_local(node: OperatorNode) -> None:
    node.attach("c1")
    leased = node.leased()
    reservation = node.leases / "net" / f"{node.net}.2"
    reservation.unlink()
    node.mend("is not reserved")
    assert node.leased() == leased
    reservation.unlink()
    _, write = node.finding("is not reserved").commands
    reservation.write_text("c2\r\neth0", encoding="utf-8")
    node.type(write, code=1)
    assert reservation.read_text(encoding="utf-8") == "c2\neth0"
