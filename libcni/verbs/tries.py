"""The tries of an ADD: acquire locks, detach earlier attachments, write the record, run the plugins."""

from __future__ import annotations

import logging
from typing import NamedTuple

import libcni.kernel.system as system
from libcni._dataclass import dataclass, field
from libcni._known_faults import fault_of
from libcni.config.port_mappings import HostPort
from libcni.errors import CNIError, InvalidOutputError, PluginError, PluginTimeoutError
from libcni.options import OnCancel, OnExisting
from libcni.protocol.result import Result
from libcni.store.boot import boot_id, pid_namespace
from libcni.store.journal import Journal
from libcni.store.model import PENDING, Identity, Ours
from libcni.store.place import Place, same_namespace
from libcni.store.recorded_interface import place_of
from libcni.verbs.attempt import Attempt
from libcni.verbs.chain import Chain
from libcni.verbs.claim import Claim, replaced_namespace
from libcni.verbs.earlier import (
    Earlier,
    detach_dead,
    find_earlier,
    make_room,
    refuse_other_namespace,
    refuse_second_namespace,
)
from libcni.verbs.host_ports import locked_host_ports

logger: logging.Logger = logging.getLogger("libcni")


class _Begun(NamedTuple):
    """An ADD whose record is written: the earlier attachments, the namespace, and the record."""

    earlier: Earlier
    place: Place
    journal: Journal


@dataclass(frozen=True, slots=True)
class Tries:
    """The tries of an ADD, after all checks that need no lock.

    Attributes:
        chain: the plugins.
        record: the record to write.
        namespace: the container's namespace before the ADD.
        ports: the host ports that the ADD publishes, if they are to be checked.
        on_existing, on_cancel, rollback, strict: the options of the ADD.
        notes: the warnings of the ADD.
    """

    chain: Chain
    record: Ours
    namespace: Place
    ports: tuple[HostPort, ...]
    on_existing: OnExisting
    on_cancel: OnCancel
    rollback: bool
    strict: bool
    notes: list[str] = field(default_factory=list)

    async def attach(self) -> Result:
        """Attach the container. Repeat the ADD after a known temporary fault of a plugin."""
        retries, previous = self.chain.run.settings.retries, ""
        begun = await self._begin()
        while True:
            started_at = system.monotonic()
            try:
                with begun.journal:
                    return await self._attempt(begun)
            except CNIError as error:
                if previous:
                    error.add_note(f"before this try: {previous}")
                if not retries or not self._may_repeat(error, system.monotonic() - started_at):
                    raise
                retries, previous = retries - 1, error.text
            self.chain.run.end_cleanup()
            self._note(f"the ADD was rolled back and is repeated after a known temporary fault: {previous}")
            try:
                begun = await self._begin_again(begun.earlier)
            except CNIError as error:
                error.add_note(f"before that, {previous}")
                raise

    async def _attempt(self, begun: _Begun) -> Result:
        """Run the plugins; roll back if that fails."""
        earlier, place, journal = begun
        claim = Claim.of_add(self.chain.run, journal.record, place.with_interface(journal.record.interface))
        attempt = Attempt(self.chain, journal, claim, earlier.changed)
        attempt.start(may_exist=self.on_existing == "allow", has_damaged=earlier.has_damaged)
        try:
            result = await attempt.run()
            journal.close()  # not only after the block: if that fails, the ADD must be rolled back
        except BaseException as error:
            await attempt.fail(error, rollback=self.rollback, on_cancel=self.on_cancel)
            raise
        return result

    def _may_repeat(self, error: CNIError, seconds: float) -> bool:
        """Return whether the ADD may be repeated: the error is of that kind, nothing is left, and there is time.

        ``seconds``: how long the failed try took, its roll-back included.
        """
        if not isinstance(error, PluginError) or isinstance(error, PluginTimeoutError | InvalidOutputError):
            return False
        fault, run = fault_of(error), self.chain.run
        if fault is None or fault.cure != "again" or not self.rollback or error.rollback_errors or run.is_interrupted:
            return False
        # A record is one that the roll-back left: the restored one of an attachment in use, or another program's.
        if run.records.find(self.record.identity) is not None:
            return False
        return run.seconds_without_cleanup() > seconds

    def _note(self, text: str) -> None:
        """Log a warning that the result will have, too."""
        logger.warning("container %s, network %s: %s", self.record.container_id, self.record.network, text)
        self.notes.append(text)

    # Acquire the locks, make room, and write the record.

    async def _begin(self) -> _Begun:
        """Begin the first try.

        Raises:
            AttachmentExistsError: the container has the interface, and ``on_existing`` is "refuse"; or another
                container has one of the host ports, or with ``strict`` a program of the host or a rule.
            InterfaceExistsError: the interface exists, and belongs to no attachment that this ADD detaches.
            NamespaceMismatchError: the container is attached in another namespace.
        """
        run, record = self.chain.run, self.record
        detached: list[Identity] = []
        while True:
            earlier = await run.lock_all(
                record.network,
                record.container_id,
                lambda: find_earlier(run, record, self.on_existing),
                lambda earlier: [other.network for other in earlier.to_detach],
            )
            if not self.ports:
                return await self._write(earlier)
            # The ports stay locked until the record is written: two ADDs at the same time would not find each other's
            # record. They are compared before anything is detached, because this ADD may be refused.
            async with locked_host_ports(run, record.container_id, self.ports, with_rules=self.strict) as found:
                dead = [owner for owner in found.dead if owner.record.identity not in detached]
                found.check_owners(but=dead)  # this ADD would detach the dead ones for nothing
                if not dead:
                    found.check(self._note, strict=self.strict)
                    return await self._write(earlier)
            for owner in dead:
                detached.append(owner.record.identity)
                await detach_dead(run, owner, self._note)

    async def _begin_again(self, earlier: Earlier) -> _Begun:
        """Begin a further try. Keep the locks: a DEL that waits for the end of this ADD must not run before it."""
        run, container_id = self.chain.run, self.record.container_id
        now = Earlier(self.record.network, has_damaged=earlier.has_damaged)
        if not self.ports:
            return await self._write(now)
        async with locked_host_ports(run, container_id, self.ports, with_rules=self.strict) as found:
            found.check(self._note, strict=self.strict)
            return await self._write(now)

    async def _write(self, earlier: Earlier) -> _Begun:
        """Detach the earlier attachments, and write the record."""
        run, record = self.chain.run, self.record
        if earlier.changed is not None:
            refuse_other_namespace(run, earlier.changed, self.namespace, record.netns)
        if self.on_existing != "allow":
            refuse_second_namespace(run, record, self.namespace, earlier.to_detach)
        await make_room(self.chain, record, earlier, self.on_existing, self._note)
        if run.starts_ahead:
            # The process starts while the record is written. It gets its configuration after that.
            run.start_ahead(self.chain.invocation("ADD", 0, ahead=True))
        place = run.sight.namespace(record.netns)
        if not same_namespace(self.namespace, place):
            raise replaced_namespace(record, "ADD")
        return _Begun(earlier, place, await self._write_record(earlier, place))

    async def _write_record(self, earlier: Earlier, place: Place) -> Journal:
        """Write the record. It survives a kill, so that a later DEL or GC can undo the plugins' work."""
        run, changed = self.chain.run, earlier.changed
        record = self.record.with_fields(
            path=earlier.replaced_path,
            netns_id=place.netns,
            netns_cookie=place.cookie or None,
            owner=run.settings.owner,
            created=system.time(),
            uptime=system.uptime(),
            boot=boot_id(),
            pid_namespace=pid_namespace(),
        )
        if changed is not None:
            # A DEL after a kill needs the earlier ADD's result and interface.
            interface, result = place_of(changed).interface, changed.last_result
            record = record.with_fields(state=PENDING, path=changed.path, partial=result, interface=interface)
        take_back = self.rollback and self.on_cancel == "rollback"
        return await run.begin(record, changed, "" if changed is None else "again", take_back=take_back)
