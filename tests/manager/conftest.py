"""The fixtures that the manager's tests share: a place with all that a manager needs, and managers of both kinds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from libcni.manager import Container
from manager.fakes import Blocking, Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def attached(place: Place) -> Place:
    """Return a place where c1 is attached to the networks a and b, and c2 to b."""
    place.network("a", version="1.1.0")
    place.network("b", version="0.4.0")
    manager = place.manager()
    manager.set_up(Container("c1", "/ns", ["a", "b"]))
    manager.set_up(Container("c2", "/ns", ["b"]))
    place.log.unlink()
    return place


@pytest.fixture(params=["blocking", "asyncio"])
def make(request: pytest.FixtureRequest, place: Place) -> Callable[..., Any]:
    """Return a function that makes a manager: a NetworkManager, or an AsyncNetworkManager that is called blocking."""
    if request.param == "blocking":
        return place.manager
    return lambda **options: Blocking(place.async_manager(**options))
