"""Move a thread into a network namespace: ``os.setns``, which Python 3.11 does not have."""

from __future__ import annotations

import functools
import os

# Not from typing: a plugin may import this module at every call, and typing would slow down its start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["enter_namespace"]

_CLONE_NEWNET = 0x40000000


def enter_namespace(descriptor: int) -> None:
    """Move the calling thread into the network namespace of an open file. Nothing else may run in the thread then.

    Raises:
        OSError: the file is no network namespace, or this user may not enter it.
    """
    if hasattr(os, "setns"):
        os.setns(descriptor, _CLONE_NEWNET)
        return
    import ctypes

    if _libc().setns(descriptor, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@functools.cache
def _libc() -> Any:
    import ctypes

    return ctypes.CDLL(None, use_errno=True)
