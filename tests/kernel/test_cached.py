"""A cached property that a forked child can use."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from processes import fork, wait

from libcni.kernel.cached import cached_property


class Thing:
    def __init__(self, begun: threading.Event, go_on: threading.Event) -> None:
        self.begun, self.go_on, self.count = begun, go_on, 0

    @cached_property
    def value(self) -> int:
        """Count."""
        self.begun.set()
        self.go_on.wait(60)
        self.count += 1
        return self.count


def test_it_is_computed_once() -> None:
    free = threading.Event()
    free.set()
    thing = Thing(free, free)
    assert (thing.value, thing.value, thing.count, Thing.value.__doc__) == (1, 1, 1, "Count.")


def test_a_child_that_is_forked_while_another_thread_computes_does_not_wait() -> None:
    begun, go_on, free = threading.Event(), threading.Event(), threading.Event()
    free.set()

    def child() -> None:
        assert Thing(free, free).value == 1

    with ThreadPoolExecutor(1) as pool:
        computing = pool.submit(lambda: Thing(begun, go_on).value)
        begun.wait(60)
        status = wait(fork(child), 20)
        go_on.set()
        assert (computing.result(60), status) == (1, 0)
