"""A namespace that is entered once and looked into several times."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import threading
import time
from collections.abc import Iterator

import pytest
from libcni.store.namespace import EnteredNamespace, InterfaceLookup, is_own_namespace
from processes import fork, wait

from libcni import _helper_thread
from libcni._namespace import enter_namespace
from libcni.store import namespace as namespace_module
from libcni.store import record
from libcni.store.record import pid_namespace
from libcni.testing import NetworkNamespace, network_namespace, wait_until

pytestmark = pytest.mark.real

_CLONE_NEWPID = 0x20000000


@pytest.fixture
def namespace() -> Iterator[NetworkNamespace]:
    with network_namespace() as made:
        yield made


@pytest.fixture
def entered(namespace: NetworkNamespace) -> Iterator[EnteredNamespace]:
    found = EnteredNamespace.enter(namespace.path)
    assert found is not None
    yield found
    found.close()


def test_each_look_sees_the_interfaces_of_that_moment(entered: EnteredNamespace, namespace: NetworkNamespace) -> None:
    lo = entered.look_up("lo")
    assert lo is not None
    assert entered.look_up("one0") == InterfaceLookup(0, lo.cookie)
    namespace.run("ip", "link", "add", "one0", "type", "veth", "peer", "name", "two0")
    first = entered.look_up("one0")
    assert first is not None
    assert first.ifindex > 0
    namespace.run("ip", "link", "del", "one0")
    namespace.run("ip", "link", "add", "one0", "type", "veth", "peer", "name", "two0")
    second = entered.look_up("one0")
    assert second is not None
    assert second.ifindex > first.ifindex


def test_another_namespace_at_the_path_is_noticed(entered: EnteredNamespace, namespace: NetworkNamespace) -> None:
    assert entered.is_at(namespace.path)
    assert not entered.is_at("/proc/self/ns/net")
    assert not entered.is_at(f"{namespace.path}-none")


def test_the_namespaces_of_this_thread_and_of_the_process_are_its_own(namespace: NetworkNamespace) -> None:
    host = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    there = os.open(namespace.path, os.O_RDONLY | os.O_CLOEXEC)
    answers = []

    def look_from(descriptor: int) -> None:
        enter_namespace(descriptor)
        answers.append([is_own_namespace(path) for path in (namespace.path, f"/proc/{os.getppid()}/ns/net")])

    def look() -> None:
        look_from(host)
        for descriptor in (there, host):  # other threads, while the main thread is in either
            for main in (host, there):
                enter_namespace(main)
                thread = threading.Thread(target=look_from, args=(descriptor,))
                thread.start()
                thread.join()
        look_from(there)
        assert answers == [[False, True], [True, True], [True, False], [False, True], [True, True], [True, False]]

    assert wait(fork(look)) == 0
    assert not is_own_namespace(f"{namespace.path}-none")


def test_a_forked_child_may_be_in_another_pid_namespace() -> None:
    def look() -> None:
        before = pid_namespace()
        assert ctypes.CDLL(None).unshare(_CLONE_NEWPID) == 0
        assert pid_namespace() == before
        assert wait(fork(lambda: os._exit(int(pid_namespace() == before)))) == 0

    assert wait(fork(look)) == 0


def test_a_pid_namespace_that_was_unknown_once_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    record._inode_of_pid_namespace.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", lambda _: os.lstat("/none"))
        assert pid_namespace() is None
    assert pid_namespace() == os.stat("/proc/self/ns/pid").st_ino


def test_this_program_stays_where_it_is_and_no_descriptor_is_left(namespace: NetworkNamespace) -> None:
    own, descriptors = os.readlink("/proc/self/ns/net"), sorted(os.listdir("/proc/self/fd"))
    threads = threading.active_count()
    entered = EnteredNamespace.enter(namespace.path)
    assert entered is not None
    entered.close()
    assert EnteredNamespace.enter(f"{namespace.path}-none") is None
    assert EnteredNamespace.enter("/dev/null") is None
    assert os.readlink("/proc/thread-self/ns/net") == own
    assert sorted(os.listdir("/proc/self/fd")) == descriptors
    assert threading.active_count() == threads


def test_a_forked_worker_does_not_keep_the_namespace(entered: EnteredNamespace) -> None:
    descriptor = entered._socket.fileno()
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        try:
            os.fstat(descriptor)
            os._exit(1)
        except OSError:
            os._exit(0)
    assert wait(child) == 0
    assert entered.look_up("lo") is not None


@pytest.fixture
def busy(entered: EnteredNamespace, namespace: NetworkNamespace) -> Iterator[list[EnteredNamespace]]:
    """Return two verbs' namespaces, so that the next one meets the visitor."""
    wait_until(lambda: not namespace_module._visitor.is_running)
    second = EnteredNamespace.enter(namespace.path)
    assert second is not None
    yield [entered, second]
    second.close()
    wait_until(lambda: not namespace_module._visitor.is_running)


def namespaces_of_threads() -> set[str]:
    found = set()
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # a thread that has ended meanwhile
            found.add(os.readlink(f"/proc/self/task/{task}/ns/net"))
    return found


def enter(path: str) -> EnteredNamespace:
    found = EnteredNamespace.enter(path)
    assert found is not None
    found.close()
    return found


def test_the_visitor_of_many_verbs_goes_home_and_ends(
    busy: list[EnteredNamespace], namespace: NetworkNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_helper_thread, "_IDLE_SECONDS", 1.0)
    threads = len(os.listdir("/proc/self/task"))
    with network_namespace() as other:
        cookies = []
        for path in (namespace.path, other.path, namespace.path):
            found = EnteredNamespace.enter(path)
            assert found is not None
            lo = found.look_up("lo")
            assert lo is not None
            cookies.append(lo.cookie)
            found.close()
        assert cookies[0] == cookies[2] != cookies[1]
        assert EnteredNamespace.enter("/dev/null") is None
    wait_until(lambda: namespaces_of_threads() == {os.readlink("/proc/self/ns/net")})
    assert namespace_module._visitor.is_running, "the thread has ended, so it is not in a namespace any more"
    wait_until(lambda: not namespace_module._visitor.is_running)
    wait_until(lambda: len(os.listdir("/proc/self/task")) <= threads)


def test_a_visitor_that_cannot_go_home_ends_after_the_visits_that_wait(
    busy: list[EnteredNamespace], namespace: NetworkNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, own = enter_namespace, os.stat("/proc/self/ns/net").st_ino

    def enter_but_not_home(descriptor: int) -> None:
        if os.fstat(descriptor).st_ino == own:
            time.sleep(0.1)  # meanwhile the other visits queue up
            raise OSError(errno.ENOMEM, "Cannot allocate memory")
        real(descriptor)

    monkeypatch.setattr(namespace_module, "enter_namespace", enter_but_not_home)
    threads = [threading.Thread(target=enter, args=(namespace.path,)) for _ in range(5)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(10)
        assert not one.is_alive()
    wait_until(lambda: namespaces_of_threads() == {os.readlink("/proc/self/ns/net")})


def test_a_forked_worker_has_a_visitor_of_its_own(busy: list[EnteredNamespace], namespace: NetworkNamespace) -> None:
    enter(namespace.path)
    assert namespace_module._visitor.is_running
    assert wait(fork(lambda: enter(namespace.path))) == 0
