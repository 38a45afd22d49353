"""Who has an interface, an address or a port by record: a client reads each file once, until it changes."""

from __future__ import annotations

import errno
import json
import math
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libcni import CNIConfig, Invocation, Outcome, RuntimeConf
from libcni.executor import CallOptions
from libcni.kernel import system
from libcni.store import files, other_records, records
from libcni.store.boot import boot_id
from libcni.store.journal import Journal
from libcni.store.model import BEGUN, PENDING, READY, MadeByGo, Ours, Record
from libcni.store.other_records import OtherRecords
from libcni.store.place import ABSENT
from libcni.store.record_format import encode, gist_of
from libcni.store.records import RecordStore
from libcni.testing import RecordingExecutor
from store.canned import put, written

CONFIG = b'{"cniVersion":"1.1.0","name":"net","plugins":[{"type":"a"}]}'


def record(container_id: str, address: str, **more: object) -> Record:
    result = f'{{"cniVersion":"1.1.0","ips":[{{"address":"{address}/24"}}]}}'
    made = Ours("net", container_id, "eth0", READY, config=CONFIG, version="1.1.0", result=result, created=1.0)
    return made.with_fields(boot=boot_id(), **more)


def keep(store: RecordStore, made: Record) -> Record:
    """Write the record of an ADD that was killed after its first plugin."""
    return written(store, made.with_fields(state=PENDING, result=None, partial=made.result))


def addresses(recorded: OtherRecords) -> list[str]:
    others = recorded.with_addresses((f"10.0.0.{number}" for number in range(256)), None)
    return sorted(address for other in others for address in other.addresses)


@pytest.fixture
def store(tmp_path: Path) -> RecordStore:
    return RecordStore(str(tmp_path), durable=False)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count how often each file is read, an hour after all were written."""
    counted: Counter[str] = Counter()

    def count(name: str, directory: int, *, writable: bool = False) -> int:
        counted[name] += not writable
        return files.open_file(name, directory, writable=writable)

    monkeypatch.setattr(records, "open_file", count)
    now = system.file_time_ns
    monkeypatch.setattr(system, "file_time_ns", lambda: now() + 3600 * 10**9)
    return counted


class Plugins:
    """An executor whose plugins succeed; the first DEL gives the address of another attachment to a new container."""

    def __init__(self, store: RecordStore) -> None:
        self.store = store
        self.handed: dict[str, list[str]] = {}

    def find(self, plugin: str, path: Sequence[str]) -> str:
        return f"{path[0]}/{plugin}"

    def execute(self, invocation: Invocation, options: CallOptions) -> Outcome:
        if invocation.verb == "DEL":
            if not self.handed:
                written(self.store, record("new", "10.0.0.20", state=READY, owner="another"))
            ips = json.loads(invocation.stdin)["prevResult"]["ips"]
            self.handed[invocation.container_id] = [ip["address"] for ip in ips]
        return Outcome()


def test_a_sweep_reads_each_record_a_few_times(store: RecordStore, tmp_path: Path, reads: Counter[str]) -> None:
    """Without that, the DEL of each half-done attachment would read all the others."""
    for number in range(10, 40):
        keep(store, record(f"c{number}", f"10.0.0.{number}"))
        written(store, record(f"ready{number}", f"10.0.1.{number}", state=READY, owner="another"))
    plugins = Plugins(store)
    cni = CNIConfig("/bin", tmp_path, executor=plugins, durable=False, max_verbs=1)
    report = cni.gc_network_list("net", [])
    assert len(report.detached) == 30
    assert max(reads.values()) <= 6
    assert sum(reads.values()) <= 5 * 60
    # The record of c20's address came while the sweep ran.
    assert plugins.handed.pop("c20") == []
    assert all(plugins.handed.values())


def test_what_has_changed_is_read_again(store: RecordStore, reads: Counter[str]) -> None:
    recorded = OtherRecords(store)
    begun = keep(store, record("c1", "10.0.0.1"))
    written(store, record("c2", "10.0.0.2"))
    assert addresses(recorded) == addresses(recorded) == ["10.0.0.1", "10.0.0.2"]
    # Once by the test, once as text, and for each answer as the record that has what was asked for.
    assert set(reads.values()) == {4}
    keep(store, record("c1", "10.0.0.3", path=begun.path))
    assert addresses(recorded) == ["10.0.0.2", "10.0.0.3"]
    written(store, record("c1", "10.0.0.4", path=begun.path))
    assert addresses(recorded) == ["10.0.0.2", "10.0.0.4"]
    store.forget(begun)
    reads.clear()
    assert addresses(recorded) == addresses(OtherRecords(store)) == ["10.0.0.2"]
    assert reads == {"net-c2-eth0": 2}  # for the answers alone


def as_go(made: Record) -> bytes:
    return encode(MadeByGo(**{**made.__dict__, "version": ""})).replace(b',"libcni":{}', b"")


def pending(store: RecordStore) -> Journal:
    """Begin an ADD that has run nothing."""
    return store.begin(record("c1", "10.0.0.9").with_fields(state=BEGUN, result=None))


RESULT = '{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.9/24"}]}'


def test_go_rewrites_its_record_in_place_between_two_questions(store: RecordStore, reads: Counter[str]) -> None:
    path = put(store, "net-c1-eth0", as_go(record("c1", "10.0.0.1")))
    recorded = OtherRecords(store)
    assert addresses(recorded) == addresses(recorded) == ["10.0.0.1"]
    path.write_bytes(as_go(record("c1", "10.0.0.2")))
    assert addresses(recorded) == ["10.0.0.2"]


def test_an_add_ends_between_two_questions(store: RecordStore, reads: Counter[str]) -> None:
    with pending(store) as journal:
        journal.write("started", interface=ABSENT)
        recorded = OtherRecords(store)
        assert addresses(recorded) == addresses(recorded) == []
        journal.write("complete", interface=ABSENT, result=RESULT)
    assert addresses(recorded) == ["10.0.0.9"]


def test_a_record_is_removed_and_made_again_between_two_questions(store: RecordStore, reads: Counter[str]) -> None:
    """Its file may get the same inode. So the names and inodes of the directory do not tell."""
    recorded = OtherRecords(store)
    for number in range(1, 20):
        with pending(store) as journal:
            journal.write("started", interface=ABSENT)
            result = RESULT.replace("10.0.0.9", f"10.0.0.{number}")
            journal.write("complete", interface=ABSENT, result=result)
        assert addresses(recorded) == addresses(recorded) == [f"10.0.0.{number}"]
        store.forget(journal.record)


def test_a_complete_record_that_is_rewritten_in_place_is_read_again(store: RecordStore, reads: Counter[str]) -> None:
    """A runtime of Go's attaches the same interface again, or somebody edits the file: the next verb sees it."""
    with pending(store) as journal:
        journal.write("started", interface=ABSENT)
        journal.write("complete", interface=ABSENT, result=RESULT)
    assert addresses(OtherRecords(store)) == addresses(OtherRecords(store)) == ["10.0.0.9"]
    Path(journal.record.path).write_bytes(as_go(record("c1", "10.0.0.2")))
    assert addresses(OtherRecords(store)) == ["10.0.0.2"]


_ANY = st.from_regex(r"10\.0\.0\.[0-9]", fullmatch=True)


@given(_ANY, _ANY, st.integers(1, 9), st.sampled_from(["", " ", "\n"]), st.booleans())
def test_what_a_record_says_is_mentioned_in_its_file(
    first: str, second: str, port: int, space: str, is_old: bool
) -> None:
    """Otherwise nobody would decode the file."""

    def words(of: Record) -> list[bytes] | None:
        found = gist_of(encode(of), None).words
        return None if found is None else found.split()

    ips = f'"ip4":{space}{{"ip":{space}"{first}/24"}}' if is_old else f'"ips":[{{"address"{space}:"{first}/24"}}]'
    ports, odd = (f'{{"portMappings":[{{"hostPort"{space}:{space}{text}{space}}}]}}' for text in (port, f"{port}e1"))
    usual = record("c1", "10.0.0.0")
    usual = usual.with_fields(result=f'{{"cniVersion":"{"0.2.0" if is_old else "1.1.0"}",{ips}}}', netns_id=(4, 99))
    mentioned = {first.encode(), b"99"}
    assert mentioned == {*(words(usual) or ())}
    for args, found in ((ports, {b"#%d" % port}), (ports.upper(), {b"#%d" % port}), ("", set())):
        assert mentioned | found == {*(words(usual.with_fields(capability_args=args)) or ())}
    assert words(usual.with_fields(capability_args=odd)) is None
    # A capability argument that looks like this library's key, before the port.
    head = encode(usual).decode().partition(',"libcni":')[2].partition(',"pidNamespace"')[0]
    feigned = f'{{"a":1,"libcni":{head},"b":1}},{ports[1:]}'
    assert mentioned | {b"#%d" % port} == {*(words(usual.with_fields(capability_args=feigned)) or ())}
    # Escape sequences.
    result = f'{{"cniVersion":"1.1.0","dns":{{"domain":"a\\n\\"b"}},"ips":[{{"address":"{second}\\/24"}}]}}'
    harmless = usual.with_fields(result=result)
    assert {second.encode(), b"99"} == {*(words(harmless) or ())}
    for escaped in (second.replace("0", "\\u0030"), second.replace(".", "\\u002E")):
        assert words(usual.with_fields(result=result.replace(second, escaped))) is None


def test_host_ports_that_are_written_in_any_way_are_found(store: RecordStore) -> None:
    for number, text in enumerate(("8080", "8080.0", "808e1", " 8080 ", '"8080"', "8081")):
        args = f'{{"portMappings":[{{"hostPort":{text}}}]}}'
        written(store, record(f"c{number}", "10.0.0.1", capability_args=args))
    others = OtherRecords(store)
    for wanted in (8080, 8080.0):
        assert sorted(one.identity[1] for one in others.with_host_ports([wanted])) == ["c0", "c1", "c2", "c3"]
    assert not list(others.with_host_ports(["8080", math.nan, math.inf]))


def test_the_ports_of_a_file_are_read_once_until_it_changes(store: RecordStore, reads: Counter[str]) -> None:
    """Each ADD with ports asks, with the records of all other containers on the disk."""

    def publish(container: str, port: int, *, event: str = "") -> Record:
        args = f'{{"portMappings":[{{"hostPort":{port}}}]}}'
        with store.begin(record(container, "10.0.0.1", capability_args=args), event) as journal:
            return journal.record

    def publishers(port: int) -> list[str]:
        reads.clear()
        return sorted(one.container_id for one in OtherRecords(store).with_host_ports([port]))

    for number in range(20):
        publish(f"c{number}", 8000 + number)
    assert publishers(1) == []
    publish("c20", 8001)
    assert publishers(8001) == ["c1", "c20"]
    assert reads == {"net-c1-eth0": 1, "net-c20-eth0": 2}  # as text, and for the answer
    store.forget(publish("c1", 8002))
    again = publish("c1", 8003)
    assert (publishers(8001), publishers(8002), publishers(8003)) == (["c20"], ["c2"], ["c1", "c3"])
    Path(again.path).write_bytes(as_go(again).replace(b"8003", b"8004"))
    assert (publishers(8003), publishers(8004)) == (["c3"], ["c1", "c4"])


def test_a_further_question_of_a_verb_looks_at_adds_that_run(
    store: RecordStore, reads: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each plugin of a DEL asks. With 10,000 records a look at all files takes 25 ms."""

    def complete(container: str, address: str) -> None:
        with store.begin(record(container, address).with_fields(state=BEGUN, result=None)) as journal:
            journal.write("started", interface=ABSENT)
            journal.write("complete", interface=ABSENT, result=RESULT.replace("10.0.0.9", address))

    for number in range(1, 6):
        complete(f"c{number}", f"10.0.0.{number}")
    runs = pending(store).record  # c1 is attached again
    looked: list[object] = []
    stat = system.stat

    def look(name: str, **options: Any) -> os.stat_result:
        looked.append(name)
        return stat(name, **options)

    monkeypatch.setattr(system, "stat", look)
    recorded = OtherRecords(store)
    expected = [f"10.0.0.{number}" for number in range(2, 6)]
    assert addresses(recorded) == expected
    looked.clear()
    assert addresses(recorded) == expected
    assert looked == [runs.path.rpartition("/")[2]]
    complete("c6", "10.0.0.6")
    assert addresses(recorded) == [*expected, "10.0.0.6"]


def test_a_file_that_was_written_just_now_is_read_again(
    store: RecordStore, reads: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A further write within a tick of the kernel's clock leaves its time, and may leave its size and its inode."""
    written(store, record("c1", "10.0.0.1"))
    written(store, record("c2", "10.0.0.2"))
    path = Path(store.results) / "net-c1-eth0"
    path.write_bytes(as_go(record("c1", "10.0.0.1")))
    changed = min(file.stat().st_ctime_ns for file in Path(store.results).iterdir())
    monkeypatch.setattr(system, "file_time_ns", lambda: changed)
    reads.clear()
    assert addresses(OtherRecords(store)) == addresses(OtherRecords(store)) == ["10.0.0.1", "10.0.0.2"]
    assert set(reads.values()) == {4}  # as text, then as the record that has the address


@pytest.mark.parametrize(
    ("changed", "now", "is_settled"),
    [
        (5_000_000_001, 5_000_000_001, False),
        (5_000_000_001, 5_000_000_002, True),
        (5_000_000_000, 7_000_000_000, False),  # of a file system that stores even seconds
        (5_000_000_000, 7_000_000_001, True),
    ],
)
def test_a_stamp_is_used_if_every_later_change_has_another_time(changed: int, now: int, is_settled: bool) -> None:
    status = SimpleNamespace(st_ino=1, st_size=2, st_ctime_ns=changed)
    stamp = records._settled_stamp(status, now)  # type: ignore[arg-type]
    assert stamp == ((1, 2, changed) if is_settled else None)


def test_a_file_that_is_changed_later_has_the_time_of_the_kernel_or_a_later_one(tmp_path: Path) -> None:
    for number in range(50):
        before = system.file_time_ns()
        path = tmp_path / str(number)
        path.touch()
        assert before <= path.stat().st_ctime_ns


def test_an_address_that_another_container_gets_while_a_plugin_runs_is_left_out_for_the_next_one(
    store: RecordStore, tmp_path: Path
) -> None:
    """A repeated DEL: the plugin firewall removes rules by address alone, and a plugin before it may take a while."""
    config = CONFIG.replace(b'[{"type":"a"}]', b'[{"type":"firewall"},{"type":"slow"}]')
    keep(store, record("c20", "10.0.0.20", config=config))
    plugins = Plugins(store)
    CNIConfig("/bin", tmp_path, executor=plugins, durable=False).gc_network_list("net", [])
    assert plugins.handed == {"c20": []}


def counted_looks(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return the names that each further look asks for; None: all."""
    looks: list[object] = []
    look = RecordStore.look

    def counted(store: RecordStore, names: list[str] | None = None) -> Any:
        looks.append(names)
        return look(store, names)

    monkeypatch.setattr(RecordStore, "look", counted)
    return looks


def test_a_del_looks_at_all_records_once(
    store: RecordStore, tmp_path: Path, reads: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And before each further plugin at those of which the ADD has not ended, however many addresses there are."""
    config = CONFIG.replace(b'[{"type":"a"}]', b'[{"type":"a"},{"type":"b"},{"type":"c"}]')
    result = RESULT.replace("10.0.0.9/24", '10.0.0.9/24"},{"address":"fd00::9/64')
    detached = keep(store, record("c9", "", config=config).with_fields(result=result))
    written(store, record("c8", "10.0.0.8"))
    looks = counted_looks(monkeypatch)
    plugins = RecordingExecutor()
    CNIConfig("/bin", tmp_path, executor=plugins, durable=False).del_network_list("net", RuntimeConf("c9", "", "eth0"))
    assert all(b"fd00::9" in call.invocation.stdin for call in plugins.calls)
    others = [detached.path.rpartition("/")[2], "net-c8-eth0"]
    assert looks[0] is None
    assert [sorted(map(str, names)) for names in looks[1:] if isinstance(names, list)] == [sorted(others)] * 2


def test_a_record_that_cannot_be_read_hides_no_other_attachment(
    store: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 4):
        written(store, record(f"c{number}", f"10.0.0.{number}"))

    def open_file(name: str, directory: int, *, writable: bool = False) -> int:
        if name == "net-c2-eth0":
            raise OSError(errno.EIO, "Input/output error")
        return files.open_file(name, directory, writable=writable)

    monkeypatch.setattr(records, "open_file", open_file)
    assert addresses(OtherRecords(store)) == ["10.0.0.1", "10.0.0.3"]


def test_a_listing_reads_each_file_once(store: RecordStore, reads: Counter[str]) -> None:
    written(store, record("c1", "10.0.0.1"))
    recorded = OtherRecords(store, once=True)
    assert addresses(recorded) == ["10.0.0.1"]
    written(store, record("c2", "10.0.0.2"))
    assert addresses(recorded) == ["10.0.0.1"]


def test_a_del_of_thousands_waits_a_tick_for_a_stamp_instead_of_looking_at_all_files_twice(
    store: RecordStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod with two networks is detached from the second one just after the first one's record was removed."""
    monkeypatch.setattr(other_records, "_MANY", 1)
    config = CONFIG.replace(b'[{"type":"a"}]', b'[{"type":"a"},{"type":"b"}]')
    cni = CNIConfig("/bin", tmp_path, executor=RecordingExecutor(), durable=False)
    for number in (1, 2):
        keep(store, record(f"c{number}", f"10.0.0.{number}", config=config))
    for number in range(3, 6):
        written(store, record(f"c{number}", f"10.0.0.{number}"))
    looks = counted_looks(monkeypatch)
    cni.del_network_list("net", RuntimeConf("c1", "", "eth0"))
    looks.clear()
    # The time of files stands still until the verb sleeps.
    moment = os.stat(store.results).st_ctime_ns
    monkeypatch.setattr(system, "file_time_ns", lambda: moment)
    monkeypatch.setattr(system, "sleep", lambda _: monkeypatch.setattr(system, "file_time_ns", lambda: moment + 10**10))
    cni.del_network_list("net", RuntimeConf("c2", "", "eth0"))
    assert [names is None for names in looks] == [True, False]
