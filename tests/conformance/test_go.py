"""The same vectors with Go libcni: every difference has its reason, and testdata/evidence/differences.md says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.differences import PAGE, generate

pytestmark = pytest.mark.slow


def test_every_difference_from_go_has_its_reason(go_program: Path, tmp_path: Path) -> None:
    reasons, page = generate(go_program, tmp_path)
    assert reasons.faults == []
    assert reasons.same > 200
    assert page == PAGE.read_text(encoding="utf-8"), "run: make conformance-go"
