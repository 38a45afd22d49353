"""Who has an interface, an address or a port by record: a client reads each file once, until it changes."""

from __future__ import annotations

import errno
import json
import math
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
from libcni.kernel.watch import DirectoryWatch
from libcni.store import files, record_index, records
from libcni.store.boot import boot_id
from libcni.store.journal import Journal
from libcni.store.model import BEGUN, PENDING, READY, MadeByGo, Ours, Record
from libcni.store.other_records import OtherRecords
from libcni.store.place import ABSENT
from libcni.store.record_format import encode, gist_of
from libcni.store.record_index import settled_stamp
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


def no_watch(_: int) -> DirectoryWatch:
    raise OSError(errno.ENOTSUP, "Operation not supported")


@pytest.fixture(params=["watched", "examined"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return whether the kernel reports the changes of the directory, or each look examines all files."""
    monkeypatch.setattr(record_index, "_FEW_QUESTIONS", 0)
    if request.param == "examined":
        monkeypatch.setattr(record_index, "DirectoryWatch", no_watch)
    return str(request.param)


@pytest.fixture
def store(tmp_path: Path, way: str) -> RecordStore:
    return RecordStore(str(tmp_path), durable=False)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count how often each file is read, an hour after all were written."""
    counted: Counter[str] = Counter()

    def count(name: str, directory: int, *, writable: bool = False) -> int:
        if not writable:
            counted[name] += 1
        return files.open_file(name, directory, writable=writable)

    for module in (records, record_index):
        monkeypatch.setattr(module, "open_file", count)
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
    assert reads == {"net-c1-eth0": 1, "net-c2-eth0": 2}  # it is gone; for the answers


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
        return None if found is None else [*found]

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


@pytest.mark.parametrize("way", ["watched"], indirect=True)
def test_a_further_look_examines_no_file_that_has_not_changed(
    store: RecordStore, reads: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 10,000 records an examination of all files takes 30 ms."""
    for number in range(1, 6):
        written(store, record(f"c{number}", f"10.0.0.{number}"))
    assert not [*OtherRecords(store).with_addresses(["10.0.0.9"], None)]
    reads.clear()
    for name in ("stat", "listdir", "scandir"):
        monkeypatch.setattr(system, name, lambda *_, **__: pytest.fail("it examines the files"))
    for _ in range(3):
        assert not [*OtherRecords(store).with_addresses(["10.0.0.9"], None)]
    assert not reads
    written(store, record("c6", "10.0.0.6"))
    reads.clear()
    assert [one.identity[1] for one in OtherRecords(store).with_addresses(["10.0.0.6"], None)] == ["c6"]
    assert reads == {"net-c6-eth0": 2}


@pytest.mark.parametrize("way", ["examined"], indirect=True)
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
    stamp = settled_stamp(status, now)  # type: ignore[arg-type]
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


def test_a_del_looks_at_all_records_once(
    store: RecordStore, tmp_path: Path, reads: Counter[str], monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """However many plugins and addresses there are. If the kernel reports no changes: once before each plugin."""
    config = CONFIG.replace(b'[{"type":"a"}]', b'[{"type":"a"},{"type":"b"},{"type":"c"}]')
    result = RESULT.replace("10.0.0.9/24", '10.0.0.9/24"},{"address":"fd00::9/64')
    keep(store, record("c9", "", config=config).with_fields(result=result))
    written(store, record("c8", "10.0.0.8"))
    looks: list[object] = []
    listdir = system.listdir

    def listed(directory: Any) -> list[str]:
        looks.append(directory)
        return listdir(directory)

    monkeypatch.setattr(system, "listdir", listed)
    plugins = RecordingExecutor()
    CNIConfig("/bin", tmp_path, executor=plugins, durable=False).del_network_list("net", RuntimeConf("c9", "", "eth0"))
    assert all(b"fd00::9" in call.invocation.stdin for call in plugins.calls)
    of_records = [one for one in looks if isinstance(one, int)]
    assert len(of_records) == (1 if way == "watched" else 3)


def test_a_record_that_cannot_be_read_hides_no_other_attachment(
    store: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 4):
        written(store, record(f"c{number}", f"10.0.0.{number}"))

    def open_file(name: str, directory: int, *, writable: bool = False) -> int:
        if name == "net-c2-eth0":
            raise OSError(errno.EIO, "Input/output error")
        return files.open_file(name, directory, writable=writable)

    with monkeypatch.context() as patch:
        for module in (records, record_index):
            patch.setattr(module, "open_file", open_file)
        assert addresses(OtherRecords(store)) == ["10.0.0.1", "10.0.0.3"]
    assert addresses(OtherRecords(store)) == ["10.0.0.1", "10.0.0.2", "10.0.0.3"], "a further look tries again"


def test_a_listing_reads_each_file_once(store: RecordStore, reads: Counter[str]) -> None:
    written(store, record("c1", "10.0.0.1"))
    recorded = OtherRecords(store, once=True)
    assert addresses(recorded) == ["10.0.0.1"]
    written(store, record("c2", "10.0.0.2"))
    assert addresses(recorded) == ["10.0.0.1"]


def test_a_look_ahead_is_good_for_one_question_also_for_one_about_nothing(store: RecordStore) -> None:
    """A DEL looks before its first plugin. If that needs no answer, the look must not serve the second plugin."""
    written(store, record("c1", "10.0.0.1"))
    recorded = OtherRecords(store)
    recorded.read()
    assert not [*recorded.with_addresses([], None)]
    written(store, record("c2", "10.0.0.2"))
    assert addresses(recorded) == ["10.0.0.1", "10.0.0.2"]
