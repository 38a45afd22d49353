"""Every executor test leaves no descriptor and no process."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from executor.plugins import KINDS, Kind, nothing_is_left_open, replace_in_executor


@pytest.fixture(autouse=True)
def _nothing_is_left_open() -> Iterator[None]:
    with nothing_is_left_open():
        yield


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Name the executor to use."""
    return str(request.param)


@pytest.fixture
def unkillable(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Make signals do nothing, as to a process that hangs in the kernel."""
    replace_in_executor(monkeypatch, os, kill=lambda *_: None, killpg=lambda *_: None)
    return monkeypatch
