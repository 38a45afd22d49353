"""The model: one test for each row of its tables."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from libcni import verbs
from libcni.errors import RecordError
from libcni.store.model import READY, STATES, MadeByGo, Ours, State, can_reload, needs_look, state_of
from libcni.store.place import ABSENT, NOT_OURS, NOWHERE, UNKNOWN, Known, Place, compare, is_other_mac, same_namespace
from libcni.store.recorded_interface import place_of
from store.canned import bare

MAC, OTHER_MAC = "0a:58:0a:00:00:02", "0a:58:0a:00:00:03"
MADE = Place((4, 1), 7, Known(2, MAC))
BARE = Place((4, 1))


# the tables


@pytest.mark.parametrize(
    ("made", "seen", "compared"),
    [
        (Place(), Place(), "unknown"),
        (Place(NOWHERE), Place(None), "unknown"),
        (MADE, Place(None), "no namespace"),
        (MADE, Place(NOWHERE), "no namespace"),
        (MADE, replace(MADE, netns=(4, 2)), "other namespace"),
        (MADE, replace(MADE, netns=(5, 1)), "other namespace"),
        (Place(NOWHERE), MADE, "other namespace"),
        (MADE, replace(MADE, cookie=8), "other namespace"),
        (MADE, replace(MADE, cookie=8, found_as="net1"), "other namespace"),
        (MADE, replace(MADE, interface=Known(3, MAC), found_as="net1"), "renamed"),
        (MADE, replace(MADE, interface=ABSENT, found_as="net1"), "renamed"),
        (MADE, replace(MADE, interface=UNKNOWN), "unknown"),
        (replace(BARE, interface=ABSENT), replace(BARE, interface=ABSENT), "same"),
        (MADE, replace(MADE, interface=ABSENT), "no interface"),
        (Place(interface=Known(mac=MAC)), replace(BARE, interface=ABSENT), "no interface"),
        (BARE, replace(BARE, interface=ABSENT), "unknown"),
        (MADE, replace(MADE, interface=Known(2, OTHER_MAC)), "same"),
        (replace(MADE, cookie=0), replace(MADE, interface=Known(2, OTHER_MAC)), "other interface"),
        (Place(interface=Known(mac=MAC)), replace(MADE, interface=Known(2, OTHER_MAC)), "other interface"),
        (Place(interface=Known(mac=MAC)), MADE, "same"),
        (Place(interface=Known(mac=MAC)), replace(MADE, interface=Known(2)), "other interface"),
        (Place(), MADE, "unknown"),
        (BARE, replace(MADE, interface=Known(2)), "unknown"),
        (Place(interface=Known(mac="AABB")), MADE, "unknown"),
        (MADE, MADE, "same"),
        (replace(MADE, cookie=0), MADE, "same"),
        (MADE, replace(MADE, cookie=0), "same"),
        (replace(MADE, interface=Known(2)), MADE, "same"),
        (MADE, replace(MADE, interface=Known(3, MAC)), "other interface"),
        (replace(BARE, interface=ABSENT), replace(BARE, interface=Known(3)), "other interface"),
        (replace(BARE, interface=NOT_OURS), replace(BARE, interface=Known(3)), "other interface"),
    ],
)
def test_compare(made: Place, seen: Place, compared: str) -> None:
    assert compare(made, seen) == compared


@pytest.mark.parametrize(
    ("made", "now", "is_other"),
    [
        (MAC, OTHER_MAC, True),
        (MAC, MAC, False),
        ("", MAC, False),
        (MAC, "", False),
        ("0a580a000003", MAC, False),
        ("0a-58-0a-00-00-03", MAC, False),
    ],
)
def test_hardware_addresses_differ_only_in_one_notation(made: str, now: str, *, is_other: bool) -> None:
    assert is_other_mac(made, now) is is_other


@pytest.mark.parametrize(
    ("made", "seen", "is_same"),
    [
        (Place(), Place((4, 1)), True),
        (Place(), Place(), True),
        (Place(NOWHERE), Place(), True),
        (Place(NOWHERE), Place((4, 1)), False),
        (Place((4, 1)), Place(), False),
        (Place((4, 1)), Place((4, 1), 7), True),
        (Place((4, 1), 7), Place((4, 1), 8), False),
        (Place((4, 1), 7), Place((4, 2), 7), False),
    ],
)
def test_same_namespace(made: Place, seen: Place, *, is_same: bool) -> None:
    assert same_namespace(made, seen) is is_same


# the states


def test_every_state_has_a_row_and_every_event_leads_to_one_that_a_record_can_have() -> None:
    assert set(STATES) == set(get_args(State))
    reached = {state for row in STATES.values() for state in row.after.values()}
    assert reached.isdisjoint({"gone", "lost", "renamed", "unknown"})


@pytest.mark.parametrize(
    ("seen", "state"),
    [
        (MADE, "ready"),
        (MADE.with_interface(Known(2, OTHER_MAC)), "ready"),  # the plugins' CHECK reports it
        (MADE.with_interface(UNKNOWN), "ready"),
        (Place(), "gone"),
        (replace(MADE, cookie=8), "gone"),
        (MADE.with_interface(ABSENT), "lost"),
        (MADE.with_interface(Known(9, MAC)), "lost"),
        (replace(MADE, interface=ABSENT, found_as="net1"), "renamed"),
    ],
)
def test_a_look_tells_what_a_record_that_says_ready_cannot(seen: Place, state: str) -> None:
    assert state_of(bare(state=READY, result="{}"), MADE, seen) == state
    assert state_of(bare(state="pending"), MADE, seen) == "pending"


def test_go_records_need_a_path() -> None:
    go = MadeByGo("net", "c1", "eth0", READY, "/gone")
    opaque, nowhere = go.with_fields(netns="opaque"), go.with_fields(netns="")
    states = [state_of(record, place_of(record), Place()) for record in (go, opaque, nowhere)]
    assert states == ["gone", "ready", "unknown"]
    assert (needs_look(go), needs_look(nowhere), needs_look(bare())) == (True, False, False)


def test_a_reload_needs_a_namespace_and_a_result() -> None:
    ready = bare(state=READY, netns="/here", result="{}")
    assert can_reload(ready, "ready")
    assert not can_reload(ready, "gone")
    assert not can_reload(ready.with_fields(netns=""), "ready")
    assert not can_reload(ready.with_fields(result=None), "pending")


def test_an_event_that_the_table_does_not_have_is_refused() -> None:
    begun = Ours("net", "c1", "eth0", path="/x")
    assert begun.after("started", interface=NOT_OURS) == begun.with_fields(state="pending", interface=NOT_OURS)
    with pytest.raises(RecordError, match="/x: complete is no event of an attachment that is begun"):
        begun.after("complete")


def test_verbs_ask_the_model_instead_of_testing_fields() -> None:
    """One table says what each verb does in each state."""
    tested = re.compile(r"MadeByGo|STALE_BOOT|is_reload\b|record\.result is|REFUSED")
    found = [
        f"{path.name}: {line.strip()}"
        for path in Path(verbs.__file__).parent.glob("*.py")
        for line in path.read_text().splitlines()
        if tested.search(line)
    ]
    assert found == []
