"""The modules of examples/fleet can be imported by their names, as its programs do."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from forkserver import ForkServer
from manager.fakes import Place

from .fleet import FLEET, MODULES, Agent


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch, fork_server: ForkServer) -> Iterator[None]:
    monkeypatch.setattr(Agent, "server", fork_server, raising=False)
    monkeypatch.syspath_prepend(str(FLEET))
    yield
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def fleet(place: Place) -> Agent:
    place.network("a")
    place.network("b")
    return Agent(place)
