"""The sockets of the host that wait for clients, and their processes."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import ExitStack

import pytest

from libcni.kernel.sockets import processes_of, waiting_sockets


def test_the_processes_of_several_sockets_are_found_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search for each would take a quarter of a second for each port that a program has."""
    with ExitStack() as stack:
        opened = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        numbers = {one.getsockname()[1] for one in opened}
        found = list(waiting_sockets("tcp", numbers))
        assert {one.number for one in found} == numbers
        assert {one.address for one in found} == {"127.0.0.1"}
        passes: list[str] = []
        listdir = os.listdir

        def noted(path: str) -> list[str]:
            passes.append(path)
            return listdir(path)

        monkeypatch.setattr(os, "listdir", noted)
        processes = processes_of({one.inode for one in found})
        assert passes.count("/proc") == 1
        assert {number for number, _ in processes.values()} == {str(os.getpid())}
        assert {words[0] for _, words in processes.values()} <= {sys.executable, *sys.orig_argv}
        assert len(processes) == len(opened)


def test_a_socket_with_a_client_and_another_port_do_not_wait() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert list(waiting_sockets("tcp", {client.getsockname()[1]})) == []
        assert list(waiting_sockets("sctp", {server.getsockname()[1]})) == []
