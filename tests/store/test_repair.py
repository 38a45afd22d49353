"""repair_records: corrupt records and leftovers go, and nothing else does."""

from __future__ import annotations

import errno
import math
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from libcni import repair_records
from libcni.errors import LockTimeoutError
from libcni.store import records, repair
from libcni.store.locks import LockRequest, LockSet
from libcni.store.record import Record
from libcni.store.records import RecordStore


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Make a directory with a good record, a corrupt one, and a file that a killed writer has left."""
    RecordStore(str(tmp_path)).begin(Record("net", "c1", "eth0"))
    (tmp_path / "results" / "net-c2-eth0").write_bytes(b"")
    (tmp_path / "tmp" / "4194305-1-1").write_bytes(b"half")
    os.utime(tmp_path / "tmp" / "4194305-1-1", (1, 1))
    return tmp_path


def test_corrupt_records_and_leftovers_go(cache: Path) -> None:
    report = repair_records(cache)
    assert [one.path for one in report.corrupt] == [f"{cache}/results/net-c2-eth0"]
    assert [one.problem for one in report.corrupt] == ["it is empty"]
    assert [Path(path).parent for path in report.moved_to] == [cache / "corrupt"]
    assert report.temporary == (f"{cache}/tmp/4194305-1-1",)
    assert os.listdir(cache / "results") == ["net-c1-eth0"]
    assert os.listdir(cache / "tmp") == []
    assert repair_records(cache).corrupt == ()


def test_a_dry_run_changes_nothing(cache: Path) -> None:
    report = repair_records(cache, dry_run=True)
    assert len(report.corrupt) == len(report.temporary) == 1
    assert report.moved_to == ()
    assert sorted(os.listdir(cache / "results")) == ["net-c1-eth0", "net-c2-eth0"]
    assert sorted(os.listdir(cache)) == ["results", "tmp"]


def test_what_is_not_there_is_in_order(tmp_path: Path) -> None:
    assert repair_records(tmp_path / "none").corrupt == ()
    assert not (tmp_path / "none").exists()


def test_it_waits_for_the_verbs_that_run(cache: Path) -> None:
    hold = LockSet(str(cache), LockRequest((), "c9"))
    assert hold.try_acquire()
    with pytest.raises(LockTimeoutError, match="all containers"):
        repair_records(cache, timeout=0.05)
    hold.close()
    assert len(repair_records(cache, timeout=None).corrupt) == 1


@pytest.mark.parametrize("timeout", [0.0, math.nan])
def test_a_timeout_without_a_meaning_is_refused(cache: Path, timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout must be a number of seconds above 0"):
        repair_records(cache, timeout=timeout)
    assert len(repair_records(cache, dry_run=True).corrupt) == 1


def test_a_record_that_cannot_be_moved_is_told(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_args: Any, **_more: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "rename", refused)
    report = repair_records(cache)
    assert (len(report.corrupt), report.moved_to) == (1, ("",))


def test_a_file_that_go_is_writing_is_not_moved(cache: Path) -> None:
    """Go writes a record in place: what looks corrupt may be half of it."""
    whole = (cache / "results" / "net-c1-eth0").read_bytes().replace(b'"c1"', b'"c3"')
    path = cache / "results" / "net-c3-eth0"
    path.write_bytes(whole[:50])
    writer = threading.Timer(0.2, path.write_bytes, [whole])
    writer.start()
    report = repair_records(cache)
    writer.join()
    assert [Path(one.path).name for one in report.corrupt] == ["net-c2-eth0"]
    assert {one.container_id for one in RecordStore(str(cache)).records()} == {"c1", "c3"}


def test_a_file_that_is_still_being_written_is_left(cache: Path) -> None:
    path = cache / "results" / "net-c3-eth0"
    path.write_bytes(b"{")
    writer = threading.Timer(0.2, path.write_bytes, [b'{"kind":'])
    writer.start()
    report = repair_records(cache)
    writer.join()
    assert report.left == (f"{path}: another program is writing it",)
    assert path.exists()


def test_an_old_file_is_not_looked_at_twice(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.utime(cache / "results" / "net-c2-eth0", (1, 1))

    def asleep(_seconds: float) -> None:
        raise AssertionError("repair sleeps")

    monkeypatch.setattr(time, "sleep", asleep)
    assert len(repair_records(cache).corrupt) == 1


def test_a_corrupt_record_of_another_owner_is_left(cache: Path) -> None:
    torn = b'{"kind":"cniCacheV1","libcni":{"plugins":[],"owner":"theirs"}'
    path = cache / "results" / "net-c3-eth0"
    path.write_bytes(torn)
    (cache / "results" / "dir").mkdir()
    report = repair_records(cache, "mine")
    assert [Path(one.path).name for one in report.corrupt] == ["dir", "net-c2-eth0"]
    assert report.left == (f"{path}: it is corrupt, and its owner is 'theirs'",)
    assert path.read_bytes() == torn
    assert [one.path for one in repair_records(cache).corrupt] == [str(path)]


def test_what_the_system_does_not_let_us_read_is_not_corrupt(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def failing(path: Any, *args: Any, **more: Any) -> int:
        if path == "net-c1-eth0":
            raise OSError(errno.EMFILE, "Too many open files")
        return real(path, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", failing)
        report = repair_records(cache)
    assert [Path(one.path).name for one in report.corrupt] == ["net-c2-eth0"]
    assert report.left == (f"{cache}/results/net-c1-eth0: cannot be read: Too many open files",)
    assert (cache / "results" / "net-c1-eth0").exists()


@pytest.mark.parametrize("folder", ["tmp", "partial"])
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_directory_among_the_temporary_files_stops_nothing(cache: Path, folder: str, dry_run: bool) -> None:
    partial = cache / "partial"
    partial.mkdir()
    (partial / "net-c1-eth0").write_bytes(b"of an ADD that did not end: it is needed")
    (partial / "ended").write_bytes(b'{"created":1.0,"result":{}}')
    (cache / folder / "0-directory").mkdir()
    report = repair_records(cache, dry_run=dry_run)
    assert (len(report.corrupt), report.temporary) == (1, (f"{cache}/tmp/4194305-1-1", f"{partial}/ended"))
    assert report.left == (f"{cache}/{folder}/0-directory: it is a directory, which libcni did not make",)


@pytest.mark.parametrize("name", ["tmp/session", "tmp/12-34", "tmp/12-34-5.bak", "partial/a-b-c", "partial/empty"])
def test_the_file_of_another_program_is_no_temporary_file(cache: Path, name: str) -> None:
    """A runtime may keep its own state below the same directory."""
    (cache / "partial").mkdir()
    (cache / name).write_text("" if name.endswith("empty") else "theirs", encoding="utf-8")
    os.utime(cache / name, (1, 1))
    assert repair_records(cache, dry_run=True).temporary == (f"{cache}/tmp/4194305-1-1",)
    assert RecordStore(str(cache)).sweep() == [f"{cache}/tmp/4194305-1-1"]
    repair_records(cache)
    assert (cache / name).exists()


def test_a_temporary_file_that_cannot_be_removed_is_left(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / "partial").mkdir()
    (cache / "partial" / "ended").write_bytes(b'{"created":1.0,"result":{}}')

    def failing(*_: Any) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(records, "remove", failing)
    report = repair_records(cache)
    assert report.temporary == ()
    reason = "the temporary file cannot be removed: Operation not permitted"
    assert report.left == (f"{cache}/partial/ended: {reason}", f"{cache}/tmp/4194305-1-1: {reason}")


@pytest.mark.parametrize("name", ["tmp/1-1-1", "tmp/4194306-1-1", "partial/net-c1-eth0"])
def test_a_dry_run_leaves_the_file_of_a_running_verb_out(cache: Path, name: str) -> None:
    """The writer may be in another PID namespace, and a partial result may be of an ADD that ends now."""
    record = RecordStore(str(cache)).find(("net", "c1", "eth0"))
    assert record is not None
    RecordStore(str(cache)).complete(record.with_fields(result='{"cniVersion":"1.0.0"}'))
    (cache / "partial").mkdir(exist_ok=True)
    (cache / name).touch()
    running = LockSet(str(cache), LockRequest((), "c9"))
    assert running.try_acquire()
    assert repair_records(cache, dry_run=True).temporary == (f"{cache}/tmp/4194305-1-1",)
    running.close()
    assert len(repair_records(cache, dry_run=True).temporary) == 2


def test_a_dry_run_leaves_the_file_of_a_verb_out_that_ends_meanwhile(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cache / "tmp" / "1-1-1").touch()
    (cache / "locks").touch()

    def ends(*_: Any) -> bool:
        (cache / "tmp" / "1-1-1").unlink()
        return False

    monkeypatch.setattr(repair, "is_locked", ends)
    assert repair_records(cache, dry_run=True).temporary == (f"{cache}/tmp/4194305-1-1",)


def test_a_dry_run_that_cannot_ask_for_locks_lists_only_old_files(cache: Path) -> None:
    (cache / "tmp" / "4194306-1-1").touch()
    (cache / "locks").mkdir()
    assert repair_records(cache, dry_run=True).temporary == (f"{cache}/tmp/4194305-1-1",)
