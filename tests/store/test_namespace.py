"""A namespace that is entered once and looked into several times."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from libcni.store.namespace import EnteredNamespace, InterfaceLookup
from libcni.testing import NetworkNamespace, network_namespace

pytestmark = pytest.mark.real


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
    assert os.waitpid(child, 0)[1] == 0
    assert entered.look_up("lo") is not None
