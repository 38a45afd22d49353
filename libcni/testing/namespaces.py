"""Network namespaces for tests, with an echo server."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar
from uuid import uuid4

from libcni._dataclass import dataclass
from libcni.kernel.namespace import IP_NETNS_DIRECTORY, make_namespace, unbind
from libcni.plugin.namespace import in_namespace

__all__ = ["NetworkNamespace", "network_namespace", "wait_until", "why_no_namespaces"]

_T = TypeVar("_T")
_RETRY = 0.01


@dataclass(frozen=True)
class NetworkNamespace:
    """A network namespace.

    Attributes:
        name: its name for ``ip netns``.

    Examples:
        >>> with network_namespace() as namespace:  # needs root
        ...     namespace.interfaces()
        {'lo': []}
    """

    name: str

    @property
    def path(self) -> str:
        """The value for CNI_NETNS."""
        return f"{IP_NETNS_DIRECTORY}/{self.name}"

    def run(self, *command: str) -> str:
        """Run ``command`` in the namespace and return its stdout.

        Raises:
            subprocess.CalledProcessError: if it fails; a note has its stderr.
        """
        try:
            with self.entered():
                return subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603 - the test's own
        except subprocess.CalledProcessError as error:
            error.add_note(error.stderr.strip())  # the error's text has only the exit status
            raise

    def interfaces(self) -> dict[str, list[str]]:
        """Return each interface with its addresses, such as ``{"eth0": ["10.1.0.5/16"]}``."""
        shown: list[dict[str, Any]] = json.loads(self.run("ip", "-json", "address", "show") or "[]")
        return {
            link["ifname"]: [f"{address['local']}/{address['prefixlen']}" for address in link["addr_info"]]
            for link in shown
            if link
        }

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Run the block, and the programs that it starts, in the namespace; other threads stay where they are.

        Raises:
            VerbError: if the namespace cannot be entered.
        """
        with in_namespace(self.path):
            yield

    @contextmanager
    def echo_server(self, port: int = 0, address: str = "") -> Iterator[int]:
        """Run a TCP server in the namespace that returns its input; yield its port.

        Args:
            port: the port's number, 0 for a free one.
            address: the address to listen on, "" for all IPv4 addresses.
        """
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        # A socket stays in the namespace in which it was made, so only this call must be inside.
        with self.entered():
            server = socket.create_server((address, port), family=family)
        thread = threading.Thread(target=_serve, args=(server,), daemon=True)
        thread.start()
        try:
            yield int(server.getsockname()[1])
        finally:
            # close() alone would leave accept() waiting in the thread.
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            server.close()
            thread.join()

    def echo(self, address: str, port: int, text: str = "hello", timeout: float = 10.0) -> str:
        """Send ``text`` from the namespace to an echo server, and return the answer; try again until it answers.

        Raises:
            TimeoutError: if nothing answers.
        """

        def attempt() -> str:
            with self.entered(), suppress(OSError), socket.create_connection((address, port), 1.0) as connection:
                connection.sendall(text.encode())
                connection.shutdown(socket.SHUT_WR)
                return connection.makefile(encoding="utf-8").read()
            return ""

        return wait_until(attempt, timeout, f"no echo from {address} port {port}")


def wait_until(condition: Callable[[], _T], timeout: float = 25.0, problem: str = "") -> _T:
    """Call ``condition`` again and again until its value is true, and return the value.

    Args:
        condition: a function without parameters.
        timeout: seconds.
        problem: the text of the error.

    Raises:
        TimeoutError: if the value is still false after ``timeout``.
    """
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{problem or 'the condition is false'} after {timeout:g} s")
        time.sleep(_RETRY)
    return value


def _serve(server: socket.socket) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection, suppress(OSError):
            while data := connection.recv(65536):
                connection.sendall(data)


@contextmanager
def network_namespace() -> Iterator[NetworkNamespace]:
    """Make a namespace for the block, with ``lo`` down, and remove it afterwards.

    Raises:
        OSError: if it cannot be made; ``why_no_namespaces`` gives the reason in advance.
    """
    if os.geteuid() != 0:
        raise PermissionError("network namespaces need root")
    # A random name, because the workers of a test run share /run/netns.
    namespace = NetworkNamespace(f"libcni-{uuid4().hex[:12]}")
    try:
        os.makedirs(IP_NETNS_DIRECTORY, exist_ok=True)
        make_namespace(namespace.path, lo_up=False)  # as containerd makes them: the plugin "loopback" brings it up
    except OSError as error:  # root alone is not enough: a container may forbid unshare or mount
        raise OSError(f"no network namespace can be made: {error}") from error
    try:
        yield namespace
    finally:
        unbind(namespace.path)


def why_no_namespaces() -> str | None:
    """Return the reason why this process cannot make network namespaces; None if it can."""
    try:
        with network_namespace():
            return None
    except OSError as error:
        return str(error)
