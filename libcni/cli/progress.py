"""Show the current step of a slow verb on a terminal."""

from __future__ import annotations

import sys
import threading
import time

from libcni import Invocation
from libcni.diagnosis import lock_users
from libcni.errors import printable
from libcni.observe import Observer, Operation

_AFTER, _EVERY = 1.0, 0.25
_COLUMNS = 79
_WAITING = "waiting for a lock"


class Progress(Observer):
    """An observer that shows one line on stderr if a verb takes longer than a second.

    The line names the lock that a verb waits for, or the plugin that was started last. It is erased at the end, with
    spaces and not with an escape sequence, because NO_COLOR and simple terminals allow none.
    """

    def __init__(self, cache_dir: str) -> None:
        self._lock_file = f"{cache_dir}/locks"
        self._lock = threading.Lock()
        self._verbs = 0
        self._step, self._since = "", 0.0
        self._width = 0
        self._ended = threading.Event()

    def begin(self, operation: Operation) -> None:
        """Begin to show the line when the first verb begins."""
        with self._lock:
            self._verbs += 1
            if self._verbs == 1:
                self._ended = threading.Event()
                # A daemon thread: the thread must not keep the process alive if end() is never called.
                threading.Thread(target=self._show, args=(self._ended,), daemon=True).start()
        self._set(f"{operation.verb}: {_WAITING}")

    def before_call(self, operation: Operation, invocation: Invocation) -> None:
        """Name the plugin and its verb."""
        is_rollback = operation.verb == "ADD" and invocation.verb == "DEL"
        verb = "rolling back, DEL" if is_rollback else invocation.verb
        self._set(f"{verb}: plugin {invocation.plugin}")

    def end(self, _operation: Operation, _error: BaseException | None) -> None:
        """Erase the line when the last verb ends."""
        with self._lock:
            self._verbs -= 1
            if self._verbs == 0:
                self._ended.set()
                if self._width:
                    self._write("\r")
                    self._width = 0

    def _set(self, step: str) -> None:
        with self._lock:
            self._step, self._since = step, time.monotonic()

    def _show(self, ended: threading.Event) -> None:
        seconds = _AFTER
        while not ended.wait(seconds):
            seconds = _EVERY
            step = self._step
            # Reading /proc of all processes takes milliseconds, so it is done outside the lock.
            holders = ", ".join(lock_users(self._lock_file)) if step.endswith(_WAITING) else ""
            # end() takes the same lock, so no line is written after it has erased the last one.
            with self._lock:
                if ended.is_set():
                    return
                if step == self._step:
                    text = f"{step} of {holders}" if holders else step
                    line = printable(f"{text} ({time.monotonic() - self._since:.0f} s)")[:_COLUMNS]
                    self._width = max(self._width, len(line))
                    self._write(line)

    def _write(self, line: str) -> None:
        print(f"\r{'':{self._width}}\r{line}", end="", file=sys.stderr, flush=True)
