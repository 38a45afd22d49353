"""From the records, find and detach attachments whose container ended without a run of its hook or driver.

A container is alive while a runtime has a state directory for it, or podman lists it, or while a process is in its
network namespace. Each sign is needed: a runtime with an unknown ``--root`` still has processes, and a container
between its end and its deletion still has a directory.
"""

from __future__ import annotations

import glob
import subprocess
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import libcni.kernel.system as system
from libcni.engines.netavark.podman_request import OWNER as PODMAN
from libcni.engines.oci.pins import OWNER, Pin, Pins, directory_for
from libcni.errors import ConfigError
from libcni.kernel.life import Life
from libcni.kernel.namespace import NamespaceId
from libcni.manager.iterables import read_once
from libcni.store.model import STALE_BOOT

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

_PODMAN_LIST = ("podman", "ps", "--all", "--external", "--no-trunc", "--format", "{{.ID}}")
_PODMAN_SECONDS = 60.0
"""The longest time for which a GC waits for podman, which waits for the locks of its own commands."""


class Ended(NamedTuple):
    """The attachments and namespaces of containers that have ended.

    Attributes:
        attachments (tuple[Attachment, ...]): attachments whose container has ended.
        pins (tuple[Pin, ...]): namespaces of such containers that the hook pinned.
        seen (int): the number of all attachments of the hook, or of podman's driver.

    Examples:
        >>> ended = Ended(attachments=(), pins=(), seen=3)
        >>> print(f"{ended.seen} attachments, {len(ended.attachments)} of containers that have ended")
        3 attachments, 0 of containers that have ended
    """

    attachments: tuple[Attachment, ...]
    pins: tuple[Pin, ...]
    seen: int


def find_ended(cni: CNIConfig, runtimes: Iterable[str] = tuple(RUNTIMES)) -> Ended:
    """Return the attachments and pinned namespaces of the hook whose containers have ended.

    Args:
        cni: a client of the records.
        runtimes: names of ``RUNTIMES``, or paths of state directories (the runtime's ``--root``). ``["podman"]``
            alone: return the attachments of podman's driver.

    Raises:
        ConfigError: an unknown name, a directory that does not exist or cannot be read, podman cannot be asked, or a
            container may have processes that this program cannot see.
        RecordError: the records cannot be listed.
        CNIError: the pins cannot be listed.
    """
    asked = _read_runtimes(runtimes)
    is_podman = set(asked) == {PODMAN}
    owner = PODMAN if is_podman else OWNER
    # The order matters. A container that starts is known to its runtime first, then has its pin, then its record. The
    # records are listed first and the containers last, so each container with a listed record is also known.
    attachments = [attachment for attachment in cni.get_cached_attachments() if attachment.owner == owner]
    # A hook that was killed leaves a pin without a record.
    pins = [] if is_podman else Pins(directory_for(cni.cache_dir)).all()
    known = container_ids(asked)
    life = Life()
    ended = tuple(
        attachment
        for attachment in attachments
        # After a reboot the kernel uses the recorded inode numbers for other namespaces.
        if attachment.container_id not in known
        and (attachment.state == STALE_BOOT or not has_process(life, attachment.record.netns_id))
    )
    for attachment in ended:
        # A node agent's pod, for example, sees neither the containers' processes nor, perhaps, the engine's state.
        if attachment.state != STALE_BOOT and (reason := life.why_blind(attachment.record.pid_namespace)):
            raise ConfigError(
                f"nobody can tell whether container {attachment.container_id} runs: {reason}",
                hint="run this program in the PID namespace of the containers' runtime (in Kubernetes: hostPID: true)",
            )
    ended_pins = tuple(pin for pin in pins if pin.container_id not in known and not has_process(life, pin.identity))
    return Ended(ended, ended_pins, len(attachments))


def has_process(life: Life, identity: NamespaceId | None) -> bool:
    """Return whether a thread runs in a namespace.

    Only the hook and podman's driver call this, for containers that their runtime no longer has. There a mount or an
    open descriptor alone does not count as use of the address.
    """
    return identity is not None and life.inhabitant(identity).sign == "thread"


def collect(manager: NetworkManager, runtimes: Iterable[str] = tuple(RUNTIMES)) -> tuple[Report, list[Pin]]:
    """Detach the attachments of ended containers and unpin their namespaces; return (report, removed pins).

    Args:
        manager: runs GC; its client has the owner ``OWNER``, for podman's driver ``"podman"``.
        runtimes: as for ``find_ended``.

    Raises:
        CNIErrorGroup: some attachments could not be detached. They stay recorded, and their namespaces pinned.
        CNIError: as ``find_ended``.
    """
    asked = _read_runtimes(runtimes)
    cni = manager.cni

    def living() -> list[Attachment]:
        ended = {attachment.path for attachment in find_ended(cni, asked).attachments}
        # Listed after ``ended``: a container that was attached meanwhile is alive.
        recorded = cni.get_cached_attachments()
        return [attachment for attachment in recorded if attachment.path not in ended and attachment.network]

    report = manager.gc(living)
    recorded = {attachment.netns for attachment in cni.get_cached_attachments()}
    removed = [pin for pin in find_ended(cni, asked).pins if pin.path not in recorded]
    for pin in removed:
        Pins(directory_for(cni.cache_dir)).remove(pin)
    return report, removed


def _read_runtimes(runtimes: Iterable[str]) -> tuple[str, ...]:
    """Return the runtimes to ask; raises TypeError for a string, and ConfigError for none."""
    asked = read_once("runtimes", runtimes)
    if not asked:
        # An iterator that was read before is also empty. Without a runtime, every container would seem to have ended.
        raise ConfigError("the list of runtimes is empty", hint=f"give at least one of {', '.join(RUNTIMES)}")
    return asked


def container_ids(runtimes: Iterable[str]) -> set[str]:
    """Return the IDs of the containers that runtimes have; raises ConfigError as ``find_ended`` does."""
    # A failed listing must not look like an empty one: containers that are not listed are detached.
    ids: set[str] = set()
    for runtime in runtimes:
        if runtime == PODMAN:
            ids |= _podman_ids()
            continue
        if "/" not in runtime and runtime not in RUNTIMES:
            known = ", ".join((*RUNTIMES, PODMAN))
            raise ConfigError(f'unknown runtime "{runtime}"', hint=f"give {known}, or the path of its state directory")
        patterns = RUNTIMES.get(runtime)
        for directory in [runtime] if patterns is None else [path for text in patterns for path in glob.glob(text)]:
            try:
                # A directory without a state file counts: runc writes the file after the createRuntime hooks.
                ids |= set(system.listdir(directory))
            except OSError as error:
                problem = f"cannot list the containers of a runtime: {error.strerror}"
                raise ConfigError(problem, file=directory) from error
    return ids


def _podman_ids() -> set[str]:
    """Return the IDs of podman's containers, those that have stopped included."""
    try:
        listed = subprocess.run(  # noqa: S603 - no shell
            _PODMAN_LIST, capture_output=True, text=True, check=True, timeout=_PODMAN_SECONDS
        )
    except (OSError, subprocess.SubprocessError) as error:
        printed = error.stderr if isinstance(error, subprocess.CalledProcessError) else ""
        problem = (printed or str(error)).strip()
        raise ConfigError(f"cannot list the containers of podman: {problem}") from error
    return set(listed.stdout.split())
