"""The links, addresses and routes of a namespace, read from the kernel."""

from __future__ import annotations

import errno
import socket
import struct
from pathlib import Path

import pytest
from nodes import Namespace

from libcni.kernel import netlink
from libcni.kernel.netlink import IPRoute, read_network


def test_a_file_that_is_no_namespace_is_not_entered(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="it is no network namespace") as caught:
        read_network(str(tmp_path / "file"))
    assert caught.value.filename == str(tmp_path / "file")


def test_an_error_of_the_kernel_ends_a_list() -> None:
    ours, kernel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, kernel:
        ours.settimeout(5)
        kernel.send(struct.pack("=LHHLLi", 20, 2, 0, 1, 0, -errno.EPERM))
        with pytest.raises(PermissionError):
            list(netlink.read_links(ours))


@pytest.mark.real
def test_what_ip_has_set_is_read(container: Namespace) -> None:
    for command in (
        "ip link add br0 address 02:00:00:00:00:07 type bridge",
        "ip link add eth0 type veth peer name end",
        "ip link set eth0 master br0",
        "ip link set br0 up",
        "ip address add 10.9.0.2/24 dev br0",
        "ip address add fd09::2/64 dev br0 nodad",
        "ip route add default via 10.9.0.1",
        "ip route add 10.10.0.0/16 dev br0",
        "ip -6 route add fd0a::/32 via fd09::1",
    ):
        container.run(*command.split())
    found = read_network(container.path)
    bridge, end = found.links["br0"], found.links["eth0"]
    assert (bridge.is_up, bridge.mac, end.is_up, end.master) == (True, "02:00:00:00:00:07", False, bridge.index)
    assert {"10.9.0.2/24", "fd09::2/64"} <= set(bridge.addresses)
    assert bridge.has_address("10.9.0.2")
    assert not bridge.has_address("10.9.0.20")
    assert {
        IPRoute("0.0.0.0/0", "10.9.0.1", bridge.index),
        IPRoute("10.10.0.0/16", "", bridge.index),
        IPRoute("10.9.0.0/24", "", bridge.index),
        IPRoute("fd0a::/32", "fd09::1", bridge.index, metric=1024),
    } <= set(found.routes)
