"""Every vector through real processes, blocking and on asyncio."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.here import OnAsyncio, Processes
from conformance.observe import differences
from conformance.stage import Stage
from conformance.vectors import MAIN_VERB, Vector, load_vectors

VECTORS = load_vectors()
RUNNING = [vector for vector in VECTORS if any(step.kind in MAIN_VERB for step in vector.steps)]


@pytest.mark.parametrize("vector", VECTORS, ids=repr)
def test_vector_through_processes(vector: Vector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in vector.data.get("environ", {}).items():
        monkeypatch.setenv(name, value)
    stage = Stage(vector, tmp_path / "v")
    assert found(Processes(stage), stage) == []


@pytest.mark.unmeasured  # a sample: the verbs are those above; tests/test_aio.py has what differs
@pytest.mark.parametrize("vector", RUNNING[::5], ids=repr)
def test_vector_on_asyncio(vector: Vector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in vector.data.get("environ", {}).items():
        monkeypatch.setenv(name, value)
    stage = Stage(vector, tmp_path / "v")
    assert found(OnAsyncio(stage), stage) == []


def found(run: Processes, stage: Stage) -> list[str]:
    return [str(one) for step in stage.vector.steps for one in differences(stage, step, run.do(step))]
