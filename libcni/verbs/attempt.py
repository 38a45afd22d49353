"""The attempt of an ADD whose record is on the disk: run the plugins, complete the record or undo everything."""

from __future__ import annotations

import logging
from contextlib import suppress

from libcni._dataclass import dataclass, replace
from libcni._known_faults import NOT_AVAILABLE, OUTSIDE
from libcni.errors import CNIError, Hint, PluginError, RecordError
from libcni.options import OnCancel
from libcni.protocol.answer import read_add_result
from libcni.protocol.result import Result
from libcni.store.journal import Journal
from libcni.store.model import BEGUN, PENDING, Record, Unreadable
from libcni.store.place import UNKNOWN, Place
from libcni.store.reservations import holders_of
from libcni.verbs.chain import Chain
from libcni.verbs.claim import Claim, interface_exists, replaced_namespace
from libcni.verbs.detach_chain import detach_chain_twice
from libcni.verbs.verb_run import VerbRun

logger: logging.Logger = logging.getLogger("libcni")

_PLUGIN_END_SECONDS = 1.0
"""Seconds to wait before a roll-back for processes that the plugins started."""


@dataclass(slots=True)
class Attempt:
    """An ADD whose record is on the disk.

    Attributes:
        chain: the plugins.
        journal: the record.
        claim: the namespace, and the interface as soon as a plugin has created it.
        changed: the previous record of an attachment in use that this ADD changes; or None.
        result: the result of the last plugin that ended, or None.
    """

    chain: Chain
    journal: Journal
    claim: Claim
    changed: Record | None = None
    result: Result | None = None

    def start(self, *, may_exist: bool, has_damaged: bool) -> None:
        """Check the namespace and the interface, and record that the first plugin begins.

        Args:
            may_exist: go on if the interface exists. Then it does not belong to this ADD.
            has_damaged: whether an unreadable record may name this attachment. Then a DEL has to run the plugins.

        Raises:
            InterfaceExistsError: the interface exists: a roll-back would delete it.
            NamespaceMismatchError: another namespace is at the path.
            RecordError: the record cannot be written; nothing was run.
        """
        # Look after the record is written: that takes a millisecond or more, and another program may act meanwhile.
        seen = self.claim.look()
        self._refuse_obstacle(seen, may_exist=may_exist, has_damaged=has_damaged)
        if self.journal.record.state != BEGUN:
            return
        self.claim.learn_before(seen)
        try:
            self.journal.write("started", interface=self.claim.place.interface)
        except RecordError:
            if not self.journal.is_anothers:
                with suppress(RecordError):
                    self.chain.run.records.forget(self.journal.record)
            raise
        # Once more: little time should pass between this check and the plugin's start.
        self._refuse_obstacle(self.claim.look(), may_exist=may_exist, has_damaged=has_damaged)

    def _refuse_obstacle(self, seen: Place, *, may_exist: bool, has_damaged: bool) -> None:
        """Refuse an ADD that has run nothing yet if its interface exists, or the path leads to another namespace.

        Callers usually call DEL after a failed ADD. The record says that this DEL must run nothing. The record of an
        attachment in use is restored.
        """
        obstacle = self.claim.obstacle(seen)
        if not obstacle or (obstacle == "interface" and may_exist):
            return
        record = self.journal.record
        try:
            if self.changed is not None:
                self._restore(self.changed)
            elif not has_damaged:
                self.journal.write("refused")
            elif record.state == BEGUN:
                self.journal.write("started", interface=UNKNOWN)
        except RecordError as error:
            logger.warning("%s: cannot mark the record as refused: %s", record.path, error)
        raise replaced_namespace(record, "ADD") if obstacle == "namespace" else interface_exists(record)

    async def run(self) -> Result:
        """Run ADD of each plugin with the result of the previous one, complete the record, and return the last result.

        Raises:
            NamespaceMismatchError: the path leads to another namespace now, or another interface has the name. The
                remaining plugins are not run.
        """
        chain, record = self.chain, self.journal.record
        last = len(chain.net.plugins) - 1
        result: Result | None = None
        printed: bytes | None = None
        for index in range(last + 1):
            if result is not None and record.netns:
                self.claim.verify(result)
            invocation = chain.invocation("ADD", index, None if result is None else result.text)
            outcome = await chain.call(invocation, then=index + 1 if index < last else None)
            # Most plugins after the first print the result that they received.
            is_new = outcome.stdout != printed
            if result is None or is_new:
                result = self.result = read_add_result(invocation, outcome, chain.net.cni_version)
                printed = outcome.stdout
            if record.netns and (is_new or index == last):
                self.claim.learn(result, is_last=index == last)
            if index < last:
                # Without this event a later DEL could not undo the plugin's work, so a failed write must fail the ADD.
                self.journal.write("step", plugin=index, interface=self.claim.place.interface, partial=result.text)
        assert result is not None  # check_plugins refuses a list without plugins
        self.journal.write("complete", interface=self.claim.place.interface, result=result.text)
        if not self.journal.has_name():
            self.chain.run.records.rewrite(self.journal.record, "again")
        return result

    def _restore(self, changed: Record) -> None:
        """Write the record of an attachment in use again, unless another program has rewritten the file."""
        if not self.journal.is_anothers:
            self.chain.run.records.rewrite(changed, "restored")

    def learn_after_failure(self) -> None:
        """Record which interface a failed plugin has left, if any."""
        if not self.claim.learn_after_failure():
            return
        record = self.journal.record
        text = self.result.text if self.result is not None else record.partial
        try:
            self.journal.write("step", interface=self.claim.place.interface, partial=text)
        except RecordError as error:
            text = "%s: not recorded; DEL may remove another program's interface of this name: %s"
            logger.warning(text, record.ifname, error)

    async def fail(self, error: BaseException, *, rollback: bool, on_cancel: OnCancel) -> None:
        """Roll back a failed ADD; if the namespace does not exist, add this to the hint of its error.

        By default a cancelled ADD is not rolled back, because its caller must not wait: DEL or GC can do it later, with
        the pending record.
        """
        run, netns = self.chain.run, self.journal.record.netns
        is_cancelled = run.is_interrupted or not isinstance(error, Exception)
        if not is_cancelled:
            self.learn_after_failure()
        if isinstance(error, PluginError):
            with suppress(CNIError, OSError):  # a hint must not prevent the roll-back
                _name_missing(run, netns, error)
                _name_holder(self.chain, error)
        stays_pending = is_cancelled and (on_cancel == "keep" or isinstance(error, GeneratorExit))
        if rollback and not stays_pending:
            await run.shielded(self.roll_back(error))

    async def roll_back(self, error: BaseException) -> None:
        """Run DEL through the whole chain in reverse order. Go on after errors, and add them to ``error``.

        Each plugin receives the last good result as ``prevResult``: some plugins read there which resources to remove.
        If this ADD has ``changed`` an attachment in use, restore its record and run nothing: DEL would
        detach it. A later DEL of it undoes both ADDs if they ran the same chain.
        """
        run = self.chain.run
        run.start_cleanup()
        problems: list[CNIError] = []
        try:
            # A plugin that waits for its configuration must not count as a running plugin.
            await run.discard_prepared()
            has_run = self.result is not None or not isinstance(error, PluginError) or error.was_run
            if self.changed is not None:
                self._restore(self.changed)
            else:
                # If no plugin has run, skip the DEL: it could fail for the ADD's reason, such as a too long variable.
                problems = await self.undo() if has_run else []
                if not problems and not self.journal.is_anothers:
                    run.records.forget(self.journal.record)
        except CNIError as undoing:
            problems = [undoing]
        if isinstance(error, CNIError):
            error.rollback_errors, error.record_state = tuple(problems), PENDING if problems else ""
            return
        for problem in problems:
            error.add_note(f"the roll-back failed: {problem}")

    async def undo(self) -> list[CNIError]:
        """Run DEL through the chain of an ADD. Go on after errors, and return them."""
        chain, record = self.chain, self.journal.record
        if self.result is not None:
            record = record.with_fields(partial=self.result.text)
        # Processes that were killed with the plugin take a moment to end, on a busy machine longer than a DEL.
        have_ended = await chain.run.plugins_have_ended(_PLUGIN_END_SECONDS)
        problems = (await detach_chain_twice(chain, replace(self.claim, record=record))).errors
        # A process that ran during the DEL may have changed the network after it, even if it ends in a moment. If none
        # ran, what is seen now is a plugin of DEL, or another verb's process that is being started.
        seconds = _PLUGIN_END_SECONDS if have_ended else 0.0
        if not problems and not await chain.run.plugins_have_ended(seconds):
            # The process may still change the network, and nothing would undo that. The next verb of the container
            # waits for its end.
            text = f"{record.path}: a process of a plugin is still running, so the record stays pending"
            problems.append(RecordError(text, path=record.path))
        return problems


def _name_missing(run: VerbRun, netns: str, error: PluginError) -> None:
    """Say in the hint that the namespace does not exist, because each plugin reports this in other words.

    If the error has another hint, it becomes a note.
    """
    import shlex  # few ADDs fail

    if not netns or run.sight.namespace(netns).netns is not None:
        return
    directory, _, name = netns.rpartition("/")
    text, named_path = f"the namespace {netns} does not exist", f"/run/netns/{name}"
    if run.sight.namespace(named_path).netns is not None:
        text += f": did you mean {named_path}?"
    elif directory in {"/run/netns", "/var/run/netns"}:
        text += f"; create it first: {shlex.join(['ip', 'netns', 'add', name])}"
    if error.hint is None:
        error.hint = Hint(text)
    else:
        error.add_note(text)


def _name_holder(chain: Chain, error: PluginError) -> None:
    """Name in the hint who has the address that the ADD asked for: host-local only says that it is not available."""
    plugins_text = f"{error.msg} {error.details}"
    if match := OUTSIDE.search(plugins_text):
        # Two addresses of one set of ranges give the same error.
        text = f"no range of the network could give {match[1]}; request one address of each set of ranges"
        error.hint = Hint(f"{text} in {chain.net.file}" if chain.net.file else text)
    if not (match := NOT_AVAILABLE.search(plugins_text)):
        return
    for container, ifname in holders_of(chain.net, match[1]):
        if not container:
            text = f"{match[1]} is reserved by an empty file, which an interrupted ADD or a full disk has left"
            error.hint = Hint(f"{text}; find out whether a container has the address", "doctor")
            continue
        run, identity = chain.run, (chain.net.name, container, ifname)
        record = run.records.find(identity) if ifname else None
        text = f"{match[1]} is reserved for container {container}" + (f", interface {ifname}" if ifname else "")
        if record is None or isinstance(record, Unreadable):
            error.hint = Hint(f"{text}, which has no record here; find out whether that container lives", "doctor")
        else:
            state = run.sight.state_of(record)
            error.hint = Hint.about(
                record, f"{text} ({state}); choose another address, or detach that container", "del"
            )
