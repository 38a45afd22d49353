"""The names that may belong to an interface: what is remembered is what a listing finds, whoever writes."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import wait

from libcni.store import names
from libcni.store.files import Directory
from libcni.store.record import Record, encode
from libcni.store.records import RecordStore

HASH = "~" + "0" * 32


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Watch each directory with more than five names, and stop at the end."""
    monkeypatch.setattr(names, "_MANY", 5)
    yield
    for watched in names._watched.values():
        watched.close()
    names._watched.clear()


@pytest.fixture
def store(tmp_path: Path) -> RecordStore:
    """Make a store with ten records, which is watched."""
    made = RecordStore(str(tmp_path / "cache"), durable=False)
    for index in range(10):
        made.begin(Record("net", f"c{index}", "eth0"))
    assert found(made, "c3") == ["net"]
    assert names._watched
    return made


def found(store: RecordStore, container_id: str, ifname: str = "eth0") -> list[str]:
    return [record.network for record in store.of_interface(container_id, ifname)]


def test_changes_of_this_process_are_seen(store: RecordStore) -> None:
    other = store.begin(Record("other", "c3", "eth0"))
    assert found(store, "c3") == ["net", "other"]
    store.complete(other)
    assert found(store, "c3") == ["net", "other"]
    store.forget(other)
    assert found(store, "c3") == ["net"]


def test_a_record_that_go_writes_in_another_process_is_seen(store: RecordStore) -> None:
    """Go creates a file in place, under its plain name, on a network that nobody here has heard of."""
    data = encode(Record("unheard-of", "c3", "eth0")).decode()
    code = "import sys; open(sys.argv[1], 'w').write(sys.argv[2])"
    subprocess.run([sys.executable, "-c", code, f"{store.results}/unheard-of-c3-eth0", data], check=True)
    assert found(store, "c3") == ["net", "unheard-of"]
    subprocess.run(["rm", f"{store.results}/unheard-of-c3-eth0"], check=True)
    assert found(store, "c3") == ["net"]


def test_records_under_a_hash_are_found(store: RecordStore) -> None:
    long = "c" * 300
    store.begin(Record("net", long, "eth0"))
    store.begin(Record("a-b", "c", "eth0"))
    store.begin(Record("a", "b-c", "eth0"))
    assert found(store, long) == ["net"]
    assert found(store, "c") == ["a-b"]
    assert found(store, "b-c") == ["a"]


def test_short_names_are_found(store: RecordStore) -> None:
    store.begin(Record("n", "c", "e"))
    assert found(store, "c", "e") == ["n"]


def test_an_interface_whose_name_has_a_tilde_is_found(store: RecordStore) -> None:
    store.begin(Record("n", "container", "e~0"))
    assert found(store, "container", "e~0") == ["n"]


def test_the_names_are_those_of_a_listing_whatever_happens(store: RecordStore) -> None:
    dice = random.Random(5)
    for _ in range(300):
        name = (
            f"{dice.choice(['net', 'a-b', 'n'])}-c{dice.randrange(5)}-eth{dice.randrange(2)}{dice.choice(['', HASH])}"
        )
        path = Path(store.results, name)
        match dice.randrange(4):
            case 0:
                path.touch()
            case 1:
                path.unlink(missing_ok=True)
            case 2:
                (path.parent.parent / "draft").touch()
                (path.parent.parent / "draft").rename(path)
            case _ if path.exists():
                path.rename(path.with_name(f"n-c{dice.randrange(5)}-eth0"))
        with Directory(store.results) as directory:
            for container_id, ifname in (("c1", "eth0"), ("c2", "eth1")):
                ending = f"-{container_id}-{ifname}"
                listed = {name for name in os.listdir(directory) if ending in name}
                assert set(names.names_of_interface(directory, container_id, ifname)) == listed
    assert names._watched


def test_more_events_than_the_queue_holds(store: RecordStore) -> None:
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    path = Path(store.results, "x-c3-eth0")
    for _ in range(limit // 2 + 10):
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
        path.unlink()
    store.begin(Record("late", "c3", "eth0"))
    assert found(store, "c3") == ["late", "net"]


def test_a_directory_that_is_removed_and_made_again(store: RecordStore) -> None:
    shutil.rmtree(store.results)
    assert found(store, "c3") == []
    for network in ("n1", "n2"):
        store.begin(Record(network, "c3", "eth0"))
    assert found(store, "c3") == ["n1", "n2"]


def test_a_forked_child_takes_no_events_from_its_parent(store: RecordStore) -> None:
    store.begin(Record("other", "c3", "eth0"))
    pid = os.fork()
    if pid == 0:
        os._exit(0 if not names._watched and found(store, "c3") == ["net", "other"] else 1)
    assert wait(pid) == 0
    assert found(store, "c3") == ["net", "other"]


def test_without_a_watch_the_directory_is_listed(store: RecordStore, monkeypatch: pytest.MonkeyPatch) -> None:
    import ctypes

    class NoWatch:
        def inotify_init1(self, _flags: int) -> int:
            return -1

    for watched in names._watched.values():
        watched.close()
    names._watched.clear()
    monkeypatch.setattr(ctypes, "CDLL", lambda *_args, **_more: NoWatch())
    before = len(os.listdir("/proc/self/fd"))
    assert found(store, "c3") == ["net"]
    store.begin(Record("other", "c3", "eth0"))
    assert found(store, "c3") == ["net", "other"]
    assert (len(os.listdir("/proc/self/fd")), names._watched) == (before, {})


def test_few_directories_are_watched_at_once(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for number in range(names._WATCHES + 3):
        store = RecordStore(str(tmp_path / str(number)), durable=False)
        for index in range(7):
            store.begin(Record("net", f"c{index}", "eth0"))
        assert found(store, "c3") == ["net"]
    assert len(os.listdir("/proc/self/fd")) == before + names._WATCHES
