"""Each test and file that testdata/evidence/ names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "testdata/evidence").glob("*.md"))
TESTS = {
    name
    for path in (ROOT / "tests").rglob("*.py")
    for name in [
        path.stem,
        *re.findall(r"^ *(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE),
    ]
}
VECTORS = {
    name
    for path in (ROOT / "testdata").glob("*/*.yaml")
    for name in re.findall(r"name: ([\w.-]+)", path.read_text(encoding="utf-8"))
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_the_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert set(re.findall(r"\btest_\w+", text)) - TESTS == set()
    cited = "".join(re.findall(r"vectors? ((?:`[a-z0-9.]+(?:-[a-z0-9.]+)+`(?:, | and )?)+)", text))
    assert set(re.findall(r"`([^`]+)`", cited)) - VECTORS == set()
    assert [
        name for name in re.findall(r"`((?:tests|bench|examples)/[\w/.-]+)`", text) if not (ROOT / name).exists()
    ] == []
    links = re.findall(r"\]\((?!http)([^)#]+)", text)
    assert [link for link in links if not (page.parent / link).exists()] == []
