"""A power cut while a plugin runs: the disk as it is at that moment must have the record. With a real file system."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from libcni import RecordError
from libcni.store import files, records
from libcni.store.model import Record
from libcni.store.records import RecordStore
from libcni.testing import wait_until
from store.canned import bare, written

NEEDED = ("mkfs.ext4", "mount", "losetup")
EXT4_IOC_SHUTDOWN = 0x8004587D
EXT4_GOING_FLAGS_NOLOGFLUSH = 2
FIFREEZE, FITHAW = 0xC0045877, 0xC0045878


@pytest.fixture(autouse=True)
def loop_devices() -> None:
    """Skip without root and loop devices, and say so; in CI that is a failure."""
    if os.geteuid() == 0 and all(map(shutil.which, NEEDED)) and os.path.exists("/dev/loop-control"):
        return
    reason = f"needs root, loop devices and {', '.join(NEEDED)}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@contextmanager
def mounted(image: Path, directory: Path, options: str = "loop,commit=300") -> Iterator[Path]:
    """Mount an image; its journal is written when something is synced, not by the clock."""
    directory.mkdir()
    subprocess.run(["mount", "-o", options, image, directory], check=True)
    try:
        yield directory
    finally:
        # The kernel releases the loop device of an image within this file system a little later.
        wait_until(
            lambda: not subprocess.run(["umount", directory], check=False, stderr=subprocess.PIPE).returncode, 30
        )
        # Otherwise the next mount of the image may get a loop device that is being taken away: its reads fail with EIO.
        wait_until(lambda: not subprocess.run(["losetup", "-j", image], check=True, stdout=subprocess.PIPE).stdout, 30)


def cut_power(disk: Path) -> None:
    """Let another program's sync write the journal, and nothing after it."""
    with (disk / "other").open("w") as other:
        other.write("x")
        other.flush()
        os.fsync(other.fileno())
    descriptor = os.open(disk, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, EXT4_IOC_SHUTDOWN, struct.pack("I", EXT4_GOING_FLAGS_NOLOGFLUSH))
    finally:
        os.close(descriptor)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    return make_image(tmp_path / "image")


def make_image(path: Path, *options: str, size: int = 64 << 20) -> Path:
    with path.open("wb") as file:
        file.truncate(size)
    subprocess.run(["mkfs.ext4", "-q", *options, path], check=True)
    return path


def after_a_power_cut(image: Path, directory: Path, moment: str) -> list[Record]:
    """Return the records on the disk after a power cut at this moment of an attachment."""
    record = bare(config=b"c" * 5000)
    with mounted(image, directory / "disk") as disk:
        store = RecordStore(str(disk / "cni"))
        store.forget(written(store, bare(container_id="c0")))  # makes the directories
        subprocess.run(["sync", "-f", disk], check=True)  # os.sync() would write the disks of other tests, too
        if moment == "the record has its name":
            with pytest.MonkeyPatch.context() as patch, suppress(RecordError):  # the draft cannot be removed any more
                patch.setattr(records, "sync_directory", lambda _: cut_power(disk))
                store.begin(record).close()
        else:
            with store.begin(record) as journal:
                journal.write("started")
                journal.write("complete", result="{}")
            if moment == "its DEL has begun":
                subprocess.run(["sync", "-f", disk], check=True)
                store.mark_detaching(store.records()[0])
            cut_power(disk)
    with mounted(image, directory / "after") as disk:
        return RecordStore(str(disk / "cni")).records()


MOMENTS = {
    "the record has its name": {"begun"},
    "it is complete": {"begun", "pending", "ready"},  # only the head is certain
    "its DEL has begun": {"ready", "detaching"},
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("is_ordered", [True, False])
def test_a_record_that_has_a_name_has_its_bytes(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, is_ordered: bool
) -> None:
    monkeypatch.setattr(files, "_is_ordered", lambda *_: is_ordered)
    [found] = after_a_power_cut(image, tmp_path, moment)
    assert found.state in MOMENTS[moment], found.problem
    assert found.config == b"c" * 5000


def test_without_the_order_it_would_be_empty(image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_order_before_names", lambda _: None)
    [found] = after_a_power_cut(image, tmp_path, "the record has its name")
    assert (found.state, found.problem) == ("corrupt", "it is empty")


@contextmanager
def frozen(directory: Path) -> Iterator[None]:
    """Let all writes to a file system wait."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, FIFREEZE, 0)
        try:
            yield
        finally:
            fcntl.ioctl(descriptor, FITHAW, 0)
    finally:
        os.close(descriptor)


def waits_for_disk(thread: threading.Thread) -> bool:
    stat = Path(f"/proc/self/task/{thread.native_id}/stat").read_text(encoding="utf-8")
    return stat.rpartition(")")[2].split()[0] == "D"


@pytest.mark.parametrize("is_new", [True, False])
def test_a_slow_disk_has_the_bytes_of_a_record_that_has_a_name(tmp_path: Path, is_new: bool) -> None:
    """With dioread_nolock the journal can name a file whose bytes are still on their way to the disk."""
    copy = tmp_path / "copy"
    with mounted(make_image(tmp_path / "outer"), tmp_path / "below") as below:
        image = make_image(below / "image", size=24 << 20)
        with mounted(image, tmp_path / "disk") as disk:
            store = RecordStore(str(disk / "cni"))
            first = written(store, bare(container_id="c0" if is_new else "c1"))
            record = bare(config=b"c" * 5000, path="" if is_new else first.path)
            subprocess.run(["sync", "-f", disk], check=True)  # os.sync() would write the disks of other tests, too
            beginning = threading.Thread(target=written, args=(store, record))
            with frozen(below):
                beginning.start()
                wait_until(lambda: waits_for_disk(beginning))
                time.sleep(0.3)  # it may have been another wait
            beginning.join()
            shutil.copyfile(image, copy)  # what the disk has at this moment
    with mounted(copy, tmp_path / "after") as disk:
        found = RecordStore(str(disk / "cni")).records("c1")
        assert [(one.state, one.config) for one in found] == [("begun", b"c" * 5000)], found[0].problem


@pytest.mark.parametrize("has_journal", [True, False])
def test_only_a_journal_orders_bytes_and_names(tmp_path: Path, has_journal: bool) -> None:
    made = make_image(tmp_path / "image", *(() if has_journal else ("-O", "^has_journal")))
    with mounted(made, tmp_path / "disk", "loop") as disk:
        assert files._is_ordered.__wrapped__(disk.stat().st_dev, 0) is has_journal


def test_a_device_number_may_be_another_file_systems_later(image: Path, tmp_path: Path) -> None:
    device = Path(subprocess.check_output(["losetup", "--find", "--show", image], text=True).strip())
    answers = []
    try:
        for name, options in (("with", ()), ("without", ("-O", "^has_journal"))):
            # Another test's mount namespace may have a copy of the mount, and keep the device in use until it ends.
            make = partial(subprocess.run, ["mkfs.ext4", "-q", *options, device], check=False)
            wait_until(lambda: make().returncode == 0, 60)  # noqa: B023 - it is called now
            with mounted(device, tmp_path / name, "rw") as disk:
                answers.append(files._is_ordered(disk.stat().st_dev, os.statvfs(disk).f_fsid))
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)
    assert answers == [True, False]
