"""The doctor compares recorded configurations with the files: break a real node, type what it says."""

from __future__ import annotations

import pytest

from diagnosis.conftest import OperatorNode

pytestmark = pytest.mark.real


def test_a_configuration_that_has_changed_since(node: OperatorNode) -> None:
    container = node.attach("c1")
    node.write_bridge(mtu=1400)
    assert "plugins[0].mtu" in node.type("libcni diff net", code=1)
    found = node.mend("with another configuration")
    assert "plugins[0].mtu" in found.seen
    assert container.link("eth0")["mtu"] == 1400
    node.assert_healthy(run_check=True)
    assert node.type("libcni diff") == "no differences\n"


def test_a_network_whose_file_has_gone(node: OperatorNode) -> None:
    container = node.attach("c1")
    (node.conf_dir / "net.conflist").unlink()
    node.write_bridge("second", bridge="oper1")
    assert node.mend("it has no configuration file").commands == ("libcni gc net --none-valid",)
    assert "eth0" not in container.links()
    node.assert_healthy()
