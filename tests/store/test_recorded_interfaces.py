"""Who has an interface or an address by record: read once for a sweep, and never out of date."""

from __future__ import annotations

import errno
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from libcni import CNIConfig, Invocation, Outcome
from libcni.executor import CallOptions
from libcni.kernel import system
from libcni.store import files, records
from libcni.store.boot import boot_id
from libcni.store.model import PENDING, READY, Ours, Record
from libcni.store.recorded_interfaces import RecordedInterfaces
from libcni.store.records import RecordStore
from store.canned import written

CONFIG = b'{"cniVersion":"1.1.0","name":"net","plugins":[{"type":"a"}]}'


def record(container_id: str, address: str, **more: object) -> Record:
    result = f'{{"cniVersion":"1.1.0","ips":[{{"address":"{address}/24"}}]}}'
    made = Ours("net", container_id, "eth0", READY, config=CONFIG, version="1.1.0", result=result, created=1.0)
    return made.with_fields(boot=boot_id(), **more)


def keep(store: RecordStore, made: Record) -> Record:
    """Write the record of an ADD that was killed after its first plugin."""
    return written(store, made.with_fields(state=PENDING, result=None, partial=made.result))


def addresses(recorded: RecordedInterfaces) -> list[str]:
    return sorted(address for other in recorded.of_others(None) for address in other.addresses)


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
    now = system.time_ns
    monkeypatch.setattr(system, "time_ns", lambda: now() + 3600 * 10**9)
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
    assert max(reads.values()) <= 8
    assert sum(reads.values()) <= 6 * 60
    # The record of c20's address came while the sweep ran.
    assert plugins.handed.pop("c20") == []
    assert all(plugins.handed.values())


def test_what_has_changed_is_read_again(store: RecordStore, reads: Counter[str]) -> None:
    recorded = RecordedInterfaces(store)
    begun = keep(store, record("c1", "10.0.0.1"))
    written(store, record("c2", "10.0.0.2"))
    assert addresses(recorded) == addresses(recorded) == ["10.0.0.1", "10.0.0.2"]
    assert set(reads.values()) == {2}  # once by the test
    keep(store, record("c1", "10.0.0.3", path=begun.path))
    assert addresses(recorded) == ["10.0.0.2", "10.0.0.3"]
    written(store, record("c1", "10.0.0.4", path=begun.path))
    assert addresses(recorded) == ["10.0.0.2", "10.0.0.4"]
    path = Path(begun.path)  # Go writes in place
    path.write_bytes(path.read_bytes().replace(b"10.0.0.4", b"10.0.0.5"))
    assert addresses(recorded) == ["10.0.0.2", "10.0.0.5"]
    store.forget(begun)
    assert addresses(recorded) == ["10.0.0.2"]
    assert reads["net-c2-eth0"] == 2


def test_a_file_that_was_written_just_now_is_read_again(
    store: RecordStore, reads: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A further write within a tick of the kernel's clock leaves its time, and may leave its size."""
    written(store, record("c1", "10.0.0.1"))
    changed = (Path(store.results) / "net-c1-eth0").stat().st_ctime_ns
    monkeypatch.setattr(system, "time_ns", lambda: changed)
    recorded = RecordedInterfaces(store)
    assert addresses(recorded) == addresses(recorded) == ["10.0.0.1"]
    assert reads["net-c1-eth0"] == 3


def test_an_address_that_another_container_gets_while_a_plugin_runs_is_left_out_for_the_next_one(
    store: RecordStore, tmp_path: Path
) -> None:
    """A repeated DEL: the plugin firewall removes rules by address alone, and a plugin before it may take a while."""
    config = CONFIG.replace(b'[{"type":"a"}]', b'[{"type":"firewall"},{"type":"slow"}]')
    keep(store, record("c20", "10.0.0.20", config=config))
    plugins = Plugins(store)
    CNIConfig("/bin", tmp_path, executor=plugins, durable=False).gc_network_list("net", [])
    assert plugins.handed == {"c20": []}


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
    assert addresses(RecordedInterfaces(store)) == ["10.0.0.1", "10.0.0.3"]
