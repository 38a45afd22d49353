"""HTTP for supervisors: /healthz, /readyz and /metrics, on a UNIX socket or a loopback port."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from reconcile import NodeAgent

try:
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
except ImportError:  # an extra of this example: see requirements.txt
    CollectorRegistry = None

STALLED = 30.0
"""Seconds without a sign of life of the event loop after which /healthz fails."""


def parse_address(text: str) -> str | tuple[str, int]:
    """Return the path of ``unix:PATH``, or the host and port of ``127.0.0.1:PORT`` or ``[::1]:PORT``.

    Raises:
        ValueError: it is neither, or no loopback address: the answers are for programs on this node.
    """
    if text.startswith("unix:"):
        return text.removeprefix("unix:")
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    try:
        loopback = ipaddress.ip_address(host).is_loopback
        number = int(port)
    except ValueError:
        loopback, number = False, -1
    if not loopback or not 0 <= number < 1 << 16:
        raise ValueError(f"{text!r} is neither unix:PATH nor a loopback address with a port, such as 127.0.0.1:9464")
    return host, number


class _Handler(BaseHTTPRequestHandler):
    timeout = 5.0  # seconds for a client that says nothing
    answers: dict[str, Callable[[], tuple[int, str, bytes]]]

    def do_GET(self) -> None:
        """Answer a request."""
        answer = self.answers.get(self.path.partition("?")[0])
        status, kind, body = (404, "text/plain", b"not found\n") if answer is None else answer()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        """Return a name for the client: one on a UNIX socket has no address."""
        return "client"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name that the base class has
        """Log nothing: probes come every few seconds."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True


class _UnixServer(_Server):
    address_family = socket.AF_UNIX

    def server_bind(self) -> None:
        """Bind the socket, for the own user alone; one that an earlier agent left is replaced."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.server_address)  # type: ignore[arg-type]
        before = os.umask(0o177)
        try:
            self.socket.bind(self.server_address)
        finally:
            os.umask(before)
        self.server_name, self.server_port = "localhost", 0


class Endpoints:
    """Answers for one agent, in threads of their own."""

    def __init__(self, agent: NodeAgent) -> None:
        self._agent = agent
        self._beat = time.monotonic()
        self._registry: Any = None
        if CollectorRegistry is not None:
            self._registry = CollectorRegistry()
            self._registry.register(self)

    def beat(self) -> None:
        """Note that the event loop is alive; call it about every second."""
        self._beat = time.monotonic()

    @contextlib.contextmanager
    def serving(self, address: str | tuple[str, int]) -> Iterator[str | tuple[str, int]]:
        """Answer until the block ends; its value is the address, with the number of a port that was given as 0."""
        answers = {"/healthz": self.health, "/readyz": self.readiness, "/metrics": self.metrics}
        handler = type("Handler", (_Handler,), {"answers": answers})
        server: _Server
        if isinstance(address, str):
            server = _UnixServer(address, handler)  # type: ignore[arg-type]
        else:
            family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
            server = type("Server", (_Server,), {"address_family": family})(address, handler)
        with server:
            thread = threading.Thread(target=server.serve_forever, name="endpoints", daemon=True)
            thread.start()
            try:
                yield address if isinstance(address, str) else (address[0], server.server_port)
            finally:
                server.shutdown()
                thread.join()
                if isinstance(address, str):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(address)

    def health(self) -> tuple[int, str, bytes]:
        """Answer 200 if the event loop is alive, whatever the node's networks are like."""
        silent = time.monotonic() - self._beat
        if silent > STALLED:
            return 503, "text/plain", f"no sign of life for {silent:.0f} s\n".encode()
        return 200, "text/plain", b"ok\n"

    def readiness(self) -> tuple[int, str, bytes]:
        """Answer 200 if all is as desired; the body has the state."""
        state = self._agent.state
        body = json.dumps(state.to_dict()).encode() + b"\n"
        return (200 if state.converged else 503), "application/json", body

    def metrics(self) -> tuple[int, str, bytes]:
        """Answer in the Prometheus text format."""
        if self._registry is None:
            return 501, "text/plain", b"no metrics: pip install prometheus_client\n"
        return 200, "text/plain; version=0.0.4; charset=utf-8", generate_latest(self._registry)

    def collect(self) -> Iterator[Any]:
        """Yield the metrics of now, for prometheus_client."""
        state = self._agent.state
        gauges = {
            "converged": ("1 if all is as desired", float(state.converged)),
            "containers_desired": ("Containers in the desired state", len(state.desired)),
            "containers_attached": ("Containers of the agent with records", len(state.attached)),
            "containers_failing": ("Containers with an error", len(state.failing)),
            "changes_waiting": ("Changes that the limit holds back", len(state.waiting)),
            "problems": ("Problems of no container in particular", len(state.problems)),
        }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(f"libcni_fleet_{name}", text, value)
        changes = CounterMetricFamily("libcni_fleet_changes", "Changes by kind and outcome", labels=["kind", "outcome"])
        checks = CounterMetricFamily("libcni_fleet_checks", "CHECKs of containers by outcome", labels=["outcome"])
        rounds = CounterMetricFamily("libcni_fleet_rounds", "Rounds that have ended")
        for (kind, outcome), count in sorted(self._agent.counts.copy().items()):
            if kind == "rounds":
                rounds.add_metric([], count)
            elif kind == "checks":
                checks.add_metric([outcome], count)
            else:
                changes.add_metric([kind, outcome], count)
        yield from (changes, checks, rounds)
