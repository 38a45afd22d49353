"""Reload when a directory changes: inotify through watchfiles if it is installed, and polling in any case."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any, Self

from libcni._namespace import namespace_identity
from libcni.errors import ConfigError
from libcni.manager.configuration import Configuration

__all__ = ["Watch"]

logger: logging.Logger = logging.getLogger("libcni")

_STEP, _TICK = 50, 500
"""Milliseconds without a change before watchfiles reports, and milliseconds of the longest single wait."""
_PAUSE = 1.0
"""Seconds between a failed reload and the next one."""


_Wait = Callable[[threading.Event, float], object]
"""Waits for a change, or some seconds, or the event that ends the watch."""


class Watch:
    """A thread that reloads a configuration when it changes, from ``NetworkManager.watch``. A context manager.

    ``close`` ends it.
    """

    def __init__(self, configuration: Configuration, interval: float, *, polling: bool | None) -> None:
        self._configuration = configuration
        self._interval = interval
        self._stop = threading.Event()
        self._wait = _sleep if polling else _wait_for_changes(configuration, is_needed=polling is not None)
        self._thread = threading.Thread(target=self._run, name="libcni-watch", daemon=True)
        self._thread.start()

    @property
    def is_polling(self) -> bool:
        """Whether changes are found by polling alone."""
        return self._wait is _sleep

    def close(self) -> None:
        """Stop the thread, and wait for its end."""
        # Set before join: the thread waits for this event, at most for one tick of watchfiles.
        self._stop.set()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._configuration.reload_if_changed()
                self._wait(self._stop, self._interval)
            except Exception:  # the thread must go on, because the next reload may succeed
                logger.exception("the reload of the configuration failed; retrying")
                self._stop.wait(min(self._interval, _PAUSE))


def _sleep(stop: threading.Event, seconds: float) -> None:
    stop.wait(seconds)


def _wait_for_changes(configuration: Configuration, *, is_needed: bool) -> _Wait:
    """Return the wait with watchfiles. Without watchfiles: ``_sleep``, or ConfigError if it is needed."""
    try:
        return _Inotify(configuration, import_module("watchfiles").watch).wait
    except ImportError as error:
        if is_needed:
            raise ConfigError("watchfiles is not installed", hint="pip install libcni[watch]") from error
        return _sleep


class _Inotify:
    """Waits with watchfiles, on the directories and on their parents.

    inotify watches an inode, not a path. If a directory is removed and made again, it needs a new watch. A watch of the
    parent reports this, and the watch restarts if a path leads to another inode. It also restarts if a watched path
    itself is reported, because a new directory may have the same inode number.
    """

    def __init__(self, configuration: Configuration, watch: Any) -> None:
        self._configuration = configuration
        self._watch = watch
        self._watched: dict[str, tuple[int, int] | None] = {}
        self._changes: Iterator[Any] = iter(())

    def wait(self, stop: threading.Event, seconds: float) -> None:
        paths = {path: namespace_identity(path) for path in _existing(self._configuration.paths())}
        deadline = time.monotonic() + seconds
        if paths != self._watched:
            self._watched = paths
            self._changes = self._start(paths, stop)
            deadline = 0.0  # only a reload finds a change that happened before this watch started
        try:
            while not stop.is_set():
                changes = next(self._changes)
                if not self._watched.keys().isdisjoint(path for _, path in changes):
                    self._watched = {}
                if changes or time.monotonic() >= deadline:
                    return
        except (OSError, RuntimeError, StopIteration):  # a path was removed meanwhile, or the watch is being closed
            self._watched = {}
            stop.wait(min(seconds, _TICK / 1000))

    def _start(self, paths: Iterable[str], stop: threading.Event) -> Iterator[Any]:
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
    """Return the directories that exist, and the nearest existing parent of each."""
    found: set[str] = set()
    for path in paths:
        if os.path.isdir(path):
            found.add(path)
        above = os.path.dirname(path)
        while not os.path.isdir(above) and above != os.path.dirname(above):
            above = os.path.dirname(above)
        found.add(above)
    return found
