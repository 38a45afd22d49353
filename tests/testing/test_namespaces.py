"""Namespaces for tests: programs and echo in them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from libcni.testing import NetworkNamespace, wait_until

pytestmark = pytest.mark.real


@pytest.fixture
def pair(cni_namespaces: Callable[[], AbstractContextManager[NetworkNamespace]]) -> Iterator[list[NetworkNamespace]]:
    """Return two connected namespaces, with the addresses 10.88.9.1 and .2, fd88::1 and ::2."""
    with cni_namespaces() as first, cni_namespaces() as second:
        link = ["ip", "link", "add", "plug0", "type", "veth", "peer", "name", "plug0", "netns", second.path]
        first.run(*link)
        for number, namespace in enumerate((first, second), 1):
            namespace.run("ip", "address", "add", f"10.88.9.{number}/24", "dev", "plug0")
            namespace.run("ip", "address", "add", f"fd88::{number}/64", "dev", "plug0", "nodad")
            namespace.run("ip", "link", "set", "plug0", "up")
        yield [first, second]


@pytest.mark.parametrize(("listen", "address"), [("", "10.88.9.2"), ("fd88::2", "fd88::2")])
def test_an_echo_server_answers_another_namespace(pair: list[NetworkNamespace], listen: str, address: str) -> None:
    with pair[1].echo_server(address=listen) as port:
        assert pair[0].echo(address, port, "hello, you") == "hello, you"
        assert pair[0].echo(address, port) == "hello"
    with pytest.raises(TimeoutError, match=f"no echo from {address} port {port}"):
        pair[0].echo(address, port, timeout=0.3)


def test_a_block_runs_in_the_namespace(pair: list[NetworkNamespace]) -> None:
    own = os.stat("/proc/thread-self/ns/net").st_ino
    with pair[0].entered():
        assert os.stat("/proc/thread-self/ns/net").st_ino == os.stat(pair[0].path).st_ino
    assert os.stat("/proc/thread-self/ns/net").st_ino == own


def test_a_command_that_fails_says_why(pair: list[NetworkNamespace]) -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        pair[0].run("ip", "link", "set", "none0", "up")
    assert caught.value.__notes__ == ['Cannot find device "none0"']


def test_waiting_returns_the_value_or_says_what_was_waited_for() -> None:
    values = iter([0, "", 7])
    assert wait_until(lambda: next(values)) == 7
    with pytest.raises(TimeoutError, match=r"the condition is false after 0\.1 s"):
        wait_until(lambda: None, 0.1)
