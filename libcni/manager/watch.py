"""Reload when a directory changes: told by watchfiles where that is installed, and by looking now and then anyway."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator
from importlib import import_module
from types import TracebackType
from typing import Any, Protocol, Self

from libcni.errors import ConfigError
from libcni.manager.configuration import Configuration

__all__ = ["Watch"]

logger: logging.Logger = logging.getLogger("libcni")

_STEP, _TICK = 50, 500
"""Milliseconds: how long it must be quiet before changes are told, and how long one wait lasts at most."""
_PAUSE = 1.0
"""Seconds after a look that failed, until the next."""


class _Waiter(Protocol):
    def wait(self, stop: threading.Event, seconds: float) -> None:
        """Wait for a change, or ``seconds``, or ``stop``."""
        ...


class Watch:
    """Look after a configuration in a thread of its own, until it is closed. A context manager.

    It comes from ``NetworkManager.watch``.
    """

    def __init__(self, configuration: Configuration, interval: float, *, polling: bool | None) -> None:
        self._configuration = configuration
        self._interval = interval
        self._stop = threading.Event()
        self._waiter = _waiter(configuration, polling=polling)
        self._thread = threading.Thread(target=self._run, name="libcni-watch", daemon=True)
        self._thread.start()

    @property
    def is_polling(self) -> bool:
        """Whether changes are only seen by looking."""
        return isinstance(self._waiter, _Sleep)

    def close(self) -> None:
        """Stop looking, and wait for the thread to end."""
        self._stop.set()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._configuration.reload_if_changed()
                self._waiter.wait(self._stop, self._interval)
            except Exception:  # whatever it is, the next look may find it gone
                logger.exception("the look at the configuration failed; it goes on")
                self._stop.wait(min(self._interval, _PAUSE))


def _waiter(configuration: Configuration, *, polling: bool | None) -> _Waiter:
    if polling:
        return _Sleep()
    try:
        return _Notified(configuration, import_module("watchfiles").watch)
    except ImportError as error:
        if polling is None:
            return _Sleep()
        raise ConfigError("watchfiles is not installed", hint="pip install libcni[watch]") from error


class _Sleep:
    def wait(self, stop: threading.Event, seconds: float) -> None:
        stop.wait(seconds)


class _Notified:
    """Wait with watchfiles, on the directories and on what stands above them.

    inotify watches what a path was when it began: a directory that is removed and made again has to be watched anew.
    So the watch begins anew whenever a path leads to something else; the one above tells of that. It begins anew too
    when such a path is told of itself: what was made in its place may have been given the same inode number.
    """

    def __init__(self, configuration: Configuration, watch: Any) -> None:
        self._configuration = configuration
        self._watch = watch
        self._watched: dict[str, tuple[int, int]] = {}
        self._changes: Iterator[Any] = iter(())

    def wait(self, stop: threading.Event, seconds: float) -> None:
        paths = {path: _place(path) for path in _existing(self._configuration.paths())}
        deadline = time.monotonic() + seconds
        if paths != self._watched:
            self._watched = paths
            self._changes = self._begin(paths, stop)
            deadline = 0.0  # what changed since the last look, before this watch began, is for the next look to see
        try:
            while not stop.is_set():
                changes = next(self._changes)
                if not self._watched.keys().isdisjoint(path for _, path in changes):
                    self._watched = {}
                if changes or time.monotonic() >= deadline:
                    return
        except (OSError, RuntimeError, StopIteration):  # a path vanished meanwhile, or this is the end
            self._watched = {}
            stop.wait(min(seconds, _TICK / 1000))

    def _begin(self, paths: Iterable[str], stop: threading.Event) -> Iterator[Any]:
        changes: Iterator[Any] = self._watch(
            *paths,
            watch_filter=None,
            step=_STEP,
            debounce=4 * _STEP,
            stop_event=stop,
            rust_timeout=_TICK,
            yield_on_timeout=True,
            raise_interrupt=False,
            recursive=False,
            ignore_permission_denied=True,
        )
        return changes


def _existing(paths: tuple[str, ...]) -> set[str]:
    """Return the directories that exist, and above each the nearest that does."""
    found: set[str] = set()
    for path in paths:
        if os.path.isdir(path):
            found.add(path)
        above = os.path.dirname(path)
        while not os.path.isdir(above) and above != os.path.dirname(above):
            above = os.path.dirname(above)
        found.add(above)
    return found


def _place(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return 0, 0
    return status.st_dev, status.st_ino
