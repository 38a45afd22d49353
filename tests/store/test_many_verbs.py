"""Many verbs at once hold few descriptors of the lock file."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from libcni import AsyncCNIConfig, NetworkConfigList, RuntimeConf
from libcni.store import locks

NET = NetworkConfigList.from_dict({"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "slow"}]})
PLUGIN = """#!/bin/sh
: > "{root}/$CNI_CONTAINERID"
while [ ! -e "{root}/go" ]; do sleep 0.05; done
echo '{{"cniVersion": "1.0.0"}}'
"""
VERBS = 20


def opened(path: Path) -> int:
    """Count the descriptors of this process that lead to a file."""
    with os.scandir("/proc/self/fd") as entries:
        names = [entry.path for entry in entries]
    return sum(os.path.exists(name) and os.path.samefile(name, path) for name in names)


@pytest.mark.parametrize(("few", "expected"), [(0, 1), (100, 1 + VERBS)])
def test_a_plugins_descriptor_is_closed_once_the_plugin_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int, expected: int
) -> None:
    monkeypatch.setattr(locks, "_FEW_VERBS", few)
    plugin = tmp_path / "slow"
    plugin.write_text(PLUGIN.format(root=tmp_path))
    plugin.chmod(0o755)
    cache = tmp_path / "cache"
    cni = AsyncCNIConfig([tmp_path], cache, durable=False)

    async def add_all() -> None:
        names = [f"c{index}" for index in range(VERBS)]
        adding = [asyncio.create_task(cni.add_network_list(NET, RuntimeConf(name, None, "eth0"))) for name in names]
        while not all((tmp_path / name).exists() for name in names):  # noqa: ASYNC110 - it happens in other processes
            await asyncio.sleep(0.01)
        assert opened(cache / "locks") == expected
        for name in names:
            probe = locks.LockSet(str(cache), locks.LockRequest())
            assert probe.has_running_plugin(container_id=name), "the plugin process holds its in-flight byte"
            probe.close()
        (tmp_path / "go").touch()
        await asyncio.gather(*adding)

    asyncio.run(add_all())
    assert opened(cache / "locks") == 0
