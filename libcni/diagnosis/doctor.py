"""Look at a node as an operator would: what is wrong with its networks, and what to do about each finding."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from libcni.client import CNIConfig
from libcni.config.directory import read_config_directory
from libcni.config.network import NetworkConfigList
from libcni.errors import CNIError, ConfigError, PluginNotFoundError, RecordError
from libcni.store.attachments import Attachment
from libcni.store.locks import LockRequest, LockSet
from libcni.store.record import CORRUPT, PENDING, STALE_BOOT, namespace_identity
from libcni.store.repair import repair_records

__all__ = ["Finding", "Leftover", "diagnose", "find_leftovers"]

PENDING_AFTER = 600.0
"""Seconds after which an ADD that has not ended is taken for dead: far more than any verb's timeout."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be.

    Attributes:
        area: ``configuration``, ``plugins``, ``records``, ``attachments`` or ``locks``.
        severity: ``error`` (something cannot work), ``warning`` (something may not be meant), ``note``.
        subject: the file, directory, network, plugin or container that it is about.
        problem: what is wrong.
        remedy: what to do about it.
    """

    area: str
    severity: Literal["error", "warning", "note"]
    subject: str
    problem: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Leftover:
    """A recorded attachment whose container is gone.

    Attributes:
        attachment: as its record has it.
        reason: how that can be told.
    """

    attachment: Attachment
    reason: str


def diagnose(cni: CNIConfig) -> tuple[Finding, ...]:
    """Look at a client's configuration directory, plugin directories, records, attachments and locks.

    Plugins are asked for their versions; nothing is changed. What cannot be looked at is a finding too.
    """
    return (*_configuration(cni), *_plugins(cni), *_records(cni), *_attachments(cni), *_locks(cni))


def find_leftovers(cni: CNIConfig, *, pending_after: float = PENDING_AFTER) -> tuple[Leftover, ...]:
    """Return the recorded attachments whose container cannot be there any more.

    These are: from before the last reboot; with a namespace that has gone, or is another one by now; with an ADD that
    began long ago and has not ended.

    Args:
        cni: the client whose records are looked at.
        pending_after: seconds after which an ADD that has not ended is taken for dead: 600 unless given.

    Raises:
        RecordError: the records cannot be listed.
    """
    found = [(attachment, _why_left_over(attachment, pending_after)) for attachment in cni.get_cached_attachments()]
    return tuple(Leftover(attachment, reason) for attachment, reason in found if reason and attachment.network)


def _why_left_over(attachment: Attachment, pending_after: float) -> str:
    if attachment.state == STALE_BOOT:
        return "made before the last reboot"
    if attachment.netns and attachment.record.netns_id is not None:
        now = namespace_identity(attachment.netns)
        if now != attachment.record.netns_id:
            return f"its namespace {attachment.netns} {'has gone' if now is None else 'is another one by now'}"
    elif attachment.netns.startswith("/") and attachment.state != PENDING and not os.path.exists(attachment.netns):
        return f"its namespace {attachment.netns} has gone"
    created = attachment.created
    if attachment.state == PENDING and (created is None or time.time() - created.timestamp() > pending_after):
        return "its ADD has not ended"
    return ""


def _configuration(cni: CNIConfig) -> Iterator[Finding]:
    area, directory = "configuration", cni.conf_dir
    try:
        found = read_config_directory(directory)
    except ConfigError as error:
        yield Finding(area, "error", directory, _without_file(error), "make it a directory that can be read")
        return
    if not os.path.isdir(directory):
        yield Finding(area, "error", directory, "there is no such directory", f"mkdir -p {directory}")
    elif not found.networks:
        yield Finding(area, "error", directory, "no usable network configuration", "put a .conflist file there")
    yield from _writable_by_others(area, directory)
    for problem in found.problems:
        remedy = problem.hint or "mend the file, or move it elsewhere"
        yield Finding(area, "error", problem.file or directory, _without_file(problem), remedy)
    for net in found.networks:
        for text in net.warnings:
            yield Finding(area, "warning", net.file or net.name, text, "take it out of the file")


def _without_file(error: ConfigError) -> str:
    return f"{error.location}: {error.problem}" if error.location else error.problem


def _plugins(cni: CNIConfig) -> Iterator[Finding]:
    directories = [directory for directory in cni.path if os.path.isdir(directory)]
    if not directories:
        where = ", ".join(cni.path) or "CNI_PATH"
        problem = "there is no such directory" if cni.path else "it is empty"
        yield Finding("plugins", "error", where, problem, "install CNI plugins, or set CNI_PATH")
        return
    for directory in directories:
        yield from _writable_by_others("plugins", directory)
    told: set[str] = set()
    for net in _networks(cni):
        for error in cni.validate_network_list(net).problems:
            if str(error) not in told:
                told.add(str(error))
                yield _plugin_finding(net, error)


def _networks(cni: CNIConfig) -> tuple[NetworkConfigList, ...]:
    try:
        return cni.networks()
    except ConfigError:
        return ()


def _plugin_finding(net: NetworkConfigList, problem: CNIError) -> Finding:
    text = str(problem).removesuffix(f" ({problem.hint})")
    if isinstance(problem, PluginNotFoundError):
        remedy = "make it executable: chmod +x" if problem.rejected else "install it there, or set CNI_PATH"
    else:
        remedy = problem.hint or "install another version of the plugin, or change the network's cniVersion"
    return Finding("plugins", "error", f"network {net.name}", text, remedy)


def _writable_by_others(area: str, directory: str) -> Iterator[Finding]:
    try:
        status = os.stat(directory)
    except OSError:
        return
    if status.st_mode & stat.S_IWOTH:
        problem = "anybody may write there, and so run programs as this runtime"
        yield Finding(area, "warning", directory, problem, f"chmod o-w {directory}")


def _records(cni: CNIConfig) -> Iterator[Finding]:
    directory = cni.cache_dir
    if not os.path.isdir(directory):
        if os.path.lexists(directory):
            yield Finding("records", "error", directory, "it is not a directory", "move it elsewhere")
        return
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        problem = "this user may not write there, so no ADD can be recorded"
        yield Finding("records", "error", directory, problem, "run as the runtime's user, or set the cache directory")
    yield from _writable_by_others("records", directory)
    try:
        report = repair_records(directory, dry_run=True)
    except RecordError as error:
        yield Finding("records", "error", error.path or directory, str(error), "mend its permissions")
        return
    for attachment in report.corrupt:
        yield Finding("records", "error", attachment.path, attachment.problem, "libcni repair sets it aside")
    if report.temporary:
        problem = f"{len(report.temporary)} temporary files that killed programs left"
        yield Finding("records", "warning", directory, problem, "libcni repair removes them")


def _attachments(cni: CNIConfig) -> Iterator[Finding]:
    try:
        left = {leftover.attachment.path: leftover for leftover in find_leftovers(cni)}
        attachments = cni.get_cached_attachments()
    except RecordError:
        return  # told under records
    for attachment in attachments:
        subject = f"container {attachment.container_id}, {attachment.network}, {attachment.ifname}"
        if attachment.path in left:
            problem = f"left over: {left[attachment.path].reason}"
            yield Finding("attachments", "warning", subject, problem, "libcni repair detaches it")
        elif attachment.state == PENDING:
            remedy = f"if no program runs it: libcni del --container {attachment.container_id}"
            yield Finding("attachments", "note", subject, "its ADD has not ended yet", remedy)
        elif attachment.state not in {CORRUPT, STALE_BOOT} and not attachment.network:
            problem = "an old record that does not say whose it is"
            remedy = "DEL with the network's configuration, or move it away"
            yield Finding("records", "warning", attachment.path, problem, remedy)


def _locks(cni: CNIConfig) -> Iterator[Finding]:
    path = f"{cni.cache_dir}/locks"
    if not os.path.exists(path):
        return
    try:
        hold = LockSet(cni.cache_dir, LockRequest(all_containers=True))
    except RecordError as error:
        yield Finding("locks", "error", path, str(error), "mend its permissions")
        return
    try:
        is_free = hold.try_acquire()
    finally:
        hold.close()
    if not is_free:
        who = ", ".join(_users_of(path)) or "a process that this user may not see"
        yield Finding("locks", "note", path, f"a verb runs now: {who}", "wait for it, or end it if it hangs")


def _users_of(path: str) -> list[str]:
    """Return the processes that have a file open, as "name (number)"."""
    identity = os.stat(path).st_dev, os.stat(path).st_ino
    return [f"{_name_of(pid)} ({pid})" for pid in _processes() if pid != os.getpid() and _has_open(pid, identity)]


def _processes() -> list[int]:
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())


def _has_open(pid: int, identity: tuple[int, int]) -> bool:
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    return any(namespace_identity(f"/proc/{pid}/fd/{number}") == identity for number in descriptors)


def _name_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "?"
