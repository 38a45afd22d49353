"""Errors name the commands that help."""

from __future__ import annotations

import errno
import os
import subprocess

import pytest
from helpers import a_call

from cli.node import DBNET, CommandNode, containers
from libcni import (
    AttachmentExistsError,
    CNIError,
    InterfaceExistsError,
    LockTimeoutError,
    NamespaceMismatchError,
    NotAttachedError,
    PluginError,
    PluginNotFoundError,
    PluginTimeoutError,
    RecordError,
)
from libcni.cli.failures import hint_of
from libcni.cli.session import Session
from libcni.errors import way_out

SESSION = Session("/etc/cni/net.d", "/opt/cni/bin:/usr/lib/cni", "/var/lib/cni", "", 60.0, "text", verbose=False)


def shown(error: CNIError) -> str:
    return hint_of(error, SESSION)


@pytest.mark.parametrize(
    ("error", "command"),
    [
        (NotAttachedError("x", container_id="a", ifname="eth0", state="pending"), "libcni del -c a -i eth0"),
        (RecordError("x", missing="configuration"), "libcni forget"),
        (RecordError("x", missing="attachment"), "libcni repair --yes"),
        (LockTimeoutError("x"), "libcni doctor"),
        (PluginNotFoundError("p", ("/bin",)), "--path"),
        (NotAttachedError("x", container_id="a", ifname="eth0", state="stale-boot"), "libcni del -c a -i eth0"),
        (PluginTimeoutError("x", a_call(verb="VERSION", path="/bin/p")), "install the plugin again"),
        (
            PluginTimeoutError("x", a_call(verb="DEL", network="n", container_id="a", ifname="eth0")),
            "--timeout SECONDS",
        ),
        (PluginError("x", a_call(verb="CHECK", network="n", container_id="a", ifname="eth0")), "libcni doctor --check"),
        (PluginError("x", a_call(verb="STATUS", network="n"), code=3), "libcni networks --check n"),
        (AttachmentExistsError("x", container_id="a", ifname="eth0"), "libcni del -c a -i eth0"),
        (InterfaceExistsError("x", ifname="eth0", netns="/run/netns/a"), "ip -n a link del eth0"),
        (InterfaceExistsError("x", ifname="eth0", netns="/proc/7/ns/net"), "nsenter --net=/proc/7/ns/net ip link del"),
        (NamespaceMismatchError("x", network="n", netns="/b", container_id="a", ifname="eth0"), "--use-given"),
    ],
)
def test_errors_name_commands(error: CNIError, command: str) -> None:
    assert command in shown(error)


def test_commands_are_lines_to_copy_and_arguments_are_options() -> None:
    error = CNIError("x", hint=way_out("n", "a", "eth0"))
    error.suggest('or use on_existing="replace" or skip_missing=True')
    error.suggest("allow_own_netns=True, which the command line does not have")
    assert shown(error).splitlines() == [
        "correct the cause, then:",
        "  libcni del -c a -i eth0",
        "with today's configuration:",
        "  libcni del n -c a -i eth0 --use-given",
        "if no DEL can succeed:",
        "  libcni forget a:eth0",
        "or use --on-existing replace or --skip-missing",
    ]


def test_a_plugin_that_answers_status_is_not_suspected_of_another_version() -> None:
    assert not shown(PluginError("x", a_call(verb="STATUS", network="n"), code=50))


@pytest.mark.parametrize(("user", "hint"), [(1000, "run it as root"), (0, "libcni doctor")])
def test_who_may_not_write_records_is_told_to_be_root(user: int, hint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert shown(RecordError("x", errno=errno.EACCES)).startswith(hint)


def test_the_commands_in_a_hint_have_the_directories_of_the_options(node: CommandNode) -> None:
    node.add("a")
    words = ["add", "dbnet", node.netns("a"), "-c", "a", "--cache-dir", str(node.cache)]
    hint = f"libcni del --cache-dir {node.cache} -c a -i eth0"
    assert hint in node.run(*words, LIBCNI_CACHE_DIR="").err
    assert hint in node.run(*words, "-o", "json", LIBCNI_CACHE_DIR="").err
    assert "libcni del -c a" in node.run(*words).err, "the environment names the directory already"


def test_a_dead_end_names_the_ways_out(node: CommandNode) -> None:
    refusing = {"cniVersion": "1.1.0", "name": "stuck", "plugins": [{"type": "fake", "fake": {
        "ADD": {"error": {"code": 7, "msg": "no"}}, "DEL": {"error": {"code": 7, "msg": "nor"}}}}]}  # fmt: skip
    node.write("stuck.conflist", refusing)
    failed = node.run("add", "stuck", node.netns("a"), "-c", "a")
    assert "libcni del stuck -c a -i eth0 --use-given" in failed.err
    assert "libcni forget a:eth0" in failed.err
    assert node.run("del", "-c", "a").code == 1
    node.write("stuck.conflist", {**refusing, "plugins": [{"type": "fake"}]})
    assert node.run("del", "stuck", "-c", "a", "-i", "eth0", "--use-given").code == 0
    assert containers(node) == []
    node.add("b")
    forgotten = node.run("forget", "b:eth0")
    assert "what fake-bridge, fake-tuning made may be left" in forgotten.out
    assert containers(node) == []


@pytest.mark.parametrize("state", ["pending", "detaching"])
def test_check_of_an_unfinished_attachment_names_the_commands(node: CommandNode, state: str) -> None:
    node.add("a")
    node.change_record("a", "dbnet", state=state)
    failed = node.run("check", "-c", "a")
    assert failed.code == 4
    assert "libcni del -c a -i eth0\n" in failed.err
    assert node.run("del", "-c", "a", "-i", "eth0").code == 0
    assert node.run("add", "dbnet", node.netns("a"), "-c", "a").code == 0


def test_an_unknown_network_lists_the_known_ones(node: CommandNode) -> None:
    node.write("20-other.conflist", {**DBNET, "name": "other"})
    failed = node.run("add", "nonet", node.netns("a"))
    assert failed.code == 4
    lines = failed.err.split("networks", 1)[1].splitlines()
    assert [line.strip() for line in lines] == ["dbnet", "other"]
    assert "hint" not in failed.err


def test_a_plugin_that_was_uninstalled_does_not_keep_the_container(node: CommandNode) -> None:
    node.add("a")
    (node.bin / "fake-tuning").unlink()
    failed = node.run("del", "-c", "a")
    assert failed.code == 4
    assert "--skip-missing" in failed.err
    assert node.run("del", "-c", "a", "--skip-missing").code == 0


def test_too_few_open_files_are_named_as_the_cause(node: CommandNode) -> None:
    node.add("a")
    limited = ["sh", "-c", 'ulimit -n 16; exec "$@"', "sh", *node.command, "del", "-c", "a"]
    ran = subprocess.run(limited, env=node.env, capture_output=True, text=True, check=False)
    hint = ran.stderr.rpartition("hint")[2]
    assert "at least 20 open files must be allowed (ulimit -n)" in hint
    assert "libcni forget a:eth0" in hint
    assert "DelPolicy" not in hint


def test_networks_that_exist_are_listed_a_line_each(node: CommandNode) -> None:
    node.write("20-front.conflist", {**DBNET, "name": "front"})
    lines = node.run("add", "fornt", "/ns/a").err.splitlines()
    assert [line.split()[-1] for line in lines[1:]] == ["dbnet", "front"]


def test_a_script_with_crlf_is_named_as_such(node: CommandNode) -> None:
    path = node.bin / "crlf"
    path.write_bytes(b"#!/bin/sh\r\nexit 0\r\n")
    path.chmod(0o755)
    node.write("crlf.conflist", {**DBNET, "name": "crlf", "plugins": [{"type": "crlf"}]})
    ran = node.run("add", "crlf", "/ns/a")
    assert "CRLF" in ran.err


def test_commands_to_type_have_the_options_of_the_caller(node: CommandNode) -> None:
    node.add("a")
    node.change_record("a", "dbnet", bootId="another")
    env = {"LIBCNI_CACHE_DIR": ""}
    findings = node.run("doctor", "--cache-dir", str(node.cache), "-o", "json", **env).data["findings"]
    (finding,) = [one for one in findings if one["check"] == "namespaces"]
    assert finding["commands"] == [f"libcni del --cache-dir {node.cache} -c a -i eth0"]
    assert node.run(*finding["commands"][0].split()[1:], **env).code == 0
    assert containers(node) == []
