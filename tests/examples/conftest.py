"""The modules of examples/fleet can be imported by their names, as its programs do."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from forkserver import ForkServer
from manager.fakes import ManagerNode

from .fleet import FLEET, MODULES, Agent


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch, fork_server: ForkServer) -> Iterator[None]:
    monkeypatch.setattr(Agent, "server", fork_server, raising=False)
    monkeypatch.syspath_prepend(str(FLEET))
    yield
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.fixture
def node(tmp_path: Path) -> ManagerNode:
    return ManagerNode(tmp_path)


@pytest.fixture
def fleet(node: ManagerNode) -> Agent:
    node.configure("a")
    node.configure("b")
    return Agent(node)
