"""Records: Go libcni's own files, byte for byte where Go writes them, and nothing that is ever lost."""

from __future__ import annotations

import errno
import os
import socket
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from libcni import CNIConfig
from libcni.errors import RecordError
from libcni.kernel import system
from libcni.store import record_format, records
from libcni.store.boot import boot_id
from libcni.store.model import BEGUN, CORRUPT, DETACHING, READY, MadeByGo, Unreadable
from libcni.store.record_format import encode
from libcni.store.records import RecordStore
from store.canned import FULL, GO_FULL, RESULT, bare, files, no_space, put, written

# detaching


def test_a_record_that_is_being_detached_keeps_all_else(store: RecordStore) -> None:
    begun = written(store, FULL)
    before = Path(begun.path).read_bytes()
    marked = store.mark_detaching(begun)
    assert store.find(FULL.identity) == marked == replace(begun, state=DETACHING)
    assert Path(begun.path).read_bytes().startswith(before[:-1] + b',"libcni.2":{"event":"detach",')
    assert store.mark_detaching(marked) == marked


def test_an_event_waits_for_no_disk(store: RecordStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power cut the record is of an earlier boot, with the event or without it."""
    begun = written(store, FULL)
    for name in ("fsync", "ioctl"):
        monkeypatch.setattr(system, name, no_space)
    assert store.mark_detaching(begun).state == DETACHING


def test_a_record_of_go_grows_and_stays_gos(store: RecordStore) -> None:
    path = put(store, "net-c1-eth0", GO_FULL)
    found = store.find(FULL.identity)
    assert found is not None
    marked = store.mark_detaching(found)
    assert path.read_bytes().startswith(GO_FULL[:-1] + b',"libcni.1":{"event":"detach",')
    assert store.find(FULL.identity) == marked == found.with_fields(state=DETACHING)
    assert isinstance(marked, MadeByGo)


def test_a_record_that_go_has_written_meanwhile_is_read_again(store: RecordStore) -> None:
    path = put(store, "net-c1-eth0", GO_FULL)
    (found,) = store.records()
    longer = GO_FULL.replace(b"10.0.0.2/24", b"10.0.0.200/24")
    path.write_bytes(longer)
    assert store.mark_detaching(found).result == RESULT.replace("10.0.0.2/", "10.0.0.200/")
    assert path.read_bytes().startswith(longer[:-1] + b",")


@pytest.mark.parametrize("data", [b"", encode(bare("x"))], ids=["damaged", "another's"])
def test_another_file_of_the_name_is_not_written(
    store: RecordStore, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    begun = written(store, FULL)
    path = Path(begun.path)
    path.write_bytes(data)
    assert store.mark_detaching(begun) is begun
    assert path.read_bytes() == data
    assert "another program rewrote the record meanwhile" in caplog.text


def test_a_disk_that_cannot_be_written_does_not_stop_a_detach(
    store: RecordStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begun = written(store, FULL)
    with monkeypatch.context() as patch:
        patch.setattr(system, "pwrite", no_space)
        assert store.mark_detaching(begun) is begun
    assert "No space left" in caplog.text
    assert store.find(FULL.identity) == begun


def test_whether_a_record_can_be_written_is_found_out_by_writing(
    store: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.ensure_writable(FULL)
    assert os.listdir(f"{store.cache_dir}/tmp") == files(store) == []
    monkeypatch.setattr(system, "fsync", no_space)
    with pytest.raises(RecordError, match=r"can(not)? be written: No space left"):
        store.ensure_writable(FULL)
    assert os.listdir(f"{store.cache_dir}/tmp") == []


# names


def test_two_identities_with_one_name_both_stay(store: RecordStore) -> None:
    first, second = written(store, bare("a-b", "c")), written(store, bare("a", "b-c"))
    assert Path(first.path).name == "a-b-c-eth0"
    assert Path(second.path).name.startswith("a-b-c-eth0~")
    assert store.find(("a-b", "c", "eth0")) == first
    assert store.find(("a", "b-c", "eth0")) == second
    assert store.of_interface("c", "eth0") == [first]
    assert store.of_interface("b-c", "eth0") == [second]
    assert store.records("c") == [first]
    store.forget(first)
    assert store.find(("a-b", "c", "eth0")) is None
    assert store.find(("a", "b-c", "eth0")) == second
    written(store, replace(second, state=READY, result=RESULT))
    assert len(files(store)) == 1


def test_records_of_an_interface_are_found_on_every_network_whatever_their_names(store: RecordStore) -> None:
    """Short names, a tilde in the interface's name, and a file that another program has written since."""
    for ifname in ("e", "e~0"):
        written(store, bare("n", "c", ifname))
        Path(store.results, f"unheard-of-c-{ifname}").write_bytes(encode(bare("unheard-of", "c", ifname)))
        assert [record.network for record in store.of_interface("c", ifname)] == ["n", "unheard-of"]


@pytest.mark.parametrize(("length", "starts"), [(246, "c" * 246), (247, "~"), (2000, "~")])
def test_long_names_get_a_hash(store: RecordStore, length: int, starts: str) -> None:
    identity = ("net", "c" * length, "eth0")
    begun = written(store, bare(*identity))
    name = Path(begun.path).name
    assert name.startswith(starts if starts == "~" else f"net-{starts}-eth0")
    assert len(name) <= 255
    assert store.find(identity) == begun
    assert store.of_interface(identity[1], "eth0") == [begun]
    assert store.records(identity[1]) == store.records() == [begun]
    assert store.records("other") == []


def test_a_long_name_that_is_taken_gets_a_hash_alone(store: RecordStore) -> None:
    first, second = written(store, bare("a-b", "c" * 240)), written(store, bare("a", "b-" + "c" * 240))
    assert Path(second.path).name.startswith("~")
    assert [store.find(record.identity) for record in (first, second)] == [first, second]


def test_both_names_taken_is_an_error(store: RecordStore) -> None:
    first = bare("a-b", "c")
    other = encode(bare("x", "y"))
    for name in records.names_of(first.identity):
        put(store, name, other)
    with pytest.raises(RecordError, match="belong to other attachments"):
        written(store, first)
    assert os.listdir(f"{store.cache_dir}/tmp") == []


# files that are no records


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(8 << 40)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


UNUSABLE: dict[str, tuple[Callable[[Path], object], str]] = {
    "sparse": (_sparse, "are accepted"),
    "fifo": (os.mkfifo, "not a regular file"),
    "link": (lambda path: path.symlink_to("/proc/kmsg"), "not a regular file"),
    "directory": (Path.mkdir, "not a regular file"),
    "socket": (_socket, "not a regular file"),
}


@pytest.fixture(params=UNUSABLE)
def unusable(request: pytest.FixtureRequest) -> Iterator[tuple[RecordStore, Path, str]]:
    """Make a store with a good record and a file that cannot be one; on tmpfs, which takes a sparse file of 8 TiB."""
    make, problem = UNUSABLE[request.param]
    with tempfile.TemporaryDirectory(prefix="store-", dir="/dev/shm") as directory:
        store = RecordStore(directory)
        written(store, bare(container_id="c2"))
        path = Path(store.results, "net-c1-eth0")
        make(path)
        yield store, path, problem


def test_a_file_that_cannot_be_a_record_is_its_own_problem_alone(unusable: tuple[RecordStore, Path, str]) -> None:
    store, path, problem = unusable
    corrupt, good = store.records()
    assert (corrupt.state, corrupt.path, good.container_id) == (CORRUPT, str(path), "c2")
    assert problem in corrupt.problem
    assert store.find(bare().identity) == corrupt
    assert store.of_interface("c1", "eth0") == [corrupt]
    assert store.of_interface("c2", "eth0") == [good]
    store.forget(corrupt)
    assert files(store) == ["net-c2-eth0"]


def test_a_file_that_cannot_be_a_record_can_be_set_aside(unusable: tuple[RecordStore, Path, str]) -> None:
    store = unusable[0]
    assert os.path.lexists(store.set_aside(store.records()[0]))
    assert files(store) == ["net-c2-eth0"]


def _old_drafts(store: RecordStore, *names: str) -> Path:
    drafts = Path(store.drafts)
    drafts.mkdir(parents=True)
    for name in names:
        (drafts / name).touch()
        os.utime(drafts / name, (1, 1))
    return drafts


def test_the_file_of_another_program_is_no_draft(store: RecordStore) -> None:
    """A runtime may keep its own state below the same directory."""
    drafts = _old_drafts(store, "4194305-1-1", "session", "12-34", "12-34-5.bak")
    (drafts / "1-1-1").touch()
    store.remove_old_drafts()
    assert sorted(os.listdir(drafts)) == ["1-1-1", "12-34", "12-34-5.bak", "session"]


def test_a_link_in_the_place_of_the_drafts_is_not_followed(
    store: RecordStore, caplog: pytest.LogCaptureFixture
) -> None:
    drafts = _old_drafts(store, "1-1-1")
    drafts.rename(drafts.parent / "elsewhere")
    drafts.symlink_to("elsewhere")
    store.remove_old_drafts()
    assert "cannot be removed: Not a directory" in caplog.text
    assert os.listdir(drafts) == ["1-1-1"]


def test_a_draft_that_cannot_be_removed_is_only_logged(
    store: RecordStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    drafts = _old_drafts(store, "1-1-1")
    monkeypatch.setattr(system, "unlink", no_space)
    store.remove_old_drafts()
    assert "cannot be removed: No space left" in caplog.text
    assert os.listdir(drafts) == ["1-1-1"]


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOENT])
def test_a_draft_that_cannot_be_removed_does_not_keep_the_others(
    store: RecordStore, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    drafts, unlink = _old_drafts(store, "1-1-1", "2-2-2"), system.unlink

    def fail_first(name: str, **options: int) -> None:
        if name == "1-1-1":
            raise OSError(number, os.strerror(number))
        unlink(name, **options)

    monkeypatch.setattr(system, "unlink", fail_first)
    store.remove_old_drafts()
    assert os.listdir(drafts) == ["1-1-1"]


def test_a_listing_one_by_one_needs_the_memory_of_one(store: RecordStore) -> None:
    def peak() -> int:
        tracemalloc.start()
        try:
            assert all(record.state == READY for record in store.iter_records())
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    text = encode(FULL)
    for index in range(50):
        put(store, f"net-c1-e{index}", text)
    small = peak()
    for index in range(50, 400):
        put(store, f"net-c1-e{index}", text)
    assert peak() < 2 * small


# owners


@pytest.mark.parametrize("boot", [boot_id(), "another"])
def test_a_record_is_taken_over(store: RecordStore, boot: str) -> None:
    found = written(store, replace(FULL, boot=boot))
    store.rewrite(replace(found, owner="other"), "taken over")
    assert store.find(FULL.identity) == replace(found, owner="other")


def test_a_record_made_by_go_is_taken_over_and_stays_gos(store: RecordStore) -> None:
    put(store, "net-c1-eth0", GO_FULL)
    (found,) = store.records()
    store.rewrite(found.with_fields(owner="me"), "taken over")
    (again,) = store.records()
    assert again == found.with_fields(owner="me")
    assert isinstance(again, MadeByGo)


@pytest.mark.parametrize("data", [b"", RESULT.encode()])
def test_a_file_without_an_identity_cannot_be_taken_over(store: RecordStore, data: bytes) -> None:
    put(store, "net-c1-eth0", data)
    cni = CNIConfig([], store.cache_dir, owner="me")
    (found,) = cni.get_cached_attachments()
    with pytest.raises(RecordError, match="cannot take over the attachment"):
        cni.take_over_attachment(found)


# the life of a record


def test_begin_and_forget(store: RecordStore) -> None:
    found = written(store, bare())
    assert (found.state, found.result) == (BEGUN, None)
    store.forget(found)
    store.forget(found)
    assert store.find(found.identity) is None
    assert files(store) == []


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_file_that_go_has_written_for_another_attachment_is_not_removed(
    store: RecordStore, caplog: pytest.LogCaptureFixture, *, is_damaged: bool
) -> None:
    """Go knows one name for both attachments, truncates the file that it finds, and writes it anew."""
    ours = written(store, bare("a-b", "c"))
    if is_damaged:
        Path(ours.path).write_bytes(b"")
        (ours,) = store.records()
    theirs = GO_FULL.replace(b'"c1"', b'"b-c"').replace(b'"networkName":"net"', b'"networkName":"a"')
    put(store, "a-b-c-eth0", theirs)
    store.forget(ours)
    assert store.set_aside(ours) == ""
    (left,) = store.records()
    assert (left.network, left.container_id) == ("a", "b-c")
    assert f"{ours.path}: not removed: the file now holds the record of container b-c" in caplog.text


def test_a_record_that_has_grown_since_it_was_read_is_removed(store: RecordStore) -> None:
    before = written(store, FULL)
    assert store.mark_detaching(before).end > before.end
    store.forget(before)
    assert files(store) == []


def test_a_corrupt_file_in_the_way_is_set_aside(store: RecordStore) -> None:
    put(store, "net-c1-eth0", b"half a rec")
    begun = written(store, bare())
    assert store.records() == [begun]
    (aside,) = os.listdir(f"{store.cache_dir}/corrupt")
    assert aside.startswith("net-c1-eth0.")
    assert Path(store.cache_dir, "corrupt", aside).read_bytes() == b"half a rec"


def test_listing_tells_corrupt_records_and_changes_nothing(store: RecordStore) -> None:
    good = written(store, bare())
    put(store, "a-c1-eth0", b"")
    put(store, "b-c2-eth0", b"{")
    os.symlink("/etc/passwd", f"{store.results}/c-c1-eth0")
    os.mkdir(f"{store.results}/d-c1-eth0")
    os.mkfifo(f"{store.results}/e-c1-eth0")
    before = files(store)
    found = store.records("c1")
    assert [record.state for record in found] == [CORRUPT, CORRUPT, CORRUPT, CORRUPT, BEGUN]
    assert [Path(record.path).name for record in found] == [name for name in before if "c1" in name]
    assert len(store.records()) == 6
    # A corrupt file may hide an earlier ADD of this interface, on any network.
    assert good in store.of_interface("c1", "eth0")
    assert [Path(record.path).name[0] for record in store.of_interface("c1", "eth0")] == list("acden")
    assert files(store) == before
    assert not os.path.exists(f"{store.cache_dir}/corrupt")
    corrupt = store.find(("a", "c1", "eth0"))
    assert corrupt is not None
    assert (corrupt.state, corrupt.problem) == (CORRUPT, "it is empty")


def test_a_corrupt_file_does_not_hide_the_record_under_the_hashed_name(store: RecordStore) -> None:
    written(store, bare("a-b", "c"))
    second = written(store, bare("a", "b-c"))
    put(store, "a-b-c-eth0", b"")
    assert store.find(second.identity) == second


@pytest.mark.parametrize("name", ["n" * 250, "\u00e9" * 127])
def test_set_aside(store: RecordStore, name: str) -> None:
    path = put(store, name, b"x")
    record = Unreadable(state=CORRUPT, path=str(path))
    aside = store.set_aside(record)
    assert Path(aside).read_bytes() == b"x"
    assert not path.exists()
    assert store.set_aside(record) == ""


def test_the_directory_may_go_at_any_time(store: RecordStore) -> None:
    assert store.find(("net", "c1", "eth0")) is None
    assert store.records() == []
    assert not os.path.exists(store.cache_dir)
    begun = written(store, bare())
    os.unlink(begun.path)
    os.rmdir(store.results)
    assert store.records() == []
    store.forget(begun)
    store.rewrite(begun, "again")
    assert store.records() == [begun]


def test_without_hard_links_a_name_is_claimed_by_renaming(store: RecordStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_args: Any, **_more: Any) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(system, "link", no_links)
    first, second = written(store, bare("a-b", "c")), written(store, bare("a", "b-c"))
    assert first.path != second.path
    assert [store.find(record.identity) for record in (first, second)] == [first, second]


# what the disk refuses


def test_a_full_disk_leaves_the_earlier_record(store: RecordStore, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = written(store, FULL)
    with monkeypatch.context() as patch:
        patch.setattr(system, "rename", no_space)
        with pytest.raises(RecordError, match=r"can(not)? be written"):
            store.rewrite(begun, "again")
        with pytest.raises(RecordError, match="cannot be moved to"):
            store.set_aside(begun)
    assert store.find(begun.identity) == begun
    assert os.listdir(store.drafts) == []


@pytest.mark.parametrize("mode", [0o700, 0o770, 0o707])
def test_another_users_file_is_no_record_if_others_may_write_to_the_directory(store: RecordStore, mode: int) -> None:
    if os.geteuid():
        pytest.skip("needs root")
    path = put(store, "net-c1-eth0", encode(FULL))
    os.chown(path, 12345, -1)
    os.chmod(store.results, mode)
    (found,) = store.records()
    assert found.state == (READY if mode == 0o700 else CORRUPT)
    assert ("it belongs to user 12345" in found.problem) == (mode != 0o700)


def test_a_record_of_many_elements_is_not_decoded(store: RecordStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def problem_of_record(elements: int) -> str:
        text = "[" + ",".join(["[]"] * elements) + "]"
        put(store, "net-c1-eth0", GO_FULL.replace(RESULT.encode(), text.encode()))
        (found,) = store.records()
        return found.problem

    assert "more than 1,001,000 elements" in problem_of_record(1_200_000)
    monkeypatch.setattr(record_format, "MAX_RECORD_ELEMENTS", 10_000)  # tracing 1,000,000 takes seconds
    tracemalloc.start()
    problem = problem_of_record(100_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "more than 11,000 elements" in problem
    assert peak < 4 << 20, "100,000 decoded lists take 6 MiB"


def test_a_cache_directory_that_cannot_be_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = RecordStore(str(tmp_path / "file" / "cache"))
    for call in (store.records, lambda: store.find(("net", "c1", "eth0")), lambda: written(store, bare())):
        with pytest.raises(RecordError, match="Not a directory"):
            call()
    with pytest.raises(RecordError, match="cannot be removed"):
        store.forget(bare(path=f"{store.results}/net-c1-eth0"))


def test_a_name_that_others_keep_taking_and_leaving_is_an_error(
    store: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_link", lambda *_args: False)
    with pytest.raises(RecordError, match="other programs change the file again and again"):
        written(store, bare())
    assert os.listdir(f"{store.cache_dir}/tmp") == []
