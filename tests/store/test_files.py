"""Files of records: what is on the disk when, and what a refusal of the disk leaves."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from libcni.errors import RecordError
from libcni.kernel import system
from libcni.store.locks import LockRequest, LockSet
from libcni.store.records import RecordStore
from store.canned import FULL, bare, files, no_space, written


@pytest.mark.parametrize("umask", [0o022, 0o777, 0])
def test_modes_are_for_this_user_alone_whatever_the_umask(store: RecordStore, umask: int) -> None:
    before = os.umask(umask)
    try:
        begun = written(store, bare())
        LockSet(store.cache_dir, LockRequest((), "c1")).close()
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(f"{store.cache_dir}/locks").st_mode) == 0o600
    for directory in (store.cache_dir, store.results, f"{store.cache_dir}/tmp"):
        assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(begun.path).st_mode) == 0o600


@pytest.mark.parametrize("durable", [True, False])
def test_the_bytes_are_on_the_disk_before_they_get_their_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    monkeypatch.setattr("libcni.store.files._is_ordered", lambda *_: False)
    store = RecordStore(str(tmp_path), durable=durable)
    store.forget(written(store, bare()))  # makes the directories
    order: list[str] = []
    for name in ("fsync", "link", "rename"):
        real = getattr(os, name)

        def note(*args: Any, _name: str = name, _real: Callable[..., Any] = real, **more: Any) -> Any:
            order.append(_name)
            return _real(*args, **more)

        monkeypatch.setattr(system, name, note)
    begun = written(store, bare())
    store.rewrite(begun, "again")
    wanted = ["fsync", "link", "fsync", "fsync", "rename", "fsync"]
    assert order == (wanted if durable else [name for name in wanted if name != "fsync"])


def test_new_directories_are_synced_with_all_above_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def note(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(system, "fsync", note)
    LockSet(f"{tmp_path}/a/b", LockRequest((), "c1")).close()
    store = RecordStore(f"{tmp_path}/a/b")
    written(store, bare())
    assert {str(tmp_path), f"{tmp_path}/a", f"{tmp_path}/a/b", store.results} <= set(synced)
    for again in (bare(container_id="c2"), bare(path=f"{store.results}/net-c2-eth0")):
        synced.clear()
        written(store, again)
        assert [path for path in synced if os.path.isdir(path)] == [store.results]


def test_a_file_system_that_cannot_sync_directories_is_no_error(
    store: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync

    def without(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        real(descriptor)

    monkeypatch.setattr(system, "fsync", without)
    begun = written(store, bare())
    assert store.records() == [begun]


@pytest.mark.parametrize("call", ["pwrite", "link", "fsync"])
def test_a_full_disk_is_told_and_leaves_nothing(store: RecordStore, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    store.forget(written(store, bare()))  # makes the directories
    descriptors = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch:
        patch.setattr(system, call, no_space)
        with pytest.raises(RecordError, match=r"can(not)? be written: No space left") as caught:
            written(store, bare())
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.path.startswith(store.cache_dir)
    assert files(store) == []
    assert os.listdir(f"{store.cache_dir}/tmp") == []


def test_a_draft_that_cannot_be_removed_loses_no_record(store: RecordStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_args: Any, **_more: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(system, "unlink", refused)
        begun = written(store, bare())
        patch.setattr(system, "pwrite", no_space)
        with pytest.raises(RecordError, match="No space left"):
            written(store, bare(container_id="c2"))
    assert store.records() == [begun]
    assert len(os.listdir(store.drafts)) == 2


def test_short_writes_are_gone_on_with(store: RecordStore, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    monkeypatch.setattr(system, "pwrite", lambda descriptor, data, at: real(descriptor, bytes(data)[:7], at))
    begun = written(store, FULL)
    assert store.find(FULL.identity) == begun


def test_the_cache_directory_may_be_a_symbolic_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "cache").symlink_to("disk")
    written(RecordStore(f"{tmp_path}/cache"), bare())
    assert len(list(tmp_path.glob("disk/results/*"))) == 1
