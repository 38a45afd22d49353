"""Decide whether a plugin may be started before its configuration is known.

A plugin that is started ahead reads its configuration from a pipe that is still empty. That is safe only for a plugin
that reads stdin before it acts. A runtime uses it together with ``prepare``::

    prepared = None
    if reads_first(path):
        prepared = executor.prepare(invocation, options)  # or None: it cannot be started now
    ...  # whatever must happen first, such as writing the record
    outcome = prepared.feed(stdin, timeout) if prepared else executor.execute(invocation, options)
"""

from __future__ import annotations

import errno
import functools
import os
import re
import stat

GO_MARKER = b"github.com/containernetworking/cni/pkg/skel.PluginMain"
"""A function of the CNI project's Go module that reads stdin before it calls the plugin's own code.

Its name is also in stripped executables.
"""

PLUGIN_MARKER = b"libcni.plugin: reads stdin first"
"""The mark of a plugin that uses ``libcni.plugin`` and does nothing before it has read stdin.

A Python script has it as a comment in a line of its own, after the first line: ``# libcni.plugin: reads stdin first``.
A zipapp (a ``#!`` line followed by a ZIP archive) has it as the archive's comment.
"""

_CHUNK = 1024 * 1024
_LARGEST = 256 * 1024 * 1024
_SCRIPT_BYTES = 64 * 1024
_PYTHON = re.compile(rb"#!\s*(\S*/)?(env\s+(-\S+\s+|\w+=\S*\s+)*)?(\S*/)?python[\d.]*(\s.*)?")


def reads_first(path: str) -> bool:
    """Return whether an executable is known to read its configuration before it acts.

    ELF executables that contain ``GO_MARKER`` are known to do so, and Python scripts and zipapps with
    ``PLUGIN_MARKER``. Links to a file of another name, and files with several hard links, are not: their program may
    behave by its name. The answer is cached until the file changes. The first call reads the whole file,
    which takes some milliseconds for a plugin in the page cache.

    Args:
        path: the executable.

    Returns:
        True if that is known; False if the file cannot be read or is larger than 256 MiB.
    """
    try:
        return _examine(path, file_identity(path))
    except (OSError, ValueError):
        return False


def file_identity(file: str | int) -> tuple[int, ...]:
    """Return numbers that change if a file (a path or a descriptor) is written or replaced; raises OSError."""
    status = os.stat(file)
    # ctime cannot be set, so a replaced file is always detected, even with the same size and mtime (cp -p, rsync).
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


@functools.lru_cache(256)
def _examine(path: str, identity: tuple[int, ...]) -> bool:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        is_one_program = os.path.basename(os.path.realpath(path)) == os.path.basename(path) and status.st_nlink == 1
        is_readable = stat.S_ISREG(status.st_mode) and status.st_size <= _LARGEST
        answer = is_one_program and is_readable and _is_marked(descriptor, status.st_size)
        if file_identity(descriptor) != identity:
            raise OSError(errno.ESTALE, "the file was replaced or written meanwhile")  # an exception is not cached
        return answer
    finally:
        os.close(descriptor)


def _is_marked(descriptor: int, size: int) -> bool:
    head = os.pread(descriptor, _SCRIPT_BYTES, 0)
    if head.startswith(b"\x7fELF"):
        return _contains(descriptor, GO_MARKER)
    first, _, rest = head.partition(b"\n")
    if not _PYTHON.fullmatch(first):
        return False
    if rest.startswith(b"PK\x03\x04"):
        return os.pread(descriptor, len(PLUGIN_MARKER), max(0, size - len(PLUGIN_MARKER))) == PLUGIN_MARKER
    return b"# " + PLUGIN_MARKER in rest.split(b"\n")


def _contains(descriptor: int, marker: bytes) -> bool:
    """Return whether a file contains ``marker``."""
    # Read, not mapped: if an installer shortens a mapped file, the next access is a SIGBUS, which ends this program.
    offset, tail = 0, b""
    while data := os.pread(descriptor, _CHUNK, offset):
        if marker in tail + data:
            return True
        tail = data[-len(marker) + 1 :]
        offset += len(data)
    return False
