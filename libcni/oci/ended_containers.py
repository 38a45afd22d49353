"""Find attachments whose container has ended without its ``poststop`` hook, from records and the runtimes' state.

A container is alive while a runtime has a state directory for it, or while a process is in its network namespace. Both
count: a runtime with an unknown ``--root`` still has processes, and a container between its end and its deletion still
has a directory.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import libcni.kernel.system as system
from libcni.engine.ended_containers import ended_among, sweep
from libcni.errors import ConfigError
from libcni.manager.iterables import read_once
from libcni.oci.pins import OWNER, Pin, Pins, directory_for
from libcni.store.boot import namespaces_of_processes

if TYPE_CHECKING:
    from libcni.client import CNIConfig
    from libcni.manager import NetworkManager, Report
    from libcni.store.attachments import Attachment

__all__ = ["RUNTIMES", "Ended", "collect", "find_ended"]

RUNTIMES: dict[str, tuple[str, ...]] = {
    "runc": ("/run/runc", "/run/containerd/runc/*", "/run/docker/runtime-runc/*"),
    "crun": ("/run/crun",),
    "youki": ("/run/youki",),
}
"""The patterns of each runtime's state directories. Each container has a subdirectory in one of them."""


class Ended(NamedTuple):
    """The attachments and namespaces of containers that have ended.

    Attributes:
        attachments (tuple[Attachment, ...]): attachments of this hook whose container has ended.
        pins (tuple[Pin, ...]): pinned namespaces of such containers.
        seen (int): the number of all attachments of this hook.

    Examples:
        >>> ended = Ended(attachments=(), pins=(), seen=3)
        >>> print(f"{ended.seen} attachments, {len(ended.attachments)} of containers that have ended")
        3 attachments, 0 of containers that have ended
    """

    attachments: tuple[Attachment, ...]
    pins: tuple[Pin, ...]
    seen: int


def container_ids(runtimes: Iterable[str]) -> set[str]:
    """Return the IDs of the containers that runtimes have; raises ConfigError as ``find_ended`` does."""
    ids: set[str] = set()
    for runtime in runtimes:
        if "/" not in runtime and runtime not in RUNTIMES:
            known = ", ".join(RUNTIMES)
            raise ConfigError(f'unknown runtime "{runtime}"', hint=f"give {known}, or the path of its state directory")
        patterns = RUNTIMES.get(runtime)
        for directory in [runtime] if patterns is None else [path for text in patterns for path in glob.glob(text)]:
            try:
                # A directory without a state file counts: runc writes the file after the createRuntime hooks.
                ids |= set(system.listdir(directory))
            except OSError as error:
                # A failed listing must not look like an empty one: containers that are not listed are detached.
                problem = f"cannot list the containers of a runtime: {error.strerror}"
                raise ConfigError(problem, file=directory) from error
    return ids


def _read_runtimes(runtimes: Iterable[str]) -> tuple[str, ...]:
    """Return the runtimes to ask; raises TypeError for a string, and ConfigError for none."""
    asked = read_once("runtimes", runtimes)
    if not asked:
        # An iterator that was read before is also empty. Without a runtime, every container would seem to have ended.
        raise ConfigError("the list of runtimes is empty", hint=f"give at least one of {', '.join(RUNTIMES)}")
    return asked


def find_ended(cni: CNIConfig, runtimes: Iterable[str] = tuple(RUNTIMES)) -> Ended:
    """Return the attachments and pinned namespaces of this hook whose containers have ended.

    Args:
        cni: a client of the records.
        runtimes: names of ``RUNTIMES``, or paths of state directories (the runtime's ``--root``).

    Raises:
        ConfigError: an unknown name, a directory that does not exist or cannot be read, or a container may have
            processes that this program cannot see.
        RecordError: the records cannot be listed.
        CNIError: the pins cannot be listed.
    """
    # The order matters. A container that starts gets its directory first, then its pin, then its record. The records
    # are listed first and the directories last, so each container with a listed record also has a listed directory.
    asked = _read_runtimes(runtimes)
    attachments = [attachment for attachment in cni.get_cached_attachments() if attachment.owner == OWNER]
    pins = Pins(directory_for(cni.cache_dir)).all()  # a hook that was killed leaves a pin without a record
    known = container_ids(asked)
    used = namespaces_of_processes()
    return Ended(
        ended_among(attachments, known, used),
        tuple(pin for pin in pins if pin.container_id not in known and pin.identity not in used),
        len(attachments),
    )


def collect(manager: NetworkManager, runtimes: Iterable[str] = tuple(RUNTIMES)) -> tuple[Report, list[Pin]]:
    """Detach the attachments of ended containers and unpin their namespaces; return the report and the removed pins.

    Args:
        manager: runs GC; its client has the owner ``OWNER``.
        runtimes: as for ``find_ended``.

    Raises:
        CNIErrorGroup: some attachments could not be detached. They stay recorded, and their namespaces pinned.
        CNIError: as ``find_ended``.
    """
    asked = _read_runtimes(runtimes)
    cni = manager.cni

    report = sweep(manager, lambda: find_ended(cni, asked).attachments)
    recorded = {attachment.netns for attachment in cni.get_cached_attachments()}
    removed = [pin for pin in find_ended(cni, asked).pins if pin.path not in recorded]
    for pin in removed:
        Pins(directory_for(cni.cache_dir)).remove(pin)
    return report, removed
