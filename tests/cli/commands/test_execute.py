"""``libcni exec``: one raw call of a plugin."""

from __future__ import annotations

import json

from cli.node import CommandNode


def test_exec_passes_stdin_byte_for_byte_and_records_nothing(node: CommandNode) -> None:
    log = node.root / "log"
    stdin = '{ "cniVersion":"1.1.0",  "name":"x", "type":"fake", "n": 1.0 }'
    ran = node.run(
        "exec", "fake", "add", "--config", "-", "-c", "c1", "--netns", "/ns", stdin=stdin, FAKE_CNI_LOG=str(log)
    )
    assert ran.data["cniVersion"] == "1.1.0"
    call = json.loads(log.read_text(encoding="utf-8"))
    assert call["stdin"] == stdin
    assert call["env"]["CNI_COMMAND"] == "ADD"
    assert not node.cache.exists()
    failed = node.run("exec", str(node.bin / "fake"), "NOPE", "-o", "json")
    assert failed.code == 1
    assert failed.data["exit_status"] == 1
    assert json.loads(failed.data["stdout"])["code"] == 4


def test_a_plugin_file_that_does_not_exist_is_not_blamed_on_its_permissions(node: CommandNode) -> None:
    ran = node.run("exec", "./nosuch", "VERSION")
    assert ran.code == 1
    assert "No such file" in ran.err
    assert "permissions" not in ran.err
