"""Attachments whose container has ended without its ``poststop`` hook: the records against the runtimes' state.

A container lives as long as a runtime has a state directory for it, or a process is in its network namespace. Both
count: a runtime with a ``--root`` that nobody knows of still has processes, and a container between its end and its
deletion still has a directory.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from libcni.errors import ConfigError
from libcni.oci.pins import DIRECTORY, OWNER, Identity, Pin, Pins, namespace_of
from libcni.store.record import STALE_BOOT

if TYPE_CHECKING:
    from libcni.client import CNIConfig
    from libcni.manager import GCSummary
    from libcni.store.attachments import Attachment

__all__ = ["RUNTIMES", "Ended", "collect", "container_ids", "find_ended"]

RUNTIMES: dict[str, tuple[str, ...]] = {
    "runc": ("/run/runc", "/run/containerd/runc/*", "/run/docker/runtime-runc/*"),
    "crun": ("/run/crun",),
    "youki": ("/run/youki",),
}
"""Each runtime's state directories, as patterns; a container has a directory of its own in one of them."""


class Ended:
    """What containers that have ended have left.

    Attributes:
        attachments (tuple[Attachment, ...]): attachments of this hook without a living container.
        seen (int): how many attachments of this hook there are.
        pins (tuple[Pin, ...]): pinned namespaces of such containers.
    """

    def __init__(self, attachments: Iterable[Attachment], pins: Iterable[Pin], seen: int) -> None:
        self.attachments: tuple[Attachment, ...] = tuple(attachments)
        self.seen = seen
        self.pins: tuple[Pin, ...] = tuple(pins)


def container_ids(runtimes: Iterable[str]) -> set[str]:
    """Return the IDs of the containers that runtimes have.

    Args:
        runtimes: names of ``RUNTIMES``, or paths of state directories (what the runtime got as ``--root``).

    Raises:
        ConfigError: an unknown name, or a directory that does not exist or cannot be read.
    """
    found: set[str] = set()
    for runtime in runtimes:
        if "/" not in runtime and runtime not in RUNTIMES:
            known = ", ".join(RUNTIMES)
            raise ConfigError(f'unknown runtime "{runtime}"', hint=f"{known}, or the path of a state directory")
        patterns = RUNTIMES.get(runtime)
        for directory in [runtime] if patterns is None else [one for text in patterns for one in glob.glob(text)]:
            try:
                # A directory without a state file counts: runc writes the file after the createRuntime hooks.
                found |= set(os.listdir(directory))
            except OSError as error:
                # No containers and no answer must not look alike: what is not in the answer is detached.
                problem = f"cannot list the containers of a runtime: {error.strerror}"
                raise ConfigError(problem, file=directory) from error
    return found


def find_ended(cni: CNIConfig, runtimes: Sequence[str] = tuple(RUNTIMES)) -> Ended:
    """Return what containers of this hook have left that have ended.

    Args:
        cni: a client of the records that are compared.
        runtimes: the runtimes that are looked at, as for ``container_ids``.

    Raises:
        ConfigError: as ``container_ids``.
        RecordError: the records cannot be listed.
        CNIError: the pins cannot be listed.
    """
    # The order matters: a container that starts meanwhile has its directory before its pin, and its pin before its
    # record. So what is listed first can only miss containers of which nothing is listed later.
    attachments = [one for one in cni.get_cached_attachments() if one.owner == OWNER]
    directories = {DIRECTORY, *(os.path.dirname(one.netns) for one in attachments)}
    pins = [pin for directory in sorted(directories) for pin in Pins(directory).all()]
    known = container_ids(runtimes)
    used = _namespaces_in_use()
    return Ended(
        [one for one in attachments if one.container_id not in known and not _is_used(one, used)],
        [pin for pin in pins if pin.container_id not in known and pin.identity not in used],
        len(attachments),
    )


def collect(
    sweep: Callable[[Callable[[], list[Attachment]]], GCSummary],
    cni: CNIConfig,
    runtimes: Sequence[str] = tuple(RUNTIMES),
) -> tuple[GCSummary, list[Pin]]:
    """Detach what ended containers have left, and unpin their namespaces; return what was done.

    Args:
        sweep: runs GC with a function that returns the attachments that live, such as ``NetworkManager.gc``.
        cni: a client with the owner ``OWNER``.
        runtimes: as for ``container_ids``.

    Raises:
        CNIErrorGroup: what could not be detached stays on record, and its namespace pinned.
        CNIError: as ``find_ended``.
    """

    def living() -> list[Attachment]:
        ended = {one.path for one in find_ended(cni, runtimes).attachments}
        return [one for one in cni.get_cached_attachments() if one.path not in ended and one.network]

    pins = find_ended(cni, runtimes).pins  # before the sweep: the records say where pins are
    summary = sweep(living)
    recorded = {one.netns for one in cni.get_cached_attachments()}
    removed = [pin for pin in pins if pin.path not in recorded]
    for pin in removed:
        Pins(os.path.dirname(pin.path)).remove(pin)
    return summary, removed


def _is_used(attachment: Attachment, used: set[Identity]) -> bool:
    """Return whether a process is in the namespace; numbers from before the last reboot mean other namespaces."""
    return attachment.state != STALE_BOOT and attachment.record.netns_id in used


def _namespaces_in_use() -> set[Identity]:
    """Return the network namespaces that have a process."""
    pids = (name for name in os.listdir("/proc") if name.isdigit())
    return {identity for pid in pids if (identity := namespace_of(pid)) is not None}
