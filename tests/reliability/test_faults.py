"""Faults of the node, each with what ADD, CHECK, DEL and GC then do."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from libcni import (
    AttachmentExistsError,
    CNIConfig,
    CNIError,
    CNIErrorGroup,
    NotAttachedError,
    PluginError,
    PluginTimeoutError,
    RecordError,
    RetryPolicy,
    RuntimeConf,
)
from libcni.store import files as disk
from libcni.store import records
from libcni.verbs.reports import DelPolicy
from reliability.shell import RT, Shell


def mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no mount: {done.stderr.strip()}")


@pytest.fixture
def small_disk(shell: Shell) -> Iterator[Path]:
    """Make the cache directory a file system of its own, of 256 KiB and 60 files."""
    shell.cache.mkdir(parents=True)
    mount("-t", "tmpfs", "-o", "size=256k,nr_inodes=60,mode=0700", "tmpfs", str(shell.cache))
    yield shell.cache
    subprocess.run(["umount", "-l", shell.cache], check=True)


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


def attach(cni: CNIConfig, shell: Shell) -> None:
    shell.plugin("a")
    cni.add_network_list(shell.network("a", version="1.1.0"), RT)


def assert_add_is_refused(cni: CNIConfig, shell: Shell) -> None:
    before = shell.calls()
    with pytest.raises(RecordError):
        cni.add_network_list(shell.network("a", version="1.1.0"), RuntimeConf("c2", None, "eth0"))
    assert shell.calls() == before, "nothing was run"


@pytest.mark.parametrize("fill", [fill_bytes, fill_files])
def test_disk_full(shell: Shell, small_disk: Path, fill: Callable[[Path], None]) -> None:
    net, cni = shell.network("a", version="1.1.0"), shell.client(durable=True)
    attach(cni, shell)
    fill(small_disk)
    assert_add_is_refused(cni, shell)
    cni.check_network_list(net, RT)
    cni.del_network_list(net, RT)
    assert shell.states() == []
    cni.gc_network_list(net, [])
    assert shell.calls() == ["ADD a", "CHECK a", "DEL a", "GC a"]


@pytest.mark.parametrize("fill", [fill_bytes, fill_files])
def test_disk_full_before_anything_was_ever_attached(
    shell: Shell, small_disk: Path, fill: Callable[[Path], None]
) -> None:
    shell.plugin("a")
    net, cni = shell.network("a", version="1.1.0"), shell.client()
    fill(small_disk)
    assert_add_is_refused(cni, shell)
    with pytest.raises(NotAttachedError):
        cni.check_network_list(net, RT)
    assert cni.del_network_list(net, RT).record == "missing"
    assert shell.calls() == ["DEL a"]


def test_field_22_disk_full_while_the_plugins_run(shell: Shell, small_disk: Path) -> None:
    """The completed record cannot be written: all is rolled back."""
    shell.plugin("a")
    filler = shell.plugin("filler", f"[ $CNI_COMMAND != ADD ] || head -c 300000 /dev/zero > {small_disk}/filler 2>&-")
    assert filler.exists()
    net, cni = shell.network("a", "filler"), shell.client(durable=True)
    with pytest.raises(RecordError, match="No space left"):
        cni.add_network_list(net, RT)
    assert shell.calls() == ["ADD a", "ADD filler", "DEL filler", "DEL a"]
    assert shell.states() == []


def test_disk_full_and_gc(shell: Shell, small_disk: Path) -> None:
    net, cni = shell.network("a", version="1.1.0"), shell.client()
    attach(cni, shell)
    fill_bytes(small_disk)
    report = cni.gc_network_list(net, [])
    assert [one.container_id for one in report.detached] == ["c1"]
    assert shell.calls() == ["ADD a", "DEL a", "GC a"]


def test_field_22_read_only_cache(shell: Shell, small_disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    net, cni = shell.network("a", version="1.1.0"), shell.client()
    attach(cni, shell)
    mount("-o", "remount,ro", str(small_disk))
    assert_add_is_refused(cni, shell)
    cni.check_network_list(net, RT)
    report = cni.del_network_list(net, RT)
    assert (report.record, [one.state for one in report.plugins]) == ("found", ["done"])
    assert "going on without locks" in caplog.text
    assert "its record stays" in caplog.text
    assert shell.states() == ["ready"]
    with pytest.raises(RecordError, match="locks: cannot be opened: Read-only file system"):
        cni.gc_network_list(net, [])
    assert shell.calls() == ["ADD a", "CHECK a", "DEL a"]
    mount("-o", "remount,rw", str(small_disk))
    cni.gc_network_list(net, [])
    assert shell.states() == []


def test_a_del_on_a_disk_that_is_read_only_from_the_start(shell: Shell, small_disk: Path) -> None:
    shell.plugin("a")
    mount("-o", "remount,ro", str(small_disk))
    shell.client().del_network_list(shell.network("a"), RT)
    assert shell.calls() == ["DEL a"]


def test_records_that_cannot_be_read(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As a bad sector, or a mode that somebody changed under a runtime that is not root, would make them."""
    net, cni = shell.network("a", version="1.1.0"), shell.client()
    attach(cni, shell)
    other = RuntimeConf("c2", None, "eth0")
    cni.add_network_list(net, other)
    real = disk.read_file

    def bad_sector(name: str, directory: int) -> bytes | None:
        if "c1" in name:
            raise OSError(errno.EIO, "Input/output error")
        return real(name, directory)

    monkeypatch.setattr(records, "read_file", bad_sector)
    before = shell.calls()
    for refused in (lambda: cni.add_network_list(net, RT), lambda: cni.check_network_list(net, RT)):
        with pytest.raises(RecordError, match="Input/output error"):
            refused()
    assert shell.calls() == before
    assert [(one.container_id, one.state) for one in cni.get_cached_attachments()] == [("", "corrupt"), ("c2", "ready")]
    report = cni.gc_network_list(net, [])
    assert [one.problem for one in report.corrupt] != []
    assert [one.container_id for one in report.detached] == ["c2"]
    assert cni.del_network_list(net, RT).record == "unreadable"
    assert "DEL goes on without a record" in caplog.text


@pytest.mark.parametrize("content", [b"", b"\0" * 300, b'{"kind":"cniCacheV1"', b"[]", b"\xff\xfe{}"])
def test_field_01_records_that_are_torn(shell: Shell, content: bytes) -> None:
    """As other writers leave them; this library writes none. A cause is never lost before its DEL has succeeded."""
    net, cni = shell.network("a", version="1.1.0"), shell.client()
    attach(cni, shell)
    record = shell.results / "net-c1-eth0"
    record.write_bytes(content)
    with pytest.raises(RecordError):
        cni.check_network_list(net, RT)
    assert [one.path for one in cni.gc_network_list(net, []).corrupt] == [str(record)]
    shell.plugin("a", "exit 1")
    with pytest.raises(PluginError):
        cni.del_network_list(net, RT)
    assert shell.states() == ["corrupt"], "a DEL that failed changes nothing"
    shell.plugin("a")
    assert cni.del_network_list(net, RT).record == "unreadable"
    assert shell.states() == []
    (aside,) = (shell.cache / "corrupt").iterdir()
    assert aside.read_bytes() == content


def test_add_over_a_torn_record(shell: Shell) -> None:
    cni = shell.client()
    attach(cni, shell)
    (shell.results / "net-c1-eth0").write_bytes(b"")
    cni.add_network_list(shell.network("a"), RT)
    assert shell.states() == ["ready"]
    assert len(list((shell.cache / "corrupt").iterdir())) == 1


@pytest.mark.parametrize("years", [-60, -1, 10, 200])
def test_the_clock_jumps(shell: Shell, monkeypatch: pytest.MonkeyPatch, years: int) -> None:
    shell.plugin("slow", "sleep 0.2")
    real, jumped = time.time, threading.Event()
    monkeypatch.setattr(time, "time", lambda: real() + (years * 31556952 if jumped.is_set() else 0))
    net, cni = shell.network("slow", version="1.1.0"), shell.client(timeout=5)
    threading.Timer(0.1, jumped.set).start()
    cni.add_network_list(net, RT)
    assert jumped.is_set()
    cni.check_network_list(net, RT)
    (listed,) = cni.get_cached_attachments()
    assert listed.state == "ready"
    cni.gc_network_list(net, [("c1", "eth0")])
    other = RuntimeConf("c2", None, "eth0")
    cni.add_network_list(net, other)
    assert {one.container_id for one in cni.get_cached_attachments()} == {"c1", "c2"}
    with pytest.raises(PluginTimeoutError):
        cni.del_network_list(net, RT, timeout=0.1)
    cni.del_network_list(net, RT)
    cni.del_network_list(net, other)
    assert shell.states() == []


def test_a_plugin_is_replaced_while_it_runs(shell: Shell) -> None:
    """As a package manager does it: a new file under the old name."""
    shell.plugin("a", "sleep 0.3")
    net, cni = shell.network("a", version="1.1.0"), shell.client()
    verb = threading.Thread(target=lambda: cni.add_network_list(net, RT))
    verb.start()
    while not shell.calls():
        time.sleep(0.005)
    (shell.bin / "a").rename(shell.bin / "old")
    shell.plugin("a")
    verb.join()
    assert shell.states() == ["ready"]
    cni.check_network_list(net, RT)
    cni.del_network_list(net, RT)
    cni.gc_network_list(net, [])
    assert shell.calls() == ["ADD a", "CHECK a", "DEL a", "GC a"]


def busy(shell: Shell, name: str) -> Callable[[], None]:
    """Open a plugin for writing, as one does who copies over it; return what closes it."""
    return (shell.bin / name).open("ab").close


def test_field_13_a_plugin_that_is_being_written_is_tried_again_with_a_new_process(shell: Shell) -> None:
    shell.plugin("a")
    shell.plugin("b")
    net, cni = shell.network("a", "b"), shell.client()
    close = busy(shell, "b")
    threading.Timer(0.3, close).start()
    started = time.monotonic()
    cni.add_network_list(net, RT)
    assert 0.3 <= time.monotonic() - started < 1.5
    assert shell.calls() == ["ADD a", "ADD b"]


@pytest.mark.parametrize("verb", ["add", "check", "del"])
def test_field_13_a_plugin_that_stays_busy_is_a_clear_error_within_the_deadline(shell: Shell, verb: str) -> None:
    net, cni = shell.network("a"), shell.client(cleanup_timeout=0.1)
    attach(cni, shell)
    close = busy(shell, "a")
    started = time.monotonic()
    work: Callable[..., Any] = getattr(cni, f"{verb}_network_list")
    with pytest.raises(PluginError, match=r"Text file busy.*another program writes to it"):
        work(net, RuntimeConf("c2", None, "eth0") if verb == "add" else RT, timeout=0.5)
    assert time.monotonic() - started < 1.0
    assert shell.calls() == ["ADD a"], "never a success without a run"
    assert ("detaching" if verb == "del" else "ready") in shell.states()
    close()


def test_the_cache_directory_is_removed_under_a_running_runtime(shell: Shell) -> None:
    shell.plugin("a", "sleep 0.3")
    net, cni = shell.network("a", version="1.1.0"), shell.client()
    verb = threading.Thread(target=lambda: cni.add_network_list(net, RT))
    verb.start()
    while not shell.calls():
        time.sleep(0.005)
    shutil.rmtree(shell.cache)
    verb.join()
    assert shell.states() == ["ready"], "the completed record is written into a new directory"
    shutil.rmtree(shell.cache)
    shell.plugin("a")
    assert cni.get_cached_attachments() == []
    with pytest.raises(NotAttachedError):
        cni.check_network_list(net, RT)
    assert cni.gc_network_list(net, []).stale == ()
    shutil.rmtree(shell.cache)
    assert cni.del_network_list(net, RT).record == "missing"
    shutil.rmtree(shell.cache)
    cni.add_network_list(net, RT)
    assert shell.states() == ["ready"]


def test_the_plugin_directory_is_removed(shell: Shell) -> None:
    net, cni = shell.network("a", version="1.1.0"), shell.client()
    attach(cni, shell)
    shutil.rmtree(shell.bin)
    for verb in (
        lambda: cni.add_network_list(net, RuntimeConf("c2", None, "eth0")),
        lambda: cni.check_network_list(net, RT),
        lambda: cni.del_network_list(net, RT),
    ):
        with pytest.raises(CNIError, match='plugin "a" not found'):
            verb()
    with pytest.raises(CNIErrorGroup):
        cni.gc_network_list(net, [])
    assert shell.states() == ["ready"]
    cni.del_network_list(net, RT, policy=DelPolicy(skip_missing=True))
    assert shell.states() == []


AGAIN = """[ $CNI_COMMAND = DEL ] && exit 0
n=$(cat {0}/tries 2>/dev/null || echo 0); echo $((n + 1)) > {0}/tries
[ $n -ge {1} ] || {{ echo '{{"cniVersion": "1.0.0", "code": 11, "msg": "later"}}'; exit 1; }}"""


def tries(shell: Shell) -> int:
    return int((shell.root / "tries").read_text())


def test_field_40_try_again_later_is_passed_up_and_says_that_it_can_be_retried(shell: Shell) -> None:
    shell.plugin("a", AGAIN.format(shell.root, 99))
    with pytest.raises(PluginError) as raised:
        shell.client().add_network_list(shell.network("a"), RT)
    assert (raised.value.code, raised.value.retryable, tries(shell)) == (11, True, 1)


def test_field_40_a_policy_tries_again_with_a_del_between_two_adds(shell: Shell) -> None:
    shell.plugin("first")
    shell.plugin("a", AGAIN.format(shell.root, 2))
    net, cni = shell.network("first", "a"), shell.client()
    cni.add_network_list(net, RT, retry=RetryPolicy(attempts=3, delay=0.1))
    assert shell.calls() == ["ADD first", "ADD a", "DEL a", "ADD a", "DEL a", "ADD a"]
    (shell.root / "tries").unlink()
    cni.check_network_list(net, RT, retry=RetryPolicy(attempts=3, delay=0.01))
    assert shell.calls()[6:] == ["CHECK first", "CHECK a", "CHECK a", "CHECK a"]


def test_field_40_del_is_tried_again_in_place(shell: Shell) -> None:
    shell.plugin("a")
    net, cni = shell.network("a"), shell.client()
    cni.add_network_list(net, RT)
    shell.plugin("a", AGAIN.format(shell.root, 1).partition("\n")[2])
    cni.del_network_list(net, RT, policy=DelPolicy(retry=RetryPolicy(attempts=2, delay=0.01)))
    assert shell.calls() == ["ADD a", "DEL a", "DEL a"]


def test_field_40_the_attempts_are_bounded_and_so_is_the_time(shell: Shell) -> None:
    shell.plugin("a", AGAIN.format(shell.root, 99))
    net, cni = shell.network("a"), shell.client()
    with pytest.raises(PluginError, match="later"):
        cni.add_network_list(net, RT, retry=RetryPolicy(attempts=3, delay=0.01))
    assert tries(shell) == 3
    assert shell.states() == [], "the ADD is rolled back after the last try"
    started = time.monotonic()
    with pytest.raises(PluginError, match="later"):
        cni.add_network_list(net, RT, retry=RetryPolicy(attempts=3, delay=5), timeout=1)
    assert time.monotonic() - started < 0.9, "no time for the delay: the plugin's own error, at once"
    assert tries(shell) == 4


def test_no_retry_where_the_del_between_fails(shell: Shell) -> None:
    shell.plugin("a", AGAIN.format(shell.root, 99).replace("exit 0", "exit 1"))
    with pytest.raises(PluginError, match="later") as raised:
        shell.client().add_network_list(shell.network("a"), RT, retry=RetryPolicy(delay=0.01))
    assert tries(shell) == 1
    assert any("not tried again" in note for note in raised.value.__notes__)


def test_an_existing_attachment_is_no_fault_of_the_disk(shell: Shell, small_disk: Path) -> None:
    cni = shell.client()
    attach(cni, shell)
    fill_bytes(small_disk)
    with pytest.raises(AttachmentExistsError):
        cni.add_network_list(shell.network("a"), RT)
    assert os.path.exists(shell.results / "net-c1-eth0")


def test_a_file_system_without_hard_links(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_link(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_link)
    cni = shell.client()
    attach(cni, shell)
    cni.add_network_list(shell.network("a", name="net-c1"), RuntimeConf("eth0", None, "x"))
    with pytest.raises(AttachmentExistsError):
        cni.add_network_list(shell.network("a"), RT)
    cni.del_network_list(shell.network("a"), RT)
    assert shell.states() == ["ready"]
