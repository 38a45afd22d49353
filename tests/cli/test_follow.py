"""``libcni attachments --watch`` follows the changes of the records."""

from __future__ import annotations

import json
import signal
import subprocess
from types import SimpleNamespace

import pytest

from cli.node import CommandNode
from libcni.cli.follow import follow
from libcni.cli.session import Session


def test_watch_follows_the_changes(node: CommandNode) -> None:
    node.add("a")
    command, env = [*node.command, "attachments", "--watch", "-o", "json"], {**node.env, **node.server.coverage}
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None

    def event() -> tuple[str, str, str]:
        assert process.stdout is not None
        found = json.loads(process.stdout.readline())
        return found["event"], found["container_id"], found["state"]

    try:
        assert event() == ("recorded", "a", "ready")
        node.cni.add_network_list("dbnet", _rt(node, "b"))
        events = [event()]
        if events[0][2] == "pending":
            events.append(event())
        assert events[-1][1:] == ("b", "ready")
        (node.root / "ns" / "a").unlink()
        assert event() == ("changed", "a", "gone")
        node.cni.del_network_list("dbnet", _rt(node, "b"))
        while (last := event())[0] != "removed":
            assert last[1] == "b"
        assert last[1] == "b"
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.communicate()[1] == "", "no verb had begun"


def test_the_first_attachment_of_a_node_is_attached_and_not_recorded(
    node: CommandNode, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def sleep(_seconds: float) -> None:
        if node.cni.get_cached_attachments():
            raise KeyboardInterrupt
        node.add("a")

    monkeypatch.setattr("libcni.cli.follow.time", SimpleNamespace(sleep=sleep))
    session = Session("", "", node.cni.cache_dir, "", 60.0, "json", verbose=False)
    with pytest.raises(KeyboardInterrupt):
        follow(session, node.cni.get_cached_attachments)
    assert json.loads(capsys.readouterr().out)["event"] == "attached"


def _rt(node: CommandNode, container: str):  # type: ignore[no-untyped-def]  # noqa: ANN202
    import libcni

    return libcni.RuntimeConf(container, node.netns(container), "eth0")
