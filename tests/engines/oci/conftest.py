"""A node for the hook: fake plugins, a network, and processes that have network namespaces of their own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from engines.engine_node import EngineNode
from libcni.engines.oci.pins import OWNER, Pins, directory_for, namespace_of
from libcni.testing import FakePlugin, wait_until, why_no_namespaces


class HookNode(EngineNode):
    """A node with the command that runs the hook."""

    program = "oci-hook"

    def __init__(self, root: Path) -> None:
        super().__init__(root, OWNER)
        # Not below the test's directory: pytest could not remove that if a killed test left a mount in it.
        self.pins = Pins(directory_for(str(self.cache)))
        self.bundle = root / "bundle"
        self.bundle.mkdir()

    def configure_capable(self, name: str, *plugins: str, **keys: Any) -> list[FakePlugin]:
        """Write a network's configuration, with plugins that take all capabilities; return the plugins."""
        taken = dict.fromkeys(("portMappings", "ips", "mac", "bandwidth", "aliases"), True)
        chain = [{"type": plugin, "capabilities": taken} for plugin in plugins]
        made = [self.fakes.scenario(plugin, {}) for plugin in plugins]
        self.configure(name, *chain, **{"cniVersion": "1.1.0", **keys})
        return made

    def state(self, status: str, pid: int | None = None, container_id: str = "c1", **annotations: str) -> str:
        prefixed = {f"libcni.{key}": value for key, value in annotations.items()}
        document = {"ociVersion": "1.0.2", "id": container_id, "status": status, "bundle": str(self.bundle)}
        return json.dumps({**document, **({} if pid is None else {"pid": pid}), "annotations": prefixed})

    def run(self, state: str, *words: str) -> str:
        """Run the hook like a runtime, and return its stderr."""
        code, _, printed = self.run_program(state, *words)
        assert code == (1 if printed else 0)
        return printed

    def attach(self, pid: int | None, *words: str, container_id: str = "c1", **annotations: str) -> str:
        """Attach a container; return what the hook printed on stderr, "" if all went well."""
        return self.run(self.state("creating", pid, container_id, **annotations), *words)

    def detach(self, *words: str, container_id: str = "c1") -> str:
        return self.run(self.state("stopped", None, container_id), *words)

    @property
    def attached(self) -> list[tuple[str, str, str, str]]:
        found = self.cni.get_cached_attachments()
        return sorted((one.container_id, one.network, one.ifname, one.state) for one in found)

    @property
    def pinned(self) -> list[tuple[str, int]]:
        return [(pin.container_id, pin.pid) for pin in self.pins.all()]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[HookNode]:
    node = HookNode(tmp_path)
    yield node
    for pin in node.pins.all():
        node.pins.remove(pin)
    with suppress(FileNotFoundError):
        os.rmdir(node.pins.directory)


@pytest.fixture
def process() -> Iterator[Callable[[], int]]:
    """Return a function that starts a process in a network namespace of its own, as a container's first process."""
    reason = why_no_namespaces()
    if reason is not None:
        pytest.skip(reason)
    with ExitStack() as stack:
        yield lambda: start(stack)


def start(stack: ExitStack) -> int:
    child = stack.enter_context(subprocess.Popen(["unshare", "--net", "sleep", "600"]))
    stack.callback(child.kill)
    wait_until(lambda: namespace_of(child.pid) not in {None, namespace_of(os.getpid())})
    return child.pid


def end(pid: int) -> None:
    """Kill a process and wait until it ends."""
    os.kill(pid, 9)
    os.waitpid(pid, 0)
