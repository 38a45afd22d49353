"""Many ADDs in threads, beside all that could lose or keep the lock that threads pass on: a soak."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from nodes import FakeNode
from processes import fork, wait

from libcni import CNIConfig, RuntimeConf
from libcni.executor import CallOptions, ProcessExecutor, baton
from libcni.observe import Observer
from libcni.protocol.invocation import Invocation, Outcome

THREADS = 64
ADDS = int(os.environ.get("LIBCNI_SOAK_ADDS", "1500"))


class _RaisedError(Exception):
    """What the program's signal handler raises."""


_armed = [False]
"""Not an Event: the handler would wait for ever for its lock, if the signal came while the main thread has it."""


@pytest.fixture
def raising() -> Iterator[None]:
    def handler(*_: Any) -> None:
        if _armed[0]:
            _armed[0] = False
            raise _RaisedError

    before = signal.signal(signal.SIGUSR1, handler)
    logging.disable(logging.CRITICAL)  # a forked child can find a log's stream locked by a thread that it has not
    yield
    logging.disable(logging.NOTSET)
    _armed[0] = False
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.slow
@pytest.mark.timeout(max(600, ADDS // 4))
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # raised where Python cannot raise it
@pytest.mark.usefixtures("raising")
def test_adds_in_threads_beside_forks_signals_and_foreign_code_that_waits(node: FakeNode) -> None:  # noqa: C901
    net, plain = node.network("a"), node.client(timeout=None)
    failed: list[BaseException] = []
    others = ThreadPoolExecutor(8)

    def attach_and_detach(cni: CNIConfig, name: str) -> None:
        """Detach it again, so that the records, which an ADD without a namespace lists, stay few."""
        cni.add_network_list(net, RuntimeConf(name, None, "eth0"))
        plain.del_network_list(net, RuntimeConf(name, None, "eth0"))

    def inner(name: str) -> None:
        attach_and_detach(plain, name)

    class Waits(ProcessExecutor):
        def execute(self, invocation: Invocation, options: CallOptions) -> Outcome:
            others.submit(inner, f"{invocation.container_id}-x").result(300)
            return super().execute(invocation, options)

    class Watches(Observer):
        def before_call(self, operation: Any, _invocation: Invocation) -> None:
            others.submit(inner, f"{operation.container_id}-o").result(300)

    clients = [plain] * 6 + [node.client(timeout=None, executor=Waits()), node.client(timeout=None, observer=Watches())]

    numbers, lock = iter(range(ADDS)), threading.Lock()

    def work() -> None:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            try:
                attach_and_detach(clients[number % len(clients)], f"c{number}")
            except BaseException as error:  # noqa: BLE001 - the test asks for it
                failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    interrupted, forked, mine = 0, 0, 0
    while any(thread.is_alive() for thread in threads):
        mine += 1
        try:
            timer = threading.Timer(0.001 + mine % 40 / 1000, os.kill, (os.getpid(), signal.SIGUSR1))
            timer.start()
            _armed[0] = True  # not before: the signal may come while the timer starts, which Python cannot undo
            inner(f"main{mine}")
            _armed[0] = False
        except _RaisedError:
            interrupted += 1
        timer.join()  # a later signal would end the program, when nobody handles it any more
        if mine % 10 == 0:
            child = fork(partial(inner, f"child{mine}"))
            assert wait(child, 120) == 0
            forked += 1
    others.shutdown()
    assert failed == []
    assert (interrupted > 0, forked > 0) == (True, True)
    plain.add_network_list(net, RuntimeConf("last", None, "eth0"))
    assert not baton._lock.locked()
    print(f"{ADDS} ADDs in {THREADS} threads, {interrupted} of the main thread interrupted, {forked} forks")  # noqa: T201
