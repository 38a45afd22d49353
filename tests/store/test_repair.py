"""repair_records: corrupt records and leftovers go, and nothing else does."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from libcni import repair_records
from libcni.errors import LockTimeoutError
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


@pytest.mark.parametrize("timeout", [0.05, 0.0])
def test_it_waits_for_the_verbs_that_run(cache: Path, timeout: float) -> None:
    hold = LockSet(str(cache), LockRequest((), "c9"))
    assert hold.try_acquire()
    with pytest.raises(LockTimeoutError, match="all containers"):
        repair_records(cache, timeout=timeout)
    hold.close()
    assert len(repair_records(cache, timeout=None).corrupt) == 1


def test_a_record_that_cannot_be_moved_is_told(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_args: Any, **_more: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "rename", refused)
    report = repair_records(cache)
    assert (len(report.corrupt), report.moved_to) == (1, ("",))
