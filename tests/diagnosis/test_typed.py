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
    assert "to detach it" in err
    assert node.libcni("del", "net", "", "-c", "c1")[0] == 0
    assert (node.leased(), container.links()) == ({}, ["lo", "eth0"])
    assert not node.record("c1").exists()


def test_an_interface_that_was_moved_is_not_replaced(node: OperatorNode) -> None:
    container, other = node.attach("c1"), node.new_namespace()
    container.run("ip", "link", "set", "eth0", "netns", other.name, "name", "eth7")
    assert "--use-given removes the interface" in node.libcni("reload", "c1")[2]
