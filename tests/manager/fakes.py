"""A node with managers, namespaces in memory, and plugins that fail."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nodes import FakeNode

from libcni.config.versions import ALL_VERSIONS
from libcni.kernel.namespace import is_empty_file
from libcni.manager import AsyncNetworkManager, NetworkManager, Report
from libcni.manager.namespaces import DatedNamespaceId
from libcni.observe import Observer, Operation

RESULT = {
    "cniVersion": "1.0.0",
    "interfaces": [{"name": "$CNI_IFNAME", "mac": "02:00:00:00:00:01", "sandbox": "$CNI_NETNS"}],
    "ips": [{"address": "192.0.2.5/24", "gateway": "192.0.2.1", "interface": 0}],
}


class ManagerNode(FakeNode):
    """A node with managers."""

    result = RESULT
    versions = ALL_VERSIONS[3:]

    def configure_each(self, *names: str) -> None:
        """Write networks, each of the one plugin that has its name."""
        for name in names:
            self.configure(name)

    def manager(self, client: dict[str, Any] | None = None, **options: Any) -> NetworkManager:
        """Return a manager; ``client``: settings of its client."""
        return NetworkManager(self.client(**(client or {})), **options)

    def async_manager(self, client: dict[str, Any] | None = None, **options: Any) -> AsyncNetworkManager:
        """Return an asyncio manager; ``client``: settings of its client."""
        return AsyncNetworkManager(self.async_client(**(client or {})), **options)


class FakeNamespaces(os.PathLike[str]):
    """The directory of namespaces that are in memory; ``broken``: whether they cannot be removed."""

    def __init__(self, directory: str | Path = "/run/netns") -> None:
        self.directory = str(directory)
        self.done: list[str] = []
        self.there: dict[str, DatedNamespaceId] = {}
        self.broken = False

    def __fspath__(self) -> str:
        return self.directory

    def make(self, path: str, announce: Callable[[str], object]) -> None:
        """Note a namespace."""
        name = os.path.basename(path)
        self.there["new"] = (0, len(self.done) + 1, 0)
        announce("new")
        self.done.append(f"create {name}")
        self.there[name] = self.there.pop("new")

    def unbind(self, path: str) -> bool:
        """Forget a namespace, and the file of its name."""
        if self.broken:
            raise OSError(errno.EBUSY, "broken")
        name = os.path.basename(path)
        is_file = is_empty_file(path)
        if is_file:
            os.unlink(path)
        if self.there.pop(name, None) is None and not is_file:
            return False
        self.done.append(f"remove {name}")
        return True

    def identity_of(self, path: str) -> DatedNamespaceId | None:
        """Return the identity of a noted namespace."""
        return self.there.get(os.path.basename(path))


def fails(verb: str, code: int = 100, msg: str = "no", *, when: str = "true") -> str:
    """Return a script that fails a verb while the shell command ``when`` succeeds."""
    printed = json.dumps({"cniVersion": "1.0.0", "code": code, "msg": msg})
    return f"if [ $CNI_COMMAND = {verb} ] && {when}; then echo '{printed}'; exit 1; fi"


def waits(verb: str, file: Path, *, when: str = "true") -> str:
    """Return a script in which a verb waits for a file, at most a minute, if the shell command ``when`` succeeds."""
    wait = f"for _ in $(seq 600); do [ -e {file} ] && break; sleep 0.1; done"
    return f"if [ $CNI_COMMAND = {verb} ] && {when}; then {wait}; fi"


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


def names(manager: NetworkManager) -> list[str]:
    return [net.name for net in manager.networks]
