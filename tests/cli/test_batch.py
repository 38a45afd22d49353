"""``add --batch`` and ``del --batch``."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
import yaml

from cli.node import DBNET, REFUSING, CommandNode
from libcni.cli import main


def batch_file(node: CommandNode, **more: Any) -> str:
    node.write("refusing.conflist", REFUSING)
    entries = [{"network": "dbnet", "netns": node.netns(name), "container": name, **more} for name in ("a", "b")]
    entries += [{"network": "refusing", "container": "c", "netns": "/ns/c"}, {"network": DBNET, "netns": "/ns/d"}]
    (node.root / "batch.yaml").write_text(yaml.safe_dump(entries), encoding="utf-8")
    return "batch.yaml"


def test_a_batch_adds_and_deletes_with_a_table_and_a_report(node: CommandNode) -> None:
    ran = node.run("add", "--batch", batch_file(node), "--parallel", "2")
    assert ran.code == 1
    lines = [line.split() for line in ran.out.splitlines()]
    assert lines[0] == ["CONTAINER", "NETWORK", "INTERFACE", "ADDRESSES", "STATE"]
    assert [(line[0], line[-1]) for line in lines[1:4]] == [("a", "added"), ("b", "added"), ("c", "failed")]
    assert "not today" in ran.err
    assert ran.err.endswith("3 added, 1 failed\n")
    ran = node.run("del", "--batch", "batch.yaml", "-o", "json")
    assert ran.code == 0
    assert [one["container_id"] for one in ran.data][:3] == ["a", "b", "c"]
    assert node.cni.get_cached_attachments() == []


def test_a_batch_shows_its_progress_in_a_terminal(node: CommandNode) -> None:
    ran = node.run_in_terminal("add", "--batch", batch_file(node))
    assert "4/4" in ran.out
    assert "1 failed" in ran.out


def test_a_batch_in_a_terminal_needs_no_extra(node: CommandNode, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("rich", "rich.console", "rich.progress"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("libcni.cli.batch.has_escapes", lambda _: True)
    for name, value in node.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(node.root)
    assert main(["del", "--batch", batch_file(node)]) == 0


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"network": "dbnet"}, '"netns" or "container" is missing'),
        ({"netns": "/ns/a"}, '"network" is missing'),
        ({"network": "dbnet", "netns": "/ns/a", "ifnam": "x"}, "unknown keys: ifnam"),
        ({"network": "dbnet", "netns": 7}, '"netns" must be text'),
        ({"network": "dbnet", "netns": "/ns/a", "args": 7}, '"args" must be an object'),
        ({"network": "dbnet", "netns": "/ns/a", "ifname": "a/b"}, "invalid interface name"),
        ("dbnet", "an attachment must be an object"),
    ],
)
def test_a_wrong_batch_entry_is_named_before_anything_runs(node: CommandNode, entry: Any, problem: str) -> None:
    good = {"network": "dbnet", "netns": node.netns("a")}
    (node.root / "batch").write_text(json.dumps([good, entry]), encoding="utf-8")
    ran = node.run("add", "--batch", "batch")
    assert ran.code == 3
    assert "batch: [1]: " in ran.err
    assert problem in ran.err
    assert node.cni.get_cached_attachments() == []
