"""Cancel a blocking verb from another thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, Token
from typing import Self

__all__ = ["CancelScope", "Cancelled"]


class Cancelled(BaseException):
    """The verb was cancelled by ``CancelScope.cancel``. A BaseException: ``except Exception`` does not catch it.

    Examples:
        >>> scope = CancelScope()
        >>> scope.cancel()
        >>> try:
        ...     with scope:
        ...         result = cni.add_network_list(net, rt)
        ... except Cancelled as reason:
        ...     print(reason)
        the verb was cancelled: CancelScope.cancel() was called
    """


class CancelScope:
    """A block of code whose blocking verbs another thread can cancel.

    After ``cancel``, each verb of the block raises Cancelled as soon as it waits: for a plugin, which is killed, for a
    lock, or because ``max_verbs`` verbs run already. An ADD leaves its record pending, for DEL and GC, or is rolled
    back first with ``on_cancel="rollback"``. The call of an ``executor`` of your own is not interrupted. On asyncio,
    cancel the task instead.

    Raises:
        Cancelled: ``cancel`` was called.
        RuntimeError: the scope was entered before.

    Examples:
        >>> with CancelScope() as scope:  # another thread calls scope.cancel()
        ...     cni.add_network_list(net, rt).ips[0].address
        '10.1.0.5/16'
    """

    def __init__(self) -> None:
        self.is_cancelled: bool = False
        self._wakers: dict[object, Callable[[], object]] = {}
        # A waker must not be called after its wait has ended: its descriptor may be another file by then. Reentrant,
        # because a signal handler may cancel.
        self._lock = threading.RLock()
        self._token: Token[CancelScope | None] | None = None

    def __enter__(self) -> Self:
        if self._token is not None:
            raise RuntimeError("a CancelScope can be entered once")
        self._token = _current.set(self)
        return self

    def __exit__(self, *_error: object) -> None:
        if self._token is not None:
            _current.reset(self._token)

    def cancel(self) -> None:
        """Cancel the verbs of the block, from any thread. A second call does nothing."""
        with self._lock:
            self.is_cancelled = True
            for wake in tuple(self._wakers.values()):
                wake()

    @contextmanager
    def _waking(self, wake: Callable[[], object]) -> Iterator[None]:
        key = object()
        with self._lock:
            self._wakers[key] = wake
        try:
            self._check()
            yield
            self._check()
        finally:
            with self._lock:
                del self._wakers[key]

    def _check(self) -> None:
        if self.is_cancelled:
            raise Cancelled("the verb was cancelled: CancelScope.cancel() was called")


_current: ContextVar[CancelScope | None] = ContextVar("libcni_cancel_scope", default=None)


def check_cancelled() -> None:
    """Raise Cancelled if the current scope is cancelled."""
    if (scope := _current.get()) is not None:
        scope._check()  # noqa: SLF001 - of this module


def waking(wake: Callable[[], object]) -> AbstractContextManager[None]:
    """Call ``wake`` if the current scope is cancelled during the block; raise Cancelled before or after the block."""
    scope = _current.get()
    return nullcontext() if scope is None else scope._waking(wake)  # noqa: SLF001 - of this module


def is_in_scope() -> bool:
    """Return whether this code can be cancelled from another thread."""
    return _current.get() is not None


@contextmanager
def unscoped() -> Iterator[None]:
    """Run the block as if there were no scope, for the clean-up after a cancellation."""
    token = _current.set(None)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def wake_descriptor() -> Iterator[int]:
    """Yield a descriptor that becomes readable when the current scope is cancelled; -1 without a scope."""
    if not is_in_scope():
        yield -1
        return
    descriptor = os.eventfd(0)
    try:
        with waking(lambda: os.eventfd_write(descriptor, 1)):
            yield descriptor
    finally:
        os.close(descriptor)
