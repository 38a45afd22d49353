"""Drafts of records: written over and not freed, and never while they are a record or somebody reads them."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from libcni.disk import Directory, Drafts, read_file
from libcni.record import Record
from libcni.records import RecordStore

KEEPER = """
import os, sys
from libcni.record import Record
from libcni.records import RecordStore
store = RecordStore(sys.argv[1], durable=False)
for number in range(3):
    store.complete(store.begin(Record("net", f"c{number}", "eth0")))
print(len(os.listdir(sys.argv[1] + "/tmp")), flush=True)
"""


@pytest.fixture
def store(tmp_path: Path) -> RecordStore:
    return RecordStore(str(tmp_path), durable=False)


def attach(store: RecordStore, name: str) -> Record:
    begun = store.begin(Record("net", name, "eth0", state="pending"))
    store.complete(replace(begun, state="ready"))
    return begun


def drafts(store: RecordStore) -> dict[str, int]:
    directory = Path(store.cache_dir, "tmp")
    return {path.name: path.stat().st_ino for path in directory.iterdir()}


def test_the_file_of_a_completed_record_is_written_over_and_not_freed(store: RecordStore) -> None:
    attach(store, "c0")
    (kept,) = drafts(store).values()
    begun = attach(store, "c1")
    assert os.stat(begun.path).st_ino == kept
    assert len(drafts(store)) == 1
    assert [record.container_id for record in store.records()] == ["c0", "c1"]


def test_a_draft_that_is_still_a_record_is_never_written_over(store: RecordStore) -> None:
    pending = [store.begin(Record("net", f"p{number}", "eth0", state="pending")) for number in range(8)]
    before = [Path(record.path).read_bytes() for record in pending]
    for number in range(8):
        attach(store, f"c{number}")
    assert [Path(record.path).read_bytes() for record in pending] == before
    assert [record.state for record in store.records()] == ["ready"] * 8 + ["pending"] * 8


def test_nothing_is_written_over_that_may_still_be_a_record_on_the_disk(tmp_path: Path) -> None:
    """The rename that replaced a record may be lost with the power, after what was written over its file."""
    store = RecordStore(str(tmp_path), durable=True)
    begun = store.begin(Record("net", "c0", "eth0", state="pending"))
    with open(begun.path, "rb") as pending:
        before = pending.read()
        store.complete(replace(begun, state="ready"))
        for number in range(1, 4):
            attach(store, f"c{number}")
        assert os.pread(pending.fileno(), 9999, 0) == before
    assert drafts(store) == {}


def test_nothing_is_written_over_where_names_are_not_counted(
    store: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on sshfs, which makes hard links and shows each file with one."""
    for name in ("stat", "fstat"):
        real = getattr(os, name)

        def one(*args: Any, _real: Callable[..., os.stat_result] = real, **more: Any) -> os.stat_result:
            status = tuple(_real(*args, **more))
            return os.stat_result((*status[:3], 1, *status[4:]))

        monkeypatch.setattr(os, name, one)
    pending = store.begin(Record("net", "c0", "eth0", state="pending"))
    attach(store, "c1")
    assert store.find(pending.identity) == pending


def test_what_was_longer_before_has_no_old_end(store: RecordStore) -> None:
    begun = store.begin(Record("net", "long", "eth0", state="pending", config=b"x" * 9000))
    store.complete(Record("net", "long", "eth0", path=begun.path))
    attach(store, "c1")
    (_, second) = sorted(store.records(), key=lambda record: record.container_id == "c1")
    assert (second.container_id, second.state) == ("c1", "ready"), second.problem


def test_a_kept_draft_that_was_removed_is_no_error(store: RecordStore) -> None:
    attach(store, "c0")
    for name in drafts(store):
        Path(store.cache_dir, "tmp", name).unlink()
    attach(store, "c1")
    assert len(store.records()) == 2


def test_a_kept_draft_that_is_swept_while_it_is_written_is_no_error(
    store: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GC, of this process or another, takes a draft that was kept for a day for left over."""
    attach(store, "c0")
    ((name, inode),) = drafts(store).items()
    os.utime(Path(store.cache_dir, "tmp", name), (0, 0))
    real = os.fstat
    swept: list[str] = []

    def fstat(descriptor: int) -> os.stat_result:
        status = real(descriptor)
        if status.st_ino == inode and not swept:
            swept.extend(store.sweep())
        return status

    begun = store.begin(Record("net", "c1", "eth0", state="pending"))
    monkeypatch.setattr(os, "fstat", fstat)
    store.complete(replace(begun, state="ready"))
    assert len(swept) == 1
    assert [record.state for record in store.records()] == ["ready", "ready"]


def test_no_more_are_kept_than_can_be_of_use(store: RecordStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Drafts, "most_kept", 3)
    for number in range(6):
        store.begin(Record("net", f"p{number}", "eth0", state="pending"))
    assert len(drafts(store)) == 3
    assert len(store.records()) == 6


def test_kept_drafts_go_when_the_process_ends(tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", KEEPER, tmp_path], capture_output=True, text=True, check=True)
    assert ran.stdout == "1\n"
    assert sorted(os.listdir(tmp_path)) == ["results", "tmp"]
    assert os.listdir(tmp_path / "tmp") == []
    assert len(os.listdir(tmp_path / "results")) == 3


def test_a_forked_child_leaves_its_parents_drafts_alone(store: RecordStore) -> None:
    attach(store, "c0")
    kept = drafts(store)
    pid = os.fork()
    if not pid:
        try:
            attach(store, "c1")
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert kept.items() <= drafts(store).items()


def test_a_child_that_python_was_not_told_of_leaves_its_parents_drafts_alone(store: RecordStore) -> None:
    """Both would write over the same files, and one attachment's record would become another's."""
    attach(store, "c0")
    (kept,) = drafts(store).values()
    pid = ctypes.CDLL(None).fork()
    if not pid:
        try:
            attach(store, "child")
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    found = store.find(("net", "child", "eth0"))
    assert found is not None
    assert os.stat(found.path).st_ino != kept


def test_forked_children_leave_nothing_behind(store: RecordStore) -> None:
    """They end with os._exit, as those of multiprocessing do, and nobody sweeps but GC."""
    for number in range(3):
        pid = os.fork()
        if not pid:
            try:
                attach(store, f"c{number}")
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
    assert len(store.records()) == 3
    assert drafts(store) == {}


def test_what_is_replaced_and_written_over_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "name").write_bytes(b"old")
    real = os.read

    def read(descriptor: int, size: int) -> bytes:
        data = real(descriptor, size)
        if data == b"old":
            os.rename(tmp_path / "name", tmp_path / "kept")
            (tmp_path / "name").write_bytes(b"new")
            (tmp_path / "kept").write_bytes(b"another")
            return b"ano"
        return data

    monkeypatch.setattr(os, "read", read)
    with Directory(str(tmp_path)) as directory:
        assert read_file("name", directory) == b"new"


def test_what_is_written_over_and_has_its_name_again_while_it_is_read_is_read_again(
    store: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container is detached and attached again between two system calls of one who reads its record."""
    begun = store.begin(Record("net", "c0", "eth0", state="pending", config=b"a" * 3000))
    os.utime(begun.path, (1, 1))
    real = os.read

    def read(descriptor: int, size: int) -> bytes:
        half = real(descriptor, size // 2)
        monkeypatch.setattr(os, "read", real)
        store.complete(begun)
        store.forget(begun)
        again = store.begin(replace(begun, path="", config=b"b" * 3000))
        store.complete(replace(again, state="ready"))
        return half + real(descriptor, size)

    monkeypatch.setattr(os, "read", read)
    found = store.find(begun.identity)
    assert found is not None
    assert (found.state, found.config) == ("ready", b"b" * 3000)


def test_readers_never_see_two_records_in_one(store: RecordStore) -> None:
    """One attaches and detaches as fast as it can, so that drafts are written over; the others look."""
    for number in range(3):
        attach(store, f"other{number}")
    stop = threading.Event()
    wrong: list[Record] = []

    def look() -> None:
        while not stop.is_set():
            wrong.extend(
                record for record in store.records() if record.problem or record.container_id not in record.path
            )

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(300):
        begun = store.begin(Record("net", f"c{number}", "eth0", state="pending", config=b"x" * (number * 37 % 5000)))
        store.complete(begun)
        store.forget(begun)
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_one_directory_has_one_set_of_drafts(tmp_path: Path) -> None:
    assert Drafts.of(str(tmp_path)) is Drafts.of(str(tmp_path))
    assert Drafts.of(str(tmp_path)) is not Drafts.of(f"{tmp_path}/other")
