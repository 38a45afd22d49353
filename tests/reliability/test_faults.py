"""Faults of the node, each with what ADD, CHECK, DEL and GC then do."""

from __future__ import annotations

import errno
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from helpers import RESULT, RT
from nodes import FakeNode

from libcni import CNIConfig, CNIErrorGroup, NotAttachedError, PluginError, PluginTimeoutError, RecordError, RuntimeConf
from libcni.executor import child
from libcni.kernel import system
from libcni.reports import GCReport
from libcni.store import files as disk
from libcni.store import records
from libcni.testing import wait_until


def mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no mount: {done.stderr.strip()}")


@pytest.fixture
def small_disk(node: FakeNode) -> Iterator[Path]:
    """Make the cache directory a file system of its own, of 256 KiB and 60 files."""
    node.cache.mkdir(parents=True)
    mount("-t", "tmpfs", "-o", "size=256k,nr_inodes=60,mode=0700", "tmpfs", str(node.cache))
    yield node.cache
    subprocess.run(["umount", "-l", node.cache], check=True)


def fill_bytes(disk: Path) -> None:
    with (disk / "filler").open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass
    with pytest.raises(OSError, match="No space left"):
        (disk / "one more").write_bytes(bytes(9000))


def fill_files(disk: Path) -> None:
    with suppress(OSError):
        for number in range(1000):
            (disk / f"filler{number}").touch()
    with pytest.raises(OSError, match="No space left"):
        (disk / "one more").touch()


def attach(cni: CNIConfig, node: FakeNode) -> None:
    cni.add_network_list(node.network("a", cniVersion="1.1.0"), RT)


def assert_add_is_refused(cni: CNIConfig, node: FakeNode) -> None:
    before = node.verbs()
    with pytest.raises(RecordError):
        cni.add_network_list(node.network("a", cniVersion="1.1.0"), RuntimeConf("c2", None, "eth0"))
    assert node.verbs() == before, "nothing was run"


@pytest.mark.parametrize("fill", [fill_bytes, fill_files])
def test_disk_full(node: FakeNode, small_disk: Path, fill: Callable[[Path], None]) -> None:
    net, cni = node.network("a", cniVersion="1.1.0"), node.client(durable=True)
    attach(cni, node)
    cni.add_network_list(net, RuntimeConf("stale", None, "eth0"))
    fill(small_disk)
    assert_add_is_refused(cni, node)
    cni.check_network_list(net, RT)
    cni.del_network_list(net, RT)
    assert [one.container_id for one in cni.gc_network_list(net, []).detached] == ["stale"]
    assert node.states() == []
    assert node.verbs() == ["ADD a", "ADD a", "CHECK a", "DEL a", "DEL a", "GC a"]


def test_field_22_disk_full_while_the_plugins_run(node: FakeNode, small_disk: Path) -> None:
    """The record has no room for the result: all is rolled back, and DEL and repair find no half of it."""
    result = {**RESULT, "padding": "x" * 9000}
    filler = f"[ $CNI_COMMAND != ADD ] || head -c 300000 /dev/zero > {small_disk}/filler 2>&-"
    node.plugin("filler", filler, result=result)
    net, cni = node.network("a", "filler"), node.client(durable=True)
    with pytest.raises(RecordError, match="No space left"):
        cni.add_network_list(net, RT)
    assert node.verbs() == ["ADD a", "ADD filler", "DEL filler", "DEL a"]
    assert node.states() == []


def test_field_22_read_only_cache(node: FakeNode, small_disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    net, cni = node.network("a", cniVersion="1.1.0"), node.client()
    attach(cni, node)
    mount("-o", "remount,ro", str(small_disk))
    assert_add_is_refused(cni, node)
    cni.check_network_list(net, RT)
    report = cni.del_network_list(net, RT)
    assert (report.record, [one.state for one in report.plugins]) == ("found", ["done"])
    assert "goes on without locks" in caplog.text
    assert "the record cannot be removed" in caplog.text
    assert node.states() == ["ready"]
    with pytest.raises(RecordError, match="locks: the lock file cannot be opened: Read-only file system"):
        cni.gc_network_list(net, [])
    assert node.verbs() == ["ADD a", "CHECK a", "DEL a"]
    mount("-o", "remount,rw", str(small_disk))
    cni.gc_network_list(net, [])
    assert node.states() == []


def test_records_that_cannot_be_read(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As a bad sector, or a mode that somebody changed under a runtime that is not root, would make them."""
    net, cni = node.network("a", cniVersion="1.1.0"), node.client()
    attach(cni, node)
    other = RuntimeConf("c2", None, "eth0")
    cni.add_network_list(net, other)
    real = disk.open_file

    def bad_sector(name: str, directory: int, *, writable: bool = False) -> int:
        if "c1" in name:
            raise OSError(errno.EIO, "Input/output error")
        return real(name, directory, writable=writable)

    monkeypatch.setattr(records, "open_file", bad_sector)
    before = node.verbs()
    for refused in (lambda: cni.add_network_list(net, RT), lambda: cni.check_network_list(net, RT)):
        with pytest.raises(RecordError, match="Input/output error"):
            refused()
    assert node.verbs() == before
    assert [(one.container_id, one.state) for one in cni.get_cached_attachments()] == [("", "corrupt"), ("c2", "ready")]
    with pytest.raises(CNIErrorGroup) as caught:
        cni.gc_network_list(net, [])
    report = caught.value.report
    assert isinstance(report, GCReport)
    assert [one.problem for one in report.corrupt] != []
    assert [one.container_id for one in report.detached] == ["c2"]
    assert report.plugins == (), "the container of the unreadable record may live"
    with pytest.raises(RecordError, match="the namespace of the attachment is not known"):
        cni.del_network_list(net, RuntimeConf("c1", None, "eth0"))
    assert cni.del_network_list(net, RT).record == "unreadable"
    assert "DEL goes on without a record" in caplog.text


@pytest.mark.parametrize("content", [b"", b"\0" * 300, b'{"kind":"cniCacheV1"', b"[]", b"\xff\xfe{}"])
def test_field_01_records_that_are_torn(node: FakeNode, content: bytes) -> None:
    """As other writers leave them; this library writes none. A cause is never lost before its DEL has succeeded."""
    net, cni = node.network("a", cniVersion="1.1.0"), node.client()
    attach(cni, node)
    record = node.results / "net-c1-eth0"
    record.write_bytes(content)
    with pytest.raises(RecordError):
        cni.check_network_list(net, RT)
    with pytest.raises(CNIErrorGroup) as collected:
        cni.gc_network_list(net, [])
    assert [one.path for one in collected.value.exceptions if isinstance(one, RecordError)] == [str(record)]
    before = node.verbs()
    with pytest.raises(RecordError) as caught:
        cni.del_network_list(net, RuntimeConf("c1", None, "eth0"))
    assert caught.value.missing == "namespace"
    assert node.verbs() == before
    node.plugin("a", "exit 1")
    with pytest.raises(PluginError):
        cni.del_network_list(net, RT)
    assert node.states() == ["corrupt"], "a DEL that failed changes nothing"
    node.plugin("a")
    assert cni.del_network_list(net, RT).record == "unreadable"
    assert node.states() == []
    (aside,) = (node.cache / "corrupt").iterdir()
    assert aside.read_bytes() == content


@pytest.mark.parametrize("years", [-60, 200])
def test_the_clock_jumps(node: FakeNode, monkeypatch: pytest.MonkeyPatch, years: int) -> None:
    # On a busy machine no sleep is long enough: the first ADD waits for the jump, and DEL hangs until it may succeed.
    running, jumped, may_end = (node.root / name for name in ("running", "jumped", "may-end"))
    wait = f"touch {running}; while [ ! -e {jumped} ]; do sleep 0.01; done"
    node.plugin("slow", f"case $CNI_COMMAND in ADD) {wait};; DEL) [ -e {may_end} ] || exec sleep 120;; esac")
    real, offset = time.time, 0

    def jump() -> None:
        nonlocal offset
        wait_until(running.exists)
        offset = years * 31556952
        jumped.touch()

    monkeypatch.setattr(system, "time", lambda: real() + offset)
    net, cni = node.network("slow", cniVersion="1.1.0"), node.client()
    thread = threading.Thread(target=jump)
    thread.start()
    cni.add_network_list(net, RT)
    thread.join()
    cni.check_network_list(net, RT)
    (listed,) = cni.get_cached_attachments()
    assert listed.state == "ready"
    cni.gc_network_list(net, [("c1", "eth0")])
    other = RuntimeConf("c2", None, "eth0")
    cni.add_network_list(net, other)
    assert {one.container_id for one in cni.get_cached_attachments()} == {"c1", "c2"}
    with pytest.raises(PluginTimeoutError):
        cni.del_network_list(net, RT, timeout=0.1)
    may_end.touch()
    cni.del_network_list(net, RT)
    cni.del_network_list(net, other)
    assert node.states() == []


def busy(node: FakeNode, name: str) -> Callable[[], None]:
    """Open a plugin for writing, as one does who copies over it; return what closes it."""
    return (node.bin / name).open("ab").close


@pytest.mark.parametrize("verb", ["add", "check", "del"])
def test_field_13_a_plugin_that_stays_busy_is_a_clear_error_within_the_deadline(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setattr(child, "_BUSY_SECONDS", 60.0)
    net, cni = node.network("a"), node.client(cleanup_timeout=0.1)
    attach(cni, node)
    close = busy(node, "a")
    work: Callable[..., Any] = getattr(cni, f"{verb}_network_list")
    started = time.monotonic()
    with pytest.raises(PluginError, match=r"Text file busy.*another program writes to the file"):
        work(net, RuntimeConf("c2", None, "eth0") if verb == "add" else RT, timeout=1.5)
    assert time.monotonic() - started < 20
    assert node.verbs() == ["ADD a"], "never a success without a run"
    assert ("detaching" if verb == "del" else "ready") in node.states()
    close()


def test_the_cache_directory_is_removed_under_a_running_runtime(node: FakeNode) -> None:
    node.plugin("a", "sleep 0.3")
    net, cni = node.network("a", cniVersion="1.1.0"), node.client()
    verb = threading.Thread(target=lambda: cni.add_network_list(net, RT))
    verb.start()
    wait_until(node.verbs)
    shutil.rmtree(node.cache)
    verb.join()
    assert node.states() == ["ready"], "the completed record is written into a new directory"
    shutil.rmtree(node.cache)
    node.plugin("a")
    assert cni.get_cached_attachments() == []
    with pytest.raises(NotAttachedError):
        cni.check_network_list(net, RT)
    assert cni.gc_network_list(net, []).stale == ()
    shutil.rmtree(node.cache)
    assert cni.del_network_list(net, RT).record == "missing"
    shutil.rmtree(node.cache)
    cni.add_network_list(net, RT)
    assert node.states() == ["ready"]
