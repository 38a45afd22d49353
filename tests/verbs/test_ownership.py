"""Whose the interface is, if a record does not say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from helpers import RecordingNode, attached, failed

from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import (
    NamespaceMismatchError,
    PluginError,
    RecordError,
)
from libcni.store.record import PENDING, STALE_BOOT, Record
from verbs.test_delete import CHAIN, delete

HERE = RuntimeConf("c1", "/here", "eth0")
PLACE = {"/here": (4, 7)}


def unfinished(created: float, container_id: str = "c1", **more: Any) -> Record:
    path = f"/cache/{container_id}"
    record = attached(CHAIN, replace(HERE, container_id=container_id), state=PENDING, result=None, path=path)
    return replace(record, created=created, **{"netns_id": (4, 7), **more})


@pytest.mark.parametrize(("mine", "theirs", "netns"), [(1.0, 2.0, ""), (2.0, 1.0, "/here")])
def test_of_two_adds_that_did_not_end_the_later_one_has_the_interface(mine: float, theirs: float, netns: str) -> None:
    node = RecordingNode(
        records=[unfinished(mine), unfinished(theirs, "c2")], namespaces=PLACE, interfaces=[("/here", "eth0")]
    )
    assert delete(node, CHAIN, RuntimeConf("c1", None, "eth0")).netns == netns


@pytest.mark.parametrize(("created", "result", "netns"), [(None, "{}", ""), (None, None, "/here")])
def test_what_go_attached_has_the_interface(created: None, result: str | None, netns: str) -> None:
    theirs = replace(unfinished(1.0, "c2"), created=created, result=result)
    node = RecordingNode(records=[unfinished(1.0), theirs], namespaces=PLACE, interfaces=[("/here", "eth0")])
    assert delete(node, CHAIN, RuntimeConf("c1", None, "eth0")).netns == netns


@pytest.mark.parametrize("is_shared", [True, False])
def test_without_a_record_any_record_of_the_interface_counts(*, is_shared: bool) -> None:
    node = RecordingNode(
        records=[unfinished(1.0, "c2", is_shared=is_shared)], namespaces=PLACE, interfaces=[("/here", "eth0")]
    )
    with pytest.raises(NamespaceMismatchError):
        delete(node, CHAIN, HERE)
    assert node.calls == []


@pytest.mark.parametrize(
    "theirs",
    [
        unfinished(2.0, "c2", netns_id=(4, 8)),
        unfinished(2.0, "c2", state=STALE_BOOT),
        unfinished(2.0, "c2", ifname="eth1"),
        unfinished(2.0, "c2", ifindex=9),
        unfinished(2.0, "c2", is_shared=True),
    ],
    ids=["another namespace", "another boot", "another name", "another interface", "shared"],
)
def test_a_record_of_something_else_does_not_count(theirs: Record) -> None:
    node = RecordingNode(records=[unfinished(1.0), theirs], namespaces=PLACE, interfaces=[("/here", "eth0")])
    assert delete(node, CHAIN, RuntimeConf("c1", None, "eth0")).netns == "/here"


def test_records_that_cannot_be_listed_never_stop_a_del() -> None:
    node = RecordingNode({"list": RecordError("no")}, namespaces=PLACE, interfaces=[("/here", "eth0")])
    report = delete(node, CHAIN, HERE)
    assert (report.netns, [one.state for one in report.plugins]) == ("", ["done", "done"])


def test_a_path_that_is_no_namespace_is_no_dead_end() -> None:
    """Plugins refuse such a path. The last try has none."""
    wrong = attached(CHAIN, RuntimeConf("c1", "/wrong", "eth0"), state=PENDING, result=None, netns_id=(1, 2))
    namespaces = {"/wrong": (1, 2), "/right": (3, 4)}
    node = RecordingNode({("DEL", "b"): failed()}, records=[wrong], namespaces=namespaces, not_namespaces=["/wrong"])
    with pytest.raises(PluginError):
        delete(node, CHAIN, RuntimeConf("c1", None, "eth0"))
    assert [call.env["CNI_NETNS"] for call in node.calls][-2:] == ["/wrong", ""]
    node = RecordingNode(records=[wrong], namespaces=namespaces, not_namespaces=["/wrong"])
    delete(node, CHAIN, RuntimeConf("c1", "/right", "eth0"))
    assert {call.env["CNI_NETNS"] for call in node.calls} == {""}
    assert node.recorded == {}


def test_a_clock_that_was_set_back_does_not_change_which_add_was_later() -> None:
    records = [unfinished(2.0, uptime=10.0), unfinished(1.0, "c2", uptime=20.0)]
    node = RecordingNode(records=records, namespaces=PLACE, interfaces=[("/here", "eth0")])
    assert delete(node, CHAIN, RuntimeConf("c1", None, "eth0")).netns == ""
