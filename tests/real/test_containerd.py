"""A real node with containerd, its pods and the records of its Go libcni: a node in order is quiet."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from peers import peer_files

from real.containerd_node import PODS, ContainerdNode, containerd_node, why_no_node

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("containerd")]  # one node for all: on one worker

NEWEST = pytest.param("containerd@sid", marks=pytest.mark.may_skip)  # the packages of sid are not always whole


@pytest.fixture(scope="module", params=["containerd@bookworm", NEWEST])
def node(request: pytest.FixtureRequest) -> Iterator[ContainerdNode]:
    """Bring up a node with eight pods: containerd 1.6 of Debian 12, and the newest one."""
    if reason := why_no_node():
        pytest.skip(reason)
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
