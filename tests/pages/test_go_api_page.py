"""docs/how-to/migrate.md names nothing that is not there."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "migrate.md").read_text(encoding="utf-8")
ROWS = [line.split("|") for line in PAGE.splitlines() if line.startswith("| ")]
NAMES = sorted({name for row in ROWS for name in re.findall(r"`(libcni\.[\w.]+)`", row[2])})


@pytest.mark.parametrize("name", NAMES)
def test_the_name_exists(name: str) -> None:
    found: Any = import_module("libcni")
    for part in name.split(".")[1:]:
        if part in {"plugin", "testing"}:
            found = import_module(f"libcni.{part}")
        else:
            assert hasattr(found, part) or part in getattr(found, "__annotations__", {})
            found = getattr(found, part, None)
