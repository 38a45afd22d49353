"""The sockets of the host that wait for clients, and their processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from libcni.kernel import netlink_messages, sockets
from libcni.kernel.sockets import Socket, processes_of, waiting_sockets


def test_the_processes_of_several_sockets_are_found_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search for each would take a quarter of a second for each port that a program has."""
    with ExitStack() as stack:
        opened = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        numbers = {one.getsockname()[1] for one in opened}
        found = list(waiting_sockets("tcp", numbers))
        assert {one.number for one in found} == numbers
        assert {one.address for one in found} == {"127.0.0.1"}
        monkeypatch.setattr(sockets, "_SECONDS", 60.0)
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


_SERVER = """
import socket, time
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
time.sleep(1000)
"""


def test_of_another_users_process_the_name_alone_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """He can put its arguments on a file system that never answers (FUSE)."""
    as_user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if not os.geteuid() else []
    monkeypatch.setattr(sockets, "_SECONDS", 60.0)
    with subprocess.Popen([*as_user, "python3", "-c", _SERVER], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        number = int(server.stdout.readline())
        [waiting] = waiting_sockets("tcp", {number})
        [(process, words)] = processes_of({waiting.inode}).values()
        server.kill()
    assert (process, len(words)) == (str(server.pid), 1 if as_user else 3)
    assert "python3" in words[0]


_ENDPOINTS = """ ENDPT     SOCK   STY SST HBKT LPORT   UID INODE LADDRS
ffff8a11 ffff8a22 2   10  29   8099      0 71001 0.0.0.0
ffff8a13 ffff8a24 2   10  30   8098      0 71002 127.0.0.1 10.0.0.1
ffff8a15 ffff8a26 2   7   31   8097      0 71003 0.0.0.0
ffff8a17 ffff8a28 2   10  32   8096      0 71004 0000:0000:0000:0000:0000:0000:0000:0000
"""


def test_endpoints_of_sctp_that_wait_for_clients(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The kernel of the tests need not have SCTP; this is its text (net/sctp/proc.c)."""
    assert list(waiting_sockets("sctp", range(8000, 9000))) == []
    (tmp_path / "eps").write_text(_ENDPOINTS)
    monkeypatch.setattr(sockets, "_SCTP", str(tmp_path / "eps"))
    found = list(waiting_sockets("sctp", range(8000, 9000)))
    assert found == [
        Socket(8099, "", "71001"), Socket(8098, "127.0.0.1", "71002"), Socket(8098, "10.0.0.1", "71002"),
        Socket(8096, "", "71004"),
    ]  # fmt: skip
    assert list(waiting_sockets("sctp", {8097, 80})) == []


def test_the_buffer_for_the_answers_of_the_kernel_is_made_once() -> None:
    """A new one for each answer would take as long as all the rest, and the doctor asks thousands of times."""
    list(waiting_sockets("tcp", {8080}))
    before = [id(buffer) for buffer in netlink_messages._buffers]
    list(waiting_sockets("udp", {8080}))
    assert [id(buffer) for buffer in netlink_messages._buffers] == before != []


def test_a_socket_with_a_client_and_another_port_do_not_wait() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert list(waiting_sockets("tcp", {client.getsockname()[1]})) == []
        assert list(waiting_sockets("sctp", {server.getsockname()[1]})) == []


def test_the_kernel_selects_the_sockets_of_one_port() -> None:
    """Otherwise an ADD with a port would read all listening sockets of the host."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        number = one.getsockname()[1]
        [(_, port, _, _)] = sockets._dump(*sockets._PROTOCOLS["tcp"], {number})
        assert int.from_bytes(port, "big") == number
        assert len({*waiting_sockets("tcp", {number, other.getsockname()[1]})}) == 2
    assert list(waiting_sockets("tcp", {1 << 16})) == []  # no port
