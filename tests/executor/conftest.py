"""Every executor test leaves no descriptor and no process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from executor.plugins import KINDS, Kind, nothing_is_left_open


@pytest.fixture(autouse=True)
def _nothing_is_left_open() -> Iterator[None]:
    with nothing_is_left_open():
        yield


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Name the executor to use."""
    return str(request.param)
