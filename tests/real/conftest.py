"""The node of these tests has the real plugins, and may have the other client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from nodes import Namespace, RealNode

from libcni import CNIConfig
from real.containerd_node import ContainerdNode, Keeper, why_no_node


@pytest.fixture
def node(tmp_path: Path, host: Namespace, request: pytest.FixtureRequest) -> RealNode:
    return RealNode(tmp_path, host, getattr(request, "param", CNIConfig))


@pytest.fixture(scope="session")
def keepers() -> Iterator[dict[str, Keeper]]:
    if reason := why_no_node():
        pytest.skip(reason)
    kept: dict[str, Keeper] = {}
    yield kept
    for one in kept.values():
        one.drop()


@pytest.fixture
def containerd(peer: str, keepers: dict[str, Keeper]) -> Iterator[ContainerdNode]:
    """Return a node in order, with eight pods: the tests of a version of containerd share it."""
    keeper = keepers[peer] = keepers.get(peer) or Keeper(peer)
    made = keeper.node()
    made.is_in_order = False  # the test says so at its end
    yield made
    if not made.is_in_order:
        keeper.drop()
