"""``libcni exec``: one raw call of a plugin."""

from __future__ import annotations

import json

from cli.node import CommandNode


def test_exec_passes_stdin_byte_for_byte_and_records_nothing(node: CommandNode) -> None:
    node.plugin("plain")
    stdin = '{ "cniVersion":"1.1.0",  "name":"x", "type":"plain", "n": 1.0 }'
    ran = node.run("exec", "plain", "add", "--config", "-", "-c", "c1", "--netns", "/ns", stdin=stdin)
    assert ran.data == node.result
    [call] = node.fakes.calls
    assert (call.verb, call.stdin) == ("ADD", stdin.encode())
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
