"""Every call of libc in every verb fails once in each way, and is once the last before kill -9."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from reliability.injected import VERBS, inject


@pytest.mark.slow
@pytest.mark.parametrize("start_ahead", ["never", "always"])
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_survives_a_fault_of_any_call(
    tmp_path: Path, say: Callable[[str], None], verb: str, start_ahead: str
) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is missing")
    tally = inject(tmp_path, [verb, "--start-ahead", start_ahead])
    say(f"{verb}: {tally.cases} cases, {tally.calls[verb]} calls of libc")
    assert tally.calls[verb] > 20, "the shim counts no calls"
    assert tally.problems == []


def test_a_verb_that_is_killed_at_some_calls_leaves_all_on_record(tmp_path: Path) -> None:
    """The suite in short: the shim is built and counts, and no kill loses anything."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is missing")
    tally = inject(tmp_path, ["ADD", "DEL", "--fault", "SIGKILL", "--step", "9"])
    assert min(tally.calls.values()) > 20
    assert tally.problems == []
