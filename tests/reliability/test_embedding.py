"""In programs of all kinds: signals, threads, forks, many descriptors, the end of the interpreter."""

from __future__ import annotations

import gc
import logging
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import RT, network
from nodes import FakeNode
from processes import children, descriptors, fork, is_running, no_child_is_left, wait

from libcni import CNIError, NetworkConfigList, PluginError, RuntimeConf
from libcni.executor import ProcessExecutor
from libcni.store.locks import LockRequest, LockSet
from libcni.testing import wait_until


class AllocatingNode(FakeNode):
    """A node with a plugin that holds an address for each container, and one that does nothing."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        (root / "held").mkdir()
        address = f"{root}/held/$CNI_CONTAINERID"
        self.plugin("alloc", f"case $CNI_COMMAND in ADD) : > {address};; DEL) rm -f {address};; esac")

    def chain(self) -> NetworkConfigList:
        return self.network("alloc", "plain")

    def held(self) -> set[str]:
        """Return the containers that have an address."""
        return set(os.listdir(self.root / "held"))


@pytest.fixture
def allocating(tmp_path: Path) -> AllocatingNode:
    return AllocatingNode(tmp_path)


@pytest.fixture
def handler() -> Iterator[Callable[[int, Any], None]]:
    kept: dict[int, Any] = {}

    def install(number: int, action: Any) -> None:
        kept[number] = signal.signal(number, action)

    yield install
    for number, action in kept.items():
        signal.signal(number, action)


@pytest.mark.parametrize("spare", range(12))
def test_with_no_descriptor_left(allocating: AllocatingNode, spare: int) -> None:
    """Wherever they run out, it is an error of the library, and no plugin goes on unwatched."""
    net = allocating.network("alloc")
    allocating.client().add_network_list(net, RuntimeConf("c0", None, "eth0"))  # so that all modules are loaded

    def work() -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        highest = max(descriptors()) + 1
        for descriptor in set(range(highest)) - descriptors():
            os.dup2(0, descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + spare, hard))
        try:
            allocating.client().add_network_list(net, RT)
            status = "attached"
        except PluginError as error:
            status = f"{error.problem}, {error.rollback_errors}"
        except CNIError as error:
            status = repr(error)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        (allocating.root / "status").write_text(status)
        assert children() == []

    assert wait(fork(work)) == 0
    status = (allocating.root / "status").read_text()
    # "Bad file descriptor": so few are allowed that a plugin cannot have the number that says that it lives
    problems = ("attached", "RecordError", "PluginNotFoundError", "Too many open files", "Bad file descriptor")
    assert any(problem in status for problem in problems), status
    allocating.client().del_network_list(net, RT)
    running = LockSet(str(allocating.cache), LockRequest((), "c1"))
    wait_until(lambda: not running.has_running_plugin())
    running.close()
    assert allocating.held() == {"c0"}


def test_after_a_fork(allocating: AllocatingNode) -> None:
    net, cni = allocating.chain(), allocating.client()
    cni.add_network_list(net, RT)

    def work() -> None:
        cni.del_network_list(net, RT)
        cni.add_network_list(net, RT)

    assert wait(fork(work)) == 0
    cni.del_network_list(net, RT)
    assert allocating.held() == set()


SHUTDOWN = """
import atexit, sys, threading, time
sys.path[:0] = {path!r}
import libcni
net = libcni.NetworkConfigList.from_bytes({net!r})
cni = libcni.CNIConfig([{plugins!r}], {cache!r})
def add(name, add=cni.add_network_list, net=net, conf=libcni.RuntimeConf):
    add(net, conf(name, None, "eth0"))
def detach(name, detach=cni.del_network_list, net=net, conf=libcni.RuntimeConf):
    detach(net, conf(name, None, "eth0"))
class Late:
    def __del__(self, add=add, detach=detach):
        add("late")
        add("ended")
        detach("ended")
late = Late()
atexit.register(add, "atexit")
threading.Thread(target=add, args=["thread"]).start()
if {daemon}:
    threading.Thread(target=lambda: [add(f"d{{number}}") for number in range(99)], daemon=True).start()
time.sleep(0.1)
"""


@pytest.mark.parametrize("daemon", [True, False])
def test_while_the_interpreter_shuts_down(allocating: AllocatingNode, daemon: bool) -> None:
    """In atexit, in a thread, in a daemon thread that dies in the middle, and in the very last finalizers."""
    net = allocating.network("alloc")
    script = SHUTDOWN.format(
        path=sys.path, net=net.raw, plugins=str(allocating.bin), cache=str(allocating.cache), daemon=daemon
    )  # fmt: skip
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    cni, held = allocating.client(), allocating.held()
    states = {one.container_id: one.state for one in cni.get_cached_attachments()}
    # a daemon thread's frames keep everything alive, so that no finalizer runs
    assert {states[name] for name in ("atexit", "thread", "thread" if daemon else "late")} == {"ready"}
    assert "ended" not in states
    assert held <= set(states)
    cni.gc_network_list(net, [])
    assert (allocating.held(), cni.get_cached_attachments()) == (set(), [])


class InterruptedVerbError(Exception):
    """The exception of a signal handler."""


def interrupt_after(handler: Any, seconds: float, error: type[BaseException]) -> None:
    def raise_error(*_: object) -> None:
        raise error

    handler(signal.SIGALRM, raise_error)
    signal.setitimer(signal.ITIMER_REAL, seconds)


@pytest.mark.parametrize("error", [KeyboardInterrupt, InterruptedVerbError, TimeoutError])
def test_an_exception_out_of_a_signal_handler_kills_the_group_and_leaves_the_record(
    node: FakeNode, handler: Any, error: type[BaseException]
) -> None:
    node.plugin("slow", f"[ $CNI_COMMAND = ADD ] || exit 0; sleep 120 & echo $! > {node.root}/pid; wait")
    net, cni = node.network("slow"), node.client()
    interrupt_after(handler, 0.3, error)
    started = time.monotonic()
    with pytest.raises(error):
        cni.add_network_list(net, RT)
    assert time.monotonic() - started < 20, "the plugin takes 120 s"
    assert children() == []
    wait_until(lambda: not is_running(int((node.root / "pid").read_text())))
    assert node.verbs() == ["ADD slow"], "no roll-back"
    assert node.states() == ["pending"]
    cni.del_network_list(net, RT, timeout=2)
    assert node.states() == []


# Python itself loses what is raised inside a __del__, and says so; all else must hold even then
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.unmeasured  # an exception out of a signal handler may hit coverage while it holds its own lock
def test_interrupted_at_any_moment(allocating: AllocatingNode, handler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the moment: no process goes on unwatched, no lock stays, the record tells what is held."""
    # Python's logging can lose the lock of a handler to such an interrupt. pytest's handlers live as long as pytest,
    # and the next test whose threads log would wait for ever. The library's own handler has no lock.
    monkeypatch.setattr(logging.getLogger("libcni"), "propagate", False)
    net, cni = allocating.chain(), allocating.client(timeout=5)
    cni.add_network_list(net, RT)
    cni.del_network_list(net, RT)
    before = descriptors()
    interrupted = 0
    for number in range(100):
        try:
            interrupt_after(handler, 0.0003 + number * 0.0003, InterruptedVerbError)
            cni.add_network_list(net, RT, on_existing="replace")
            signal.setitimer(signal.ITIMER_REAL, 0)
        except InterruptedVerbError:
            interrupted += 1
        wait_until(no_child_is_left, problem=f"interrupt {number}")
        hold = LockSet(str(allocating.cache), LockRequest(("net",), "c1"))
        assert hold.try_acquire(), f"interrupt {number}"
        hold.close()
        listed = {one.container_id for one in cni.get_cached_attachments()}
        assert allocating.held() <= listed
    assert interrupted > 15
    cni.gc_network_list(net, [])
    assert allocating.held() == set()
    gc.collect()
    for number in descriptors() - before:  # what is opened in the moment of the interrupt may be lost, and harms nobody
        os.close(number)


def test_some_calls_of_every_kind_leave_nothing_behind(node: FakeNode) -> None:
    node.plugin("fails", "exit 1")
    node.plugin("hangs", "sleep 5")
    node.plugin("floods", "yes")
    (node.bin / "nothing").write_text("")
    (node.bin / "nothing").chmod(0o755)
    executor = ProcessExecutor(grace=0.1)
    executor._output_limit = 1000
    cni = node.client(executor=executor, cleanup_timeout=0.1)
    cni.add_network_list(node.network("ok"), RT)
    cni.del_network_list(node.network("ok"), RT)
    before = descriptors()
    for kind in ("fails", "hangs", "floods", "nothing", "missing"):
        for _ in range(3):
            with pytest.raises(CNIError, match=kind):
                cni.add_network_list(network(kind), RuntimeConf(kind, None, "eth0"), timeout=0.1)
            with pytest.raises(CNIError, match=kind):
                cni.del_network_list(network(kind), RuntimeConf(kind, None, "eth0"), timeout=0.1)
    assert descriptors() == before
    assert children() == []
