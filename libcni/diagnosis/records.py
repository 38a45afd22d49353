"""Find corrupt records, records that were set aside, and unfinished verbs."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from functools import partial

from libcni.diagnosis.ipam import look_for
from libcni.diagnosis.processes import plugin_processes
from libcni.diagnosis.reading import Reading, detach_command, finding_about
from libcni.diagnosis.report import Checked, NodeFinding, NotChecked, Observations, counted, quoted
from libcni.errors import RecordError
from libcni.store.attachments import Attachment
from libcni.store.locks import LockRequest, is_locked
from libcni.store.record import CORRUPT, DETACHING, PENDING

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
            yield NodeFinding(
                "records", "warning", one.path, "an old record of Go libcni that does not name its attachment",
                "no sweep can detach it",
                "libcni del NETWORK NETNS -c ID, with the network and container of its file name",
            )  # fmt: skip
        elif one.state in _HALF_DONE:
            yield _half_done(node, one)
    yield from _set_aside(node)


def _by_name(node: Reading, filename: str) -> NodeFinding | None:
    """Return what is known of the container of a record's file name, or None if the name does not tell it."""
    identity = node.identity_of(filename)
    return None if identity is None else replace(look_for(node, *identity), check="records")


def _corrupt(node: Reading, one: Attachment) -> NodeFinding:
    found = _by_name(node, os.path.basename(one.path))
    set_aside = ("libcni repair --yes",)
    if found is None:
        meaning = "its attachment is unknown, and cannot be detached from this record"
        return NodeFinding("records", "error", one.path, one.problem, meaning, "set the record aside:", set_aside)
    meaning = f"by its file name it is {found.subject}; {found.meaning}"
    # DEL sets the corrupt record aside itself.
    commands = found.commands or set_aside
    return replace(found, severity="error", subject=one.path, seen=one.problem, meaning=meaning, commands=commands)


def _half_done(node: Reading, one: Attachment) -> NodeFinding:
    verb = _HALF_DONE[one.state]
    processes = plugin_processes(node.cni, one)
    running = ", ".join(processes.values())
    # A pending record alone does not tell an ADD that runs from one that was killed. The kernel releases the lock of
    # a killed process, so the lock tells.
    try:
        is_running = is_locked(node.cni.cache_dir, LockRequest((), one.container_id))
    except RecordError:
        is_running = False
    if is_running:
        seen = f"its {verb} runs now" + (f": {running}" if running else "")
        return finding_about(one, "records", "note", seen, "", "wait for its end")
    meaning = "it is attached in part" if verb == "ADD" else "it is detached in part"
    detach = detach_command(one.container_id, one.ifname)
    about = partial(finding_about, one, "records", "warning")
    if processes:
        # The environment of the processes names this attachment and this lock file, so no other runtime's is named.
        seen = f"its {verb} was interrupted, and a plugin still runs: {running}"
        kill = f"kill {' '.join(map(str, processes))}"
        return about(
            seen, f"{meaning}, and the plugin may still change it", "wait for the plugin, or end it; then detach:",
            (kill, detach),
        )  # fmt: skip
    if one.record.is_refused and verb == "ADD":
        seen = "its ADD found the interface there, and did not succeed"
        return about(seen, "the interface is another program's", commands=(detach,))
    # The record does not say which of the two it was.
    seen = f"its {verb} was interrupted, or {'its roll-back failed' if verb == 'ADD' else 'a plugin failed in it'}"
    space = node.space_of(one)
    if space is not None and space.process:
        # A verb that was killed at its very end, or at its beginning, leaves a container that works.
        meaning += f", and process {space.process} lives in {one.netns}"
        return about(
            seen, meaning, "if the container has failed, or may lose this network, detach it:", disrupts=(detach,)
        )
    return about(seen, meaning, commands=(detach,))


def _set_aside(node: Reading) -> Observations:
    directory = os.path.join(node.cni.cache_dir, "corrupt")
    for name in node.set_aside:
        match = _ASIDE.fullmatch(name)
        found = _by_name(node, match[1]) if match else None
        path = os.path.join(directory, name)
        remove = f"{'rm -r' if os.path.isdir(path) and not os.path.islink(path) else 'rm'} {quoted(path)}"
        about = partial(NodeFinding, "records", "warning", path, "a corrupt record that was set aside")
        if found is None:
            yield about("its attachment is unknown", "remove the file when you have read it:", (remove,))
            continue
        meaning = f"by its file name it was {found.subject}; "
        if any(
            f"container {one.container_id}, {one.network}, {one.ifname}" == found.subject for one in node.attachments
        ):
            yield about(f"{meaning}it has another record now", commands=(remove,))
        # As long as the container lives, the file is all that is known of it.
        elif found.remedy:
            yield about(meaning + found.meaning, found.remedy, (), found.disrupts, found.containers)
        else:
            remedy = "then remove the file:" if found.commands else "remove the file when you have read it:"
            yield about(meaning + found.meaning, remedy, (*found.commands, remove), (), found.containers)
