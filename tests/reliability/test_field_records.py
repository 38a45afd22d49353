"""Rows of field.md about attachments and their records. The number is the row's."""

from __future__ import annotations

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


def names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


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
