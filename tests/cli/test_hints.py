"""Errors name the commands that help."""

from __future__ import annotations

import errno
import os
import subprocess
from dataclasses import replace

import pytest
from helpers import a_call

from cli.node import DBNET, CommandNode, containers
from libcni import (
    CNIError,
    InterfaceExistsError,
    NamespaceMismatchError,
    NotAttachedError,
    PluginError,
    PluginNotFoundError,
    PluginTimeoutError,
    RecordError,
)
from libcni.cli.failures import hint_fields
from libcni.cli.session import Session
from libcni.errors import Hint

SESSION = Session("/etc/cni/net.d", "/opt/cni/bin:/usr/lib/cni", "/var/lib/cni", "", 60.0, "text", verbose=False)


def shown(error: CNIError) -> str:
    return "\n".join(hint_fields(error, SESSION).values())


@pytest.mark.parametrize(
    ("error", "command"),
    [
        (NotAttachedError("x", container_id="a", ifname="eth0", state="pending"), "libcni del a -i eth0"),
        (RecordError("x", missing="attachment"), "libcni repair --yes"),
        (PluginNotFoundError("p", ("/bin",)), "--path"),
        (PluginTimeoutError("x", a_call(verb="VERSION", path="/bin/p")), "install the plugin again"),
        (PluginTimeoutError("x", a_call(verb="DEL", network="n", container_id="a")), "a higher --timeout"),
        (PluginError("x", a_call(verb="STATUS", network="n"), code=3), "libcni networks --validate n"),
        (InterfaceExistsError("x", ifname="eth0", netns="/run/netns/a"), "ip -n a link del eth0"),
        (InterfaceExistsError("x", ifname="eth0", netns="/proc/7/ns/net"), "nsenter --net=/proc/7/ns/net ip link del"),
        (NamespaceMismatchError("x", network="n", netns="/b", container_id="a", ifname="eth0"), "--use-given"),
    ],
)
def test_errors_name_commands(error: CNIError, command: str) -> None:
    assert command in shown(error)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("del", "--skip-missing"),
        ("repair", "--skip-missing"),
        ("gc", "libcni del --skip-missing"),
        ("", "--skip-missing"),
    ],
)
def test_a_hint_names_an_option_that_the_command_has_or_the_command_that_has_it(command: str, words: str) -> None:
    hint = Hint("or skip it ({argument})", argument="skip_missing")
    shown = hint_fields(CNIError("x", hint=hint), replace(SESSION, command=command))
    assert shown == {"hint": f"or skip it ({words})"}


def test_gc_of_a_missing_plugin_names_a_command_that_skips_it(node: CommandNode) -> None:
    node.add("a")
    (node.bin / "fake-tuning").unlink()
    ran = node.run("gc", "dbnet", "--none-valid")
    assert ran.code
    assert "(libcni del --skip-missing)" in ran.err
    assert node.run("del", "a", "--skip-missing").code == 0


def test_a_hint_is_one_thing_to_do_with_options_for_arguments() -> None:
    hint = Hint("use {argument}, or drop it", "forget", container_id="a", argument="on_existing", value="replace")
    assert hint_fields(CNIError("x", hint=hint), SESSION) == {
        "hint": "use --on-existing replace, or drop it",
        "type": "libcni forget a",
    }
    assert hint_fields(CNIError("x", hint="do it"), SESSION) == {"hint": "do it"}
    assert hint_fields(CNIError("x"), SESSION) == {}


def test_a_plugin_that_answers_status_is_not_suspected_of_another_version() -> None:
    assert not shown(PluginError("x", a_call(verb="STATUS", network="n"), code=50))


@pytest.mark.parametrize(("user", "hint"), [(1000, "run this program as root"), (0, "libcni doctor")])
def test_who_may_not_write_records_is_told_to_be_root(user: int, hint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert shown(RecordError("x", errno=errno.EACCES)).endswith(hint)


def test_the_commands_in_a_hint_have_the_directories_of_the_options(node: CommandNode) -> None:
    node.add("a")
    words = ["add", "dbnet", node.netns("a"), "-c", "a", "--cache-dir", str(node.cache)]
    hint = f"libcni del a -i eth0 -n dbnet --cache-dir {node.cache}"
    assert hint in node.run(*words, LIBCNI_CACHE_DIR="").err
    assert hint in node.run(*words, "-o", "json", LIBCNI_CACHE_DIR="").err
    assert "libcni del a" in node.run(*words).err, "the environment names the directory already"


def test_a_dead_end_names_the_ways_out(node: CommandNode) -> None:
    refusing = {"cniVersion": "1.1.0", "name": "stuck", "plugins": [{"type": "fake", "fake": {
        "ADD": {"error": {"code": 7, "msg": "no"}}, "DEL": {"error": {"code": 7, "msg": "nor"}}}}]}  # fmt: skip
    node.write("stuck.conflist", refusing)
    failed = node.run("add", "stuck", node.netns("a"), "-c", "a")
    assert (
        "hint      correct the cause, then detach the container\n  type      libcni del a -i eth0 -n stuck\n"
        in failed.err
    )
    again = node.run("del", "a")
    assert again.code == 1
    assert "--use-given" in again.err
    assert again.err.count("libcni ") == 1, "the last way out"
    assert "libcni forget a -i eth0 -n stuck" in again.err
    kept_going = node.run("del", "a", "--keep-going")
    assert kept_going.err.endswith("libcni forget a -i eth0 -n stuck\n"), "the hint of a group of errors"
    assert "CNIErrorGroup" not in node.run("del", "a", "-o", "json").err, "a single error is no group"
    node.write("stuck.conflist", {**refusing, "plugins": [{"type": "fake"}]})
    assert node.run("del", "a", "--use-given").code == 0
    assert containers(node) == []
    node.add("b")
    assert node.run("forget", "b", "--yes").code == 0
    assert containers(node) == []


def test_an_unknown_network_lists_the_known_ones(node: CommandNode) -> None:
    node.write("20-other.conflist", {**DBNET, "name": "other"})
    failed = node.run("add", "nonet", node.netns("a"))
    assert failed.code == 4
    assert failed.err.splitlines()[-1] == "  hint  did you mean dbnet? The known networks: dbnet, other"
    assert node.run("add", "zzz", "/ns/a").err.splitlines()[-1] == "  hint  the known networks: dbnet, other"


def test_a_plugin_that_was_uninstalled_does_not_keep_the_container(node: CommandNode) -> None:
    node.add("a")
    (node.bin / "fake-tuning").unlink()
    failed = node.run("del", "a")
    assert failed.code == 4
    assert "--skip-missing" in failed.err
    assert node.run("del", "a", "--skip-missing").code == 0


def test_too_few_open_files_are_named_as_the_cause(node: CommandNode) -> None:
    node.add("a")
    limited = ["sh", "-c", 'ulimit -n 16; exec "$@"', "sh", *node.command, "del", "-c", "a"]
    ran = subprocess.run(limited, env=node.env, capture_output=True, text=True, check=False)
    hint = ran.stderr.rpartition("hint")[2]
    assert "allow at least 20 open files (ulimit -n)" in hint
    assert "DelPolicy" not in hint


def test_a_script_with_crlf_is_named_as_such(node: CommandNode) -> None:
    path = node.bin / "crlf"
    path.write_bytes(b"#!/bin/sh\r\nexit 0\r\n")
    path.chmod(0o755)
    node.write("crlf.conflist", {**DBNET, "name": "crlf", "plugins": [{"type": "crlf"}]})
    ran = node.run("add", "crlf", "/ns/a")
    assert "CRLF" in ran.err
