"""After each schedule all holds that must hold; and the simulation finds faults that are put into the library."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sim import faults, seam
from sim.scenarios import MIXTURES, SCENARIOS, Found, Race, explore, explore_seeds, run, tell
from sim.schedule import Choices, shrink

PROMISES = Path(__file__).parents[2] / "testdata/evidence/promises.md"


@pytest.fixture(autouse=True)
def _simulated() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(50_000)  # a schedule leaves few cycles: a fifth of the time
    with seam.in_place_of_the_system():
        yield
    gc.set_threshold(*before)


def with_files(name: str, odd: int) -> Race:
    """Return a scenario; in every second one IPAM keeps a file for each address."""
    return replace(SCENARIOS[name], keeps_files=(list(SCENARIOS).index(name) + odd) % 2 == 0)


def assert_holds(found: Found) -> None:
    assert not found.violation, f"after {found.schedules} schedules: {found.violation}\n{found.story}"


BLOCKING = [name for name in SCENARIOS if name != "cancelled_add"]
HALVES = [pytest.param(name, marks=pytest.mark.slow if number % 2 else ()) for number, name in enumerate(BLOCKING)]


@pytest.mark.unmeasured
@pytest.mark.parametrize("name", HALVES)
def test_every_schedule_with_one_deviation(name: str) -> None:
    """Of power cuts, not all that they may leave: a slow test takes more of that. In every second IPAM keeps files."""
    assert_holds(explore(with_files(name, 0), limit=80 if "power" in name else 1000))


@pytest.mark.slow
@pytest.mark.parametrize("name", BLOCKING)
def test_every_schedule_the_other_way(name: str) -> None:
    """Whether or not IPAM keeps a file for each address."""
    assert_holds(explore(with_files(name, 1), limit=80 if "power" in name else 1000))


@pytest.mark.unmeasured
def test_a_cancelled_add_on_asyncio() -> None:
    assert_holds(explore(SCENARIOS["cancelled_add"], on_asyncio=True))


@pytest.mark.unmeasured
@pytest.mark.parametrize("name", MIXTURES)
def test_random_mixtures(name: str) -> None:
    assert_holds(explore_seeds(MIXTURES[name], range(30)))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SCENARIOS if "power" in name])
def test_what_a_power_cut_may_leave(name: str) -> None:
    assert_holds(explore(SCENARIOS[name], limit=400))


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_random_schedules(name: str) -> None:
    """Schedules with several deviations, on asyncio where the scenario has no hook of an OCI runtime, which blocks."""
    race = SCENARIOS[name]
    assert_holds(explore_seeds(lambda _: race, range(60), "1.0.0", on_asyncio="start" not in race.verbs))


@pytest.mark.slow
@pytest.mark.parametrize("name", MIXTURES)
def test_more_random_mixtures(name: str) -> None:
    assert_holds(explore_seeds(MIXTURES[name], range(30, 1500)))


@pytest.mark.unmeasured
@pytest.mark.parametrize("name", faults.FAULTS)
def test_a_fault_that_is_put_in_is_found(name: str) -> None:
    found = faults.find(name)
    assert found.violation, f"not found in {found.schedules} schedules"
    assert f"| {name.replace('-', ' ')} |" in PROMISES.read_text(), "python -m sim --faults prints the table"


def test_a_schedule_is_the_same_each_time_and_shrinks_to_what_it_needs() -> None:
    with faults.seeded("no-locks"):
        sim = next(one for seed in range(100) if (one := run(SCENARIOS["two_adds"], Choices(seed=seed))).violations)
        plan = sim.choices.plan
        again = run(SCENARIOS["two_adds"], Choices(plan))
        assert again.violations == sim.violations
        short = shrink(plan, lambda plan: bool(run(SCENARIOS["two_adds"], Choices(plan)).violations))
        assert len(short) <= 2
        story = tell(run(SCENARIOS["two_adds"], Choices(short)))
        assert "VIOLATION" in story
        assert len(story.splitlines()) < 200


def test_a_plan_without_what_it_does_not_need() -> None:
    needed = {3: 1, 40: 2}
    plan = dict.fromkeys(range(0, 60, 3), 1) | needed
    assert shrink(plan, lambda one: needed.items() <= one.items()) == needed


def test_an_unknown_way_to_the_system_is_an_error() -> None:
    with pytest.raises(AssertionError, match="not simulated"):
        seam.SYSTEM.kill(1, 9)
