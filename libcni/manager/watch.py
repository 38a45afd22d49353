"""Reload every second, so that changes of configurations and plugins are noticed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from libcni.manager.networks import NetworkSet

__all__ = ["Watch"]

logger: logging.Logger = logging.getLogger("libcni")


class Watch:
    """A thread that reloads the configurations at intervals, from ``NetworkManager.watch``. A context manager.

    ``close`` ends it.

    Examples:
        >>> with manager.watch(interval=1.0):
        ...     pass  # here the manager follows changes of /etc/cni/net.d
    """

    def __init__(self, reload: Callable[[], NetworkSet], interval: float) -> None:
        self._reload = reload
        self._interval = interval
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="libcni-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the thread, and wait for its end."""
        self._stop.set()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            try:
                self._reload()
            except Exception:  # the thread must go on, because the next reload may succeed
                logger.exception("the reload of the configuration failed; retrying")
