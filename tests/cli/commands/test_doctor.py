"""``libcni doctor``: its text, and commands that can be pasted."""

from __future__ import annotations

import subprocess

from cli.node import DBNET, CommandNode


def test_a_finding_about_a_name_with_control_characters_can_be_pasted(node: CommandNode) -> None:
    path = node.cache / "corrupt" / "dbnet-\x1b[31m\nit's-eth0.1795338822684574478"
    path.parent.mkdir(parents=True)
    path.touch()
    lines = node.run("doctor").out.splitlines()
    assert r"warning " + str(path.parent) + r"/dbnet-\x1b[31m\nit's-eth0.1795338822684574478" in lines
    command = next(line.removeprefix("  type") for line in lines if line.startswith("  type"))
    subprocess.run(["bash", "-c", command], check=True)
    assert not path.exists()


def test_doctor_of_a_healthy_node_and_of_an_empty_one(node: CommandNode) -> None:
    node.write("10-dbnet.conflist", {**DBNET, "plugins": [{"type": "fake"}]})
    assert node.run("doctor").out.endswith("ok: no problems found in what was checked\n")
    ran = node.run("doctor", "--conf-dir", "/nowhere", "--path", "/nowhere", "-o", "json")
    assert (ran.code, ran.data["status"]) == (2, "error")
    assert [(one["check"], one["subject"], one["seen"]) for one in ran.data["findings"]] == [
        ("configuration", "/nowhere", "there is no such directory"),
        ("plugins", "/nowhere", "there is no such directory"),
    ]
