"""Rows of field.md about attachments and their records. The number is the row's."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from helpers import RT
from nodes import FakeNode

from libcni import (
    AttachmentExistsError,
    CNIError,
    CNIErrorGroup,
    InvalidIdentifierError,
    NetworkConfigList,
    PluginError,
    RecordError,
    RuntimeConf,
    repair_records,
)
from libcni import _system as system
from libcni.store import record
from libcni.testing import network_namespace, why_no_namespaces
from libcni.verbs import node as verbs_node

C2 = RuntimeConf("c2", None, "eth0")


def names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


def failing(node: FakeNode, verb: str = "ADD") -> str:
    return f"[ $CNI_COMMAND = {verb} ] && exit 1"


def test_field_01_a_record_is_durable_before_it_gets_its_name(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("libcni.store.files._is_ordered", lambda *_: False)  # ext4: tests/store/test_power_cut.py
    node.client().add_network_list(node.network("a"), RuntimeConf("c0", None, "eth0"))  # makes the directories
    done: list[str] = []
    for name in ("fsync", "link", "rename"):
        real = getattr(os, name)

        def wrapped(*args: Any, _name: str = name, _real: Any = real, **options: Any) -> Any:
            done.append(_name)
            return _real(*args, **options)

        monkeypatch.setattr(system, name, wrapped)
    node.client(durable=True).add_network_list(node.network("a"), RT)
    assert done == ["fsync", "link", "fsync", "fsync", "rename"], "the second fsync syncs the directory"
    done.clear()
    node.client(durable=False).add_network_list(node.network("a"), C2)
    assert done == ["link", "rename"]


def test_field_03_a_failed_add_is_rolled_back(node: FakeNode) -> None:
    node.plugin("ipam", f"[ $CNI_COMMAND = ADD ] && touch {node.root}/address || rm -f {node.root}/address")
    node.plugin("breaks", failing(node))
    net, cni = node.network("ipam", "breaks"), node.client()
    for _ in range(3):
        with pytest.raises(PluginError) as raised:
            cni.add_network_list(net, RT)
        assert raised.value.rollback_errors == ()
    assert node.verbs()[:4] == ["ADD ipam", "ADD breaks", "DEL breaks", "DEL ipam"]
    assert not (node.root / "address").exists()
    assert node.states() == []


def test_field_03_the_record_stays_where_the_roll_back_fails(node: FakeNode) -> None:
    node.plugin("ipam", failing(node, "DEL"))
    node.plugin("breaks", failing(node))
    net, cni = node.network("ipam", "breaks"), node.client()
    with pytest.raises(PluginError) as raised:
        cni.add_network_list(net, RT)
    assert (raised.value.plugin, raised.value.verb) == ("breaks", "ADD")
    (undone,) = raised.value.rollback_errors
    assert isinstance(undone, PluginError)
    assert (undone.plugin, undone.verb) == ("ipam", "DEL")
    assert "; the roll-back failed, and the record stays pending: " in str(raised.value)
    assert node.states() == ["pending"]
    node.plugin("ipam")
    cni.gc_network_list(net, [])
    assert node.states() == []


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


def test_field_18_gc_goes_on_over_errors_and_tells_them_all(node: FakeNode) -> None:
    net, cni = node.network("a", "b", cniVersion="1.1.0"), node.client()
    for rt in (RT, C2):
        cni.add_network_list(net, rt)
    node.plugin("b", "[ $CNI_COMMAND = DEL ] && [ $CNI_CONTAINERID = c1 ] && exit 1; [ $CNI_COMMAND = GC ] && exit 1")
    with pytest.raises(CNIErrorGroup) as raised:
        cni.gc_network_list(net, [])
    assert [getattr(error, "verb", "") for error in raised.value.exceptions] == ["DEL", "GC"]
    assert node.verbs()[-2:] == ["GC a", "GC b"]
    assert [one.container_id for one in cni.get_cached_attachments()] == ["c1"]


def test_field_18_gc_does_not_hide_that_the_records_cannot_be_listed(node: FakeNode) -> None:
    node.cache.mkdir(parents=True)
    (node.cache / "results").symlink_to("/etc")
    with pytest.raises(RecordError):
        node.client().gc_network_list(node.network("a", cniVersion="1.1.0"), [])
    assert node.verbs() == []


def test_field_19_gc_needs_an_explicit_set(node: FakeNode) -> None:
    net, cni = node.network("a", cniVersion="1.1.0"), node.client()
    cni.add_network_list(net, RT)
    cni.add_network_list(net, C2)
    with pytest.raises(TypeError):
        cni.gc_network_list(net, None)  # type: ignore[arg-type]
    assert [one.container_id for one in cni.gc_network_list(net, [("c1", "eth0")], dry_run=True).stale] == ["c2"]
    assert node.verbs() == ["ADD a", "ADD a"]
    cni.gc_network_list(net, [])
    assert node.last_call("a").config["cni.dev/valid-attachments"] == []
    assert node.states() == []


@pytest.mark.parametrize("version", ["0.1.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"])
def test_field_20_gc_detaches_at_every_spec_version(node: FakeNode, version: str) -> None:
    node.plugin("a", result=json.dumps({"cniVersion": version}))
    net, cni = node.network("a", cniVersion=version), node.client()
    cni.add_network_list(net, RT)
    cni.gc_network_list(net, [])
    assert node.verbs() == ["ADD a", "DEL a", *(["GC a"] if version == "1.1.0" else [])]
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


@pytest.mark.skipif(why_no_namespaces() is not None, reason="no network namespaces here")
def test_a_record_of_another_namespace_is_detached_first(node: FakeNode) -> None:
    net, cni = node.network("a"), node.client()
    with network_namespace() as first, network_namespace() as second:
        cni.add_network_list(net, RuntimeConf("c1", first.path, "eth0"))
        (one,) = cni.get_cached_attachments()
        status = os.stat(first.path)
        assert one.record.netns_id == (status.st_dev, status.st_ino)
        with pytest.raises(AttachmentExistsError):
            cni.add_network_list(net, RuntimeConf("c1", first.path, "eth0"))
        cni.add_network_list(net, RuntimeConf("c1", second.path, "eth0"), on_existing="replace")
    assert node.verbs() == ["ADD a", "DEL a", "ADD a"]
    cni.add_network_list(net, RuntimeConf("c1", "/run/netns/third", "eth0"))
    assert node.verbs()[3:] == ["DEL a", "ADD a"], "its namespace has gone"


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


@pytest.mark.parametrize("name", ["../../x", "", "a/b", "..", "a\n"])
def test_field_24_a_hostile_network_name_or_type(node: FakeNode, name: str) -> None:
    for document in (
        {"cniVersion": "1.0.0", "name": name, "plugins": [{"type": "a"}]},
        {"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": name if name != "a\n" else "a/\n"}]},
    ):
        with pytest.raises(CNIError):
            NetworkConfigList.from_dict(document)
    cni = node.client(conf_dir=node.root)
    for work in (cni.add_network_list, cni.check_network_list, cni.del_network_list):
        with pytest.raises(CNIError):
            work(name, RT)


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


def test_files_are_for_this_user_alone(node: FakeNode) -> None:
    old = os.umask(0)
    try:
        node.client().add_network_list(node.network("a"), RT)
        (node.results / "torn").write_bytes(b"")
        repair_records(node.cache)
    finally:
        os.umask(old)
    modes = {
        path.relative_to(node.cache).as_posix(): stat.S_IMODE(path.stat().st_mode) for path in node.cache.rglob("*")
    }
    aside = next(name for name in modes if name.startswith("corrupt/"))
    del modes[aside]
    assert stat.S_IMODE(node.cache.stat().st_mode) == 0o700
    assert modes == {"locks": 0o600, "results": 0o700, "tmp": 0o700, "corrupt": 0o700, "results/net-c1-eth0": 0o600}


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


def test_field_45_a_second_add_is_refused_before_anything_runs(node: FakeNode) -> None:
    cni = node.client()
    cni.add_network_list(node.network("a"), RT)
    for name in ("net", "other"):
        with pytest.raises(AttachmentExistsError) as raised:
            cni.add_network_list(node.network("a", name=name), RT)
        assert (raised.value.network, raised.value.ifname) == ("net", "eth0")
    assert node.verbs() == ["ADD a"]
    cni.add_network_list(node.network("a", name="other"), RT, on_existing="replace")
    assert node.verbs() == ["ADD a", "DEL a", "ADD a"]
    assert [one.network for one in cni.get_cached_attachments()] == ["other"]
    cni.add_network_list(node.network("a"), RT, on_existing="allow")
    assert node.verbs()[3:] == ["ADD a"]
    assert {one.network for one in cni.get_cached_attachments()} == {"net", "other"}


def test_a_record_made_by_go_whose_arguments_cannot_be_carried_is_detached(node: FakeNode) -> None:
    node.plugin("a", f'echo "<$CNI_ARGS>" > {node.root}/args')
    net, cni = node.network("a"), node.client()
    cni.add_network_list(net, RT)
    path = node.results / "net-c1-eth0"
    document = json.loads(path.read_text())
    del document["libcni"]
    path.write_text(json.dumps({**document, "cniArgs": [["K", "a;b"]], "capabilityArgs": {"mac": "x"}}))
    cni.del_network_list("net", RT)
    assert (node.root / "args").read_text() == "<>\n"
    assert node.states() == []
