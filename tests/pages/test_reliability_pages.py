"""The pages on reliability name tests that exist, and no row of the field is forgotten."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = {
    name for path in (ROOT / "tests").rglob("*.py") for name in re.findall(r"def (test_\w+)", path.read_text("utf-8"))
}


@pytest.mark.parametrize("page", ["reliability.md", "field.md"])
def test_every_named_test_exists(page: str) -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / page).read_text("utf-8")))
    assert named
    assert named - TESTS == set()


def test_every_row_of_the_field_has_its_test_or_its_reason() -> None:
    rows = re.findall(r"^\| (\d+) \| .*? \| (.*) \|$", (ROOT / "docs/field.md").read_text("utf-8"), re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 51))
    assert [number for number, shown in rows if "test_field_" not in shown and "not here: " not in shown] == []
    listed = {name for _, shown in rows for name in re.findall(r"test_field_\w+", shown)}
    assert listed == {name for name in TESTS if name.startswith("test_field_")}
