"""Find corrupt records, those that were moved to the directory ``corrupt``, and unfinished verbs."""

from __future__ import annotations

import os
import re
from functools import partial

from libcni._dataclass import replace
from libcni.diagnosis.ipam import look_for
from libcni.diagnosis.lock_holders import lock_users, users_in_words
from libcni.diagnosis.mends import Mend, id_of, mend_of
from libcni.diagnosis.namespaces import attachment_age
from libcni.diagnosis.node_state import NodeState
from libcni.diagnosis.reload_mend import reloads
from libcni.diagnosis.report import Checked, NodeFinding, NotChecked, Observations, finding_about, name_of
from libcni.errors import RecordError, counted
from libcni.store.attachments import Attachment, is_valid_pair
from libcni.store.locks import CONTAINER, PLUGIN, LockRequest, LockSet, offset_of
from libcni.store.model import BEGUN, CORRUPT, DETACHING, PENDING, REFUSED
from libcni.store.records import names_of, without_hash

_HALF_DONE = {BEGUN: "ADD", REFUSED: "ADD", PENDING: "ADD", DETACHING: "DEL"}
_ASIDE = re.compile(r"(.+)\.\d{10,}")


def check_records(node: NodeState) -> Observations:
    """Find records that cannot be read, that were moved to ``corrupt``, or whose ADD or DEL did not complete."""
    if node.record_error is not None:
        subject = "records, and their interfaces, rules and reservations"
        yield NotChecked("records", subject, str(node.record_error))
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
    for alike in node.doubled:
        names = tuple(map(id_of, alike))
        yield NodeFinding(
            "records", "error", "two-records", f"{alike[0].ifname} in {alike[0].netns}",
            f"the records of {' and '.join(names)} name this interface",
            "a DEL of one container takes the interface from the other one",
            "find out whose interface it is, then remove the other container's record: libcni forget",
            containers=names,
        )  # fmt: skip
    yield from _set_aside(node)


def _by_name(node: NodeState, filename: str) -> NodeFinding | None:
    """Return the finding about the container of a record's file name, or None if the name does not identify it."""
    identity = _identity_of(node, filename)
    return None if identity is None else replace(look_for(node, *identity), check="records")


def _corrupt(node: NodeState, attachment: Attachment) -> NodeFinding:
    finding = _by_name(node, os.path.basename(attachment.path))
    aside = Mend("set-aside", attachment.path)
    about = partial(NodeFinding, "records", "error", "corrupt-record", attachment.path, attachment.problem)
    if finding is None:
        return about("the attachment is unknown, and cannot be detached with this record", mends=(aside,))
    meaning = f"its file name names {finding.subject}; {finding.meaning}"
    if finding.name == "unrecorded" and finding.remedy:
        # Go libcni refuses a DEL whose file it cannot read, so its runtime cannot end the container.
        finding = replace(
            finding,
            remedy="move the file away, and then let the runtime restart the container at once; as long as the file "
            "is there, a runtime that reads it cannot stop the container",
        )
    # As long as the container lives, the unreadable record keeps GC from freeing its address.
    mends = () if finding.remedy else (*finding.mends, replace(aside, containers=finding.containers))
    return about(meaning, finding.remedy, mends, finding.containers)


def _misplaced(node: NodeState, attachment: Attachment) -> NodeFinding:
    """Report a record under the file name of another attachment."""
    seen = f"the record of {id_of(attachment)} has the file name of another: {os.path.basename(attachment.path)}"
    containers = (id_of(attachment),)
    about = partial(NodeFinding, "records", "error", "misplaced-record", attachment.path, seen, containers=containers)
    if any(other.record.identity == attachment.record.identity for other in node.attachments):
        meaning = "it is a copy: the attachment of this file name has no record"
        return about(meaning, mends=(Mend("set-aside", attachment.path),))
    right = next(names_of(attachment.record.identity))
    return about("no verb finds this record", f"somebody renamed or edited the file: the right name is {right}")


def _lock_holders(node: NodeState, container_id: str) -> tuple[bool, str]:
    """Return whether a verb of the container is running, and the holders of the container's locks as text.

    The holders are the verb's process and its plugins. If no verb is running, they are plugins that a killed verb left.
    """
    # A pending record alone does not tell an ADD that runs from one that was killed. The kernel releases the lock of
    # a killed process, so the lock tells. A plugin that survives its runtime holds a lock of its own.
    try:
        locks = LockSet(node.cni.cache_dir, LockRequest((), container_id))
    except RecordError:
        return False, ""
    try:
        is_running, offset = not locks.try_acquire(), offset_of(container_id)
        # Who it is takes a look at all processes.
        if not is_running and not locks.has_running_plugin():
            return False, ""
        return is_running, users_in_words(locks.path, {CONTAINER + offset, PLUGIN + offset})
    except RecordError:
        return False, ""
    finally:
        locks.close()


def _half_done(node: NodeState, attachment: Attachment) -> NodeFinding:  # noqa: PLR0911 - a table: one return for each row
    verb = _HALF_DONE[attachment.state]
    is_running, holders = _lock_holders(node, attachment.container_id)
    if is_running:
        seen = f"the {verb} runs now: {holders}"
        return finding_about("records", "note", attachment, "running", seen, "", "wait until it ends")
    meaning = f"the container is partly {'attached' if verb == 'ADD' else 'detached'}"
    about = partial(finding_about, "records", "warning", attachment, "half-done")
    if holders:  # no verb is running, so these are left-over plugins
        seen = f"the {verb} was interrupted, and a plugin still runs: {holders}"
        return about(seen, f"{meaning}, and the plugin may still change it", "wait for the plugin, or end it")
    if attachment.state == REFUSED:
        seen = "the ADD was refused, because the interface existed already"
        return about(seen, "another program created the interface", mends=(mend_of("detach", attachment),))
    # The record does not say which of the two it was.
    seen = f"the {verb} was interrupted, or {'its roll-back failed' if verb == 'ADD' else 'a plugin failed in it'}"
    space = node.space_of(attachment)
    age = attachment_age(attachment)
    if space is not None and space.process:
        # A verb that was killed at its very end, or at its beginning, leaves a working container.
        meaning += f", and process {space.process} lives in {attachment.netns}"
        if attachment.record.has_ended:
            works = space.network is not None and attachment.ifname in space.network.links
            return about(seen, meaning, *reloads(node, attachment, interrupts=works))
        remedy = "if the container has failed, or does not need this network, detach it"
        return about(seen, meaning, remedy, (mend_of("detach", attachment, interrupts=True),))
    # That no process is seen proves nothing where processes are hidden: the container may live and use the address.
    hidden = node.life.why_blind(attachment.record.pid_namespace)
    if hidden and not node.life_of(attachment).is_dead:
        return about(seen, f"{meaning}, and it is unknown whether a process lives in {attachment.netns}", hidden)
    if verb == "ADD" and age is not None and age <= node.pending_after:
        return about(
            seen, meaning, f"repair detaches it {node.pending_after:.0f} seconds after the ADD began (--pending-after)"
        )
    if space is not None:
        meaning += f", and nothing runs in {attachment.netns}"
    return about(seen, meaning, mends=(mend_of("detach", attachment),))


def _set_aside(node: NodeState) -> Observations:
    """Report the records in ``corrupt``: notes, except of containers that live or have reservations."""
    for name in node.set_aside:
        match = _ASIDE.fullmatch(name)
        finding = _by_name(node, match[1]) if match else None
        text = f"its file name names {finding.subject}" if finding is not None else "the attachment is unknown"
        path = os.path.join(node.cni.cache_dir, "corrupt", name)
        seen = "a corrupt record that was moved here"
        about = partial(NodeFinding, "records", name="set-aside", subject=path, seen=seen)
        is_replaced = finding is not None and any(
            name_of(attachment) == finding.subject for attachment in node.attachments
        )
        if finding is None or is_replaced or not (finding.remedy or finding.mends):
            text += (
                "; the container has another record now"
                if is_replaced
                else f"; {finding.meaning}"
                if finding is not None
                else ""
            )
            yield about(severity="note", meaning=text, remedy="remove the file when you have read it")
        else:
            # As long as the container lives, the file is the only trace of its attachment.
            yield replace(
                about(severity="warning", meaning=f"{text}; {finding.meaning}"),
                remedy=finding.remedy, mends=finding.mends, containers=finding.containers,
            )  # fmt: skip


def _identity_of(node: NodeState, filename: str) -> tuple[str, str, str] | None:
    """Return (network, container ID, interface) of a record's file name, if a known network's name is its start."""
    networks = node.known_networks | {network for network, _ in node.reservations}
    name = without_hash(filename)
    # Names may contain hyphens, so the longest known network that fits is taken: "a-b" before "a".
    for network in sorted(networks, key=len, reverse=True):
        container_id, separator, ifname = name.removeprefix(f"{network}-").rpartition("-")
        if name.startswith(f"{network}-") and separator and is_valid_pair(container_id, ifname):
            return network, container_id, ifname
    return None
