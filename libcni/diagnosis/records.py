"""Find corrupt records, records that were moved to ``corrupt``, and unfinished verbs."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from functools import partial

from libcni.diagnosis.ipam import look_for
from libcni.diagnosis.mends import Mend
from libcni.diagnosis.namespaces import attachment_age
from libcni.diagnosis.node_state import NodeState, finding_about, id_of, mend_of, name_of
from libcni.diagnosis.processes import lock_users, plugin_processes
from libcni.diagnosis.report import Checked, NodeFinding, NotChecked, Observations, Severity, counted
from libcni.errors import RecordError
from libcni.store.attachments import Attachment
from libcni.store.locks import LockRequest, is_locked
from libcni.store.model import BEGUN, CORRUPT, DETACHING, PENDING, REFUSED
from libcni.store.repair import repair_records

_HALF_DONE = {BEGUN: "ADD", REFUSED: "ADD", PENDING: "ADD", DETACHING: "DEL"}
_ASIDE = re.compile(r"(.+)\.\d{10,}")


def check_records(node: NodeState) -> Observations:
    """Find records that cannot be read, that were moved to ``corrupt``, or whose verb did not complete."""
    if node.record_error is not None:
        yield NotChecked("records", node.record_error.path or node.cni.cache_dir, str(node.record_error))
        return
    directory = node.cni.cache_dir
    # A misspelt directory must not look like a node without containers.
    missing = "" if os.path.lexists(directory) else ", a directory that does not exist"
    users = ", ".join(lock_users(f"{directory}/locks"))
    locks = f"; locks are held by {users}" if users else ""
    yield Checked("records", f"{counted(len(node.attachments), 'record')} in {directory}{missing}{locks}")
    for attachment in node.attachments:
        if attachment.is_denied:
            # The state is ``corrupt`` because this user may not read the record. The record itself may be in order.
            yield NotChecked("records", attachment.path, f"{attachment.problem}; run this program as root")
        elif attachment.state == CORRUPT:
            yield _corrupt(node, attachment)
        elif attachment.state in _HALF_DONE:
            yield _half_done(node, attachment)
    yield from (_misplaced(node, attachment) for attachment in node.misplaced)
    yield from _set_aside(node)
    temporary = repair_records(directory, dry_run=True).temporary if node.attachments or node.set_aside else ()
    if temporary:
        yield NodeFinding(
            "records", "note", "temporary-files", directory,
            f"{counted(len(temporary), 'temporary file')} of programs that were killed",
            mends=(Mend("remove", directory, temporary),),
        )  # fmt: skip


def _by_name(node: NodeState, filename: str) -> NodeFinding | None:
    """Return the finding about the container of a record's file name, or None if the name does not identify it."""
    identity = node.identity_of(filename)
    return None if identity is None else replace(look_for(node, *identity), check="records")


def _corrupt(node: NodeState, attachment: Attachment) -> NodeFinding:
    found = _by_name(node, os.path.basename(attachment.path))
    aside = Mend("set-aside", attachment.path)
    about = partial(NodeFinding, "records", "error", "corrupt-record", attachment.path, attachment.problem)
    if found is None:
        return about("its attachment is unknown, and cannot be detached from this record", mends=(aside,))
    meaning = f"by its file name it is {found.subject}; {found.meaning}"
    # As long as the container lives, the unreadable record keeps GC from freeing its address.
    mends = () if found.remedy else (*found.mends, replace(aside, containers=found.containers))
    return about(meaning, found.remedy, mends, found.containers)


def _misplaced(node: NodeState, attachment: Attachment) -> NodeFinding:
    name = os.path.basename(attachment.path)
    seen = f"the record of {id_of(attachment)} has the file name {name}"
    about = partial(NodeFinding, "records", "error", "misplaced-record", attachment.path, seen)
    if any(other.record.identity == attachment.record.identity for other in node.attachments):
        meaning = "it is a copy: the attachment of this file name has no record"
        return about(meaning, mends=(Mend("set-aside", attachment.path),))
    identity = node.identity_of(name)
    reserved = node.reserved_for(*identity[:2]) if identity is not None else []
    if any(reservation.address in node.addresses_of(attachment) for reservation in reserved):
        # Under the identity in it, it would be the record of a container that does not exist.
        meaning = "its address is reserved for the container of the file name: the content was edited"
        return about(meaning, mends=(Mend("set-aside", attachment.path),))
    own = os.path.join(os.path.dirname(attachment.path), "-".join(attachment.record.identity))
    return about("no verb finds it", f"it is the only record of {id_of(attachment)}: name it {own}")


def _half_done(node: NodeState, attachment: Attachment) -> NodeFinding:  # noqa: PLR0911 - a table: one return for each row
    verb = _HALF_DONE[attachment.state]
    processes = plugin_processes(node.cni, attachment)
    running = ", ".join(processes.values())
    # A pending record alone does not tell an ADD that runs from one that was killed. The kernel releases the lock of
    # a killed process, so the lock tells.
    try:
        is_running = is_locked(node.cni.cache_dir, LockRequest((), attachment.container_id))
    except RecordError:
        is_running = False
    if is_running:
        seen = f"its {verb} runs now" + (f": {running}" if running else "")
        return finding_about(attachment, "records", "note", "running", seen, "", "wait for its end")
    meaning = "it is attached in part" if verb == "ADD" else "it is detached in part"
    about = partial(finding_about, attachment, "records", "warning", "half-done")
    if processes:
        # The environment of the processes names this attachment and this lock file, so no other runtime's is named.
        seen = f"its {verb} was interrupted, and a plugin still runs: {running}"
        remedy = f"wait for the plugin, or end it: kill {' '.join(map(str, processes))}"
        return about(seen, f"{meaning}, and the plugin may still change it", remedy)
    if attachment.state == REFUSED:
        seen = "its ADD found the interface there, and did not succeed"
        return about(seen, "the interface is another program's", mends=(mend_of("detach", attachment),))
    # The record does not say which of the two it was.
    seen = f"its {verb} was interrupted, or {'its roll-back failed' if verb == 'ADD' else 'a plugin failed in it'}"
    space = node.space_of(attachment)
    age = attachment_age(attachment)
    if space is not None and space.process:
        # A verb that was killed at its very end, or at its beginning, leaves a working container.
        meaning += f", and process {space.process} lives in {attachment.netns}"
        if attachment.record.has_ended:
            works = space.network is not None and attachment.ifname in space.network.links
            return about(seen, meaning, *node.reloads(attachment, interrupts=works))
        remedy = "if the container has failed, or may lose this network, detach it"
        return about(seen, meaning, remedy, (mend_of("detach", attachment, interrupts=True),))
    if verb == "ADD" and age is not None and age <= node.pending_after:
        return about(
            seen, meaning, f"repair detaches it {node.pending_after:.0f} seconds after its beginning (--pending-after)"
        )
    return about(seen, meaning, mends=(mend_of("detach", attachment),))


def _set_aside(node: NodeState) -> Observations:
    directory = os.path.join(node.cni.cache_dir, "corrupt")
    for name in node.set_aside:
        match = _ASIDE.fullmatch(name)
        found = _by_name(node, match[1]) if match else None
        about = partial(
            NodeFinding,
            name="set-aside",
            check="records",
            subject=os.path.join(directory, name),
            seen="a record that was set aside",
        )
        remove = "remove the file when you have read it"
        if found is None:
            yield about(severity="note", meaning="its attachment is unknown", remedy=remove)
        elif any(name_of(attachment) == found.subject for attachment in node.attachments):
            yield about(
                severity="note",
                meaning=f"by its file name it was {found.subject}; it has another record now",
                remedy=remove,
            )
        else:
            # As long as the container lives, the file is the only trace of its attachment.
            severity: Severity = "warning" if found.remedy or found.mends else "note"
            meaning = f"by its file name it was {found.subject}; {found.meaning}"
            yield about(
                severity=severity,
                meaning=meaning,
                remedy=found.remedy or ("" if found.mends else remove),
                mends=found.mends,
                containers=found.containers,
            )
