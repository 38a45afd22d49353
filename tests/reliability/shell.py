"""Plugins in a few lines of shell, and what was called of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from libcni import CNIConfig, NetworkConfigList, RuntimeConf

RESULT = """{"cniVersion": "1.0.0", "ips": [{"address": "10.1.0.5/16"}]}"""


@dataclass(frozen=True)
class Shell:
    """Be a directory with shell plugins, a log of their calls, and a cache directory."""

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

    def plugin(self, name: str, body: str = "", *, result: str = RESULT) -> Path:
        """Make a plugin that notes its call, runs ``body``, and answers an ADD with ``result``."""
        self.bin.mkdir(parents=True, exist_ok=True)
        path = self.bin / name
        note = f'echo "$CNI_COMMAND {name} $CNI_CONTAINERID" >> {self.root}/log; cat > {self.root}/{name}.stdin'
        answer = f"[ $CNI_COMMAND != ADD ] || cat <<'END'\n{result}\nEND\n"
        path.write_text(f"#!/bin/sh\n{note}\n{body}\n{answer}")
        path.chmod(0o755)
        return path

    def calls(self) -> list[str]:
        """Return ``<verb> <plugin>`` of each call so far, oldest first."""
        log = self.root / "log"
        return [line.rsplit(" ", 1)[0] for line in log.read_text().splitlines()] if log.exists() else []

    def stdin(self, name: str) -> str:
        """Return what a plugin was given last."""
        return (self.root / f"{name}.stdin").read_text()

    def network(self, *types: str, name: str = "net", version: str = "1.0.0", **more: Any) -> NetworkConfigList:
        plugins = [{"type": kind} for kind in types]
        return NetworkConfigList.from_dict({"cniVersion": version, "name": name, "plugins": plugins, **more})

    def client(self, **options: Any) -> CNIConfig:
        return CNIConfig([str(self.bin)], self.cache, **{"durable": False, **options})

    def states(self) -> list[str]:
        return [attachment.state for attachment in self.client().get_cached_attachments()]


RT = RuntimeConf("c1", None, "eth0")
