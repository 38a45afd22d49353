"""Plugins that the tests of this directory share."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import libcni
from libcni.config.versions import ALL_VERSIONS
from libcni.plugin import Plugin, Request
from libcni.testing import call_plugin

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).resolve().parent.parent.parent
LIBRARY = Path(libcni.__file__).parent.parent  # the checkout, or where the wheel is installed
PAGE = (ROOT / "docs/how-to/plugin.md").read_text(encoding="utf-8")
TITLED: dict[str, str] = dict(re.findall(r'```python title="([^"]+)"\n(.*?)```', PAGE, re.DOTALL))
VERBS = ("ADD", "DEL", "CHECK", "GC", "STATUS")


def nothing(request: Request) -> None:
    """Do nothing, which is a right answer to every verb."""


class Recorder:
    """A plugin that keeps the requests it got, and answers each verb with ``functions``."""

    def __init__(self, versions: Sequence[str] = ALL_VERSIONS, **functions: Callable[[Request], Any]) -> None:
        self.requests: list[Request] = []
        self.plugin = Plugin("recorder", versions=versions, about="keep what it got")
        for name in ("add", "delete", "check", "gc", "status"):
            getattr(self.plugin, name)(self._keeping(functions.get(name, nothing)))

    def _keeping(self, function: Callable[[Request], Any]) -> Callable[[Request], Any]:
        def keep(request: Request) -> Any:
            self.requests.append(request)
            return function(request)

        return keep


def config(version: str | None = "1.1.0", **more: Any) -> dict[str, Any]:
    """Return a configuration as a runtime derives it."""
    document: dict[str, Any] = {"name": "net", "type": "recorder", **more}
    return document if version is None else {"cniVersion": version, **document}


def write_plugin(directory: Path, name: str, body: str) -> Path:
    """Write an executable plugin; ``body`` goes between ``plugin = Plugin(name)`` and ``plugin.run()``."""
    path = directory / name
    path.write_text(
        f"#!{sys.executable} -IS\n"
        f"import os, subprocess, sys\nsys.path.insert(0, {str(LIBRARY)!r})\n"
        "from libcni.plugin import ErrorCode, Plugin, VerbError\n"
        f"plugin = Plugin({name!r})\n{body}\nplugin.run()\n",
        encoding="utf-8",
    )
    path.chmod(0o755)
    return path


def source_of(module: str) -> str:
    """Return the text of ``<module>.py`` in ``examples/``."""
    return (ROOT / f"examples/{module}.py").read_text(encoding="utf-8")


def example(module: str) -> Plugin:
    """Return the plugin of ``source_of``, to be called in this process."""
    names: dict[str, Any] = {"__name__": module}
    exec(compile(source_of(module), f"{module}.py", "exec", dont_inherit=True), names)
    plugin = names["plugin"]
    assert isinstance(plugin, Plugin)
    return plugin


def write_example(directory: Path, name: str) -> Path:
    """Write an executable that is the plugin of ``source_of``, and its module."""
    path = directory / name
    places = [str(LIBRARY), str(directory)]
    path.with_suffix(".py").write_text(source_of(name), encoding="utf-8")
    path.write_text(
        f"#!{sys.executable} -IS\nimport sys\nsys.path[:0] = {places!r}\nfrom {name} import plugin\nplugin.run()\n",
        encoding="utf-8",
    )
    path.chmod(0o755)
    return path


def request(args: str = "", verb: str = "ADD", **more: Any) -> Request:
    recorder = Recorder()
    answer = call_plugin(recorder.plugin, verb, config(**more), args=args, path="/opt/cni/bin::/usr/lib/cni")
    assert answer.status == 0, answer
    return recorder.requests[0]
