"""Two interfaces of a container on one network: bridge cannot remove their masquerade chain with the first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from nodes import Namespace, NewNamespace, RealNode, both_clients

from libcni import CNIConfig, RuntimeConf

pytestmark = pytest.mark.real

Detach = Callable[[RealNode], object]


@pytest.fixture
def node(tmp_path: Path, host: Namespace, new_namespace: NewNamespace, request: pytest.FixtureRequest) -> RealNode:
    """Attach two containers with two interfaces each to one network with ``ipMasq``."""
    node = RealNode(tmp_path, host, getattr(request, "param", CNIConfig))
    node.configure("shared", node.bridge("10.98.0.0/24", ipMasq=True))
    for container in ("twice", "neighbour"):
        namespace = new_namespace()
        for ifname in ("eth0", "net1"):
            node.cni.add_network_list("shared", RuntimeConf(container, namespace.path, ifname))
    return node


VALID = [("neighbour", "eth0"), ("neighbour", "net1")]


def assert_only_the_neighbour_is_left(node: RealNode) -> None:
    recorded = node.cni.get_cached_attachments()
    assert sorted((one.container_id, one.ifname, one.state) for one in recorded) == [(*pair, "ready") for pair in VALID]
    assert not node.host.rules("nat", "twice")
    assert len(node.host.rules("nat", "neighbour")) >= len(VALID)


@both_clients
@pytest.mark.parametrize(
    "detach",
    [
        pytest.param(lambda node: node.cni.gc_network_list("shared", VALID), id="gc"),
        pytest.param(
            lambda node: node.cni.del_attachments(node.cni.get_cached_attachments("twice")), id="del_attachments"
        ),
    ],
)
def test_a_client_detaches_both(node: RealNode, detach: Detach) -> None:
    detach(node)
    assert_only_the_neighbour_is_left(node)
