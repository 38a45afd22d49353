"""Read a file of unknown kind safely: it may be a FIFO, a device, or larger than the memory."""

from __future__ import annotations

import os
import stat

import libcni.kernel.system as system

_CHUNK = 1 << 20


class UnusableFileError(Exception):
    """The file is not a regular file, or too large. The text says which."""


def read_regular(descriptor: int, limit: int) -> bytes:
    """Return the bytes of an open file and close it; see ``read_with_status``."""
    return read_with_status(descriptor, limit)[1]


def read_with_status(descriptor: int, limit: int) -> tuple[os.stat_result, bytes]:
    """Return (status, bytes) of an open file, and close it.

    Open it with O_NONBLOCK: otherwise opening a FIFO may block. The status is from before the read.

    Raises:
        UnusableFileError: it is not a regular file, or has more than ``limit`` bytes.
        OSError: it cannot be read.
    """
    try:
        # Examine the open file: another program may have replaced the one that had the name. A read from a FIFO would
        # block, and a read from /dev/zero would never end.
        status = system.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UnusableFileError("it is not a regular file")
        # Check the size before reading: a sparse file of 8 TiB uses no space on the disk, but would fill the memory.
        if status.st_size > limit:
            raise UnusableFileError(f"it has {status.st_size:,} bytes, and at most {limit:,} are accepted")
        data = system.read(descriptor, (status.st_size or _CHUNK) + 1)
        # The file may have more bytes than its size: a file in /proc has size 0, and another program may append.
        while len(data) > status.st_size and (more := system.read(descriptor, _CHUNK)):
            data += more
            if len(data) > limit:
                raise UnusableFileError(f"it has more than {limit:,} bytes")
        return status, data
    finally:
        system.close(descriptor)
