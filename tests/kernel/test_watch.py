"""The kernel's reports of the changes in a directory: what they tell, and what they do not tell."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import fork, wait

from libcni.kernel import system
from libcni.kernel.watch import DirectoryWatch


def watch_of(path: Path) -> DirectoryWatch:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return DirectoryWatch(descriptor)
    finally:
        os.close(descriptor)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    path = tmp_path / "results"
    path.mkdir()
    (path / "old").write_text("old")
    (tmp_path / "outside").write_text("outside")
    return path


@pytest.fixture
def watch(results: Path) -> Iterator[DirectoryWatch]:
    made = watch_of(results)
    yield made
    made.close()


CHANGES: dict[str, Callable[[Path], object]] = {
    "created": lambda path: (path / "a").touch(),
    "written": lambda path: (path / "old").write_text("new"),
    "emptied": lambda path: os.truncate(path / "old", 0),
    "written at an index": lambda path: write_at(path / "old", 1),
    "renamed": lambda path: (path / "old").rename(path / "a"),
    "moved in": lambda path: (path.parent / "outside").rename(path / "a"),
    "moved out": lambda path: (path / "old").rename(path.parent / "a"),
    "linked": lambda path: os.link(path.parent / "outside", path / "a"),
    "symbolic link": lambda path: (path / "a").symlink_to("old"),
    "removed": lambda path: (path / "old").unlink(),
    "other mode": lambda path: (path / "old").chmod(0o400),
    "replaced": lambda path: (path.parent / "outside").rename(path / "old"),
}


def write_at(path: Path, index: int) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    os.pwrite(descriptor, b"x", index)
    os.close(descriptor)


@pytest.mark.parametrize("change", CHANGES)
def test_each_change_is_reported_before_it_returns(results: Path, watch: DirectoryWatch, change: str) -> None:
    assert not watch.changed()
    CHANGES[change](results)
    expected = {"renamed": {"old", "a"}}.get(change, {"a"} if (results / "a").is_symlink() else None)
    found = watch.changed()
    assert found is not None
    assert {*found} == (expected or {*found})
    assert {*found} & {"old", "a"}
    there = {name for name in ("old", "a") if (results / name).is_symlink() or (results / name).exists()}
    assert all((name in there) is is_there for name, is_there in found.items() if is_there is not None)
    assert there ^ {"old"} <= {name for name, is_there in found.items() if is_there is not None}
    assert not watch.changed()
    assert not watch.is_over


def test_a_name_that_comes_and_goes_is_reported_as_it_is_now(results: Path, watch: DirectoryWatch) -> None:
    (results / "a").touch()
    (results / "a").unlink()
    descriptor = os.open(results / "old", os.O_WRONLY)
    (results / "old").unlink()
    os.write(descriptor, b"it has lost its name")
    os.close(descriptor)
    (results / "b").touch()
    (results / "b").unlink()
    (results / "b").touch()
    assert watch.changed() == {"a": False, "old": False, "b": True}


def test_reading_is_no_change(results: Path, watch: DirectoryWatch) -> None:
    (results / "old").read_text()
    os.listdir(results)
    assert not watch.changed()


def test_names_of_any_bytes_are_reported(results: Path, watch: DirectoryWatch) -> None:
    names = {"a" * 255, "\udcff\n", "ü"}
    for name in names:
        (results / name).touch()
    assert {*(watch.changed() or ())} == names


def test_a_file_that_was_opened_elsewhere_is_reported_once_it_is_opened_by_its_name_here(
    results: Path, watch: DirectoryWatch
) -> None:
    """So a record that gets its name by link(2) must be opened again before it is written."""
    descriptor = os.open(results.parent / "draft", os.O_WRONLY | os.O_CREAT)
    os.link(results.parent / "draft", results / "a")
    assert {*(watch.changed() or ())} == {"a"}
    os.write(descriptor, b"x")
    os.close(descriptor)
    assert not watch.changed(), "the kernel reports the name under which the file was opened"
    (results / "a").write_text("y")
    assert {*(watch.changed() or ())} == {"a"}


def test_a_file_that_was_renamed_after_it_was_opened_is_reported(results: Path, watch: DirectoryWatch) -> None:
    """So a record that gets its name by rename(2) need not be opened again."""
    descriptor = os.open(results.parent / "draft", os.O_WRONLY | os.O_CREAT)
    (results.parent / "draft").rename(results / "a")
    assert {*(watch.changed() or ())} == {"a"}
    os.write(descriptor, b"x")
    os.close(descriptor)
    assert {*(watch.changed() or ())} == {"a"}


@pytest.mark.parametrize("how", ["removed", "moved"])
def test_a_watch_is_over_when_the_directory_is_gone(results: Path, watch: DirectoryWatch, how: str) -> None:
    if how == "moved":
        results.rename(results.parent / "elsewhere")
    else:
        (results / "old").unlink()
        results.rmdir()
    assert watch.changed() is None
    assert watch.is_over


def test_lost_events_are_said_once(results: Path, watch: DirectoryWatch) -> None:
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    limit = min(limit, 1 << 17)
    first, second = (os.open(results / name, os.O_WRONLY | os.O_CREAT) for name in "ab")
    for _ in range(limit // 2 + 100):  # equal events in a row would become one
        os.write(first, b"x")
        os.write(second, b"x")
    for descriptor in (first, second):
        os.close(descriptor)
    assert watch.changed() is None
    assert not watch.is_over
    assert not watch.changed()
    (results / "c").touch()
    assert {*(watch.changed() or ())} == {"c"}


def test_a_child_process_takes_no_events_of_its_parent(results: Path, watch: DirectoryWatch) -> None:
    (results / "a").touch()
    assert wait(fork(lambda: (watch.changed(), watch.changed()) == (None, None) or os._exit(1))) == 0
    assert {*(watch.changed() or ())} == {"a"}


def test_a_file_system_that_may_change_without_the_kernel_is_not_watched(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OSError, match="not supported"):
        watch_of(Path("/proc/self/ns"))
    monkeypatch.setattr(system, "_KNOWN_FILE_SYSTEMS", set())
    with pytest.raises(OSError, match="not supported") as caught:
        watch_of(results)
    assert caught.value.errno == errno.ENOTSUP


def test_a_watch_keeps_one_descriptor_and_gives_it_back(results: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    watches = [watch_of(results) for _ in range(3)]
    assert len(os.listdir("/proc/self/fd")) == before + 3
    watches[0].close()
    watches.clear()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("kind", ["socket", "epoll", "inotify"])
def test_a_number_that_another_file_has_now_is_left_alone(results: Path, kind: str) -> None:
    """A daemon closes all descriptors, and then opens its own."""
    watch = watch_of(results)
    number = watch._descriptor
    one, two = socket.socketpair()
    with one, two, select.epoll() as epoll:
        two.send(b"x")
        one.setblocking(False)
        inotify = ctypes.CDLL(None).inotify_init1(os.O_NONBLOCK)
        os.dup2({"socket": one.fileno(), "epoll": epoll.fileno(), "inotify": inotify}[kind], number)
        os.close(inotify)
        assert watch.changed() is None
        assert watch.is_over
        watch.close()
        assert one.recv(1) == b"x"
        os.close(number)  # it is open
    watch = watch_of(results)
    os.dup2(0, watch._descriptor)
    number = watch._descriptor
    del watch  # without a look
    os.close(number)


def test_a_number_that_another_watch_has_now_belongs_to_it(results: Path) -> None:
    watch = watch_of(results)
    directory = os.open(results, os.O_RDONLY)
    os.close(watch._descriptor)
    other = DirectoryWatch(directory)
    os.close(directory)
    (results / "a").touch()
    assert watch.changed() is None
    assert watch.is_over
    watch.close()
    assert {*(other.changed() or ())} == {"a"}
    other.close()
