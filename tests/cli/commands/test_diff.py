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


def test_containers_with_the_same_differences_are_one_row(node: CommandNode) -> None:
    """Another difference of the same key is a row of its own."""
    for container in ("a", "b", "c"):
        node.add(container)
    bridge = {"type": "fake-bridge", "bridge": "cni9", "ipam": {"type": "fake-ipam", "subnet": "10.9.7.0/24"}}
    node.configure("dbnet", bridge, "fake-tuning", file=node.conf_dir / "10-dbnet.conflist")
    node.add("d")
    node.configure("dbnet", {**bridge, "bridge": "cni8"}, "fake-tuning", file=node.conf_dir / "10-dbnet.conflist")
    ran = node.run("diff")
    rows = [line.split("  ")[0] for line in ran.out.splitlines() if "plugins[0].bridge" in line]
    assert (ran.code, rows) == (1, ["3 containers", "d"])
    assert len([one for one in node.run("diff", "-o", "json").data if one["key"] == "plugins[0].bridge"]) == 4
