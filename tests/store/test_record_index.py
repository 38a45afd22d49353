"""The index of what records mention: it follows each change, in threads and in child processes."""

from __future__ import annotations

import errno
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from processes import fork, wait

from libcni.errors import RecordError
from libcni.kernel import system
from libcni.kernel.regular_file import read_with_status
from libcni.store import files, record_index, records
from libcni.store.model import READY, Ours
from libcni.store.record_index import RecordIndex
from libcni.store.records import RecordStore


def put(results: Path, name: str, *addresses: str) -> None:
    results.mkdir(parents=True, exist_ok=True)
    (results / name).write_text("".join(f'"address":"{address}/24",' for address in addresses))


def found(index: RecordIndex, address: str) -> list[str]:
    return sorted(index.look().mentioning([address.encode()]))


@pytest.fixture(autouse=True)
def _watches_from_its_first_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_index, "_FEW_QUESTIONS", 0)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "results"


@pytest.fixture
def index(results: Path) -> RecordIndex:
    return RecordIndex(str(results))


def test_a_word_leads_to_all_files_that_have_it_now(results: Path, index: RecordIndex) -> None:
    assert found(index, "10.0.0.1") == []
    put(results, "a", "10.0.0.1", "10.0.0.2")
    put(results, "b", "10.0.0.2")
    put(results, "c", "10.0.0.2")
    assert (found(index, "10.0.0.1"), found(index, "10.0.0.2")) == (["a"], ["a", "b", "c"])
    put(results, "a", "10.0.0.1")
    assert (found(index, "10.0.0.1"), found(index, "10.0.0.2")) == (["a"], ["b", "c"])
    (results / "c").unlink()
    put(results, "b", "10.0.0.3")
    assert [found(index, f"10.0.0.{number}") for number in (1, 2, 3)] == [["a"], [], ["b"]]
    for name in "ab":
        (results / name).unlink()
    view = index.look()
    assert (view._by_word._names, view._files, view._changed) == ({}, {}, {}), "nothing is kept of files that are gone"


def test_a_file_that_only_decoding_can_read_is_always_mentioned(
    results: Path, index: RecordIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(results, "a", "10.0.0.1")
    (results / "b").write_text('"address":"10.0.0\\u002e9"')
    assert found(index, "10.0.0.9") == ["b"]
    assert index.look().mentioning([]) == []
    put(results, "b", "10.0.0.2")
    assert found(index, "10.0.0.9") == []


def test_a_file_with_very_many_words_is_not_indexed(results: Path, index: RecordIndex) -> None:
    put(results, "a", *(f"10.{number // 65536}.{number // 256 % 256}.{number % 256}" for number in range(10_001)))
    assert found(index, "192.0.2.1") == ["a"]
    assert index.look()._by_word._names == {b"": "a"}


@pytest.mark.parametrize("how", ["removed", "moved"])
def test_a_directory_that_is_made_again_is_another(results: Path, index: RecordIndex, how: str) -> None:
    put(results, "a", "10.0.0.1")
    assert found(index, "10.0.0.1") == ["a"]
    if how == "removed":
        shutil.rmtree(results)
    else:
        results.rename(results.parent / "before")
    assert found(index, "10.0.0.1") == []
    put(results, "b", "10.0.0.1")
    assert found(index, "10.0.0.1") == ["b"]
    put(results, "c", "10.0.0.1")
    assert found(index, "10.0.0.1") == ["b", "c"]


def test_after_lost_events_all_files_are_examined(
    results: Path, index: RecordIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(results, "a", "10.0.0.1")
    assert found(index, "10.0.0.1") == ["a"]
    view = index.look()
    assert view._watch is not None
    put(results, "a", "10.0.0.2")
    put(results, "b", "10.0.0.3")
    view._watch.changed()
    monkeypatch.setattr(view._watch, "changed", lambda: None)
    assert [found(index, f"10.0.0.{number}") for number in (1, 2, 3)] == [[], ["a"], ["b"]]
    (results / "a").unlink()
    assert [found(index, f"10.0.0.{number}") for number in (1, 2, 3)] == [[], [], ["b"]]
    assert index.look() is view


def test_a_child_process_has_a_watch_of_its_own(results: Path, index: RecordIndex) -> None:
    put(results, "a", "10.0.0.1")
    assert found(index, "10.0.0.1") == ["a"]
    put(results, "b", "10.0.0.1")

    def child() -> None:
        put(results, "c", "10.0.0.2")
        os._exit(not (found(index, "10.0.0.1") == ["a", "b"] and found(index, "10.0.0.2") == ["c"]))

    assert wait(fork(child)) == 0
    assert found(index, "10.0.0.1") == ["a", "b"]
    assert found(index, "10.0.0.2") == ["c"]


def test_threads_find_what_was_written_before_they_look(results: Path, index: RecordIndex) -> None:
    def work(number: int) -> list[str]:
        wrong: list[str] = []
        for turn in range(40):
            name, address = f"{number}", f"10.0.{number}.{turn}"
            put(results, name, address)
            if found(index, address) != [name]:
                wrong.append(address)
            if turn and found(index, f"10.0.{number}.{turn - 1}"):
                wrong.append(f"old {address}")
        return wrong

    results.mkdir()
    with ThreadPoolExecutor(8) as threads:
        assert [*threads.map(work, range(8))] == [[]] * 8
    assert not index.look()._changed


def test_a_file_that_changes_while_it_is_read_is_read_again(
    results: Path, index: RecordIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread learns of the change, so the kernel reports it to this one no more."""
    put(results, "a", "10.0.0.1")
    assert found(index, "10.0.0.1") == ["a"]
    put(results, "a", "10.0.0.2")
    read = read_with_status

    def overtaken(descriptor: int, limit: int) -> object:
        old = read(descriptor, limit)
        put(results, "a", "10.0.0.3")
        index._view.collect()
        return old

    with monkeypatch.context() as patch:
        patch.setattr(record_index, "read_with_status", overtaken)
        assert found(index, "10.0.0.2") == ["a"], "what was there when the look began"
    assert (found(index, "10.0.0.2"), found(index, "10.0.0.3")) == ([], ["a"])


def test_the_events_of_a_new_record_are_seen_by_other_clients(tmp_path: Path) -> None:
    """It gets its name by link(2), and its events come after that."""
    made = Ours("net", "c1", "eth0", READY, config=b"{}", version="1.1.0", created=1.0)
    store, other = RecordStore(str(tmp_path), durable=False), RecordStore(str(tmp_path), durable=False)
    with store.begin(made.with_fields(state="begun")) as journal:
        assert found(other.index, "10.0.0.9") == []
        journal.write("started")
        journal.write("complete", result='{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.9/24"}]}')
        assert found(other.index, "10.0.0.9") == ["net-c1-eth0"]


def test_a_record_whose_file_is_replaced_when_it_begins_is_written_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program renames a file of its own over it, at once: the journal must not write into that file."""
    made = Ours("net", "c1", "eth0", READY, config=b"{}", version="1.1.0", created=1.0)
    store, theirs = RecordStore(str(tmp_path), durable=False), tmp_path / "theirs"

    def replaced(name: str, directory: int, *, writable: bool = False) -> int:
        if writable:
            theirs.write_text("theirs")
            theirs.rename(tmp_path / "results" / name)
        return files.open_file(name, directory, writable=writable)

    monkeypatch.setattr(records, "open_file", replaced)
    with store.begin(made.with_fields(state="begun")) as journal:
        journal.write("started")
        assert not journal.has_name()
    assert (tmp_path / "results/net-c1-eth0").read_text() == "theirs"


def test_a_client_that_asks_rarely_takes_no_watch(
    results: Path, index: RecordIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default the programs of a user have 128. A hundred commands at once must leave some to others."""
    monkeypatch.setattr(record_index, "_FEW_QUESTIONS", 4)
    for number in range(3):
        put(results, "a", f"10.0.0.{number}")
        assert found(index, f"10.0.0.{number}") == ["a"]
        assert not index._view.is_watched
    put(results, "b", "10.0.0.2")
    assert found(index, "10.0.0.2") == ["a", "b"]
    assert index._view.is_watched
    put(results, "c", "10.0.0.2")
    assert found(index, "10.0.0.2") == ["a", "b", "c"]
    large = RecordIndex(str(results))
    monkeypatch.setattr(record_index, "_LARGE_BYTES", 1)
    large.look()
    assert large._view.is_watched, "the examination of many files takes long"


def test_a_client_whose_watch_was_refused_asks_again(
    results: Path, index: RecordIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_index, "_FEW_QUESTIONS", 2)
    asked: list[int] = []

    def refuse(_: int) -> None:
        asked.append(index._questions)
        raise OSError

    put(results, "a", "10.0.0.1")
    with monkeypatch.context() as patch:
        patch.setattr(record_index, "DirectoryWatch", refuse)
        for _ in range(40):
            assert found(index, "10.0.0.1") == ["a"]
    assert asked == [2, 4, 8, 16, 32]
    for _ in range(24):
        index.look()
    put(results, "b", "10.0.0.1")
    assert index._view.is_watched
    assert found(index, "10.0.0.1") == ["a", "b"]


def names(index: RecordIndex, results: Path, part: str) -> list[str]:
    with files.Directory(str(results)) as directory:
        return sorted(index.names_with(part, directory))


@pytest.mark.parametrize("is_watched", [True, False])
def test_names_are_listed_once_and_then_as_they_are_now(
    results: Path, index: RecordIndex, monkeypatch: pytest.MonkeyPatch, *, is_watched: bool
) -> None:
    """Without that, each question for the records of one container would list those of all."""
    if not is_watched:
        monkeypatch.setattr(record_index, "DirectoryWatch", _refuse)
    listed: list[object] = []
    listdir, scandir = system.listdir, system.scandir

    def count(call: Any, directory: int) -> Any:
        listed.append(directory)
        return call(directory)

    monkeypatch.setattr(system, "listdir", partial(count, listdir))
    monkeypatch.setattr(system, "scandir", partial(count, scandir))
    for name in ("net-c1-eth0", "net-c10-eth0", "net-c2-eth0", "~0123"):
        put(results, name)
    assert names(index, results, "-c1-") == ["net-c1-eth0", "~0123"]
    for _ in range(3):
        assert names(index, results, "-c1-") == ["net-c1-eth0", "~0123"]
    put(results, "other-c1-eth1")
    (results / "~0123").unlink()
    assert names(index, results, "-c1-") == ["net-c1-eth0", "other-c1-eth1"]
    (results / "net-c1-eth0").unlink()
    (results / "other-c1-eth1").rename(results / "other-c2-eth1")
    assert names(index, results, "-c1-") == []
    assert names(index, results, "-c2-") == ["net-c2-eth0", "other-c2-eth1"]
    assert len(listed) == (2 if is_watched else 7), "the first listing makes no watch"
    assert is_watched or not index._view._by_token._names, "an index for one question would take twice as long"
    hyphens = ["a-b-eth0", "a-b-c-eth0", "net-a-b-eth0", "net-a-b-eth0~0123", "net-x-a-b-y-eth0", "net-b-a-eth0"]
    for name in hyphens:
        put(results, name)
    assert names(index, results, "-a-b-") == [name for name in hyphens if "-a-b-" in name]
    assert names(index, results, "-b-eth0") == sorted(name for name in hyphens if "-b-eth0" in name)
    if index._view._watch is not None:
        monkeypatch.setattr(index._view._watch, "changed", lambda: None)
    put(results, "net-c3-eth0")
    assert names(index, results, "-c3-") == ["net-c3-eth0"]


def test_a_name_that_comes_during_the_listing_is_kept(
    results: Path, index: RecordIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread learns of it, so the kernel reports it to this one no more."""
    put(results, "net-c1-eth0")
    names(index, results, "-c1-")
    listdir = system.listdir

    def overtaken(directory: int) -> list[str]:
        old = listdir(directory)
        put(results, "net-c2-eth0")
        index._view.collect()
        return old

    with monkeypatch.context() as patch:
        patch.setattr(system, "listdir", overtaken)
        names(index, results, "-c1-")
    assert names(index, results, "-c2-") == ["net-c2-eth0"]


@pytest.mark.parametrize("is_watched", [True, False])
def test_a_look_is_quick_if_it_examines_few_files(
    results: Path, index: RecordIndex, monkeypatch: pytest.MonkeyPatch, *, is_watched: bool
) -> None:
    monkeypatch.setattr(record_index, "_FEW", 2)
    monkeypatch.setattr(record_index, "_FEW_CHANGED", 3)
    if not is_watched:
        monkeypatch.setattr(record_index, "DirectoryWatch", _refuse)
    assert not index.is_quick()
    put(results, "a", "10.0.0.1")
    index.look()
    assert index.is_quick()
    put(results, "b", "10.0.0.1")
    index.look()
    assert index.is_quick() is is_watched
    for name in "cde":
        put(results, name, "10.0.0.1")
    assert not index.is_quick(), "another program has changed many"
    assert found(index, "10.0.0.1") == [*"abcde"]
    assert index.is_quick() is is_watched


def _refuse(_: int) -> None:
    raise OSError


class _StopError(Exception):
    """What a signal handler raises, as Ctrl-C does."""


@pytest.mark.parametrize("where", ["_mark", "_put", "add", "remove"])
@pytest.mark.parametrize("is_done", [False, True])
def test_a_look_that_a_signal_handler_ends_loses_no_change(
    results: Path, index: RecordIndex, monkeypatch: pytest.MonkeyPatch, *, where: str, is_done: bool
) -> None:
    """The kernel reports each change once."""
    put(results, "net-c1-eth0", "10.0.0.1")
    put(results, "net-c2-eth0", "10.0.0.2")
    for _ in range(2):
        names(index, results, "-c1-")
        index.look()
    put(results, "net-c1-eth0", "10.0.0.3")
    (results / "net-c2-eth0").unlink()
    put(results, "net-c3-eth0", "10.0.0.1")
    owner: Any = record_index.View if where.startswith("_") else record_index.Index
    method = getattr(owner, where)

    def stop(*arguments: object, **named: object) -> None:
        if is_done:
            method(*arguments, **named)
        raise _StopError

    with monkeypatch.context() as patch:
        patch.setattr(owner, where, stop)
        with pytest.raises(_StopError):
            index.look()
    assert [found(index, f"10.0.0.{number}") for number in (1, 2, 3)] == [["net-c3-eth0"], [], ["net-c1-eth0"]]
    assert [names(index, results, f"-c{number}-") for number in (1, 2, 3)] == [["net-c1-eth0"], [], ["net-c3-eth0"]]


def test_a_signal_handler_may_look_while_a_look_is_going_on(
    results: Path, index: RecordIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program may detach its containers in the handler of SIGTERM."""
    put(results, "net-c1-eth0", "10.0.0.1")
    assert found(index, "10.0.0.1") == ["net-c1-eth0"]
    put(results, "net-c1-eth0", "10.0.0.2")
    mark, seen = record_index.View._mark, list[list[str]]()

    def interrupted(view: record_index.View, changed: Any) -> None:
        if not seen:
            assert view._lock.acquire(blocking=False), "the handler would wait for its own thread"
            view._lock.release()
            seen.append([])
            seen.append(found(index, "10.0.0.2"))
        mark(view, changed)

    monkeypatch.setattr(record_index.View, "_mark", interrupted)
    assert found(index, "10.0.0.2") == ["net-c1-eth0"]
    assert seen[1:] == [["net-c1-eth0"]]


def test_changes_that_another_thread_loses_hide_no_names(
    results: Path, index: RecordIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(results, "net-c1-eth0")
    for _ in range(2):
        names(index, results, "-c1-")
    view = index._view
    lock = view._lock

    class Overtaken:
        """The lock of a view whose watch loses changes in another thread, before the lock is acquired again."""

        entered = 0

        def __enter__(self) -> None:
            self.entered += 1
            if self.entered == 2:
                monkeypatch.setattr(view, "_lock", lock)
                monkeypatch.setattr(view._watch, "changed", lambda: None)
                view.collect()
            lock.acquire()

        def __exit__(self, *_: object) -> None:
            lock.release()

    monkeypatch.setattr(view, "_lock", Overtaken())
    with files.Directory(str(results)) as directory:
        assert view.names_with("-c1-", directory) == ["net-c1-eth0"]
    assert view._losses > 1


@pytest.mark.parametrize("has_looked", [True, False])
def test_a_client_that_asks_only_for_names_keeps_nothing_of_dead_records(
    results: Path, index: RecordIndex, monkeypatch: pytest.MonkeyPatch, *, has_looked: bool
) -> None:
    monkeypatch.setattr(record_index, "_MOST_MARKED", 20)
    put(results, "net-c1-eth0", "10.0.0.1")
    if has_looked:
        index.look()
    for number in range(2, 200):
        put(results, f"net-c{number}-eth0", "10.0.0.2")
        assert names(index, results, f"-c{number}-") == [f"net-c{number}-eth0"]
        (results / f"net-c{number}-eth0").unlink()
    put(results, "net-c1-eth0", "10.0.0.3")
    assert names(index, results, "-c1-") == ["net-c1-eth0"]
    assert len(index._view._changed) <= 20
    assert len(index._view._by_token._names) <= 5
    assert [found(index, f"10.0.0.{number}") for number in (1, 2, 3)] == [[], [], ["net-c1-eth0"]]


def test_a_look_that_goes_on_keeps_its_marks(
    results: Path, index: RecordIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread learns of many changes meanwhile."""
    put(results, "a", "10.0.0.1")
    assert found(index, "10.0.0.1") == ["a"]
    put(results, "a", "10.0.0.2")
    view = index._view
    update = view._update

    def overtaken(directory: int, losses: int) -> None:
        for name in "bcd":
            put(results, name)
        view.collect()
        update(directory, losses)

    monkeypatch.setattr(record_index, "_MOST_MARKED", 2)
    monkeypatch.setattr(view, "_update", overtaken)
    assert found(index, "10.0.0.2") == ["a"]


def test_a_record_that_other_clients_could_not_follow_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Ours("net", "c1", "eth0", READY, config=b"{}", version="1.1.0", created=1.0)

    def refused(name: str, directory: int, *, writable: bool = False) -> int:
        if writable:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return files.open_file(name, directory)

    monkeypatch.setattr(records, "open_file", refused)
    with pytest.raises(RecordError, match="cannot be written: Too many open files"):
        RecordStore(str(tmp_path), durable=False).begin(made)
    assert not os.listdir(tmp_path / "tmp")


@pytest.mark.parametrize("key", ["address", "ip", "netnsId", "hostport", "capabilityArgs"])
@pytest.mark.parametrize("rest", ["[", ":", ":[", ':"', ':[1,"', ": "])
def test_a_large_file_of_beginnings_is_read_in_linear_time(
    results: Path, index: RecordIndex, key: str, rest: str
) -> None:
    results.mkdir()
    (results / "a").write_text('"capabilityArgs"' + f'"{key}"{rest}' * 20_000)
    start = time.process_time()
    assert found(index, "10.0.0.1") in (["a"], [])
    assert time.process_time() - start < 1
