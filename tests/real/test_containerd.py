"""A real node with containerd, its pods and the records of its Go libcni: a node in order is quiet."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from peers import peer_files

from libcni.testing import why_no_namespaces
from real.containerd_node import PODS, ContainerdNode, containerd_node

pytestmark = pytest.mark.slow

NEWEST = pytest.param("containerd@sid", marks=pytest.mark.may_skip)  # the packages of sid are not always whole


@pytest.fixture(scope="module", params=["containerd@bookworm", NEWEST])
def node(request: pytest.FixtureRequest) -> Iterator[ContainerdNode]:
    """Bring up a node with eight pods: containerd 1.6 of Debian 12, and the newest one."""
    pytest.importorskip("grpc", reason="scripts/need peers installs grpcio")
    if os.geteuid() != 0 or (reason := why_no_namespaces()) is not None:
        pytest.skip("needs root" if os.geteuid() else str(reason))
    if shutil.which("busybox") is None:
        pytest.skip("needs busybox: apt-get install busybox-static")
    with containerd_node(peer_files(request.param)) as made:
        yield made


def test_all_pods_talk(node: ContainerdNode) -> None:
    assert sorted(node.pods) == sorted(PODS)
    assert node.traffic() == {}


@pytest.mark.parametrize("options", [(), ("--check",)])
def test_a_node_in_order_has_no_finding(node: ContainerdNode, options: tuple[str, ...]) -> None:
    told = node.libcni("doctor", *options)
    assert "error" not in told
    assert "warning" not in told
    assert "To repair" not in told
