"""Network namespaces for tests, made with ``ip netns``."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

__all__ = ["NetworkNamespace", "network_namespace", "why_no_namespaces"]


@dataclass(frozen=True)
class NetworkNamespace:
    """Be one network namespace.

    Attributes:
        name: its name for ``ip netns``.
    """

    name: str

    @property
    def path(self) -> str:
        """What goes into CNI_NETNS."""
        return f"/run/netns/{self.name}"

    def run(self, *command: str) -> str:
        """Run ``command`` in the namespace and return its stdout.

        Raises:
            subprocess.CalledProcessError: it failed.
        """
        return _ip("netns", "exec", self.name, *command)

    def interfaces(self) -> dict[str, list[str]]:
        """Return each interface with its addresses, such as ``{"eth0": ["10.1.0.5/16"]}``."""
        shown: list[dict[str, Any]] = json.loads(_ip("-json", "-netns", self.name, "address", "show") or "[]")
        return {link["ifname"]: _addresses(link) for link in shown if link}


def _addresses(link: dict[str, Any]) -> list[str]:
    return [f"{address['local']}/{address['prefixlen']}" for address in link["addr_info"]]


@contextmanager
def network_namespace() -> Iterator[NetworkNamespace]:
    """Make a namespace, and remove it afterwards.

    Raises:
        subprocess.CalledProcessError: it cannot be made; ``why_no_namespaces`` knows before.
    """
    namespace = NetworkNamespace(f"libcni-{uuid4().hex[:12]}")
    _ip("netns", "add", namespace.name)
    try:
        yield namespace
    finally:
        _ip("netns", "delete", namespace.name)


def why_no_namespaces() -> str | None:
    """Return why this process cannot make network namespaces, or None where it can."""
    if shutil.which("ip") is None:
        return "network namespaces need the ip command (iproute2)"
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        with network_namespace():
            return None
    except subprocess.CalledProcessError as error:
        return f"ip netns add: {error.stderr.strip()}"


def _ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout  # noqa: S603, S607
