"""docs/how-to/migrate.md names nothing that is not there, and leaves out no name of Go's libraries without a reason."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "migrate.md").read_text(encoding="utf-8")
ROWS = [line.split("|") for line in PAGE.splitlines() if line.startswith("| ")]
TESTDATA = Path(__file__).parents[2] / "testdata"
NAMES = sorted({name for row in ROWS for name in re.findall(r"`(libcni\.[\w.]+)`", row[2])})


@pytest.mark.parametrize("name", NAMES)
def test_the_name_exists(name: str) -> None:
    found: Any = import_module("libcni")
    for part in name.split(".")[1:]:
        if part in {"manager", "plugin", "testing"}:
            found = import_module(f"libcni.{part}")
        else:
            assert hasattr(found, part) or part in getattr(found, "__annotations__", {})
            found = getattr(found, part, None)


def test_every_name_of_go_has_a_row_or_a_reason() -> None:
    on_page = {name.rpartition(".")[2] for row in ROWS for name in re.findall(r"`([\w.]+)`", row[1])}
    reasons = yaml.safe_load((TESTDATA / "go-names.yaml").read_text(encoding="utf-8"))
    names = (TESTDATA / "go-names.txt").read_text(encoding="utf-8").splitlines()
    assert len(names) > 250
    without_row = [name for name in names if re.split(r"[ .]", name)[-1] not in on_page]
    open_names = [name for name in without_row if not any(re.fullmatch(pattern, name) for pattern in reasons)]
    assert open_names == [], "write a row on the page, or a reason in testdata/go-names.yaml"
    unused = [pattern for pattern in reasons if not any(re.fullmatch(pattern, name) for name in without_row)]
    assert unused == []
