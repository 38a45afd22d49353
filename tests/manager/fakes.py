"""Networks on plugins of a few lines of shell, and a place that has all that a manager needs."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from libcni import AsyncCNIConfig, CNIConfig
from libcni.manager import AsyncNetworkManager, Event, NetworkManager

RESULT = {
    "cniVersion": "1.0.0",
    "interfaces": [{"name": "IFNAME", "mac": "02:00:00:00:00:01", "sandbox": "NETNS"}],
    "ips": [{"address": "10.1.0.5/24", "gateway": "10.1.0.1", "interface": 0}],
}

_PLUGIN = """#!/bin/sh
stdin=$(cat)
echo "$CNI_COMMAND $(basename "$0") $CNI_CONTAINERID $CNI_IFNAME" >> {log}
printf '%s\\n' "$stdin" > {log}.stdin.$CNI_COMMAND.$(basename "$0").$CNI_IFNAME
printf '%s\\n' "$CNI_ARGS" > {log}.args.$CNI_COMMAND.$(basename "$0").$CNI_IFNAME
printf '%s\\n' "$CNI_NETNS" > {log}.netns.$CNI_COMMAND.$(basename "$0").$CNI_IFNAME
{script}
case "$CNI_COMMAND" in
VERSION) echo '{{"cniVersion":"1.1.0","supportedVersions":["0.3.1","0.4.0","1.0.0","1.1.0"]}}' ;;
ADD) printf '%s' {result} | sed "s/IFNAME/$CNI_IFNAME/; s|NETNS|$CNI_NETNS|" ;;
esac
"""


@dataclass
class Place:
    """Directories of one test: configurations, plugins, records."""

    root: Path
    conf: Path = field(init=False)
    bin: Path = field(init=False)
    cache: Path = field(init=False)
    log: Path = field(init=False)
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.conf, self.bin, self.cache = self.root / "net.d", self.root / "bin", self.root / "cache"
        self.log = self.root / "calls"
        self.conf.mkdir(parents=True)
        self.bin.mkdir()

    def plugin(self, name: str, script: str = "", result: dict[str, Any] | None = None) -> Path:
        """Write a plugin that logs its calls, runs ``script``, and answers ADD with ``result``."""
        path = self.bin / name
        printed = "'" + json.dumps(result or RESULT) + "'"
        new = path.with_suffix(".new")
        new.write_text(_PLUGIN.format(log=self.log, script=script, result=printed))
        new.chmod(0o755)
        new.rename(path)
        return path

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

    def manager(self, **options: Any) -> NetworkManager:
        """Return a manager for this place; its events are kept in ``events``."""
        return NetworkManager(self.client(), observer=self.events.append, **options)

    def async_manager(self, **options: Any) -> AsyncNetworkManager:
        """Return an asyncio manager for this place."""
        cni = AsyncCNIConfig([str(self.bin)], self.cache, conf_dir=self.conf, durable=False)
        return AsyncNetworkManager(cni, observer=self.events.append, **options)

    def calls(self, *verbs: str) -> list[str]:
        """Return the calls so far, ``VERB plugin container ifname``; of these verbs, without VERSION by default."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line.strip() for line in lines if (line.split()[0] in verbs if verbs else line[:7] != "VERSION")]

    def stdin(self, verb: str, plugin: str, ifname: str = "") -> Any:
        """Return what the last such call got on stdin."""
        return json.loads(Path(f"{self.log}.stdin.{verb}.{plugin}.{ifname}").read_text())

    def variable(self, name: str, verb: str, plugin: str, ifname: str = "") -> str:
        """Return CNI_ARGS ("args") or CNI_NETNS ("netns") of the last such call."""
        return Path(f"{self.log}.{name}.{verb}.{plugin}.{ifname}").read_text().strip()

    def kinds(self, *, without: str = "") -> list[str]:
        """Return the kinds of the events so far."""
        return [event.kind for event in self.events if event.kind != without]


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
