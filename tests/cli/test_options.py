"""Options, and the variables that replace them."""

from __future__ import annotations

import json

from cli.node import CommandNode, containers


def test_cnitools_environment_is_read(node: CommandNode) -> None:
    node.configure("plain", {"type": "plain", "capabilities": {"mac": True}})
    caps = '{"mac": "c2:11:22:33:44:55"}'
    ran = node.run("add", "plain", node.netns("a"), CAP_ARGS=caps, CNI_ARGS="A=b;C=d", CNI_IFNAME="net7")
    assert ran.code == 0
    [call] = node.fakes.calls
    assert (call.env["CNI_ARGS"], call.env["CNI_IFNAME"]) == ("A=b;C=d", "net7")
    assert call.config["runtimeConfig"] == json.loads(caps)


def test_an_owner_with_control_characters_is_refused(node: CommandNode) -> None:
    by_option = node.run("add", "dbnet", node.netns("a"), "--owner", "a\tb")
    by_variable = node.run("gc", "dbnet", "--none-valid", LIBCNI_OWNER="a\x1b[m")
    for ran in (by_option, by_variable):
        assert ran.code == 2
        assert "invalid owner" in ran.err
    assert containers(node) == []
