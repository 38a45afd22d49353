"""The node of these tests has the real plugins."""

from __future__ import annotations

import pytest
from nodes import RealNode


@pytest.fixture
def node(real_node: RealNode) -> RealNode:
    return real_node
