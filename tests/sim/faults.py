"""Faults put into the library on purpose, to see that the simulation finds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, NamedTuple
from unittest.mock import patch

from libcni.config import jsontext
from libcni.engines.oci.hook import Hook
from libcni.kernel import life, namespace_holders, system
from libcni.kernel.foreign import Space
from libcni.kernel.life import Life
from libcni.kernel.namespace_holders import Walk
from libcni.manager.operation import ManagerOperation
from libcni.store import files, present_interfaces, record_format, records
from libcni.store.boot import boot_id
from libcni.store.journal import Journal
from libcni.store.locks import LockSet
from libcni.store.model import BEGUN, PENDING, READY, Event, Record
from libcni.store.place import ABSENT, Interface, Known
from libcni.store.present_interfaces import EnteredNamespace
from libcni.store.records import RecordStore
from libcni.verbs import forget, gc, locking, prev_result, tries
from libcni.verbs.claim import Claim
from libcni.verbs.locking import LockingRun
from libcni.verbs.verb_run import VerbRun
from sim.scenarios import SCENARIOS, Found, explore
from sim.seam import SimSocket, sim


class Fault(NamedTuple):
    """A fault, and the scenario that finds it."""

    scenario: str
    put_in: Callable[[], AbstractContextManager[object]]


def seeded(name: str | None) -> AbstractContextManager[object]:
    """Put a fault into the library."""
    return FAULTS[name].put_in() if name else nullcontext()


def find(name: str) -> Found:
    """Explore the scenario of a fault, with the fault."""
    with seeded(name):
        return explore(SCENARIOS[FAULTS[name].scenario])


def put(owner: object, name: str, value: object) -> Callable[[], AbstractContextManager[object]]:
    """Return a fault that gives a class or module another attribute."""
    return lambda: patch.object(owner, name, value)


def nothing(*_: object, **__: object) -> None:
    """Do nothing."""


async def go_on(*_: object, **__: object) -> None:
    """Do nothing, in a coroutine."""


class LateJournal(Journal):
    """A journal whose file is made when the first plugin has ended."""

    def __init__(self, node: VerbRun, record: Record) -> None:
        super().__init__(record, -1, size=0)
        self._node, self._kept, self._late = node, dict[str, Any](), list[Journal]()

    def write(self, event: Event, *, plugin: int | None = None, **facts: Any) -> None:
        """Keep what happened, until the first plugin has ended."""
        if event == "started":
            self._kept = facts
            self.record = self.record.after(event, **facts)
            return
        if not self._late:
            self._late.append(self._node.records.begin(self.record.with_fields(state="begun", path="")))
            self._late[0].write("started", **self._kept)
        self._late[0].write(event, plugin=plugin, **facts)
        self.record = self._late[0].record

    def has_name(self) -> bool:
        """Say that it has."""
        return True

    def close(self) -> None:
        """Close the file, if there is one."""
        for journal in self._late:
            journal.close()


async def begin_later(self: VerbRun, record: Record, *_: object, **__: object) -> Journal:
    """Write no record before the first plugin."""
    path = f"{self.records.results}/{'-'.join(record.identity)}"
    return LateJournal(self, record.with_fields(path=path, created=sim().now, boot=boot_id()))


WRITE = Journal.write


def write_no_result(self: Journal, event: Event, *, plugin: int | None = None, **facts: Any) -> None:
    """Write what happened without the result of a plugin."""
    WRITE(self, event, plugin=plugin, **{name: value for name, value in facts.items() if name != "partial"})


def complete_early(self: Journal, event: Event, *, plugin: int | None = None, **facts: Any) -> None:
    """Write that the ADD is complete when the first plugin has ended."""
    if self.record.state == READY:
        return
    WRITE(self, event, plugin=plugin, **facts)
    if event == "step" and plugin == 0:
        WRITE(self, "complete", interface=facts["interface"], result=facts["partial"])


WHOLE_PART = jsontext.whole_part


def take_torn(text: str) -> tuple[str, int]:
    """Take the torn member at the end of a record for whole: close what is open."""
    for closing in ("}", '"}', "}}", '"}}', "]}}", "}]}}", '"}]}}', '":0}}', "null}}"):
        with suppress(jsontext.JSONTextError):
            jsontext.parse(text + closing)
            return text + closing, len(text)
    return WHOLE_PART(text)


def without_result(record: Record, event: str = "") -> bytes:
    """Encode a new head without the result of the old one."""
    return record_format.encode(record.with_fields(partial=None) if event == "reload" else record, event)


LOOK = Claim.prepare_del


def look_once(self: Claim) -> str:
    """Look before the first plugin alone."""
    if self.seen is None:
        self.path = LOOK(self)
    return self.path


def address_and_number(self: EnteredNamespace, name: str) -> Interface:
    """Ask for the address, then for the number."""
    request = name.encode().ljust(present_interfaces._IFREQ_BYTES, b"\0")
    try:
        address = system.ioctl(self._socket, present_interfaces._SIOCGIFHWADDR, request)
        number = system.ioctl(self._socket, present_interfaces._SIOCGIFINDEX, request)
    except OSError:
        return ABSENT
    return Known(present_interfaces._INT.unpack_from(number, 16)[0], address[18:24].hex(":"))


@contextmanager
def gc_lists_before_it_locks() -> Iterator[None]:
    lock, iterate = LockingRun.lock, RecordStore.iter_records
    seen_by: dict[RecordStore, list[Record] | None] = {}

    async def list_first(self: Any, networks: Any, container_id: str = "", *, exclusive: bool = False) -> None:
        seen = list(iterate(self.records)) if exclusive else None
        await lock(self, networks, container_id, exclusive=exclusive)
        seen_by[self.records] = seen

    def seen_before(self: RecordStore, *args: Any) -> Iterator[Record]:
        seen = seen_by.pop(self, None)
        return iterate(self, *args) if seen is None else iter(seen)

    with patch.object(LockingRun, "lock", list_first), patch.object(RecordStore, "iter_records", seen_before):
        yield


def forget_first(self: RecordStore, record: Record) -> Record:
    """Forget the record instead of marking it."""
    self.forget(record)
    return record


def nobody(*_: object) -> str:
    """Say that no other attachment has the address, whether or not there is a reservation."""
    return "this"


STEPS = LockSet._steps


def steps_backwards(self: LockSet, networks: set[int], containers: set[int]) -> Iterator[tuple[int, int]]:
    """Acquire the locks in reverse order."""
    return reversed(list(STEPS(self, networks, containers)))


CONCLUDE = life.conclude


def believe_a_missing_path(facts: life.Facts) -> life.Answer | None:
    """Take a container for dead because its path does not lead to its namespace."""
    if facts.path in {"gone", "other"} and not facts.has_rebooted:
        return life.Answer("dead", "path", "its path has gone")
    return CONCLUDE(facts)


def believe_first_threads(self: Walk, pid: str) -> None:
    """Look at the first thread of a process alone."""
    if self._thread(f"/proc/{pid}", pid):
        self._mounts_of(f"/proc/{pid}")
        self._descriptors(f"/proc/{pid}", pid)


MOUNTS_OF = Walk._mounts_of


def believe_own_mounts(self: Walk, task: str) -> None:
    """Look at the mounts of this program's mount namespace alone."""
    if task == "/proc/self":
        MOUNTS_OF(self, task)


FAULTS = {
    "a-second-try-in-any-namespace": Fault(
        "namespace_replaced_before_the_second_try", put(tries, "same_namespace", lambda *_: True)
    ),
    "a-missing-path-means-dead": Fault("process_then_mount", put(life, "conclude", believe_a_missing_path)),
    "first-threads-alone": Fault("mount_then_thread", put(Walk, "_process", believe_first_threads)),
    "own-mounts-alone": Fault("process_then_mount", put(Walk, "_mounts_of", believe_own_mounts)),
    "descriptors-not-looked-at": Fault("thread_then_descriptor", put(Walk, "_descriptors", nothing)),
    "one-pass-is-enough": Fault("descriptor_then_process", put(namespace_holders, "_PASSES", 1)),
    "a-young-container-without-a-sign-is-dead": Fault("young_and_without_a_sign", put(life, "OLD_AFTER", -1.0)),
    "a-walk-without-the-kernel": Fault("nothing_but_a_socket", put(Life, "_kernel_finds", nothing)),
    "any-address-is-a-sign-of-life": Fault(
        "a_user_with_the_address_of_the_dead", put(Space, "is_evidence", lambda *_: True)
    ),
    "no-address-is-a-sign-of-life": Fault(
        "a_user_with_the_address_of_the_living", put(Space, "is_evidence", lambda *_: False)
    ),
    "record-after-the-first-plugin": Fault("killed_add", put(VerbRun, "begin", begin_later)),
    "no-sync-before-the-name": Fault("power_cut_during_add", put(files, "_order_before_names", nothing)),
    "no-sync-of-the-name": Fault("power_cut_during_add", put(records, "sync_directory", nothing)),
    "roll-back-without-result": Fault("killed_add_and_an_orphan", put(Journal, "write", write_no_result)),
    "the-look-only-once": Fault("interface_replaced_during_del", put(Claim, "prepare_del", look_once)),
    "number-and-address-of-two-looks": Fault(
        "interface_replaced_while_add_fails", put(EnteredNamespace, "_interface", address_and_number)
    ),
    "inode-without-cookie": Fault("namespace_replaced_during_del", put(SimSocket, "has_cookies", False)),
    "orphan-not-waited-for": Fault("killed_add_and_an_orphan", put(LockingRun, "_wait_for_orphan", go_on)),
    "orphan-of-a-del-not-waited-for": Fault("killed_del_and_an_orphan", put(locking, "UNFINISHED", {BEGUN, PENDING})),
    "gc-lists-before-it-locks": Fault("add_of_another_owner_and_gc", gc_lists_before_it_locks),
    "gc-detaches-what-was-listed": Fault("taken_over_during_gc", put(gc, "is_unchanged", lambda *_: True)),
    "record-forgotten-before-del": Fault("killed_del", put(RecordStore, "mark_detaching", forget_first)),
    "lock-order-reversed": Fault("gc_and_the_add_of_a_half_done_container", put(LockSet, "_steps", steps_backwards)),
    "container-not-locked-by-a-manager": Fault("set_up_and_tear_down", put(ManagerOperation, "lock_container", go_on)),
    "forgets-what-is-there-now": Fault("forgotten_during_del_and_add", put(forget, "check_unchanged", nothing)),
    "a-container-that-runs-again-is-detached": Fault("stopped_and_started", put(Hook, "_user_of", lambda *_: "")),
    "complete-before-its-time": Fault("killed_add", put(Journal, "write", complete_early)),
    "torn-member-taken-for-whole": Fault("killed_add_and_an_orphan", put(jsontext, "whole_part", take_torn)),
    "new-head-without-its-old-result": Fault("killed_reload_and_del", put(records, "encode", without_result)),
    "no-look-before-the-second-plugin": Fault("namespace_replaced_during_add", put(Claim, "verify", lambda *_: None)),
    "no-reservation-means-nobody": Fault(
        "address_given_away_before_del_is_repeated", put(prev_result, "holder_of", nobody)
    ),
    "no-locks": Fault("add_and_del", put(LockSet, "try_acquire", lambda _: True)),
}
