"""Rows of field.md with the real plugins."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from libcni import AttachmentExistsError, CNIConfig, NetworkConfigList, PluginError, RuntimeConf
from libcni.testing import NetworkNamespace, network_namespace
from reliability.shell import Shell

PLUGINS = "/usr/lib/cni"
BRIDGES = {name: f"lc{name[0]}{os.getpid()}" for name in ("first", "second")}  # other checkouts may be tested, too

pytestmark = [
    pytest.mark.real,
    pytest.mark.xdist_group("real"),
]


@pytest.fixture
def namespace() -> Iterator[NetworkNamespace]:
    with network_namespace() as made:
        yield made
    for bridge in BRIDGES.values():
        subprocess.run(["ip", "link", "delete", bridge], capture_output=True, check=False)


def network(shell: Shell, name: str, *more: str) -> NetworkConfigList:
    subnet = f"10.{199 + list(BRIDGES).index(name)}.0.0/24"
    ipam = {"type": "host-local", "subnet": subnet, "dataDir": str(shell.root / "ipam")}
    plugins = [{"type": "bridge", "bridge": BRIDGES[name], "ipam": ipam}, *({"type": kind} for kind in more)]
    return NetworkConfigList.from_dict({"cniVersion": "1.0.0", "name": name, "plugins": plugins})


def test_field_45_what_rolling_back_a_second_network_on_one_interface_would_delete(
    shell: Shell, namespace: NetworkNamespace
) -> None:
    """The bridge plugin's DEL deletes by the interface's name, whoever made it."""
    shell.plugin("breaks", "[ $CNI_COMMAND = ADD ] && exit 1")
    cni = CNIConfig([PLUGINS, str(shell.bin)], shell.cache, durable=False)
    rt = RuntimeConf("libcni-real", namespace.path, "eth0")
    first, second = network(shell, "first"), network(shell, "second", "breaks")
    address = cni.add_network_list(first, rt).ips[0].address
    with pytest.raises(AttachmentExistsError):
        cni.add_network_list(second, rt)
    assert shell.calls() == [], "nothing was run"
    assert address in namespace.interfaces()["eth0"]
    cni.check_network_list(first, rt)

    with pytest.raises(PluginError):
        cni.add_network_list(second, rt, on_existing="allow")
    assert address in namespace.interfaces()["eth0"], "the roll-back leaves an interface that was there before"
    cni.check_network_list(first, rt)
    cni.del_network_list(first, rt)


def test_field_03_no_address_is_lost_to_a_chain_that_fails(shell: Shell, namespace: NetworkNamespace) -> None:
    shell.plugin("breaks", "[ $CNI_COMMAND = ADD ] && exit 1")
    cni = CNIConfig([PLUGINS, str(shell.bin)], shell.cache, durable=False)
    rt = RuntimeConf("libcni-real", namespace.path, "eth0")
    for _ in range(3):
        with pytest.raises(PluginError):
            cni.add_network_list(network(shell, "first", "breaks"), rt)
    held = [path.name for path in (shell.root / "ipam" / "first").iterdir() if path.name[0].isdigit()]
    assert held == []
    assert "eth0" not in namespace.interfaces()
    assert cni.get_cached_attachments() == []
