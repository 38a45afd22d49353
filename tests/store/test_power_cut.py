"""A power cut while a plugin runs: the disk as it is at that moment must have the record. With a real file system."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from libcni import CNIConfig, NetworkConfigList, RuntimeConf

NEEDED = ("mkfs.ext4", "mount", "losetup")
RT = RuntimeConf("c1", None, "eth0")
PLUGIN = """#!/bin/sh
if [ "$CNI_COMMAND" = ADD ]; then
    : > "{root}/runs"
    while [ ! -e "{root}/go" ]; do sleep 0.02; done
    echo '{{"cniVersion": "1.0.0"}}'
fi
"""


@pytest.fixture(autouse=True)
def loop_devices() -> None:
    """Skip without root and loop devices, and say so; in CI that is a failure."""
    if os.geteuid() == 0 and all(map(shutil.which, NEEDED)) and os.path.exists("/dev/loop-control"):
        return
    reason = f"needs root, loop devices and {', '.join(NEEDED)}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@contextmanager
def mounted(image: Path, directory: Path) -> Iterator[Path]:
    """Mount an image; its journal is written when something is synced, not by the clock."""
    directory.mkdir()
    subprocess.run(["mount", "-o", "loop,commit=300", image, directory], check=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", directory], check=True)


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} does not appear"
        time.sleep(0.01)


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("cache", ["cni", "a/b/cni"])
def test_the_record_is_on_the_disk_while_the_plugin_runs(tmp_path: Path, cache: str, durable: bool) -> None:
    image, copy = tmp_path / "image", tmp_path / "copy"
    with image.open("wb") as file:
        file.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    plugin = tmp_path / "slow"
    plugin.write_text(PLUGIN.format(root=tmp_path))
    plugin.chmod(0o755)
    net = NetworkConfigList.from_dict({"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "slow"}]})
    with mounted(image, tmp_path / "disk") as disk:
        cni = CNIConfig([str(tmp_path)], disk / cache, durable=durable)
        adding = threading.Thread(target=cni.add_network_list, args=(net, RT))
        adding.start()
        try:
            wait_for(tmp_path / "runs")
            shutil.copyfile(image, copy)  # what the disk has at this moment, and no cache of the kernel's
        finally:
            (tmp_path / "go").touch()
            adding.join()
    with mounted(copy, tmp_path / "after") as disk:
        after = CNIConfig([str(tmp_path)], disk / cache)
        found = [(one.container_id, one.ifname, one.state) for one in after.get_cached_attachments()]
        # without the syncs nothing is there: so the test would notice if they were missing
        assert found == ([("c1", "eth0", "pending")] if durable else [])
        assert (disk / cache).exists() is durable
        if durable:
            assert [one.container_id for one in after.gc_network_list(net, []).detached] == ["c1"]
            assert list(after.get_cached_attachments()) == []
