"""Why the ADD of a reload would fail after its DEL, found without a look at the whole node."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnosis.conftest import OperatorNode
from libcni import CNIConfig, RuntimeConf
from libcni.diagnosis import obstacles_to_reload

pytestmark = pytest.mark.real


def test_obstacles_are_known_before_the_del(node: OperatorNode) -> None:
    node.write_bridge(ipMasq=True)
    node.attach("c1")
    node.attach("c2")

    def found() -> list[str]:
        return obstacles_to_reload(node.cni, iter(node.cni.get_cached_attachments("c1")))

    assert found() == [""]
    taken = Path(node.leases, "net", f"{node.net}.2")
    owner = taken.read_text(encoding="utf-8")
    taken.write_text("other\r\neth0", encoding="utf-8")
    assert found() == [""], "another address is free"
    for last in range(1, 256):
        path = taken.with_name(f"{node.net}.{last}")
        if not path.exists():
            path.write_text("other\r\neth0", encoding="utf-8")
    assert found() == ["the container's address is reserved for another container, and no other address is free"]
    taken.write_text(owner, encoding="utf-8")
    assert found() == [""]
    node.host.run("ip", "addr", "flush", "dev", "br-node")
    node.host.run("ip", "addr", "add", "192.0.2.1/24", "dev", "br-node")
    assert found() == ["br-node has the address 192.0.2.1/24, so the plugin refuses this bridge"]


def test_a_program_that_a_plugin_needs(node: OperatorNode, tmp_path: Path) -> None:
    node.write_bridge(ipMasq=True)
    node.attach("c1")
    client = CNIConfig(node.cni.path, node.cni.cache_dir, conf_dir=node.cni.conf_dir, env={"PATH": str(tmp_path)})
    [obstacle] = obstacles_to_reload(client, client.get_cached_attachments())
    assert "which is not in the plugins' PATH: install it" in obstacle


def test_an_attachment_that_is_reloaded_too(node: OperatorNode) -> None:
    node.write_bridge()
    space = node.attach("c1")
    node.configure("net", {**node.bridge(f"{node.net}.0/24"), "daemon": {"kubeconfig": "/none/file"}})
    node.cni.add_network_list("net", RuntimeConf("c1", space.path, "eth1"))
    assert obstacles_to_reload(node.cni, node.cni.get_cached_attachments("c1")[:1]) == [
        "/none/file does not exist: start the plugin's daemon, which writes it"
    ]
