"""Show the current step of a slow verb on a terminal."""

from __future__ import annotations

import functools
import sys
import threading
import time

from libcni import Invocation, Outcome
from libcni.diagnosis import lock_users
from libcni.errors import printable
from libcni.observe import Observer, Operation

_AFTER, _EVERY = 1.0, 0.25
_COLUMNS = 79


@functools.cache
def progress_of(cache_dir: str) -> Progress:
    """Return the progress line for a record directory: all clients share it, because a terminal has one."""
    return Progress(cache_dir)


class Progress(Observer):
    """Show one line on stderr if a verb takes longer than a second.

    It names the lock that a verb waits for, or the running plugin. The line is erased at the end, with spaces and not
    with an escape sequence, because NO_COLOR and simple terminals allow none.
    """

    def __init__(self, cache_dir: str) -> None:
        self._cache_dir = cache_dir
        self._lock = threading.Lock()
        self._users = 0
        self._text = ""
        self._since = 0.0
        self._is_waiting = False
        self._width = 0
        self._ended = threading.Event()

    def begin(self, operation: Operation) -> None:
        """Start the line with the first verb."""
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._ended = threading.Event()
                # A daemon thread: the thread must not keep the process alive if end() is never called.
                threading.Thread(target=self._show, args=(self._ended,), daemon=True).start()
        self._set(f"{operation.verb}: waiting for a lock", is_waiting=True)

    def before_call(self, operation: Operation, invocation: Invocation) -> None:
        """Name the plugin that runs."""
        is_rollback = operation.verb == "ADD" and invocation.verb == "DEL"
        verb = "rolling back, DEL" if is_rollback else invocation.verb
        self._set(f"{verb}: plugin {invocation.plugin} runs")

    def after_call(
        self, operation: Operation, invocation: Invocation, _outcome: Outcome | None, _error: BaseException | None
    ) -> None:
        """Name the verb between two plugins."""
        self._set(f"{operation.verb}: after plugin {invocation.plugin}")

    def end(self, _operation: Operation, _error: BaseException | None) -> None:
        """Erase the line with the last verb."""
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._ended.set()
                if self._width:
                    sys.stderr.write(f"\r{'':{self._width}}\r")
                    sys.stderr.flush()
                    self._width = 0

    def _set(self, text: str, *, is_waiting: bool = False) -> None:
        with self._lock:
            self._text, self._is_waiting, self._since = text, is_waiting, time.monotonic()

    def _show(self, ended: threading.Event) -> None:
        seconds = _AFTER
        while not ended.wait(seconds):
            seconds = _EVERY
            # Reading /proc of all processes takes milliseconds, so it is done outside the lock.
            holders = ", ".join(lock_users(f"{self._cache_dir}/locks")) if self._is_waiting else ""
            # end() takes the same lock, so no line is written after it has erased the last one.
            with self._lock:
                if ended.is_set():
                    return
                text = f"{self._text} of {holders}" if holders and self._is_waiting else self._text
                line = printable(f"{text} ({time.monotonic() - self._since:.0f} s)")[:_COLUMNS]
                sys.stderr.write(f"\r{line:{self._width}}")
                sys.stderr.flush()
                self._width = max(self._width, len(line))
