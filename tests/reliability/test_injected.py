"""Every call of libc in every verb fails once in each way, and is once the last before kill -9."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from reliability.injected import VERBS, inject


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_survives_a_fault_of_any_call(tmp_path: Path, say: Callable[[str], None], verb: str) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is missing")
    tally = inject(tmp_path, [verb])
    say(f"{verb}: {tally.cases} cases, {tally.calls[verb]} calls of libc")
    assert tally.calls[verb] > 20, "the shim does not count"
    assert tally.problems == []


def test_some_faults_of_a_check(tmp_path: Path) -> None:
    """The suite itself works: the shim is built, calls are counted, and a fault that is harmless is no problem."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is missing")
    tally = inject(tmp_path, ["CHECK", "--at", "1", "--fault", "SIGKILL"])
    assert (tally.cases, tally.problems) == (1, [])
    assert tally.calls["CHECK"] > 20
