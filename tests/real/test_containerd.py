"""A real node with containerd, its pods and the records of its Go libcni: a node in order is quiet."""

from __future__ import annotations

import re

import pytest

from real.containerd_node import PODS, ContainerdNode

pytestmark = pytest.mark.slow

# containerd 1.6 of Debian 12, and the newest one. The tests of broken nodes come later, on the same nodes.
PEERS = ["containerd@bookworm", pytest.param("containerd@sid", marks=pytest.mark.may_skip)]  # sid is not always whole


@pytest.mark.parametrize("peer", PEERS)
def test_a_node_in_order_has_no_finding(containerd: ContainerdNode) -> None:
    assert sorted(containerd.pods) == sorted(PODS)
    assert containerd.traffic() == {}
    for options in ((), ("--check",), ("--traffic",)):
        told = containerd.libcni("doctor", *options)
        assert "error" not in told
        assert "warning" not in told
        assert "To repair" not in told
    assert re.search(
        r"^traffic +\d+ echo requests: 8 from the node, 8 to gateways, 8 between .*to the node's gateway +ok$",
        told,
        re.MULTILINE,
    )
    containerd.is_in_order = True
