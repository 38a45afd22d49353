"""Rows of field.md with the real plugins."""

from __future__ import annotations

import pytest
from nodes import Namespace, RealNode

from libcni import AttachmentExistsError, NetworkConfigList, PluginError, RuntimeConf

pytestmark = pytest.mark.real


def chain(node: RealNode, name: str, *more: str) -> NetworkConfigList:
    subnet = {"first": "10.199.0.0/24", "second": "10.200.0.0/24"}[name]
    return node.network(node.bridge(subnet, bridge=f"br-{name}"), *more, name=name)


def test_field_45_what_rolling_back_a_second_network_on_one_interface_would_delete(
    real_node: RealNode, container: Namespace
) -> None:
    """The bridge plugin's DEL deletes by the interface's name, whoever made it."""
    real_node.plugin("breaks", "[ $CNI_COMMAND = ADD ] && exit 1")
    cni = real_node.cni
    rt = RuntimeConf("libcni-real", container.path, "eth0")
    first, second = chain(real_node, "first"), chain(real_node, "second", "breaks")
    address = cni.add_network_list(first, rt).ips[0].address
    with pytest.raises(AttachmentExistsError):
        cni.add_network_list(second, rt)
    assert real_node.verbs() == [], "nothing was run"
    assert address in container.interfaces()["eth0"]
    cni.check_network_list(first, rt)

    with pytest.raises(PluginError):
        cni.add_network_list(second, rt, on_existing="allow")
    assert address in container.interfaces()["eth0"], "the roll-back leaves an interface that was there before"
    cni.check_network_list(first, rt)
    cni.del_network_list(first, rt)
