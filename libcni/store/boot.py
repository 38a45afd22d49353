"""The machine's boot ID, and the processes that this program sees in /proc."""

from __future__ import annotations

import functools
import os

import libcni.kernel.system as system
from libcni.store.files import record_error


@functools.cache  # an exception is not cached: after EMFILE the next call must try again
def boot_id() -> str:
    """Return the machine's boot ID, or "" if the system has none.

    Raises:
        RecordError: it cannot be read now. Any record may then be of an earlier boot, so no record counts as ready.
    """
    path = "/proc/sys/kernel/random/boot_id"
    try:
        # Not open(): it needs codecs, which do not exist any more while the interpreter shuts down.
        with system.Closing(system.open(path, os.O_RDONLY | os.O_CLOEXEC)) as descriptor:
            return system.read(descriptor, 100).decode().strip()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise record_error("the boot ID cannot be read", path, error) from error


def pid_namespace() -> int | None:
    """Return the inode of this process's PID namespace, or None if it is unknown."""
    try:
        return system.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return None
