"""An open record: each event is one write, and what was cut off is never followed by a shorter event."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from libcni.errors import RecordError
from libcni.kernel import system
from libcni.store import journal as journal_module
from libcni.store import records as records_module
from libcni.store.files import open_file
from libcni.store.place import UNKNOWN, Known
from libcni.store.records import RecordStore
from store.canned import FULL, RESULT, bare, opened, written

MADE = Known(2, "0a:58:0a:00:00:02")


def test_the_life_of_an_add(store: RecordStore) -> None:
    with store.begin(bare()) as journal:
        states = [journal.record.state]
        journal.write("started", interface=UNKNOWN)
        for plugin in (0, 1):
            journal.write("step", plugin=plugin, interface=MADE, partial=RESULT)
            states.append(journal.record.state)
        journal.write("complete", interface=MADE, result=RESULT)
        assert store.records() == [journal.record]
    path = Path(journal.record.path)
    assert (states, journal.record.state, opened(path)) == (["begun", "pending", "pending"], "ready", 0)
    document = json.loads(path.read_bytes())
    assert [document[f"libcni.{number}"]["event"] for number in range(1, 5)] == ["started", "step", "step", "complete"]
    assert (document["result"], path.read_bytes().count(b'"result"')) == (json.loads(RESULT), 1), "it is as before"


def test_go_reads_the_last_result_after_each_event(store: RecordStore) -> None:
    """Go's DEL of an ADD that was killed sends it to the plugins: firewall removes no rule without it."""
    results = ['{"ips":[{"address":"10.0.0.2/24"}]}', '{"dns":{}}', '{"ips":[]}', RESULT]
    with store.begin(bare()) as journal:
        path = Path(journal.record.path)
        journal.write("started", interface=UNKNOWN)
        for plugin, result in enumerate(results[:3]):
            journal.write("step", plugin=plugin, interface=MADE, partial=result)
            (found,) = store.records()
            assert (found.state, found.result, found.partial) == ("pending", None, result)
            assert json.loads(path.read_bytes())["result"] == json.loads(result)
        assert store.mark_detaching(found).partial == results[2], "a DEL that begins keeps it"
    with store.begin(journal.record.with_fields(state="pending"), "reload") as journal:
        assert json.loads(path.read_bytes())["result"] == json.loads(results[2])
        journal.write("step", interface=MADE, partial=results[0])
        (found,) = store.records()
        assert (found.state, found.result, found.partial) == ("pending", None, results[0])
        journal.write("complete", interface=MADE, result=results[3])
    (found,) = store.records()
    assert (found.state, found.result, found.partial) == ("ready", RESULT, None)
    keys = [key for key, _ in json.loads(path.read_bytes(), object_pairs_hook=list)]
    assert sorted(set(keys)) == sorted(keys), "no key comes twice"


def test_a_result_is_never_lost_between_two_writes(store: RecordStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key of an earlier result changes its name before the next result is written, perhaps byte by byte."""
    real, seen = os.pwrite, list[str | None]()

    def full(descriptor: int, data: Any, index: int) -> int:
        if len(data) > len(b"result"):
            raise OSError(errno.ENOSPC, "No space left on device")
        written = real(descriptor, data[:1], index)
        seen.append(store.records()[0].partial)
        return written

    with store.begin(bare(state="pending", partial=RESULT)) as journal:
        path = Path(journal.record.path)
        before = path.read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(system, "pwrite", full)
            with pytest.raises(RecordError, match="No space left"):
                journal.write("step", plugin=1, interface=MADE, partial="{}")
        assert path.read_bytes() == before
        # Six bytes, then, as the write failed, the closing brace, and six bytes back.
        assert seen == [RESULT] * 13
        journal.write("step", plugin=1, interface=MADE, partial="{}")
        assert store.records()[0].partial == "{}"


def test_a_record_in_place_of_another_begins_its_own_events(store: RecordStore) -> None:
    earlier = written(store, FULL)
    with store.begin(bare(path=earlier.path)) as journal:
        journal.write("started", interface=MADE)
    assert [(one.state, one.interface, one.path) for one in store.records()] == [("pending", MADE, earlier.path)]


def test_what_a_killed_writer_has_left_is_no_part_of_the_next_event(store: RecordStore) -> None:
    begun = written(store, FULL)
    path = Path(begun.path)
    path.write_bytes(path.read_bytes()[:-1] + b',"libcni.2":{"event":"detach","at":1,"note":"' + b"x" * 500)
    (torn,) = store.records()
    assert torn == begun
    assert store.mark_detaching(torn).state == "detaching"
    assert json.loads(path.read_bytes())["libcni.2"]["event"] == "detach"


@pytest.mark.parametrize("most", [0, 7])
def test_an_event_that_cannot_be_written_did_not_happen(
    store: RecordStore, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    real = os.pwrite
    with store.begin(bare()) as journal:
        path = Path(journal.record.path)
        before = path.read_bytes()
        calls = iter([True])

        def full(descriptor: int, data: Any, index: int) -> int:
            if len(data) == 1:  # the closing brace
                return real(descriptor, data, index)
            if most and next(calls, False):
                return real(descriptor, bytes(data)[:most], index)
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(system, "pwrite", full)
            with pytest.raises(RecordError, match="cannot be written: No space left"):
                journal.write("started", interface=MADE)
        assert (journal.record.state, path.read_bytes()) == ("begun", before)
        journal.write("started", interface=MADE)
    assert [one.state for one in store.records()] == ["pending"]


def test_a_record_never_becomes_too_large_to_be_read_back(store: RecordStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, limit in (("MAX_RECORD_BYTES", 600), ("MAX_RECORD_ELEMENTS", 20)):
        with store.begin(bare(container_id=name.lower())) as journal, monkeypatch.context() as patch:
            journal.write("started", interface=UNKNOWN)
            patch.setattr(journal_module, name, limit)
            with pytest.raises(RecordError, match="too large to read back"):
                journal.write("complete", interface=MADE, result=f'{{"ips":[{",".join(["{}"] * 300)}]}}')


def test_a_record_has_room_for_a_number_of_events(store: RecordStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """An IndexError in the midst of an ADD would leave what its plugins have made."""
    monkeypatch.setattr(journal_module, "MOST_EVENTS", 3)
    with store.begin(bare()) as journal:
        journal.write("started", interface=UNKNOWN)
        for _ in range(2):
            journal.write("step", plugin=0, partial=RESULT)
        with pytest.raises(RecordError, match="no more than 3 events"):
            journal.write("complete", interface=MADE, result=RESULT)
    (record,) = store.records()
    assert (record.state, record.serial) == ("pending", 3)


def test_a_record_whose_directory_was_removed_has_no_name(store: RecordStore) -> None:
    with store.begin(bare()) as journal:
        assert journal.has_name()
        os.unlink(journal.record.path)
        assert not journal.has_name()


@pytest.mark.parametrize("size", [10, 5000])
def test_a_file_that_go_has_rewritten_is_not_written_into(store: RecordStore, size: int) -> None:
    """Go truncates its file and writes it again. An event at the old offset would follow a hole of zeros."""
    with store.begin(bare()) as journal:
        journal.write("started", interface=UNKNOWN)
        path = Path(journal.record.path)
        path.write_bytes(b"x" * size)
        for _ in range(2):
            with pytest.raises(RecordError, match="another program rewrote the record"):
                journal.write("complete", interface=MADE, result=RESULT)
        assert path.read_bytes() == b"x" * size
        assert journal.is_anothers


def test_an_error_of_close_is_a_record_error(store: RecordStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS reports a full disk there."""

    def close(descriptor: int) -> None:
        os.close(descriptor)
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    journal = store.begin(bare())
    read = written(store, FULL)
    monkeypatch.setattr(system, "close", close)
    with pytest.raises(RecordError, match="cannot be written: Disk quota exceeded"):
        journal.close()
    journal.close()
    monkeypatch.undo()
    journal = store.open(read)
    monkeypatch.setattr(system, "close", close)
    with pytest.raises(ValueError, match="first") as caught, journal:
        raise ValueError("first")
    assert "Disk quota exceeded" in caught.value.__notes__[0]


def test_an_error_of_close_is_a_warning_for_a_del(
    store: RecordStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    read, files = written(store, FULL), set[int]()
    opened_file, real = open_file, os.close

    def noted(*args: Any, **more: Any) -> int:
        files.add(descriptor := opened_file(*args, **more))
        return descriptor

    def close(descriptor: int) -> None:
        real(descriptor)
        if descriptor in files:
            raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(records_module, "open_file", noted)
    monkeypatch.setattr(system, "close", close)
    assert store.mark_detaching(read) == read
    assert "DEL goes on" in caplog.text
    assert "Disk quota exceeded" in caplog.text
