"""Faults put into the library on purpose, to see that the simulation finds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple
from unittest.mock import patch

from libcni import _system as system
from libcni.manager.context import OperationContext
from libcni.oci.hook import Hook
from libcni.store import files, place, records
from libcni.store.locks import LockSet
from libcni.store.place import EnteredNamespace
from libcni.store.record import PENDING, Record
from libcni.store.records import RecordStore
from libcni.verbs import forget, gc, locking
from libcni.verbs.locking import LockingNode
from libcni.verbs.node import Node
from libcni.verbs.ownership import Ownership
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
    """Explore the scenario of a fault, with the fault; before version 1.1.0 no GC of a plugin hides what it leaves."""
    with seeded(name):
        found = explore(SCENARIOS[FAULTS[name].scenario])
        return found if found.violation else explore(SCENARIOS[FAULTS[name].scenario], version="1.0.0")


def put(owner: object, name: str, value: object) -> Callable[[], AbstractContextManager[object]]:
    """Return a fault that gives a class or module another attribute."""
    return lambda: patch.object(owner, name, value)


def nothing(*_: object, **__: object) -> None:
    """Do nothing."""


async def go_on(*_: object, **__: object) -> None:
    """Do nothing, in a coroutine."""


@contextmanager
def record_after_the_first_plugin() -> Iterator[None]:
    begin, execute, late = Node.begin, Node.execute, []

    async def begin_later(self: Node, record: Record, *args: Any, **options: Any) -> Record:
        late.append(lambda: begin(self, record, *args, **options))
        return record.with_fields(path=f"{self.records.results}/{'-'.join(record.identity)}", created=sim().now)

    async def execute_and_begin(self: Node, *args: Any, **options: Any) -> Any:
        try:
            return await execute(self, *args, **options)
        finally:
            if late and sim().me().alive:
                await late.pop()()

    with patch.object(Node, "begin", begin_later), patch.object(Node, "execute", execute_and_begin):
        yield


LOOK = Ownership.netns


def look_once(self: Ownership) -> str:
    """Look before the first plugin alone."""
    if self.is_first:
        self.path = LOOK(self)
    return self.path


def address_and_number(self: EnteredNamespace, name: str) -> tuple[int, str]:
    """Ask for the address, then for the number."""
    request = name.encode().ljust(place._IFREQ_BYTES, b"\0")
    try:
        address = system.ioctl(self._socket, place._SIOCGIFHWADDR, request)
        number = system.ioctl(self._socket, place._SIOCGIFINDEX, request)
    except OSError:
        return 0, ""
    return place._INT.unpack_from(number, 16)[0], address[18:24].hex(":")


@contextmanager
def gc_lists_before_it_locks() -> Iterator[None]:
    lock, iterate = LockingNode.lock, RecordStore.iter_records
    seen_by: dict[RecordStore, list[Record] | None] = {}

    async def list_first(self: Any, networks: Any, container_id: str = "", *, exclusive: bool = False) -> None:
        seen = list(iterate(self.records)) if exclusive else None
        await lock(self, networks, container_id, exclusive=exclusive)
        seen_by[self.records] = seen

    def seen_before(self: RecordStore, *args: Any) -> Iterator[Record]:
        seen = seen_by.pop(self, None)
        return iterate(self, *args) if seen is None else iter(seen)

    with patch.object(LockingNode, "lock", list_first), patch.object(RecordStore, "iter_records", seen_before):
        yield


def forget_first(self: RecordStore, record: Record) -> Record:
    """Forget the record instead of marking it."""
    self.forget(record)
    return record


PREPARE = LockSet._prepare


def prepare_backwards(self: LockSet, token: str) -> None:
    """Prepare the locks, the last one first."""
    PREPARE(self, token)
    self._todo.reverse()


FAULTS = {
    "record-after-the-first-plugin": Fault("killed_add", record_after_the_first_plugin),
    "no-sync-before-the-name": Fault("power_cut_during_add", put(files, "_order_before_names", nothing)),
    "no-sync-of-the-name": Fault("power_cut_during_add", put(records, "sync_directory", nothing)),
    "roll-back-without-result": Fault("killed_add_and_an_orphan", put(RecordStore, "keep_partial", nothing)),
    "the-look-only-once": Fault("interface_replaced_during_del", put(Ownership, "netns", look_once)),
    "number-and-address-of-two-looks": Fault(
        "interface_replaced_while_add_fails", put(EnteredNamespace, "_interface", address_and_number)
    ),
    "inode-without-cookie": Fault("namespace_replaced_during_del", put(SimSocket, "has_cookies", False)),
    "orphan-not-waited-for": Fault("killed_add_and_an_orphan", put(LockingNode, "_wait_for_orphan", go_on)),
    "orphan-of-a-del-not-waited-for": Fault("killed_del_and_an_orphan", put(locking, "DETACHING", PENDING)),
    "gc-lists-before-it-locks": Fault("add_of_another_owner_and_gc", gc_lists_before_it_locks),
    "gc-detaches-what-was-listed": Fault("taken_over_during_gc", put(gc, "is_unchanged", lambda *_: True)),
    "record-forgotten-before-del": Fault("killed_del", put(RecordStore, "mark_detaching", forget_first)),
    "lock-order-reversed": Fault(
        "gc_and_the_add_of_a_half_done_container", put(LockSet, "_prepare", prepare_backwards)
    ),
    "container-not-locked-by-a-manager": Fault("set_up_and_tear_down", put(OperationContext, "lock_container", go_on)),
    "forgets-what-is-there-now": Fault("forgotten_during_del_and_add", put(forget, "check_unchanged", nothing)),
    "a-container-that-runs-again-is-detached": Fault("stopped_and_started", put(Hook, "_is_alive", lambda *_: False)),
    "no-locks": Fault("add_and_del", put(LockSet, "try_acquire", lambda _: True)),
}
