"""Rows of field.md about attachments and their records. The number is the row's."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from helpers import RT
from nodes import FakeNode

from libcni import (
    InvalidIdentifierError,
    RecordError,
    RuntimeConf,
)
from libcni.store import record
from libcni.verbs import node as verbs_node


def names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


def test_field_08_a_crash_after_add_leaves_what_del_and_gc_find(node: FakeNode) -> None:
    """The record is there before the first plugin runs."""
    node.plugin("a", f"[ $CNI_COMMAND = ADD ] && ls {node.results} > {node.root}/seen")
    cni = node.client()
    cni.add_network_list(node.network("a"), RT)
    assert (node.root / "seen").read_text() == "net-c1-eth0\n"
    (one,) = cni.get_cached_attachments()
    assert json.loads(Path(one.path).read_text())["libcni"]["state"] == "ready"
    assert cni.del_attachment(one).record == "found"
    assert node.states() == []


def test_field_21_records_from_before_a_reboot_are_told_apart(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    net, cni = node.network("a"), node.client()
    cni.add_network_list(net, RuntimeConf("c1", "/run/netns/gone", "eth0"))
    cni.add_network_list(net, RuntimeConf("c2", "/run/netns/gone", "eth0"))
    for module in (record, verbs_node):
        monkeypatch.setattr(module, "boot_id", lambda: "after-the-reboot")
    assert node.states() == ["stale-boot", "stale-boot"]
    (node.bin / "a").write_text(f'#!/bin/sh\necho "$CNI_COMMAND <$CNI_NETNS>" >> {node.root}/seen\necho {{}}')
    cni.add_network_list(net, RuntimeConf("c1", "/run/netns/new", "eth0"))
    assert (node.root / "seen").read_text().splitlines() == ["DEL <>", "ADD </run/netns/new>"]
    assert {one.container_id: one.state for one in cni.get_cached_attachments()} == {
        "c2": "stale-boot",
        "c1": "ready",
    }
    cni.gc_network_list(net, [])
    assert node.states() == []


@pytest.mark.parametrize("make", ["file", "link"])
def test_field_22_an_unwritable_cache_stops_add_before_anything_runs(node: FakeNode, make: str) -> None:
    node.cache.mkdir(parents=True)
    if make == "file":
        (node.cache / "results").touch()
    else:
        (node.cache / "results").symlink_to(node.root)
    with pytest.raises(RecordError, match="cannot be"):
        node.client().add_network_list(node.network("a"), RT)
    assert node.verbs() == []
    node.client().del_network_list(node.network("a"), RT)
    assert node.verbs() == ["DEL a"]


HOSTILE = ["../../x", "..", ".", "", "/etc/passwd", "x/../../../victim", "a b", "a\n", "a\0", "é", "-a", "a" * 3 + "/"]


@pytest.mark.parametrize("value", HOSTILE)
def test_field_24_a_hostile_container_id_touches_nothing_on_any_verb(node: FakeNode, value: str) -> None:
    net, cni = node.network("a", cniVersion="1.1.0"), node.client()
    cni.add_network_list(net, RT)
    victims = [node.root / "x", node.cache / "x", node.root / "victim"]
    for victim in victims:
        victim.write_text("precious")
    (node.results / "net-x").mkdir()  # what x/../../../victim needs to get out
    before = {path: path.stat().st_mtime_ns for path in node.cache.rglob("*") if path.name != "locks"}
    rt = RuntimeConf(value, None, "eth0")
    for work in (
        lambda: cni.add_network_list(net, rt),
        lambda: cni.check_network_list(net, rt),
        lambda: cni.del_network_list(net, rt),
        lambda: cni.gc_network_list(net, [(value, "eth0")]),
        lambda: cni.get_network_list_cached_result(net, rt),
        lambda: cni.get_cached_attachments(value),
    ):
        with pytest.raises(InvalidIdentifierError):
            work()
    assert [victim.read_text() for victim in victims] == ["precious"] * 3
    assert {path: path.stat().st_mtime_ns for path in node.cache.rglob("*") if path.name != "locks"} == before
    assert node.verbs() == ["ADD a"]


def test_field_24_a_hostile_record_is_corrupt(node: FakeNode) -> None:
    """Somebody who can write records cannot make DEL or GC leave the directory, nor reach a plugin with such an ID."""
    net, cni = node.network("a"), node.client()
    cni.add_network_list(net, RT)
    document = json.loads((node.results / "net-c1-eth0").read_text())
    for key, value in (("containerId", "../../x"), ("networkName", "../x"), ("ifName", "a/b"), ("netns", "a\0b")):
        (node.results / f"net-evil-{key}").write_text(json.dumps({**document, key: value}))
    (node.results / "net-evil-link").symlink_to("/etc/passwd")
    assert node.states().count("corrupt") == 5
    report = cni.gc_network_list(net, [])
    assert len(report.corrupt) == 5
    assert node.verbs() == ["ADD a", "DEL a"]
    assert Path("/etc/passwd").exists()


@pytest.mark.parametrize("where", ["tmp", "corrupt", "results"])
def test_no_symbolic_link_is_followed_in_the_record_directories(node: FakeNode, where: str) -> None:
    elsewhere = node.root / "elsewhere"
    elsewhere.mkdir(parents=True)
    (elsewhere / "precious").touch()
    node.cache.mkdir()
    (node.cache / where).symlink_to(elsewhere)
    cni = node.client()
    if where == "corrupt":
        (node.cache / "results").mkdir(mode=0o700)
        (node.cache / "results" / "net-c1-eth0").write_bytes(b"")
    with pytest.raises(RecordError):
        cni.add_network_list(node.network("a"), RT)
    cni.del_network_list(node.network("a"), RT)
    assert names(elsewhere) == ["precious"]


def test_a_record_that_is_a_link_is_not_followed(node: FakeNode) -> None:
    cni = node.client()
    node.results.mkdir(parents=True, mode=0o700)
    target = node.root / "target"
    target.write_text("precious")
    (node.results / "net-c1-eth0").symlink_to(target)
    cni.add_network_list(node.network("a"), RT)
    assert target.read_text() == "precious"
    assert not (node.results / "net-c1-eth0").is_symlink()
    assert node.states() == ["ready"]


@pytest.mark.parametrize("length", [100, 200, 240, 247, 248, 255, 256, 1000])
def test_field_25_names_of_any_length(node: FakeNode, length: int) -> None:
    cni = node.client()
    for char in "xy":
        rt = RuntimeConf(char * length, None, "eth0")
        cni.add_network_list(node.network("a"), rt)
        assert [one.container_id for one in cni.get_cached_attachments(char * length)] == [char * length]
    for char in "xy":
        cni.del_network_list(node.network("a"), RuntimeConf(char * length, None, "eth0"))
    assert names(node.results) == []
