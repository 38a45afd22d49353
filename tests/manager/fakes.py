"""A node with managers, namespaces in memory, and plugins that fail."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nodes import FakeNode

from libcni.config.versions import ALL_VERSIONS
from libcni.manager import AsyncNetworkManager, NamespaceError, NamespaceIdentity, Namespaces, NetworkManager, Report
from libcni.observe import Observer, Operation

RESULT = {
    "cniVersion": "1.0.0",
    "interfaces": [{"name": "$CNI_IFNAME", "mac": "02:00:00:00:00:01", "sandbox": "$CNI_NETNS"}],
    "ips": [{"address": "10.1.0.5/24", "gateway": "10.1.0.1", "interface": 0}],
}


class ManagerNode(FakeNode):
    """A node with managers."""

    result = RESULT
    versions = ALL_VERSIONS[3:]

    def manager(self, client: dict[str, Any] | None = None, **options: Any) -> NetworkManager:
        """Return a manager; ``client``: settings of its client."""
        return NetworkManager(self.client(**(client or {})), **options)

    def async_manager(self, client: dict[str, Any] | None = None, **options: Any) -> AsyncNetworkManager:
        """Return an asyncio manager; ``client``: settings of its client."""
        return AsyncNetworkManager(self.async_client(**(client or {})), **options)


Announce = Callable[[NamespaceIdentity], object]


class FakeNamespaces(Namespaces):
    """Namespaces in memory; ``broken``: the methods that fail."""

    def __init__(self, *broken: str, directory: str | Path = "/run/netns") -> None:
        super().__init__(directory)
        self.done: list[str] = []
        self.there: dict[str, NamespaceIdentity] = {}
        self.broken = broken

    def _do(self, method: str, name: str) -> None:
        if method in self.broken:
            raise NamespaceError(f"{method} {name}: broken", name=name)
        self.done.append(f"{method} {name}")

    def create(self, name: str, announce: Announce = lambda _: None) -> str:
        """Note a namespace."""
        path, identity = self.path(name), (0, len(self.done) + 1, 0)
        announce(identity)
        self._do("create", name)
        self.there[name] = identity
        return path

    def remove(self, name: str) -> bool:
        """Forget a namespace."""
        self._do("remove", name)
        return self.there.pop(name, None) is not None

    def identity(self, name: str) -> NamespaceIdentity | None:
        """Return what was noted."""
        return self.there.get(name)


def fails(verb: str, code: int = 100, msg: str = "no", *, when: str = "true") -> str:
    """Return a script that fails a verb while the shell command ``when`` succeeds."""
    printed = json.dumps({"cniVersion": "1.0.0", "code": code, "msg": msg})
    return f"if [ $CNI_COMMAND = {verb} ] && {when}; then echo '{printed}'; exit 1; fi"


def removed(report: Report) -> list[str]:
    """Return the paths of the namespaces that were removed."""
    return [one.path for one in report.of("namespace-removed")]


class Killed(BaseException):
    """Ends a set-up as a kill does: nothing is undone."""


class AfterAdd(Observer):
    """Calls a function with each ADD that has ended."""

    def __init__(self, function: Callable[[Operation], object]) -> None:
        self.function = function

    def end(self, operation: Operation, error: BaseException | None) -> None:
        if operation.verb == "ADD" and error is None:
            self.function(operation)


Make = Callable[..., Any]


def names(place_manager: object) -> list[str]:
    return [net.name for net in place_manager.networks]  # type: ignore[attr-defined]
