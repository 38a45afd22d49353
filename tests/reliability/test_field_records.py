"""Rows of field.md about attachments and their records. The number is the row's."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

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
from libcni.store import record
from libcni.testing import network_namespace, why_no_namespaces
from libcni.verbs import node as drive
from reliability.shell import RT, Shell

C2 = RuntimeConf("c2", None, "eth0")


def names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


def failing(shell: Shell, verb: str = "ADD") -> str:
    return f"[ $CNI_COMMAND = {verb} ] && exit 1"


def test_field_01_a_record_is_durable_before_it_gets_its_name(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("libcni.store.files._is_ordered", lambda *_: False)  # ext4: tests/store/test_power_cut.py
    shell.plugin("a")
    shell.client().add_network_list(shell.network("a"), RuntimeConf("c0", None, "eth0"))  # makes the directories
    done: list[str] = []
    for name in ("fsync", "link", "rename"):
        real = getattr(os, name)

        def wrapped(*args: Any, _name: str = name, _real: Any = real, **options: Any) -> Any:
            done.append(_name)
            return _real(*args, **options)

        monkeypatch.setattr(os, name, wrapped)
    shell.client(durable=True).add_network_list(shell.network("a"), RT)
    assert done == ["fsync", "link", "fsync", "fsync", "rename"], "the second fsync syncs the directory"
    done.clear()
    shell.client(durable=False).add_network_list(shell.network("a"), C2)
    assert done == ["link", "rename"]


def test_field_03_a_failed_add_is_rolled_back(shell: Shell) -> None:
    shell.plugin("ipam", f"[ $CNI_COMMAND = ADD ] && touch {shell.root}/address || rm -f {shell.root}/address")
    shell.plugin("breaks", failing(shell))
    net, cni = shell.network("ipam", "breaks"), shell.client()
    for _ in range(3):
        with pytest.raises(PluginError) as raised:
            cni.add_network_list(net, RT)
        assert raised.value.rollback_errors == ()
    assert shell.calls()[:4] == ["ADD ipam", "ADD breaks", "DEL breaks", "DEL ipam"]
    assert not (shell.root / "address").exists()
    assert shell.states() == []


def test_field_03_the_record_stays_where_the_roll_back_fails(shell: Shell) -> None:
    shell.plugin("ipam", failing(shell, "DEL"))
    shell.plugin("breaks", failing(shell))
    net, cni = shell.network("ipam", "breaks"), shell.client()
    with pytest.raises(PluginError) as raised:
        cni.add_network_list(net, RT)
    assert (raised.value.plugin, raised.value.verb) == ("breaks", "ADD")
    (undone,) = raised.value.rollback_errors
    assert isinstance(undone, PluginError)
    assert (undone.plugin, undone.verb) == ("ipam", "DEL")
    assert any("when it was rolled back" in note for note in raised.value.__notes__)
    assert shell.states() == ["pending"]
    shell.plugin("ipam")
    cni.gc_network_list(net, [])
    assert shell.states() == []


def test_field_08_a_crash_after_add_leaves_what_del_and_gc_find(shell: Shell) -> None:
    """The record is there before the first plugin runs."""
    shell.plugin("a", f"[ $CNI_COMMAND = ADD ] && ls {shell.results} > {shell.root}/seen")
    cni = shell.client()
    cni.add_network_list(shell.network("a"), RT)
    assert (shell.root / "seen").read_text() == "net-c1-eth0\n"
    (one,) = cni.get_cached_attachments()
    assert json.loads(Path(one.path).read_text())["libcni"]["state"] == "ready"
    assert cni.del_attachment(one).record == "found"
    assert shell.states() == []


def test_field_18_gc_goes_on_over_errors_and_tells_them_all(shell: Shell) -> None:
    shell.plugin("a")
    shell.plugin("b")
    net, cni = shell.network("a", "b", version="1.1.0"), shell.client()
    for rt in (RT, C2):
        cni.add_network_list(net, rt)
    shell.plugin("b", "[ $CNI_COMMAND = DEL ] && [ $CNI_CONTAINERID = c1 ] && exit 1; [ $CNI_COMMAND = GC ] && exit 1")
    with pytest.raises(CNIErrorGroup) as raised:
        cni.gc_network_list(net, [])
    assert [getattr(error, "verb", "") for error in raised.value.exceptions] == ["DEL", "GC"]
    assert shell.calls()[-2:] == ["GC a", "GC b"]
    assert [one.container_id for one in cni.get_cached_attachments()] == ["c1"]


def test_field_18_gc_does_not_hide_that_the_records_cannot_be_listed(shell: Shell) -> None:
    shell.plugin("a")
    shell.cache.mkdir(parents=True)
    (shell.cache / "results").symlink_to("/etc")
    with pytest.raises(RecordError):
        shell.client().gc_network_list(shell.network("a", version="1.1.0"), [])
    assert shell.calls() == []


def test_field_19_gc_needs_an_explicit_set(shell: Shell) -> None:
    shell.plugin("a")
    net, cni = shell.network("a", version="1.1.0"), shell.client()
    cni.add_network_list(net, RT)
    cni.add_network_list(net, C2)
    with pytest.raises(TypeError):
        cni.gc_network_list(net, None)  # type: ignore[arg-type]
    assert [one.container_id for one in cni.gc_network_list(net, [("c1", "eth0")], dry_run=True).stale] == ["c2"]
    assert shell.calls() == ["ADD a", "ADD a"]
    cni.gc_network_list(net, [])
    assert json.loads(shell.stdin("a"))["cni.dev/valid-attachments"] == []
    assert shell.states() == []


@pytest.mark.parametrize("version", ["0.1.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"])
def test_field_20_gc_detaches_at_every_spec_version(shell: Shell, version: str) -> None:
    shell.plugin("a", result=json.dumps({"cniVersion": version}))
    net, cni = shell.network("a", version=version), shell.client()
    cni.add_network_list(net, RT)
    cni.gc_network_list(net, [])
    assert shell.calls() == ["ADD a", "DEL a", *(["GC a"] if version == "1.1.0" else [])]
    assert shell.states() == []


def test_field_21_records_from_before_a_reboot_are_told_apart(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.plugin("a")
    net, cni = shell.network("a"), shell.client()
    cni.add_network_list(net, RuntimeConf("c1", "/run/netns/gone", "eth0"))
    cni.add_network_list(net, RuntimeConf("c2", "/run/netns/gone", "eth0"))
    for module in (record, drive):
        monkeypatch.setattr(module, "boot_id", lambda: "after-the-reboot")
    assert shell.states() == ["stale-boot", "stale-boot"]
    (shell.bin / "a").write_text(f'#!/bin/sh\necho "$CNI_COMMAND <$CNI_NETNS>" >> {shell.root}/seen\necho {{}}')
    cni.add_network_list(net, RuntimeConf("c1", "/run/netns/new", "eth0"))
    assert (shell.root / "seen").read_text().splitlines() == ["DEL <>", "ADD </run/netns/new>"]
    assert {one.container_id: one.state for one in cni.get_cached_attachments()} == {
        "c2": "stale-boot",
        "c1": "ready",
    }
    cni.gc_network_list(net, [])
    assert shell.states() == []


@pytest.mark.skipif(why_no_namespaces() is not None, reason="no network namespaces here")
def test_a_record_of_another_namespace_is_detached_first(shell: Shell) -> None:
    shell.plugin("a")
    net, cni = shell.network("a"), shell.client()
    with network_namespace() as first, network_namespace() as second:
        cni.add_network_list(net, RuntimeConf("c1", first.path, "eth0"))
        (one,) = cni.get_cached_attachments()
        status = os.stat(first.path)
        assert one.record.netns_id == (status.st_dev, status.st_ino)
        with pytest.raises(AttachmentExistsError):
            cni.add_network_list(net, RuntimeConf("c1", first.path, "eth0"))
        cni.add_network_list(net, RuntimeConf("c1", second.path, "eth0"), on_existing="replace")
    assert shell.calls() == ["ADD a", "DEL a", "ADD a"]
    cni.add_network_list(net, RuntimeConf("c1", "/run/netns/third", "eth0"))
    assert shell.calls()[3:] == ["DEL a", "ADD a"], "its namespace has gone"


@pytest.mark.parametrize("make", ["file", "link"])
def test_field_22_an_unwritable_cache_stops_add_before_anything_runs(shell: Shell, make: str) -> None:
    shell.plugin("a")
    shell.cache.mkdir(parents=True)
    if make == "file":
        (shell.cache / "results").touch()
    else:
        (shell.cache / "results").symlink_to(shell.root)
    with pytest.raises(RecordError, match="cannot be"):
        shell.client().add_network_list(shell.network("a"), RT)
    assert shell.calls() == []
    shell.client().del_network_list(shell.network("a"), RT)
    assert shell.calls() == ["DEL a"]


HOSTILE = ["../../x", "..", ".", "", "/etc/passwd", "x/../../../victim", "a b", "a\n", "a\0", "é", "-a", "a" * 3 + "/"]


@pytest.mark.parametrize("value", HOSTILE)
def test_field_24_a_hostile_container_id_touches_nothing_on_any_verb(shell: Shell, value: str) -> None:
    shell.plugin("a")
    net, cni = shell.network("a", version="1.1.0"), shell.client()
    cni.add_network_list(net, RT)
    victims = [shell.root / "x", shell.cache / "x", shell.root / "victim"]
    for victim in victims:
        victim.write_text("precious")
    (shell.results / "net-x").mkdir()  # what x/../../../victim needs to get out
    before = {path: path.stat().st_mtime_ns for path in shell.cache.rglob("*") if path.name != "locks"}
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
    assert {path: path.stat().st_mtime_ns for path in shell.cache.rglob("*") if path.name != "locks"} == before
    assert shell.calls() == ["ADD a"]


@pytest.mark.parametrize("name", ["../../x", "", "a/b", "..", "a\n"])
def test_field_24_a_hostile_network_name_or_type(shell: Shell, name: str) -> None:
    for document in (
        {"cniVersion": "1.0.0", "name": name, "plugins": [{"type": "a"}]},
        {"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": name if name != "a\n" else "a/\n"}]},
    ):
        with pytest.raises(CNIError):
            NetworkConfigList.from_dict(document)
    cni = shell.client(conf_dir=shell.root)
    for work in (cni.add_network_list, cni.check_network_list, cni.del_network_list):
        with pytest.raises(CNIError):
            work(name, RT)


def test_field_24_a_hostile_record_is_corrupt(shell: Shell) -> None:
    """Somebody who can write records cannot make DEL or GC leave the directory, nor reach a plugin with such an ID."""
    shell.plugin("a")
    net, cni = shell.network("a"), shell.client()
    cni.add_network_list(net, RT)
    document = json.loads((shell.results / "net-c1-eth0").read_text())
    for key, value in (("containerId", "../../x"), ("networkName", "../x"), ("ifName", "a/b"), ("netns", "a\0b")):
        (shell.results / f"evil-{key}").write_text(json.dumps({**document, key: value}))
    (shell.results / "evil-link").symlink_to("/etc/passwd")
    assert shell.states().count("corrupt") == 5
    report = cni.gc_network_list(net, [])
    assert len(report.corrupt) == 5
    assert shell.calls() == ["ADD a", "DEL a"]
    assert Path("/etc/passwd").exists()


def test_files_are_for_this_user_alone(shell: Shell) -> None:
    shell.plugin("a")
    old = os.umask(0)
    try:
        shell.client().add_network_list(shell.network("a"), RT)
        (shell.results / "torn").write_bytes(b"")
        repair_records(shell.cache)
    finally:
        os.umask(old)
    modes = {
        path.relative_to(shell.cache).as_posix(): stat.S_IMODE(path.stat().st_mode) for path in shell.cache.rglob("*")
    }
    aside = next(name for name in modes if name.startswith("corrupt/"))
    del modes[aside]
    assert stat.S_IMODE(shell.cache.stat().st_mode) == 0o700
    assert modes == {"locks": 0o600, "results": 0o700, "tmp": 0o700, "corrupt": 0o700, "results/net-c1-eth0": 0o600}


@pytest.mark.parametrize("where", ["tmp", "corrupt", "results"])
def test_no_symbolic_link_is_followed_in_the_record_directories(shell: Shell, where: str) -> None:
    shell.plugin("a")
    elsewhere = shell.root / "elsewhere"
    elsewhere.mkdir(parents=True)
    (elsewhere / "precious").touch()
    shell.cache.mkdir()
    (shell.cache / where).symlink_to(elsewhere)
    cni = shell.client()
    if where == "corrupt":
        (shell.cache / "results").mkdir(mode=0o700)
        (shell.cache / "results" / "net-c1-eth0").write_bytes(b"")
    with pytest.raises(RecordError):
        cni.add_network_list(shell.network("a"), RT)
    cni.del_network_list(shell.network("a"), RT)
    assert names(elsewhere) == ["precious"]


def test_a_record_that_is_a_link_is_not_followed(shell: Shell) -> None:
    shell.plugin("a")
    cni = shell.client()
    shell.results.mkdir(parents=True, mode=0o700)
    target = shell.root / "target"
    target.write_text("precious")
    (shell.results / "net-c1-eth0").symlink_to(target)
    cni.add_network_list(shell.network("a"), RT)
    assert target.read_text() == "precious"
    assert not (shell.results / "net-c1-eth0").is_symlink()
    assert shell.states() == ["ready"]


@pytest.mark.parametrize("length", [100, 200, 240, 247, 248, 255, 256, 1000])
def test_field_25_names_of_any_length(shell: Shell, length: int) -> None:
    shell.plugin("a")
    cni = shell.client()
    for char in "xy":
        rt = RuntimeConf(char * length, None, "eth0")
        cni.add_network_list(shell.network("a"), rt)
        assert [one.container_id for one in cni.get_cached_attachments(char * length)] == [char * length]
    for char in "xy":
        cni.del_network_list(shell.network("a"), RuntimeConf(char * length, None, "eth0"))
    assert names(shell.results) == []


def test_field_45_a_second_add_is_refused_before_anything_runs(shell: Shell) -> None:
    shell.plugin("a")
    cni = shell.client()
    cni.add_network_list(shell.network("a"), RT)
    for name in ("net", "other"):
        with pytest.raises(AttachmentExistsError) as raised:
            cni.add_network_list(shell.network("a", name=name), RT)
        assert (raised.value.network, raised.value.ifname) == ("net", "eth0")
    assert shell.calls() == ["ADD a"]
    cni.add_network_list(shell.network("a", name="other"), RT, on_existing="replace")
    assert shell.calls() == ["ADD a", "DEL a", "ADD a"]
    assert [one.network for one in cni.get_cached_attachments()] == ["other"]
    cni.add_network_list(shell.network("a"), RT, on_existing="allow")
    assert shell.calls()[3:] == ["ADD a"]
    assert {one.network for one in cni.get_cached_attachments()} == {"net", "other"}


def test_a_record_made_by_go_whose_arguments_cannot_be_carried_is_detached(shell: Shell) -> None:
    shell.plugin("a", f'echo "<$CNI_ARGS>" > {shell.root}/args')
    net, cni = shell.network("a"), shell.client()
    cni.add_network_list(net, RT)
    path = shell.results / "net-c1-eth0"
    document = json.loads(path.read_text())
    del document["libcni"]
    path.write_text(json.dumps({**document, "cniArgs": [["K", "a;b"]], "capabilityArgs": {"mac": "x"}}))
    cni.del_network_list("net", RT)
    assert (shell.root / "args").read_text() == "<>\n"
    assert shell.states() == []
