"""What an operator types by hand on a node whose records are lost or broken, with real plugins."""

from __future__ import annotations

import pytest

from diagnosis.conftest import OperatorNode

pytestmark = pytest.mark.real


@pytest.mark.parametrize("record", ["lost", "corrupt"])
def test_del_without_a_usable_record_keeps_what_lives(node: OperatorNode, record: str) -> None:
    container = node.attach("c1")
    leases = node.leased()
    if record == "lost":
        node.record("c1").unlink()
    else:
        node.record("c1").write_text("{", encoding="utf-8")
    code, _, err = node.libcni("del", "net", container.path, "-c", "c1")
    assert (code, node.leased(), "eth0" in container.links()) == (1, leases, True)
    assert "--use-given" in err
    assert node.record("c1").exists() is (record == "corrupt")
    assert node.libcni("del", "net", container.path, "-c", "c1", "--use-given")[0] == 0
    assert (node.leased(), container.links()) == ({}, ["lo"])
    assert not node.record("c1").exists()


def test_an_empty_namespace_means_that_it_no_longer_exists(node: OperatorNode) -> None:
    container = node.attach("c1")
    node.record("c1").write_text("{", encoding="utf-8")
    leases = node.leased()
    code, _, err = node.libcni("del", "net", "-c", "c1")
    assert (code, node.leased()) == (1, leases), "without a namespace nothing is run"
    assert "give the namespace" in err
    assert node.libcni("del", "net", "", "-c", "c1")[0] == 0
    assert (node.leased(), container.links()) == ({}, ["lo", "eth0"])
    assert not node.record("c1").exists()


def test_a_reservation_with_another_name_is_not_that_of_the_container_that_has_the_address(node: OperatorNode) -> None:
    container = node.attach("c1")
    lease = node.leases / "net" / container.addresses("eth0")[0].partition("/")[0]
    lease.write_text("c9\r\neth0", encoding="utf-8")
    node.age_leases()
    found = node.finding("reserved for container c9, interface eth0, which has no record")
    assert "is that of c1:eth0, which is on record" in found.meaning
    assert (found.commands, found.disrupts) == ((), ()), "a DEL for c9 would delete the interface of c1"


def test_an_interface_that_was_moved_is_found(node: OperatorNode) -> None:
    container, other = node.attach("c1"), node.new_namespace()
    container.run("ip", "link", "set", "eth0", "netns", other.name, "name", "eth7")
    found = node.finding("eth0 is eth7 in")
    assert other.path in found.seen
    assert found.commands == ()
    assert "--use-given removes what is there" in node.libcni("reload", "c1")[2]


def test_many_damaged_containers_are_one_command(node: OperatorNode) -> None:
    node.write_bridge(ipMasq=True)
    node.attach("c0")
    record = node.record("c0").read_text(encoding="utf-8")
    for number in range(1, 40):
        text = record.replace('"containerId":"c0"', f'"containerId":"c{number}"')
        node.record(f"c{number}").write_text(text, encoding="utf-8")
    assert len({one.container_id for one in node.cni.get_cached_attachments()}) == 40
    node.host.run("sh", "-c", "iptables -t nat -F && iptables -t nat -X")
    assert node.finding("missing: ").commands == ("libcni reload --all --network net",)
    _, printed, _ = node.libcni("doctor")
    assert max(map(len, printed.splitlines())) < 500


def test_what_check_says_does_not_send_the_operator_to_the_doctor(node: OperatorNode) -> None:
    container = node.attach("c1")
    container.run("ip", "link", "set", "eth0", "address", "02:00:00:00:00:77")
    found = node.finding("CHECK failed", run_check=True)
    assert "doesn't match" in found.seen
    assert "libcni doctor" not in found.seen
