"""Run code in the container's network namespace."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from libcni.kernel.namespace import enter_namespace, open_namespace
from libcni.plugin.failure import INTERNAL, INVALID_NETNS, VerbError

_OWN = "/proc/thread-self/ns/net"


@contextmanager
def in_namespace(path: str) -> Iterator[None]:
    """Enter the network namespace at ``path`` with the calling thread, and leave it at the end of the block.

    Programs that the block starts run in the namespace too. Other threads of the process stay where they are. Do
    not leave the block in another thread, and do not await in it.

    Raises:
        VerbError: with code 8, if ``path`` is not a namespace or cannot be entered; with code 999, if the thread
            cannot return to its own namespace.
    """
    # The namespace of this thread: other threads may be in other namespaces.
    own = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            target = open_namespace(path)
            try:
                enter_namespace(target)
            finally:
                os.close(target)
        except (OSError, ValueError) as error:
            raise VerbError(f"cannot enter the network namespace {path}: {error}", code=INVALID_NETNS) from error
        try:
            yield
        finally:
            try:
                enter_namespace(own)
            except OSError as error:
                # Otherwise the plugin would go on in the container's namespace instead of the host's.
                problem = f"cannot return from the container's network namespace: {error}"
                raise VerbError(problem, code=INTERNAL) from error
    finally:
        os.close(own)
