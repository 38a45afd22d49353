"""The examples beside the real plugins, driven by this library's own runtime side."""

from __future__ import annotations

import json
import secrets
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from libcni import CNIConfig, NetworkConfigList, PluginError, RuntimeConf
from libcni.testing import NetworkNamespace
from plugin.plugins import write_example
from plugin.real_plugins import DIRECTORY, IFNAME

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("cni_namespaces")]

Namespaces = Callable[[], AbstractContextManager[NetworkNamespace]]


@pytest.fixture
def cni(tmp_path: Path) -> CNIConfig:
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    write_example(plugins, "counter")
    write_example(plugins, "hosts")
    return CNIConfig([str(plugins), str(DIRECTORY)], tmp_path / "cache")


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[dict[str, Any]]:
    link = f"cnit{secrets.token_hex(4)}"
    ipam = {"type": "counter", "dataDir": str(tmp_path / "pool")}
    yield {"type": "bridge", "bridge": link, "ipam": ipam}
    subprocess.run(["ip", "link", "delete", link], check=False, capture_output=True)


def network(*plugins: dict[str, Any]) -> NetworkConfigList:
    return NetworkConfigList.from_bytes(
        json.dumps({"cniVersion": "1.0.0", "name": "examples", "plugins": plugins}).encode()
    )


def numbers_in(tmp_path: Path) -> set[str]:
    return {path.name for path in (tmp_path / "pool" / "examples").iterdir()}


TUNING = {"type": "tuning", "sysctl": {"net.core.somaxconn": "500"}}


@pytest.mark.parametrize("behind", [False, True], ids=["in front of tuning", "behind tuning"])
def test_the_chained_example_works_among_real_plugins(
    cni: CNIConfig, bridge: dict[str, Any], cni_netns: NetworkNamespace, tmp_path: Path, *, behind: bool
) -> None:
    file = tmp_path / "hosts"
    hosts = {"type": "hosts", "file": str(file), "capabilities": {"aliases": True}}
    net = network(bridge, *([TUNING, hosts] if behind else [hosts, TUNING]))
    rt = RuntimeConf("c1", cni_netns.path, IFNAME, capability_args={"aliases": ["db"]})
    result = cni.add_network_list(net, rt)
    assert [interface.name for interface in result.interfaces][-1] == IFNAME
    assert numbers_in(tmp_path) == {"2"}
    assert cni_netns.interfaces()[IFNAME][0] == "10.77.0.2/24"
    assert file.read_text(encoding="utf-8") == f"10.77.0.2 db # examples c1 {IFNAME}\n"
    cni.check_network_list(net, rt)
    file.write_text("", encoding="utf-8")
    with pytest.raises(PluginError) as caught:
        cni.check_network_list(net, rt)
    assert (caught.value.plugin, caught.value.code) == ("hosts", 100)
    cni.del_network_list(net, rt)
    assert IFNAME not in cni_netns.interfaces()
    assert numbers_in(tmp_path) == set()
