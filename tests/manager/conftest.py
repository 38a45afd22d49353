"""The fixture that the manager's tests share: a place that has all that a manager needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from manager.fakes import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)
