"""A thread that does short pieces of work for many verbs."""

from __future__ import annotations

import _thread
import threading
from _queue import Empty, SimpleQueue  # the C part of queue
from collections.abc import Callable
from os import register_at_fork

Work = Callable[[], object]

_IDLE_SECONDS = 0.1


class HelperThread:
    """A thread that does pieces of work one after another.

    The thread starts with the first piece of work, and ends after 0.1 s without work, because some system calls need a
    process with only one thread. A forked child has its own thread. Objects of this class are never freed.
    """

    def __init__(self) -> None:
        self._queue: SimpleQueue[Work] | None = None  # None if no thread runs
        self._lock = threading.Lock()
        register_at_fork(after_in_child=self._forget)

    def do(self, work: Work) -> None:
        """Let the thread call ``work``, which must not raise.

        Raises:
            RuntimeError: no thread can be started; ``work`` will not be called.
        """
        with self._lock:
            if self._queue is None:
                queue: SimpleQueue[Work] = SimpleQueue()
                _thread.start_new_thread(self._run, (queue,))
                self._queue = queue
            self._queue.put(work)

    def _run(self, queue: SimpleQueue[Work]) -> None:
        while True:
            try:
                work = queue.get(timeout=_IDLE_SECONDS)
            except Empty:
                with self._lock:
                    # Work may have come while this thread waited for the lock, and a verb waits for it.
                    try:
                        work = queue.get_nowait()
                    except Empty:
                        self._queue = None
                        return
            work()  # without the lock: it may take seconds

    def _forget(self) -> None:
        # A forked child has neither this thread nor the thread that may have held the lock.
        self._queue, self._lock = None, threading.Lock()
