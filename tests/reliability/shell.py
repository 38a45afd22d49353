"""Shell plugins, their records, and a client for them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from libcni import CNIConfig, NetworkConfigList, RuntimeConf
from libcni.testing import FakePlugins

RESULT = """{"cniVersion": "1.0.0", "ips": [{"address": "10.1.0.5/16"}]}"""


@dataclass(frozen=True)
class Shell:
    """A directory with shell plugins and a cache directory."""

    root: Path

    @property
    def bin(self) -> Path:
        return self.root / "bin"

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    @property
    def results(self) -> Path:
        return self.cache / "results"

    @cached_property
    def fakes(self) -> FakePlugins:
        self.bin.mkdir(parents=True)
        return FakePlugins(self.bin)

    def plugin(self, name: str, body: str = "", *, result: str = RESULT) -> Path:
        """Make a plugin that runs ``body`` and answers an ADD with ``result``."""
        return self.fakes.shell(name, body, result=result).path

    def calls(self) -> list[str]:
        """Return ``<verb> <plugin>`` of each call so far, oldest first."""
        return [f"{verb} {plugin}" for verb, plugin in self.fakes.verbs]

    def stdin(self, name: str) -> str:
        """Return what a plugin was given last."""
        return [call.stdin.decode() for call in self.fakes.calls if call.plugin == name][-1]

    def network(self, *types: str, name: str = "net", version: str = "1.0.0", **more: Any) -> NetworkConfigList:
        plugins = [{"type": kind} for kind in types]
        return NetworkConfigList.from_dict({"cniVersion": version, "name": name, "plugins": plugins, **more})

    def client(self, **options: Any) -> CNIConfig:
        return CNIConfig([str(self.bin)], self.cache, **{"durable": False, **options})

    def states(self) -> list[str]:
        return [attachment.state for attachment in self.client().get_cached_attachments()]


RT = RuntimeConf("c1", None, "eth0")
