"""The fixtures that the manager's tests share: a node with managers, and managers of both kinds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nodes import Blocking

from libcni.manager import Container, namespaces
from manager.fakes import FakeNamespaces, ManagerNode


@pytest.fixture
def node(tmp_path: Path) -> ManagerNode:
    return ManagerNode(tmp_path)


@pytest.fixture
def attached(node: ManagerNode) -> ManagerNode:
    """Return a node where c1 is attached to the networks a and b, and c2 to b."""
    node.configure("a", cniVersion="1.1.0")
    node.configure("b", cniVersion="0.4.0")
    manager = node.manager()
    manager.set_up(Container("c1", "/ns", ["a", "b"]))
    manager.set_up(Container("c2", "/ns", ["b"]))
    node.forget_calls()
    return node


@pytest.fixture(params=["blocking", "asyncio"])
def make(request: pytest.FixtureRequest, node: ManagerNode) -> Callable[..., Any]:
    """Return a function that makes a manager: a NetworkManager, or an AsyncNetworkManager that is called blocking."""
    if request.param == "blocking":
        return node.manager
    return lambda **options: Blocking(node.async_manager(**options))


@pytest.fixture
def three_attached(node: ManagerNode) -> ManagerNode:
    """Three networks, attached in an order that is not that of their names."""
    for name in ("b", "c", "a"):
        node.configure(name)
    node.manager().set_up(Container("c1", "/ns", ["b@x9", "c@x1", "a@x5"]))
    return node


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> FakeNamespaces:
    """Return the directory of namespaces in memory, in place of the kernel's."""
    tool = FakeNamespaces()
    monkeypatch.setattr(namespaces, "make_namespace", tool.make)
    monkeypatch.setattr(namespaces, "unbind", tool.unbind)
    monkeypatch.setattr(namespaces, "identity_of", tool.identity_of)
    return tool
