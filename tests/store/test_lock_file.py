"""Locks between the verbs of one process, as another process sees them."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from processes import fork, wait

from libcni.store.locks import LockRequest, LockSet
from store.conftest import Make


def is_free_elsewhere(cache: Path, request: LockRequest) -> bool:
    """Return whether another process could hold a lock."""
    return wait(fork(lambda: os._exit(7 if LockSet(str(cache), request).try_acquire() else 8))) == 7


def test_a_shared_lock_stays_until_its_last_holder_releases_it(hold: Make, tmp_path: Path) -> None:
    first, second = hold("n", container="c1"), hold("n", container="c2")
    assert first.try_acquire()
    assert second.try_acquire()
    first.close()
    assert not is_free_elsewhere(tmp_path, LockRequest(("n",), exclusive=True))
    assert is_free_elsewhere(tmp_path, LockRequest((), "c1"))
    second.close()
    assert is_free_elsewhere(tmp_path, LockRequest(("n",), exclusive=True))


def test_a_lock_of_all_containers_releases_all(hold: Make, tmp_path: Path) -> None:
    every = hold(every=True)
    assert every.try_acquire()
    assert not is_free_elsewhere(tmp_path, LockRequest((), "c1"))
    other = hold(container="c1")
    assert not other.try_acquire()
    every.close()
    assert other.try_acquire()
    assert not hold(every=True).try_acquire()
    assert is_free_elsewhere(tmp_path, LockRequest((), "c2"))


def test_threads_exclude_each_other(tmp_path: Path) -> None:
    inside: list[int] = []
    worst: list[int] = []

    def work() -> None:
        for _ in range(50):
            one = LockSet(str(tmp_path), LockRequest(("n",), "c1"))
            for delay in one.retry_delays(time.monotonic() + 60):
                time.sleep(delay)
            inside.append(1)
            worst.append(len(inside))
            time.sleep(0)
            inside.pop()
            one.close()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(worst), max(worst)) == (400, 1)
