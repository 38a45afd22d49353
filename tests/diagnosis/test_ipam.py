"""The doctor compares reservations with records: each test breaks a node and types the commands that it prints."""

from __future__ import annotations

import pytest

import libcni
from diagnosis.conftest import OperatorNode
from libcni import RuntimeConf

pytestmark = pytest.mark.real


def test_a_leaked_reservation(node: OperatorNode) -> None:
    node.attach("c1")
    (node.leases / "net" / "10.231.0.77").write_text("lost\r\neth0", encoding="utf-8")
    found = node.mend("reserved for container lost")
    assert found.commands == ("libcni del net -c lost -i eth0",)
    assert not (node.leases / "net" / "10.231.0.77").exists()
    node.assert_healthy()


def test_the_rules_of_a_forgotten_container_go_with_its_address(node: OperatorNode) -> None:
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    node.configure("net", node.bridge("10.231.0.0/24", ipMasq=True), portmap)
    for number, container in enumerate(("lost", "other")):
        ports = {"portMappings": [{"hostPort": 8080 + number, "containerPort": 80, "protocol": "tcp"}]}
        rt = RuntimeConf(container, node.new_namespace().path, "eth0", capability_args=ports)
        node.cni.add_network_list("net", rt)
    node.type("libcni forget lost")
    before = len(node.host.rules("nat", "-N CNI-"))
    node.mend("reserved for container lost")
    assert node.host.rules("nat", "lost") == node.host.rules("nat", "8080") == []
    assert len(node.host.rules("nat", "-N CNI-")) == before - 2
    assert node.host.rules("nat", 'dnat name: \\"net\\" id: \\"other\\"') != []
    assert node.host.rules("nat", "-s 10.231.0.3/32") != []
    (node.leases / "net" / "10.231.0.77").write_text("never\r\neth0", encoding="utf-8")
    node.mend("reserved for container never")  # it has no rules
    node.assert_healthy()


def test_the_ports_of_a_containers_other_interface_stay(node: OperatorNode) -> None:
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    node.configure("net", node.bridge("10.231.0.0/24"), portmap)
    node.attach("c1")
    (node.leases / "net" / "10.231.0.77").write_text("c1\r\neth9", encoding="utf-8")
    assert node.mend("reserved for container c1").commands == ("libcni del net -c c1 -i eth9",)


def test_an_address_that_another_container_got_since_stays_its_own(node: OperatorNode) -> None:
    node.attach("c1")
    reservation = node.leases / "net" / "10.231.0.2"
    reservation.unlink()
    make, write = node.finding("its address 10.231.0.2 is not reserved").commands
    reservation.write_text("c2\r\neth0", encoding="utf-8")
    node.type(make)
    node.type(write, code=1)
    assert reservation.read_text(encoding="utf-8") == "c2\neth0"


def test_the_reservation_of_a_record_that_was_set_aside_is_no_leak(node: OperatorNode) -> None:
    node.attach("c1")
    node.record("c1").write_bytes(b"torn")
    libcni.repair_records(node.cache)
    assert [one.subject for one in node.diagnose().findings if one.check == "ipam"] == []


def test_a_leaked_reservation_of_a_network_that_has_no_file(node: OperatorNode) -> None:
    node.attach("c1")
    (node.conf_dir / "net.conflist").unlink()
    (node.leases / "net" / "10.231.0.77").write_text("lost\r\neth0", encoding="utf-8")
    assert node.mend("reserved for container lost").commands[0].startswith("rm ")
    node.write_bridge()
    node.assert_healthy()


def test_a_record_whose_reservation_has_gone(node: OperatorNode) -> None:
    node.attach("c1")
    (node.leases / "net" / "10.231.0.2").unlink()
    node.mend("its address 10.231.0.2 is not reserved")
    node.assert_healthy(run_check=True)
    node.type("libcni del -c c1")
    assert not (node.leases / "net" / "10.231.0.2").exists(), (
        "DEL releases the address that the command of the remedy reserved"
    )


def test_one_address_in_two_records(node: OperatorNode) -> None:
    node.attach("c1")
    for path in (node.leases / "net").iterdir():
        path.unlink()
    node.attach("c2")
    assert node.finding("is reserved for container c2").subject == "container c1, net, eth0"
    found = node.mend("recorded for several containers: c1 (eth0), c2 (eth0)")
    assert found.commands == ("libcni del -c c2 -i eth0",)
    node.mend("is not reserved")
    node.assert_healthy()


def test_a_pool_that_is_nearly_full_and_then_full(node: OperatorNode) -> None:
    node.write_bridge(ipam={"subnet": "10.231.0.0/28"})
    for number in range(12):
        node.attach(f"c{number}")
    assert node.finding("12 of 13 addresses").severity == "warning"
    node.attach("c12")
    full = node.finding("13 of 13 addresses of the pool 10.231.0.1 to 10.231.0.14")
    assert full.severity == "error"
    with pytest.raises(libcni.PluginError):
        node.attach("c13")
    assert "c7" in node.type(full.commands[0])
    for number in range(3):
        node.type(f"libcni del -c c{number}")
    node.assert_healthy()
