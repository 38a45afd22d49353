"""Network namespaces as the tests see them: what is in them, and programs that run there."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from libcni.testing import NetworkNamespace

PLUGINS = "/usr/lib/cni"
PLUGIN_PATH = f"{Path(__file__).parents[2] / 'testdata/no-ip6-nat'}:/usr/sbin:/usr/bin:/sbin:/bin"
"""PATH for the plugins: on it portmap's CHECK is sound. See ip6tables in that directory."""

_CLONE_NEWNET = 0x40000000

_SERVER = """
import socket, sys
with socket.create_server(("", int(sys.argv[1]))) as server:
    print("listening", flush=True)
    connection, _ = server.accept()
    with connection:
        connection.sendall(b"hello " + connection.recv(100))
"""
_CLIENT = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5) as connection:
    connection.sendall(sys.argv[3].encode())
    print(connection.recv(100).decode())
"""


class Namespace(NetworkNamespace):
    """One network namespace, looked into from outside."""

    def ip(self, *words: str) -> list[dict[str, Any]]:
        """Return what ``ip -j`` answers in this namespace."""
        done = subprocess.run(["ip", "-n", self.name, "-j", *words], check=True, capture_output=True, text=True)
        answer: list[dict[str, Any]] = json.loads(done.stdout or "[]")
        return answer

    def links(self) -> list[str]:
        return [link["ifname"] for link in self.ip("link")]

    def link(self, name: str) -> dict[str, Any]:
        [link] = self.ip("link", "show", "dev", name)
        return link

    def addresses(self, name: str) -> list[str]:
        """Return the global addresses of an interface, as address/prefix."""
        [interface] = self.ip("address", "show", "dev", name)
        return [f"{a['local']}/{a['prefixlen']}" for a in interface["addr_info"] if a["scope"] == "global"]

    def routes(self) -> dict[str, str | None]:
        """Return the IPv4 routes: destination -> gateway."""
        return {route["dst"]: route.get("gateway") for route in self.ip("-4", "route")}

    def _command(self, *words: str) -> list[str]:
        return ["ip", "netns", "exec", self.name, *words]

    def greet(self, address: str, port: int, text: str) -> str:
        """Send ``text`` to a server from within this namespace; return its answer."""
        words = self._command(sys.executable, "-c", _CLIENT, address, str(port), text)
        return subprocess.run(words, check=True, capture_output=True, text=True, timeout=20).stdout.strip()

    @contextlib.contextmanager
    def serving(self, port: int) -> Iterator[None]:
        """Run a server in this namespace that says hello once."""
        words = self._command(sys.executable, "-c", _SERVER, str(port))
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                assert server.stdout.readline() == "listening\n"
                yield
            finally:
                server.kill()


@contextlib.contextmanager
def inside(path: str) -> Iterator[None]:
    """Move this thread, and what it starts, into a network namespace for the length of a block."""
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    after = os.open(path, os.O_RDONLY)
    try:
        _setns(after)
        yield
    finally:
        _setns(before)
        os.close(before)
        os.close(after)


def _setns(descriptor: int) -> None:
    """Do what os.setns does from Python 3.12 on."""
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")
