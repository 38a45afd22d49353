"""Many verbs at once hold one descriptor of the lock file each."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from nodes import FakeNode
from processes import until

from libcni import RuntimeConf
from libcni.store import locks

VERBS = 20


def opened(path: Path) -> int:
    """Count the descriptors of this process that lead to a file."""
    with os.scandir("/proc/self/fd") as entries:
        names = [entry.path for entry in entries]
    return sum(os.path.exists(name) and os.path.samefile(name, path) for name in names)


def test_a_plugins_descriptor_is_closed_once_the_plugin_has_it(node: FakeNode) -> None:
    node.plugin("slow", f"while [ ! -e {node.root}/go ]; do sleep 0.05; done")
    net, cni = node.network("slow"), node.async_client()

    async def add_all() -> None:
        names = [f"c{index}" for index in range(VERBS)]
        adding = [asyncio.create_task(cni.add_network_list(net, RuntimeConf(name, None, "eth0"))) for name in names]
        await until(lambda: len(node.verbs()) == VERBS, *adding)
        # A plugin can write its log before this process hears of its start.
        await until(lambda: opened(node.cache / "locks.plugins") == 0, *adding)
        assert opened(node.cache / "locks") == VERBS
        for name in names:
            probe = locks.LockSet(str(node.cache), locks.LockRequest((), name))
            assert probe.has_running_plugin(), "the plugin process holds its in-flight byte"
            probe.close()
        (node.root / "go").touch()
        await asyncio.gather(*adding)

    asyncio.run(add_all())
    assert opened(node.cache / "locks") == 0
