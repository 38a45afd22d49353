"""Errors on stderr, with all that is known, and exit codes."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest
from helpers import a_call
from processes import children

from cli.node import HANGING, REFUSING, CommandNode
from libcni import (
    CNIErrorGroup,
    ConfigError,
    PluginError,
)
from libcni.cli import failures
from libcni.cli.failures import error_data, exit_code
from libcni.cli.session import Session
from libcni.testing import wait_until


@pytest.mark.parametrize(
    ("code", "argv"),
    [
        (0, ["networks"]),
        (1, ["add", "refusing", "/ns/a"]),
        (2, ["add"]),
        (2, ["add", "dbnet", "/ns/a", "--ifname", "a/b"]),
        (3, ["add", "broken.yaml", "/ns/a"]),
        (4, ["add", "nothere", "/ns/a"]),
        (4, ["check", "dbnet", "/ns/a"]),
        (0, ["del", "--container", "nobody", "--timeout", "5"]),
        (4, ["forget", "nobody"]),
        (5, ["add", "hanging", "/ns/a", "--timeout", "0.3"]),
    ],
)
def test_exit_codes(node: CommandNode, code: int, argv: list[str]) -> None:
    node.write("refusing.conflist", REFUSING)
    node.write("hanging.conflist", HANGING)
    (node.root / "broken.yaml").write_text("name: [", encoding="utf-8")
    ran = node.run(*argv)
    assert ran.code == code
    assert "Traceback" not in ran.err
    assert bool(ran.err) is (code != 0 or argv[0] == "del")


def test_a_lock_that_is_held_is_exit_code_5(node: CommandNode) -> None:
    node.write("hanging.conflist", HANGING)
    first = subprocess.Popen([*node.command, "add", "hanging", "/ns/a"], env=node.env)
    try:
        wait_until(lambda: bool(children(first.pid)) and bool(node.cni.get_cached_attachments()))
        ran = node.run("del", "hanging", "/ns/a", "--timeout", "0.2")
        assert ran.code == 5
        assert "held the lock" in ran.err
        doctor = node.run("doctor").out
        assert "the ADD runs now: " in doctor
    finally:
        first.send_signal(signal.SIGINT)
        assert first.wait(20) == 130


def test_an_error_has_all_that_is_known(node: CommandNode) -> None:
    node.write("refusing.conflist", REFUSING)
    ran = node.run("add", "refusing", "/ns/a", "-o", "json")
    error = json.loads(ran.err)["error"]
    assert error["kind"] == "PluginError"
    assert (error["code"], error["msg"], error["details"], error["stderr"]) == (7, "no", "not today", "complaint\n")
    assert (error["plugin"], error["verb"], error["exit_status"], error["exit"]) == ("fake", "ADD", 1, 1)
    assert ran.out == ""


def test_what_was_added_to_an_error_on_its_way_is_shown_once() -> None:
    error = PluginError("it failed", a_call(plugin="a", verb="ADD"))
    error.rollback_errors = (PluginError("it failed, too", a_call(plugin="a", verb="DEL")),)
    error.add_note("ADD was detaching another one first")
    session = Session("", "", "", "", 60.0, "text", verbose=False)
    assert error_data(error, session)["notes"] == ["ADD was detaching another one first"]
    assert ("note", "ADD was detaching another one first") in failures._details(error, session)
    assert "notes" not in error_data(PluginError("it failed", a_call(plugin="a", verb="ADD")), session)


def test_several_errors_have_their_common_exit_code_or_1() -> None:
    assert exit_code(CNIErrorGroup("x", [ConfigError("x"), ConfigError("y")])) == 3
    assert exit_code(CNIErrorGroup("x", [ConfigError("x"), PluginError("y")])) == 1


def test_line_breaks_and_escapes_in_a_plugins_answer_to_status_stay_in_its_message(node: CommandNode) -> None:
    document = '{"cniVersion":"1.1.0","code":50,"msg":"first\\\\nplugin  forged\\\\u001b[31m"}'
    plugin = node.root / "tells"
    plugin.write_text(f"#!/bin/sh\nprintf '{document}'\nexit 1\n", encoding="utf-8")
    plugin.chmod(0o755)
    conf = {"cniVersion": "1.1.0", "name": "told", "plugins": [{"type": "tells"}]}
    (node.conf_dir / "90-told.conflist").write_text(json.dumps(conf), encoding="utf-8")
    ran = node.run("status", "told", CNI_PATH=str(node.root))
    assert ran.code == 1
    assert "  message  first\n           plugin  forged\\x1b[31m\n" in ran.err
