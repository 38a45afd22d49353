"""Find the attachments that make an ADD fail, and those that the ADD detaches before it writes its record.

These are earlier attachments of the same interface, and dead ones of other containers with the same host ports.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager

from libcni._dataclass import dataclass, replace
from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import AttachmentExistsError, CNIError, Hint, NamespaceMismatchError
from libcni.options import DelPolicy, OnExisting
from libcni.store.model import LIVING, STATES, Ours, Record, State, Unreadable
from libcni.store.place import ABSENT, NOT_THE_SAME, Known, Place, compare, same_namespace
from libcni.store.recorded_interface import place_of
from libcni.verbs.chain import Chain
from libcni.verbs.claim import Claim, interface_exists, mismatch
from libcni.verbs.del_report import DelReport
from libcni.verbs.delete import detach, is_unchanged
from libcni.verbs.host_ports import PortOwner
from libcni.verbs.verb_run import VerbRun

logger: logging.Logger = logging.getLogger("libcni")

Note = Callable[[str], object]
"""A function that adds a warning to the result of the ADD, and logs the warning."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """The records of the same (container, interface) on any network.

    Attributes:
        network: the network of the ADD.
        live: the attachments whose records are complete and whose interfaces exist.
        changed: with ``on_existing="allow"``, the attachment of ``live`` on this network, which the ADD changes; or
            None.
        to_detach: the attachments that are detached first.
        has_damaged: whether an unreadable record may be of the same attachment.
    """

    network: str
    live: tuple[Record, ...] = ()
    changed: Record | None = None
    to_detach: tuple[Record, ...] = ()
    has_damaged: bool = False

    def keeps_record(self, other: Record) -> bool:
        """Return whether the record of a detached attachment stays until the ADD's own record replaces it.

        After a kill in between, a reload can restore a complete attachment.
        """
        return other.network == self.network and other in self.live

    @property
    def replaced_path(self) -> str:
        """The path of the record that the ADD's record replaces, or ""."""
        return next((one.path for one in self.to_detach if self.keeps_record(one)), "")


# Find them.


def find_earlier(run: VerbRun, record: Ours, on_existing: OnExisting) -> Earlier:
    """Return the records of an ADD's interface; raises AttachmentExistsError if the ADD is refused."""
    found = _records_of_interface(run, record, on_existing)
    # A meta-plugin may attach to other networks under the same interface name, while its caller's ADD still runs.
    others = [other for other in found if other.network == record.network or not run.is_of_caller(other)]
    states = [(other, run.sight.state_of(other)) for other in others if not isinstance(other, Unreadable)]
    has_damaged = any(isinstance(other, Unreadable) for other in found)
    return earlier_of(record.network, states, on_existing, has_damaged=has_damaged)


def earlier_of(
    network: str, others: Collection[tuple[Record, State]], on_existing: OnExisting, *, has_damaged: bool
) -> Earlier:
    """Decide what an ADD does with the earlier records of its interface; ``others``: each with its state.

    Raises:
        AttachmentExistsError: the ADD is refused.
    """
    live = tuple(other for other, state in others if STATES[state].add == "refuse")
    if live and on_existing == "refuse":
        raise _attached(live[0])
    stay = live if on_existing == "allow" else ()
    changed = next((other for other in stay if other.network == network), None)
    to_detach = tuple(other for other, _ in others if other not in stay)
    return Earlier(network, live, changed, to_detach, has_damaged)


def _records_of_interface(run: VerbRun, record: Ours, on_existing: OnExisting) -> list[Record]:
    """Return the records that may name the interface of an ADD.

    If the kernel says that no interface has the name, an ADD that only refuses need not find the records of other
    networks: their interface has ended or has another name, and a later DEL or GC detaches them. It would have to list
    the names of all records.
    """
    if on_existing == "refuse" and record.netns and run.sight.look(record.netns, record.ifname).interface is ABSENT:
        return run.records.candidates(record.identity)
    return run.records.of_interface(record.container_id, record.ifname)


def _attached(other: Record) -> AttachmentExistsError:
    container_id, network, ifname = other.container_id, other.network, other.ifname
    return AttachmentExistsError(
        f"container {container_id} is already attached to network {network} with interface {ifname} ({other.path})",
        container_id=container_id,
        ifname=ifname,
        network=network,
    )


_USUAL_IFNAMES = ("eth0", "eth1", "net1")
"""The interface names that runtimes use: for the first network, for the second, and for the first of Multus."""


def refuse_second_namespace(run: VerbRun, record: Ours, place: Place, to_detach: Collection[Record]) -> None:
    """Raise NamespaceMismatchError if the container has an attachment in another namespace that exists.

    Plugins know a container on a network by its ID alone: two with one ID would share chains and reservations. Only the
    usual interface names on this network are looked up: to find all records of a container, the names of all records
    must be listed, which takes 5 ms with 10,000.
    """
    if place.netns is None:
        return
    network, container_id, own = record.identity
    usual = [(network, container_id, ifname) for ifname in _USUAL_IFNAMES if ifname != own]
    for other in run.records.candidates(*usual):
        if other not in to_detach and other.state in LIVING and _lives_elsewhere(run, other, place):
            text = "use another container ID, or detach the container first; {argument} attaches it in both namespaces"
            hint = Hint.about(other, text, "del", argument="on_existing", value="allow")
            raise _other_namespace(other, record.netns, hint)


def refuse_other_namespace(run: VerbRun, changed: Record, place: Place, netns: str) -> None:
    """Raise NamespaceMismatchError if an attachment in use, which the ADD would change, is in another namespace.

    Each identity has one record. With the new namespace in it, no record would name the attachment in the old
    namespace.
    """
    if _lives_elsewhere(run, changed, place):
        hint = Hint.about(changed, "use another container ID or interface name, or detach the container first", "del")
        raise _other_namespace(changed, netns, hint)


def _lives_elsewhere(run: VerbRun, other: Record, place: Place) -> bool:
    """Return whether the recorded namespace of an attachment is another one than the ADD's, and lives."""
    made = place_of(other)
    if made.netns is None or place.netns is None or same_namespace(made, place):
        return False
    return same_namespace(made, run.sight.namespace(other.netns))


def _other_namespace(other: Record, netns: str, hint: Hint) -> NamespaceMismatchError:
    problem = f"the container is attached in the namespace {other.netns}, but {netns} is another namespace"
    return mismatch(other, problem, netns, hint)


# Detach them.


async def make_room(chain: Chain, record: Ours, earlier: Earlier, on_existing: OnExisting, note: Note) -> None:
    """Detach the earlier attachments.

    ``note`` gets a text for each unfinished or dead one, and for leftovers of plugins.
    """
    run = chain.run
    # First check whether this ADD is refused: a refused ADD must not detach anything.
    if earlier.live:  # raise the error that names a renamed interface
        await run.on_disk(lambda: [Claim.of(run, other, other.netns).may_remove() for other in earlier.live])
    if earlier.to_detach and on_existing != "allow":
        _refuse_anothers_interface(run, record, earlier.to_detach)
    if earlier.live and on_existing == "replace":
        # Detect a full disk before a running container is detached, not after.
        run.records.ensure_writable(record)
    for replaced in earlier.to_detach:
        # A caller that replaces a complete attachment expects this. Any other one was left by an interruption.
        tell = logger.info if replaced in earlier.live else note
        state = run.sight.state_of(replaced)  # the record still says "ready" if its namespace is gone
        tell(f"{replaced.path}: detaching this attachment ({state}) before the ADD")
        with _noted(replaced, str(state)):
            _note_left(await _detach_earlier(chain, earlier, replaced), note)


def _refuse_anothers_interface(run: VerbRun, record: Ours, to_detach: Iterable[Record]) -> None:
    """Raise InterfaceExistsError if the interface exists, but belongs to none of the attachments to detach."""
    seen = run.sight.look(record.netns, record.ifname)
    has_run = [other for other in to_detach if STATES[other.state].delete != "nothing"]
    if isinstance(seen.interface, Known) and all(compare(place_of(other), seen) in NOT_THE_SAME for other in has_run):
        raise interface_exists(record)


async def _detach_earlier(chain: Chain, earlier: Earlier, other: Record) -> DelReport:
    """Detach an earlier attachment. On the same network, DEL may also use the caller's configuration and arguments."""
    assert chain.rt is not None
    if other.network == chain.net.name:
        # Only a record without a namespace needs the caller's, which may differ from a recorded namespace.
        net, conf = chain.net, replace(chain.rt, netns=None) if other.netns else chain.rt
    else:
        net, conf = None, RuntimeConf(other.container_id, None, other.ifname)
    return await detach(chain.run, other, net, conf, DelPolicy(), keep_record=earlier.keeps_record(other))


async def detach_dead(run: VerbRun, owner: PortOwner, note: Note) -> None:
    """Detach the attachment of a container that is proved dead, but still publishes a port of the ADD.

    The dead attachment's rules come first, so the new container would get no connection. Releases the locks of the ADD.

    Raises:
        CNIError: the DEL failed; nothing of this ADD was run.
    """
    from libcni.store.life_of_record import life_of  # few ADDs publish ports

    record = owner.record
    await run.lock([record.network], record.container_id)
    current = run.records.find(record.identity)
    # Another verb may have detached it, or attached it again, before the lock.
    if current is None or not is_unchanged(current, record) or not life_of(current).is_dead:
        return
    text = f"it publishes host port {owner.port}, and its container is dead: {owner.life.reason}"
    note(f"{record.path}: detaching this attachment before the ADD: {text}")
    conf = RuntimeConf(record.container_id, None, record.ifname)
    with _noted(record, f"dead and publishes host port {owner.port}"):
        _note_left(await detach(run, current, None, conf, DelPolicy()), note)


def _note_left(report: DelReport, note: Note) -> None:
    for what in report.left:
        note(f"{what} when the earlier attachment {what.container_id}:{what.ifname} was detached")


@contextmanager
def _noted(record: Record, state: str) -> Iterator[None]:
    """Note in the error of a DEL that an ADD called it."""
    try:
        yield
    except CNIError as error:
        error.add_note(f"this happened when ADD first detached {record.path}, which is {state}")
        raise
