"""The doctor compares reservations with records and with the addresses of all namespaces."""

from __future__ import annotations

import os
import subprocess
import time

import pytest
from nodes import Namespace

import libcni
from diagnosis.conftest import OperatorNode
from libcni import RuntimeConf

pytestmark = pytest.mark.real


def test_a_leaked_reservation(node: OperatorNode) -> None:
    node.attach("c1")
    lease = node.lease(77, "lost\r\neth0")
    found = node.mend("reserved for container lost")
    assert found.commands == ("libcni del net '' -c lost -i eth0",)
    assert not lease.exists()
    node.assert_healthy()


def test_the_address_of_a_container_without_a_record_is_no_leak(node: OperatorNode) -> None:
    """Its record is lost, or another runtime's; wherever its namespace has its path."""
    container = node.attach("c1")
    node.type("libcni forget c1")
    node.age_leases()
    found = node.finding("reserved for container c1")
    assert found.commands == ()
    assert f"is on eth0 in {container.path}: the container lives" in found.meaning
    [other] = found.disrupts
    assert other.containers == ("c1:eth0",)
    node.type(other.command)
    assert "eth0" not in container.links()
    node.assert_healthy()


def test_a_namespace_that_only_a_process_has_is_looked_into(node: OperatorNode) -> None:
    with subprocess.Popen(["unshare", "--net", "sleep", "600"]) as process:
        netns = f"/proc/{process.pid}/ns/net"
        while os.stat(netns).st_ino == os.stat("/proc/self/ns/net").st_ino:
            time.sleep(0.01)
        node.cni.add_network_list("net", RuntimeConf("c1", netns, "eth0"))
        node.type("libcni forget c1")
        node.age_leases()
        assert node.finding("reserved for container c1").commands == ()
        process.kill()


def test_a_reservation_of_a_moment_ago_may_be_of_an_add_that_runs(node: OperatorNode) -> None:
    os.utime(node.lease(77, "new\r\neth0"))
    report = node.diagnose()
    assert report.findings == ()
    assert "it was reserved a moment ago: its ADD may be running" in {one.reason for one in report.not_checked}


def test_the_ports_of_a_containers_other_interface_stay(node: OperatorNode) -> None:
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    node.configure("net", node.bridge(f"{node.net}.0/24"), portmap)
    ports = {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}
    rt = RuntimeConf("c1", node.new_namespace().path, "eth0", capability_args=ports)
    node.cni.add_network_list("net", rt)
    before = node.host.rules("nat", "8080")
    node.lease(77, "c1\r\neth9")
    assert node.mend("reserved for container c1").commands == ("libcni del net '' -c c1 -i eth9",)
    assert node.host.rules("nat", "8080") == before


def test_an_address_that_another_container_got_since_stays_its_own(node: OperatorNode) -> None:
    node.attach("c1")
    reservation = node.leases / "net" / f"{node.net}.2"
    reservation.unlink()
    make, write = node.finding("is not reserved").commands
    reservation.write_text("c2\r\neth0", encoding="utf-8")
    node.type(make)
    node.type(write, code=1)
    assert reservation.read_text(encoding="utf-8") == "c2\neth0"


def test_the_reservation_of_a_record_that_was_set_aside_is_no_leak(node: OperatorNode) -> None:
    node.attach("c1")
    node.record("c1").write_bytes(b"torn")
    libcni.repair_records(node.cache)
    node.age_leases()
    assert [one.subject for one in node.diagnose().findings if one.check == "ipam"] == []


def test_a_leaked_reservation_of_a_network_that_has_no_file(node: OperatorNode) -> None:
    node.attach("c1")
    (node.conf_dir / "net.conflist").unlink()
    node.lease(77, "lost\r\neth0")
    assert node.mend("reserved for container lost").commands[0].startswith("rm ")
    node.write_bridge()
    node.assert_healthy()


def test_one_address_in_two_records_costs_the_one_without_reservation_its_own(node: OperatorNode) -> None:
    first = node.attach("c1")
    for path in (node.leases / "net").iterdir():
        path.unlink()
    second = node.attach("c2")
    assert first.addresses("eth0") == second.addresses("eth0")
    found = node.finding("recorded for several containers: c1:eth0, c2:eth0")
    assert found.commands == ()
    [other] = found.disrupts
    assert (other.command, other.containers) == ("libcni reload c1:eth0", ("c1:eth0",))
    node.type(other.command)
    assert first.addresses("eth0") != second.addresses("eth0")
    node.assert_healthy(run_check=True)


def test_a_reservation_of_another_container(node: OperatorNode, other: Namespace) -> None:
    node.attach("c1")
    node.lease(2, "c7\r\neth0")
    found = [one for one in node.diagnose().findings if "and reserved for container c7" in one.seen]
    assert [one.commands for one in found] == [()]


def test_a_pool_that_is_nearly_full_and_then_full(node: OperatorNode) -> None:
    node.write_bridge(ipam={"subnet": f"{node.net}.0/28"})
    for number in range(12):
        node.attach(f"c{number}")
    assert node.finding("12 of 13 addresses").severity == "warning"
    node.attach("c12")
    full = node.finding(f"13 of 13 addresses of the pool {node.net}.1 to {node.net}.14")
    assert full.severity == "error"
    with pytest.raises(libcni.PluginError):
        node.attach("c13")
    assert "c7" in node.type(full.commands[0])
    for number in range(3):
        node.type(f"libcni del -c c{number}")
    node.assert_healthy()
