"""The table of the model is the oracle: what each verb does in each state, and each event in each state."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from libcni.store.model import SHOWN_BY_THE_NODE, STATES, Row, State
from sim import seam
from sim.scenarios import SCENARIOS, explore, tell
from sim.schedule import Choices, Sim
from sim.stage import Stage

WAYS: dict[State, str] = {
    "begun": "stopped begun add A bw",
    "refused": "make_interface A; add A bw; lose_interface A",
    "pending": "killed_add A bws slow",
    "ready": "add A bw",
    "detaching": "add A bw; stopped detaching delete A bw",
    "gone": "add A bw; restart A",
    "lost-path": "add A bw; hold A process; lose_path A",
    "lost": "add A bw; lose_interface A",
    "renamed": "add A bw; rename A",
    "unknown": "go_runtime A b nowhere",
    "stale-boot": "add A bw; power_cut; restart A",
    "corrupt": "add A b; damage A",
}
"""State of an attachment to the steps that lead to it."""


@pytest.fixture(autouse=True)
def _simulated() -> Iterator[None]:
    with seam.in_place_of_the_system():
        yield


def expected(verb: str, state: State, row: Row) -> set[str]:
    """Return the outcomes that the table allows."""
    if verb == "add":
        # Nobody knows who made the interface of a record that cannot be read.
        after = "InterfaceExistsError" if state == "corrupt" else "ok"
        return {"AttachmentExistsError"} if row.add == "refuse" else {after}
    if verb == "check":
        # The caller names the namespace that the record does not.
        return {"ok" if row.check else "RecordError" if state == "corrupt" else "NotAttachedError"}
    if verb == "gc":
        # The plugins' own GC does not run beside a record that cannot be read.
        return {"CNIErrorGroup"} if state in {"corrupt", "renamed"} else {"ok"}
    if state == "renamed":
        return {"NamespaceMismatchError"}
    return {"NotAttachedError"} if verb == "reload" and not row.reload else {"ok"}


def run(state: State, verb: str) -> None:
    sim = Sim(Choices())
    with seam.running(sim):
        stage = Stage(sim, "A")
        stage.do(WAYS[state], alone=True)
        assert stage.state_of("A") == state
        started = stage.executor.started
        stage.outcomes.clear()
        network = WAYS[state].split("A ")[1].partition(";")[0].split()[0]
        if verb == "gc" and state != "unknown":  # a sweep leaves a record of Go alone
            stage.lose("A")
        stage.do({"reload": "reload A", "gc": f"gc {network}"}.get(verb, f"{verb} A {network}"), alone=True)
        [outcome] = stage.outcomes.values()
        assert outcome in expected(verb, state, STATES[state]), tell(sim)
        if verb == "delete" and STATES[state].delete == "nothing":
            assert stage.executor.started == started
        if outcome != "ok" and state != "unknown":
            stage.lose("A")
            stage.disturbed.add("A")
        if state != "corrupt":  # nobody knows what to remove
            stage.finish()
    assert sim.violations == [], tell(sim)


@pytest.mark.parametrize("verb", ["add", "check", "delete", "gc", "reload"])
@pytest.mark.parametrize("state", STATES)
def test_what_a_verb_does_in_a_state(state: State, verb: str) -> None:
    run(state, verb)


REACHING = ("killed_add", "reload_and_del", "interface_made_during_add")


@pytest.mark.unmeasured
def test_each_event_in_each_state_is_reached() -> None:
    Stage.events.clear()
    for name in REACHING:
        explore(SCENARIOS[name])
    run("detaching", "reload")
    # A DEL writes nothing if the record says already what it would write.
    cells = {
        (state, event)
        for state, row in STATES.items()
        for event, then in row.after.items()
        if state not in SHOWN_BY_THE_NODE and then != state
    }
    assert cells - Stage.events == set()
