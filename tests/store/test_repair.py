"""repair_records: corrupt records and leftovers go, and nothing else does."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from libcni import repair_records
from libcni.errors import LockTimeoutError, RecordError
from libcni.kernel import system
from libcni.store.locks import LockRequest, LockSet
from libcni.store.records import RecordStore
from store.canned import bare, written


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Make a directory with a good record, a corrupt one, and a file that a killed writer has left."""
    written(RecordStore(str(tmp_path)), bare())
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


def test_a_record_that_cannot_be_moved_is_told(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_args: Any, **_more: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(system, "rename", refused)
    report = repair_records(cache)
    assert (len(report.corrupt), report.moved_to) == (1, ("",))


def test_what_the_system_does_not_let_us_read_is_not_corrupt(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def failing(path: Any, *args: Any, **more: Any) -> int:
        if path == "net-c1-eth0":
            raise OSError(errno.EMFILE, "Too many open files")
        return real(path, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(system, "open", failing)
        report = repair_records(cache)
    assert [Path(one.path).name for one in report.corrupt] == ["net-c2-eth0"]
    assert report.left == (f"{cache}/results/net-c1-eth0: the record cannot be read: Too many open files",)
    assert (cache / "results" / "net-c1-eth0").exists()


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_young_temporary_file_stays(cache: Path, dry_run: bool) -> None:
    (cache / "tmp" / "1-1-1").touch()
    assert repair_records(cache, dry_run=dry_run).temporary == (f"{cache}/tmp/4194305-1-1",)
    assert (cache / "tmp" / "1-1-1").exists()


@pytest.mark.parametrize("name", ["session", "12-34", "12-34-5.bak"])
def test_the_file_of_another_program_is_no_temporary_file(cache: Path, name: str) -> None:
    """A runtime may keep its own state below the same directory."""
    (cache / "tmp" / name).touch()
    os.utime(cache / "tmp" / name, (1, 1))
    assert repair_records(cache).temporary == (f"{cache}/tmp/4194305-1-1",)
    assert (cache / "tmp" / name).exists()


def test_a_link_in_the_place_of_a_folder_is_not_followed(cache: Path) -> None:
    (cache / "elsewhere").mkdir()
    (cache / "elsewhere" / "old").touch()
    os.utime(cache / "elsewhere" / "old", (1, 1))
    (cache / "tmp").rename(cache / "away")
    (cache / "tmp").symlink_to("elsewhere")
    with pytest.raises(RecordError, match="the drafts of records cannot be removed"):
        repair_records(cache)
    assert (cache / "elsewhere" / "old").exists()


def test_a_temporary_file_that_cannot_be_removed_is_left(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any, **_more: Any) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(system, "unlink", failing)
    report = repair_records(cache)
    assert report.temporary == ()
    assert report.left == (f"{cache}/tmp/4194305-1-1: it cannot be removed: Operation not permitted",)
