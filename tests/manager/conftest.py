"""The fixtures that the manager's tests share: a place with all that a manager needs, and managers of both kinds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from manager.fakes import Blocking, Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture(params=["blocking", "asyncio"])
def make(request: pytest.FixtureRequest, place: Place) -> Callable[..., Any]:
    """Return a function that makes a manager: a NetworkManager, or an AsyncNetworkManager that is called blocking."""
    if request.param == "blocking":
        return place.manager
    return lambda **options: Blocking(place.async_manager(**options))
