"""The test of counter.py: .venv/bin/pytest examples/test_counter.py."""

from pathlib import Path

from counter import plugin

from libcni.testing import assert_plugin_conforms, call_plugin


def test_it_counts(tmp_path: Path) -> None:
    """The first address is .2."""
    config = {"cniVersion": "1.1.0", "name": "net", "type": "counter", "ipam": {"dataDir": str(tmp_path)}}
    answer = call_plugin(plugin, "ADD", config, container_id="c1", ifname="eth0")
    assert answer.document["ips"] == [{"address": "10.77.0.2/24", "gateway": "10.77.0.1"}]


def test_it_does_what_the_specification_asks(tmp_path: Path) -> None:
    """All verbs, in all versions."""
    assert_plugin_conforms(plugin, {"type": "counter", "ipam": {"dataDir": str(tmp_path)}}, ipam=True)
