"""Reload every second, so that changes of configurations and plugins are noticed."""

from __future__ import annotations

import logging
import threading
from typing import Self

from libcni.manager.configuration import Configuration

__all__ = ["Watch"]

logger: logging.Logger = logging.getLogger("libcni")

_PAUSE = 1.0
"""Seconds between a failed reload and the next one."""


class Watch:
    """A thread that reloads a configuration at intervals, from ``NetworkManager.watch``. A context manager.

    ``close`` ends it.

    Examples:
        >>> with manager.watch(interval=1.0):
        ...     pass  # here the manager follows changes of /etc/cni/net.d
    """

    def __init__(self, configuration: Configuration, interval: float) -> None:
        self._configuration = configuration
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
        pause = 0.0
        while not self._stop.wait(pause):
            pause = self._interval
            try:
                self._configuration.reload(only_changes=True)
            except Exception:  # the thread must go on, because the next reload may succeed
                logger.exception("the reload of the configuration failed; retrying")
                pause = min(self._interval, _PAUSE)
