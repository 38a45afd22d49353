"""Every vector through real processes, blocking and on asyncio, and through the flows alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conformance.here import Canned, OnAsyncio, Processes
from conformance.observe import differences
from conformance.stage import Stage
from conformance.vectors import MAIN_VERB, Vector, load_vectors

VECTORS = load_vectors()
RUNNING = [vector for vector in VECTORS if any(step.kind in MAIN_VERB for step in vector.steps)]

WITHOUT_ENVIRON = [vector for vector in RUNNING if "environ" not in vector.data]  # what is inherited is the executor's


def test_there_are_at_least_200_vectors() -> None:
    assert len(VECTORS) >= 200


@pytest.mark.parametrize("row", [f"A2.{row}" for row in range(1, 16)] + [f"A{section}" for section in range(3, 12)])
def test_every_rule_has_vectors(row: str) -> None:
    """The rows of the notes on loading, and the sections after it, by what the vectors say of themselves."""
    assert any(re.search(rf"\b{row}\b(?!\d)", vector.data["spec"]) for vector in VECTORS)


def test_every_vector_says_what_it_shows_and_expects_something() -> None:
    given = {"answers", "options", "rt", "text", "to", "values"}
    for vector in VECTORS:
        assert vector.data["spec"], vector
        assert vector.data["rule"][-1] in ".)", vector
        assert any(step.body.keys() - given for step in vector.steps), vector


@pytest.mark.parametrize("vector", VECTORS, ids=repr)
def test_vector_through_processes(vector: Vector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in vector.data.get("environ", {}).items():
        monkeypatch.setenv(name, value)
    stage = Stage(vector, tmp_path / "v")
    assert found(Processes(stage), stage) == []


@pytest.mark.parametrize("vector", RUNNING, ids=repr)
def test_vector_on_asyncio(vector: Vector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in vector.data.get("environ", {}).items():
        monkeypatch.setenv(name, value)
    stage = Stage(vector, tmp_path / "v")
    assert found(OnAsyncio(stage), stage) == []


@pytest.mark.parametrize("vector", WITHOUT_ENVIRON, ids=repr)
def test_vector_through_the_flows_alone(vector: Vector, tmp_path: Path) -> None:
    stage = Stage(vector, tmp_path / "v")
    assert found(Canned(stage), stage) == []


def found(run: Processes, stage: Stage) -> list[str]:
    return [str(one) for step in stage.vector.steps for one in differences(stage, step, run.do(step))]
