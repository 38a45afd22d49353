"""The doctor compares recorded configurations with the files: break a real node, type what it says."""

from __future__ import annotations

import pytest

from diagnosis.conftest import OperatorNode

pytestmark = pytest.mark.real


def test_a_configuration_that_has_changed_since(node: OperatorNode) -> None:
    """To attach the containers again would interrupt them, and could fail: nothing does it but their next start."""
    node.attach("c1")
    node.write_bridge(mtu=1400)
    found = node.finding("with another configuration")
    assert "plugins[0].mtu" in found.seen
    assert found.commands == ("libcni diff net",)
    assert found.disrupts == ()
    assert "plugins[0].mtu" in node.type("libcni diff net", code=1)


def test_a_network_whose_file_has_gone_is_put_back_as_it_was(node: OperatorNode) -> None:
    container = node.attach("c1")
    file = node.conf_dir / "net.conflist"
    content = file.read_bytes()
    file.unlink()
    node.mend("it has no usable configuration file")
    assert file.read_bytes() == content
    assert "eth0" in container.links()
    node.assert_healthy()


def test_a_broken_file_is_not_overwritten(node: OperatorNode) -> None:
    node.attach("c1")
    file = node.write("net.conflist", "{")
    found = node.finding("it has no usable configuration file")
    assert found.commands == ()
    assert found.remedy.endswith("libcni show c1:eth0 -n net --config")
    assert file.read_text(encoding="utf-8") == "{"
