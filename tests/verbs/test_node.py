"""How a verb's steps are carried out: what is waited for, and what may fail beside the plugins."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import Any

import pytest
from helpers import network
from nodes import FakeNode

from libcni import CNIConfig, RuntimeConf
from libcni.errors import PluginTimeoutError
from libcni.protocol.invocation import Invocation
from libcni.store.present_interfaces import EnteredNamespace
from libcni.testing import RecordingExecutor, network_namespace
from verbs.conftest import RT


def test_a_broken_log_loses_no_attachment(node: FakeNode, caplog: pytest.LogCaptureFixture) -> None:
    node.plugin("a", "echo said >&2")
    with open(node.root / "log", "w", encoding="utf-8") as closed:
        pass
    cni = node.client(stderr=closed)
    with caplog.at_level(logging.ERROR, "libcni"):
        cni.add_network_list(network("a"), RT)
    assert "cannot forward the stderr of a ADD" in caplog.text
    assert [attachment.state for attachment in cni.get_cached_attachments()] == ["ready"]


def test_a_log_that_raises_stops_no_verb_half_way(node: FakeNode) -> None:
    def sink(_invocation: Invocation, _text: str) -> None:
        raise RuntimeError("the log is down")

    node.plugin("a", "echo said >&2")
    cni = node.client(stderr=sink)
    cni.add_network_list(network("a", "a"), RT)
    cni.del_network_list(network("a", "a"), RT)
    assert cni.get_cached_attachments() == []


def test_each_verb_passes_the_environment_as_it_is_then(
    node: FakeNode, cni: CNIConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = node.root / "seen"
    node.plugin("a", f'echo "$LIKE_THIS $CNI_OTHER" >> {seen}')
    monkeypatch.setenv("CNI_OTHER", "inherited")
    for number, value in enumerate(("one", "two", "\udcff")):
        monkeypatch.setenv("LIKE_THIS", value)
        cni.add_network_list(network("a"), RuntimeConf(f"c{number}", None, "eth0"))
    monkeypatch.delenv("LIKE_THIS")
    cni.add_network_list(network("a"), RuntimeConf("last", None, "eth0"))
    assert seen.read_bytes() == b"one \ntwo \n\xff \n \n"


@pytest.mark.real
def test_an_add_enters_the_namespace_once(cni: CNIConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    entered = []
    enter = EnteredNamespace.enter

    def counted(path: str) -> EnteredNamespace | None:
        entered.append(path)
        return enter(path)

    monkeypatch.setattr(EnteredNamespace, "enter", counted)
    descriptors = sorted(os.listdir("/proc/self/fd"))
    with network_namespace() as namespace:
        cni.add_network_list(network("a"), RuntimeConf("c1", namespace.path, "eth0"))
        assert entered == [namespace.path]
        assert sorted(os.listdir("/proc/self/fd")) == descriptors


@pytest.mark.parametrize(
    ("options", "others", "hint"),
    [
        ({"timeout": 2}, 0.4, ": other calls used the rest of the 2 s"),
        ({"timeout": 400}, 0.0, ""),
        ({"timeout": 400, "plugin_timeout": 20}, 0.0, ""),
        ({}, 0.0, ""),
    ],
)
def test_a_plugin_that_got_a_part_of_the_time_is_not_the_only_slow_one(
    tmp_path: Path, options: dict[str, Any], others: float, hint: str
) -> None:
    executor = RecordingExecutor({("a", "ADD"): lambda _: time.sleep(others), ("b", "ADD"): PluginTimeoutError("slow")})
    cni = CNIConfig("/bin", tmp_path, executor=executor, cleanup_timeout=None, **options)
    with pytest.raises(PluginTimeoutError) as caught:
        cni.add_network_list(network("a", "b"), RT)
    assert str(caught.value.hint) == f"a higher timeout gives the plugin more time{hint}"
