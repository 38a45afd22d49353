"""Faults put into the library on purpose, to see that the simulation finds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

from libcni import _system as system
from libcni.manager.context import OperationContext
from libcni.oci.hook import Hook
from libcni.store import files, place, records
from libcni.store.locks import LockSet
from libcni.store.place import EnteredNamespace
from libcni.store.record import Record
from libcni.store.records import RecordStore
from libcni.verbs import gc
from libcni.verbs.locking import LockingNode
from libcni.verbs.node import Node
from libcni.verbs.ownership import Ownership
from sim.scenarios import SCENARIOS, Found, explore
from sim.seam import SimSocket, sim

FAULTS: dict[str, Callable[[], AbstractContextManager[object]]] = {}


def fault(make: Callable[[], AbstractContextManager[object]]) -> Callable[[], AbstractContextManager[object]]:
    """Register a fault."""
    FAULTS[make.__name__.replace("_", "-")] = make
    return make


def seeded(name: str | None) -> AbstractContextManager[object]:
    """Put a fault into the library."""
    return FAULTS[name]() if name else nullcontext()


FOUND_BY = {
    "record-after-the-first-plugin": ("killed_add", "1.1.0"),
    "no-sync-before-the-name": ("power_cut_during_add", "1.1.0"),
    "no-sync-of-the-name": ("power_cut_during_add", "1.0.0"),
    "roll-back-without-result": ("killed_add_and_an_orphan", "1.1.0"),
    "the-look-only-once": ("interface_replaced_during_del", "1.1.0"),
    "number-and-address-of-two-looks": ("interface_replaced_while_add_fails", "1.1.0"),
    "inode-without-cookie": ("namespace_replaced_during_del", "1.1.0"),
    "orphan-not-waited-for": ("killed_add_and_an_orphan", "1.1.0"),
    "gc-lists-before-it-locks": ("add_of_another_owner_and_gc", "1.1.0"),
    "gc-detaches-what-was-listed": ("taken_over_during_gc", "1.1.0"),
    "record-forgotten-before-del": ("killed_del", "1.1.0"),
    "lock-order-reversed": ("gc_and_the_add_of_a_half_done_container", "1.1.0"),
    "container-not-locked-by-a-manager": ("set_up_and_tear_down", "1.0.0"),
    "forgets-what-is-there-now": ("forgotten_during_del_and_add", "1.0.0"),
    "a-container-that-runs-again-is-detached": ("stopped_and_started", "1.1.0"),
    "no-locks": ("add_and_del", "1.1.0"),
}
"""Fault to the scenario and the version with which it is found."""


def find(name: str) -> Found:
    """Explore the scenario of a fault, with the fault."""
    scenario, version = FOUND_BY[name]
    with seeded(name):
        return explore(SCENARIOS[scenario], version=version)


def nothing(*_: object, **__: object) -> None:
    """Do nothing."""


@fault
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


@fault
def no_sync_before_the_name() -> AbstractContextManager[object]:
    return patch.object(files, "_order_before_names", nothing)


@fault
def no_sync_of_the_name() -> AbstractContextManager[object]:
    return patch.object(records, "sync_directory", nothing)


@fault
def roll_back_without_result() -> AbstractContextManager[object]:
    return patch.object(RecordStore, "keep_partial", nothing)


@fault
def the_look_only_once() -> AbstractContextManager[object]:
    ask = Ownership.netns

    def ask_once(self: Ownership) -> str:
        if self.is_first:
            self.path = ask(self)
        return self.path

    return patch.object(Ownership, "netns", ask_once)


@fault
def inode_without_cookie() -> AbstractContextManager[object]:
    return patch.object(SimSocket, "has_cookies", new=False)


@fault
def number_and_address_of_two_looks() -> AbstractContextManager[object]:
    def ask(self: EnteredNamespace, name: str) -> tuple[int, str]:
        request = name.encode().ljust(place._IFREQ_BYTES, b"\0")
        try:
            address = system.ioctl(self._socket, place._SIOCGIFHWADDR, request)
            number = system.ioctl(self._socket, place._SIOCGIFINDEX, request)
        except OSError:
            return 0, ""
        return place._INT.unpack_from(number, 16)[0], address[18:24].hex(":")

    return patch.object(EnteredNamespace, "_interface", ask)


@fault
@contextmanager
def orphan_not_waited_for() -> Iterator[None]:
    async def go_on(*_: object) -> None:
        return None

    with patch.object(LockingNode, "_wait_for_orphan", go_on):
        yield


@fault
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


@fault
def gc_detaches_what_was_listed() -> AbstractContextManager[object]:
    return patch.object(gc, "is_unchanged", lambda *_: True)


@fault
def container_not_locked_by_a_manager() -> AbstractContextManager[object]:
    async def go_on(*_: object, **__: object) -> None:
        return None

    return patch.object(OperationContext, "lock_container", go_on)


@fault
def forgets_what_is_there_now() -> AbstractContextManager[object]:
    return patch("libcni.verbs.forget.check_unchanged", nothing)


@fault
@contextmanager
def record_forgotten_before_del() -> Iterator[None]:
    def forget(self: RecordStore, record: Record) -> Record:
        self.forget(record)
        return record

    with patch.object(RecordStore, "mark_detaching", forget):
        yield


@fault
@contextmanager
def lock_order_reversed() -> Iterator[None]:
    prepare = LockSet._prepare

    def backwards(self: LockSet, token: str) -> None:
        prepare(self, token)
        self._todo.reverse()

    with patch.object(LockSet, "_prepare", backwards):
        yield


@fault
def a_container_that_runs_again_is_detached() -> AbstractContextManager[object]:
    return patch.object(Hook, "_is_alive", lambda *_: False)


@fault
def no_locks() -> AbstractContextManager[object]:
    return patch.object(LockSet, "try_acquire", lambda _: True)
