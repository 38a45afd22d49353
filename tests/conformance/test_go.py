"""The same vectors with Go libcni: every difference has its reason, and testdata/evidence/differences.md says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.differences import PAGE, generate
from conformance.golang import INSTALLED, NEWEST, faults

pytestmark = pytest.mark.slow


@pytest.mark.may_skip  # the newest Go is downloaded
def test_every_difference_from_go_has_its_reason(go_program: Path, newest_go_program: Path, tmp_path: Path) -> None:
    each, page = generate({INSTALLED: go_program, NEWEST: newest_go_program}, tmp_path)
    assert faults(each) == []
    assert each[INSTALLED].same > 200
    assert each[NEWEST].same > 300
    assert page == PAGE.read_text(encoding="utf-8"), "run: make conformance-go"
