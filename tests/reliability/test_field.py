"""Rows of field.md about records and about running plugins. The number in a test's name is the row's."""

from __future__ import annotations

import os
import resource
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from helpers import RT
from nodes import FakeNode
from processes import is_running

from libcni import InvalidIdentifierError, InvalidOutputError, PluginTimeoutError, RecordError, RuntimeConf
from libcni.testing import wait_until


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
    before = {path: path.stat().st_mtime_ns for path in node.cache.rglob("*") if not path.name.startswith("locks")}
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
    assert {
        path: path.stat().st_mtime_ns for path in node.cache.rglob("*") if not path.name.startswith("locks")
    } == before
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


def seconds_of(work: Any, *args: Any, **options: Any) -> float:
    """Return how long a verb takes that is stopped at its deadline."""
    started = time.monotonic()
    with pytest.raises(PluginTimeoutError):
        work(*args, **options)
    return time.monotonic() - started


def gone(pid_file: Path) -> bool:
    return not is_running(int(pid_file.read_text()))


def test_field_02_a_grandchild_that_prints_on_delays_nothing(node: FakeNode) -> None:
    node.plugin("starts", f"[ $CNI_COMMAND = DEL ] && {{ yes & echo $! > {node.root}/pid; }}; exit 0")
    node.client().del_network_list(node.network("starts"), RT, timeout=20)
    wait_until(lambda: gone(node.root / "pid"))  # of SIGPIPE


def test_field_02_there_is_a_deadline_by_default_and_one_for_each_plugin(node: FakeNode) -> None:
    node.plugin("hangs", "sleep 120")
    node.plugin("slow", "sleep 0.2")
    assert node.client()._settings.timeout == 60.0
    cni = node.client(plugin_timeout=0.4, timeout=30)
    assert 0.3 < seconds_of(cni.add_network_list, node.network("hangs"), RT, rollback=False) < 20
    whole = node.client(timeout=0.5, cleanup_timeout=5)
    assert seconds_of(whole.add_network_list, node.network("slow", "slow", "slow"), RuntimeConf("c3", None, "e")) > 0.5


@pytest.mark.parametrize("timeout", [1e7, 1e10, None])
def test_field_02_very_long_deadlines(node: FakeNode, timeout: float | None) -> None:
    node.client().add_network_list(node.network("a"), RT, timeout=timeout)


def test_field_02_a_deadline_that_is_over_runs_nothing(node: FakeNode) -> None:
    with pytest.raises(PluginTimeoutError):
        node.client().del_network_list(node.network("a"), RT, timeout=1e-9)
    assert node.verbs() == []


@pytest.mark.parametrize("stream", ["", ">&2"])
def test_a_plugin_that_prints_without_end_is_stopped(node: FakeNode, stream: str) -> None:
    node.plugin("floods", f"[ $CNI_COMMAND = ADD ] || exit 0; yes {stream}")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    name = "stderr" if stream else "stdout"
    with pytest.raises(InvalidOutputError, match=f"more than 16,777,216 bytes on {name}, and was stopped") as raised:
        node.client().add_network_list(node.network("floods"), RT, timeout=3)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < 80, "the memory has grown by so many MiB"
    assert len(raised.value.stdout) + len(raised.value.stderr) < 300_000


def test_field_50_containers_in_parallel_and_no_daemon(node: FakeNode) -> None:
    running = node.root / "running"
    running.mkdir()
    node.plugin("slow", f"touch {running}/$CNI_CONTAINERID; until [ $(ls {running} | wc -l) = 8 ]; do sleep 0.02; done")
    net, cni = node.network("slow"), node.client(timeout=20, cleanup_timeout=1)
    threads = [
        threading.Thread(target=cni.add_network_list, args=(net, RuntimeConf(f"c{number}", None, "eth0")))
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert node.states() == ["ready"] * 8, "each waited until all of them ran"
