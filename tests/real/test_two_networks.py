"""A container on two networks, a bridge and a macvlan: each attachment's signs of life, with real plugins."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from kernel.test_life import _SOCKET, Start, by_handle, lose_path, start
from nodes import Namespace, RealNode

from libcni import RuntimeConf
from libcni.diagnosis import repair_node
from libcni.kernel.life import Life
from libcni.store.life_of_record import subject_of
from libcni.testing import wait_until

__all__ = ["by_handle", "start"]

pytestmark = pytest.mark.real
_SUBNETS = {"eth0": f"10.{70 + os.getpid() % 9}.{os.getpid() // 9 % 200}.0/24", "eth1": "10.69.77.0/24"}


@pytest.fixture
def signs(real_node: RealNode, container: Namespace) -> Callable[[], dict[str, tuple[str, str]]]:
    """Attach a container to a bridge as eth0 and to a macvlan as eth1; return what asks for their signs of life."""
    node = real_node
    subprocess.run(["ip", "link", "add", "card0", "type", "veth", "peer", "name", "switch0"], check=True)
    ipam = node.bridge(_SUBNETS["eth1"])["ipam"]
    node.configure("net", node.bridge(_SUBNETS["eth0"]))
    node.configure("mac", {"type": "macvlan", "master": "card0", "ipam": ipam})
    for network, ifname in (("net", "eth0"), ("mac", "eth1")):
        node.cni.add_network_list(network, RuntimeConf("c1", container.path, ifname))

    def ask(**options: Any) -> dict[str, tuple[str, str]]:
        life = Life(old_after=0.0, **options)
        subjects = {one.ifname: subject_of(one.record) for one in node.cni.get_cached_attachments()}
        return {ifname: life.of(subject)[:2] for ifname, subject in subjects.items()}

    return ask


Signs = Callable[..., dict[str, tuple[str, str]]]


def test_each_sign_counts_for_both(signs: Signs, container: Namespace, start: Start, by_handle: bool) -> None:
    assert signs(by_handle=by_handle) == {"eth0": ("alive", "path"), "eth1": ("alive", "path")}
    process = start("nsenter", f"--net={container.path}", "sh", "-c", "echo ready; exec sleep 1000")
    lose_path(container)
    sign = "kernel" if by_handle else "thread"
    assert signs(by_handle=by_handle) == {"eth0": ("alive", sign), "eth1": ("alive", sign)}
    process.kill()
    process.wait()
    wait_until(lambda: {verdict for verdict, _ in signs(by_handle=by_handle).values()} == {"dead"})


def test_the_host_end_of_one_keeps_the_other_from_being_called_dead(
    signs: Signs, container: Namespace, start: Start, by_handle: bool
) -> None:
    """A macvlan has no host end. No walk sees a namespace that only a socket keeps; the veth leads there."""
    start(sys.executable, "-c", _SOCKET, container.path)
    lose_path(container)
    expected = (
        {"eth0": ("alive", "kernel"), "eth1": ("alive", "kernel")}
        if by_handle
        else {"eth0": ("alive", "host end"), "eth1": ("unknown", "port")}
    )
    wait_until(lambda: signs(by_handle=by_handle) == expected)


def test_the_end_of_one_is_not_the_end_of_the_other(
    signs: Signs, real_node: RealNode, container: Namespace, start: Start
) -> None:
    """Somebody deletes the veth of a living container: its address is free, and that of the macvlan is not."""
    start("nsenter", f"--net={container.path}", "sh", "-c", "echo ready; exec sleep 1000")
    container.run("ip", "link", "delete", "eth0")
    assert [one.state for one in real_node.cni.get_cached_attachments()] == ["ready", "lost"]
    assert not repair_node(real_node.cni, pending_after=0.0).stopped
    addresses = {text.split()[1]: address for address, text in real_node.leased().items()}
    assert container.addresses("eth1") == [f"{addresses['eth1']}/24"]
    real_node.cni.del_network_list("net", RuntimeConf("c1", None, "eth0"))
    assert list(real_node.leased()) == [addresses["eth1"]]
    assert signs() == {"eth1": ("alive", "path")}
    real_node.cni.check_network_list("mac", RuntimeConf("c1", None, "eth1"))
