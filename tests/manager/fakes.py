"""Networks on plugins of a few lines of shell, and a place that has all that a manager needs."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from libcni import AsyncCNIConfig, CNIConfig
from libcni.config.versions import ALL_VERSIONS
from libcni.manager import AsyncNetworkManager, Event, NamespaceError, NamespaceIdentity, NetworkManager
from libcni.testing import FakeCall, FakePlugins

RESULT = {
    "cniVersion": "1.0.0",
    "interfaces": [{"name": "$CNI_IFNAME", "mac": "02:00:00:00:00:01", "sandbox": "$CNI_NETNS"}],
    "ips": [{"address": "10.1.0.5/24", "gateway": "10.1.0.1", "interface": 0}],
}


@dataclass
class Place:
    """Directories of one test: configurations, plugins, records."""

    root: Path
    conf: Path = field(init=False)
    bin: Path = field(init=False)
    cache: Path = field(init=False)
    log: Path = field(init=False)
    fakes: FakePlugins = field(init=False)
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.conf, self.bin, self.cache = self.root / "net.d", self.root / "bin", self.root / "cache"
        self.log = self.bin / ".calls"
        self.fakes = FakePlugins(self.bin)
        self.conf.mkdir(parents=True)
        self.bin.mkdir()

    def plugin(self, name: str, script: str = "", result: dict[str, Any] | None = None) -> Path:
        """Write a plugin that runs ``script`` and answers ADD with ``result``."""
        return self.fakes.shell(name, script, result=result or RESULT, versions=ALL_VERSIONS[3:]).path

    def network(self, name: str, *plugins: str, file: str | None = None, version: str = "1.0.0", **more: Any) -> Path:
        """Write a network's file, and its plugins where they are not there; one is named after the network."""
        plugins = plugins or (name,)
        for plugin in plugins:
            if not (self.bin / plugin).exists():
                self.plugin(plugin)
        path = self.conf / (file or f"{name}.conflist")
        path.write_text(network_json(name, *plugins, version=version, **more))
        return path

    def client(self, **options: Any) -> CNIConfig:
        """Return a client for this place."""
        return CNIConfig([str(self.bin)], self.cache, conf_dir=self.conf, durable=False, **options)

    def manager(self, client: dict[str, Any] | None = None, **options: Any) -> NetworkManager:
        """Return a manager for this place; its events are kept in ``events``. ``client``: settings of its client."""
        return NetworkManager(self.client(**(client or {})), observer=self.events.append, **options)

    def async_manager(self, client: dict[str, Any] | None = None, **options: Any) -> AsyncNetworkManager:
        """Return an asyncio manager for this place; ``client``: settings of its client."""
        cni = AsyncCNIConfig([str(self.bin)], self.cache, conf_dir=self.conf, durable=False, **(client or {}))
        return AsyncNetworkManager(cni, observer=self.events.append, **options)

    def calls(self, *verbs: str) -> list[str]:
        """Return the calls so far, ``VERB plugin container ifname``; of these verbs, without VERSION by default."""
        wanted = verbs or ("ADD", "DEL", "CHECK", "GC", "STATUS")
        found = [call for call in self.fakes.calls if call.verb in wanted]
        return [
            f"{one.verb} {one.plugin} {one.env['CNI_CONTAINERID']} {one.env['CNI_IFNAME']}".strip() for one in found
        ]

    def stdin(self, verb: str, plugin: str, ifname: str = "") -> Any:
        """Return what the last such call got on stdin."""
        return self._last(verb, plugin, ifname).config

    def variable(self, name: str, verb: str, plugin: str, ifname: str = "") -> str:
        """Return CNI_ARGS ("args") or CNI_NETNS ("netns") of the last such call."""
        return self._last(verb, plugin, ifname).env[f"CNI_{name.upper()}"]

    def _last(self, *wanted: str) -> FakeCall:
        calls = self.fakes.calls
        return [call for call in calls if (call.verb, call.plugin, call.env["CNI_IFNAME"]) == wanted][-1]

    def kinds(self, *, without: str = "") -> list[str]:
        """Return the kinds of the events so far."""
        return [event.kind for event in self.events if event.kind != without]


class Blocking:
    """An AsyncNetworkManager whose coroutines run to their end when they are called: one test serves both managers."""

    def __init__(self, manager: AsyncNetworkManager) -> None:
        self._manager = manager

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._manager, name)
        if not inspect.iscoroutinefunction(found):
            return found
        return lambda *args, **options: asyncio.run(found(*args, **options))


class FakeTool:
    """A NamespaceTool that keeps namespaces in memory; ``broken``: the methods that fail."""

    def __init__(self, *broken: str) -> None:
        self.done: list[str] = []
        self.there: dict[str, NamespaceIdentity] = {}
        self.broken = broken

    def _do(self, method: str, name: str) -> None:
        if method in self.broken:
            raise NamespaceError(f"{method} {name}: broken", name=name)
        self.done.append(f"{method} {name}")

    def create(self, name: str) -> None:
        """Note a namespace."""
        self._do("create", name)
        self.there[name] = (0, len(self.done), 0)

    def pin(self, name: str, pid: int) -> None:
        """Note the call."""
        self._do(f"pin {pid}", name)

    def remove(self, name: str) -> None:
        """Forget a namespace."""
        self._do("remove", name)
        self.there.pop(name)

    def lo_up(self, name: str) -> None:
        """Note the call."""
        self._do("lo_up", name)

    def identity(self, name: str) -> NamespaceIdentity | None:
        """Return what was noted."""
        return self.there.get(name)


def network_json(name: str, *plugins: str, version: str = "1.0.0", **more: Any) -> str:
    """Return a network's document; ``more``: keys of its first plugin."""
    rows: list[dict[str, Any]] = [{"type": plugin} for plugin in plugins]
    rows[0].update(more)
    return json.dumps({"cniVersion": version, "name": name, "plugins": rows})


def fails(verb: str, code: int = 100, msg: str = "no", *, when: str = "true") -> str:
    """Return a script that fails a verb while the shell command ``when`` succeeds."""
    printed = json.dumps({"cniVersion": "1.0.0", "code": code, "msg": msg})
    return f"if [ $CNI_COMMAND = {verb} ] && {when}; then echo '{printed}'; exit 1; fi"


def words(text: str) -> list[str]:
    """Return the words of a text."""
    return re.findall(r"\w+", text)
