"""A client with one plugin."""

from __future__ import annotations

import pytest
from nodes import FakeNode

from libcni import CNIConfig, RuntimeConf

RT = RuntimeConf("c1", None, "eth0")


@pytest.fixture
def cni(node: FakeNode) -> CNIConfig:
    node.plugin("a")
    return node.cni
