"""Find corrupt records, records that were set aside, unfinished verbs, and temporary files."""

from __future__ import annotations

import os
import re
from functools import partial

from libcni.diagnosis.ipam import Unrecorded, look_for
from libcni.diagnosis.locks import plugin_processes
from libcni.diagnosis.reading import Reading, detach_command, drop_command, id_of, name_of
from libcni.diagnosis.report import Checked, Disruption, NodeFinding, NotChecked, Observations, counted, quoted
from libcni.errors import RecordError
from libcni.store.attachments import Attachment
from libcni.store.locks import LockRequest, is_locked
from libcni.store.record import CORRUPT, DETACHING, PENDING
from libcni.store.repair import temporary_files

_warning = partial(NodeFinding, "records", "warning")

_HALF_DONE = {PENDING: "ADD", DETACHING: "DEL"}
_ASIDE = re.compile(r"(.+)\.\d{10,}")


def check_records(node: Reading) -> Observations:
    """Find records that cannot be read, that were set aside, or whose verb did not end."""
    if node.record_error is not None:
        yield NotChecked("records", node.record_error.path or node.cni.cache_dir, str(node.record_error))
        return
    directory = node.cni.cache_dir
    # A misspelt directory must not look like a node without containers.
    missing = "" if os.path.lexists(directory) else ", a directory that does not exist"
    yield Checked("records", f"{counted(len(node.attachments), 'record')} in {directory}{missing}")
    for one in node.attachments:
        if one.is_denied:
            # The state is ``corrupt`` because this user may not read the record. The record itself may be in order.
            yield NotChecked("records", one.path, f"{one.problem}; run it as root")
        elif one.state == CORRUPT:
            yield _corrupt(node, one)
        elif not one.network:
            yield _warning(
                one.path, "an old record of Go libcni that does not name its attachment", "no sweep can detach it",
                "libcni del NETWORK NETNS -c ID, with the network and container of its file name",
            )  # fmt: skip
        elif one.state in _HALF_DONE:
            yield _half_done(node, one)
    yield from _set_aside(node)
    yield from _temporary(node)


def _corrupt(node: Reading, one: Attachment) -> NodeFinding:
    found = _owner_of(node, os.path.basename(one.path))
    set_aside = "libcni repair --yes"
    if found is None:
        meaning = "its attachment is unknown, and cannot be detached from this record"
        return NodeFinding(
            "records", "error", one.path, one.problem, meaning, "set the record aside:", (set_aside,)
        )  # fmt: skip
    meaning = f"by its file name it is {found.name}; {found.meaning}"
    # DEL sets the corrupt record aside itself.
    commands = found.commands or (set_aside,)
    return NodeFinding(
        "records", "error", one.path, one.problem, meaning, found.remedy, commands, found.disrupts, found.containers
    )


def _owner_of(node: Reading, filename: str) -> Unrecorded | None:
    identity = node.identity_of(filename)
    return None if identity is None else look_for(node, *identity)


def _half_done(node: Reading, one: Attachment) -> NodeFinding:
    verb = _HALF_DONE[one.state]
    processes = plugin_processes(node.cni, one)
    running = ", ".join(f"{found.command} (PID {found.pid}, {found.verb})" for found in processes)
    # A pending record alone does not tell an ADD that runs from one that was killed. The kernel releases the lock of
    # a killed process, so the lock tells.
    try:
        is_running = is_locked(node.cni.cache_dir, LockRequest((), one.container_id))
    except RecordError:
        is_running = False
    if is_running:
        seen = f"its {verb} runs now" + (f": {running}" if running else "")
        return NodeFinding("records", "note", name_of(one), seen, "", "wait for its end", containers=(id_of(one),))
    meaning = "it is attached in part" if verb == "ADD" else "it is detached in part"
    detach = detach_command(one.container_id, one.ifname)
    about = partial(_warning, name_of(one), containers=(id_of(one),))
    if one.record.is_refused and verb == "ADD" and not processes:
        seen = "its ADD found the interface there, and did not succeed"
        return about(seen, "the interface is another program's", commands=(detach,))
    if not processes:
        # The record does not say which of the two it was.
        failed = "its roll-back failed" if verb == "ADD" else "a plugin failed in it"
        seen = f"its {verb} was interrupted, or {failed}"
        space = node.space_of(one)
        if space is not None and space.process:
            # A verb that was killed at its very end, or at its beginning, leaves a container that works.
            meaning += f", and process {space.process} lives in {one.netns}"
            remedy = "if the container has failed, or may lose this network, detach it:"
            return about(seen, meaning, remedy, disrupts=(Disruption(detach, (id_of(one),)),))
        if stuck := node.stuck_plugin(one):
            return about(seen, f"{meaning}; DEL of {stuck} fails without the interface", commands=(drop_command(one),))
        return about(seen, meaning, commands=(detach,))
    # The environment of the processes names this attachment and this lock file, so no other runtime's plugin is named.
    kill = "kill " + " ".join(str(found.pid) for found in processes)
    return about(
        f"its {verb} was interrupted, and a plugin still runs: {running}",
        f"{meaning}, and the plugin may still change it", "wait for the plugin, or end it; then detach:",
        (kill, detach),
    )  # fmt: skip


def _set_aside(node: Reading) -> Observations:
    directory = os.path.join(node.cni.cache_dir, "corrupt")
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return
    except OSError as error:
        yield NotChecked("records", directory, f"it cannot be listed: {error.strerror}")
        return
    for name in names:
        match = _ASIDE.fullmatch(name)
        found = _owner_of(node, match[1]) if match else None
        path = os.path.join(directory, name)
        remove = f"{'rm -r' if os.path.isdir(path) and not os.path.islink(path) else 'rm'} {quoted(path)}"
        seen, meaning, remedy = "a corrupt record that was set aside", "its attachment is unknown", ""
        if found is None:
            yield _warning(path, seen, meaning, "remove the file when you have read it:", (remove,))
            continue
        meaning = f"by its file name it was {found.name}; "
        if any((one.network, one.container_id, one.ifname) == found.identity for one in node.attachments):
            yield _warning(path, seen, f"{meaning}it has another record now", commands=(remove,))
            continue
        # As long as the container lives, the file is all that is known of it.
        commands = () if found.is_alive else (*found.commands, remove)
        remedy = found.remedy if found.is_alive else "then remove the file:" if found.commands else ""
        yield _warning(path, seen, meaning + found.meaning, remedy, commands, found.disrupts, found.containers)


def _temporary(node: Reading) -> Observations:
    try:
        temporary = temporary_files(node.cni.cache_dir)
    except RecordError as error:
        yield NotChecked("records", error.path, str(error))
        return
    if temporary:
        yield _warning(
            node.cni.cache_dir, f"{counted(len(temporary), 'temporary file')} of killed programs",
            "they use space, nothing else", commands=("libcni repair --yes",),
        )  # fmt: skip
