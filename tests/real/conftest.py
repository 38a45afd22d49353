"""The node of these tests has the real plugins, and may have the other client."""

from __future__ import annotations

from pathlib import Path

import pytest
from nodes import Namespace, RealNode

from libcni import CNIConfig


@pytest.fixture
def node(tmp_path: Path, host: Namespace, request: pytest.FixtureRequest) -> RealNode:
    return RealNode(tmp_path, host, getattr(request, "param", CNIConfig))
