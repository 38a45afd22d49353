"""libcni diff."""

from __future__ import annotations

import json

from cli.node import CommandNode


def test_a_record_without_configuration_does_not_hide_the_other_differences(node: CommandNode) -> None:
    node.add("a")
    node.add("b")
    record = node.record("a", "dbnet")
    node.strip_record("a", "dbnet")
    record.write_text(json.dumps({**json.loads(record.read_text()), "config": ""}))
    node.configure("dbnet", {"type": "fake-bridge", "bridge": "cni9"}, file=node.conf_dir / "10-dbnet.conflist")
    ran = node.run("diff", "-o", "json")
    assert ran.code == 1
    first, *others = ran.data
    about = {"container_id": "a", "network": "dbnet", "ifname": "eth0"}
    assert first == {**about, "key": "", "recorded": None, "current": "a configuration"}
    assert {"b"} == {one["container_id"] for one in others}
    assert "plugins[0].bridge" in {one["key"] for one in others}
    assert f"{record}: the recorded configuration cannot be used" in ran.err
