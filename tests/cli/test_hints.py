"""Errors name the commands that help."""

from __future__ import annotations

import errno
import os

import pytest

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
from libcni.cli.hints import hint_of


@pytest.mark.parametrize(
    ("error", "command"),
    [
        (NotAttachedError("x", container_id="a", ifname="eth0", state="pending"), "libcni del -c a -i eth0"),
        (RecordError("x", missing="configuration"), "libcni forget"),
        (RecordError("x", missing="attachment"), "libcni repair --yes"),
        (LockTimeoutError("x"), "libcni doctor"),
        (PluginNotFoundError("p", ("/bin",)), "--path"),
        (NotAttachedError("x", container_id="a", ifname="eth0", state="stale-boot"), "libcni del -c a -i eth0"),
        (PluginTimeoutError("x", verb="VERSION", path="/bin/p"), "install the plugin again"),
        (PluginTimeoutError("x", verb="ADD"), "--timeout"),
        (PluginError("x", verb="DEL", network="n", container_id="a", ifname="eth0"), "libcni forget a:eth0"),
        (PluginError("x", verb="CHECK", network="n", container_id="a", ifname="eth0"), "libcni doctor --check"),
        (PluginError("x", verb="STATUS", network="n", code=3), "libcni validate n"),
        (AttachmentExistsError("x", container_id="a", ifname="eth0"), "libcni del -c a -i eth0"),
        (InterfaceExistsError("x", ifname="eth0", netns="/run/netns/a"), "ip -n a link del eth0"),
        (NamespaceMismatchError("x", network="n", netns="/b", container_id="a", ifname="eth0"), "--use-given"),
    ],
)
def test_errors_name_commands(error: CNIError, command: str) -> None:
    assert command in hint_of(error)


def test_commands_of_a_long_hint_are_lines_to_copy() -> None:
    hint = hint_of(PluginError("x", verb="DEL", network="n", container_id="a", ifname="eth0"))
    assert [line.strip() for line in hint.splitlines() if line.startswith("  ")] == [
        "libcni del -c a -i eth0",
        "libcni del n -c a -i eth0 --use-given",
        "libcni forget a:eth0",
    ]


def test_a_plugin_that_answers_status_is_not_suspected_of_another_version() -> None:
    assert not hint_of(PluginError("x", verb="STATUS", network="n", code=50))


@pytest.mark.parametrize(("user", "hint"), [(1000, "run it as root"), (0, "libcni doctor")])
def test_who_may_not_write_records_is_told_to_be_root(user: int, hint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert hint_of(RecordError("x", errno=errno.EACCES)).startswith(hint)
