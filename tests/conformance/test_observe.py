"""The suite would notice: what differs from a vector's expectation is found, wherever it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conformance.exact import exact, has, read
from conformance.observe import Failure, Seen, compare, differences
from conformance.stage import Call, Stage, go_record
from conformance.vectors import Vector

ENV = {
    "CNI_COMMAND": "ADD",
    "CNI_CONTAINERID": "c1",
    "CNI_NETNS": "/run/netns/blue",
    "CNI_IFNAME": "eth0",
    "CNI_ARGS": "",
}
RECORD = {"containerId": "c1", "ifName": "eth0", "networkName": "n", "config": {"name": "n"}}


def found(expected: dict[str, Any], seen: Seen, root: Path) -> list[str]:
    document = {"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "a"}]}
    stage = Stage(Vector("x", {"name": "x", "document": document, "steps": [{"add": expected}]}), root / "v")
    for call in seen.calls:
        call.env.setdefault("CNI_PATH", str(root / "v" / "bin"))
    return [one.place for one in differences(stage, stage.vector.steps[0], seen)]


def call(env: dict[str, str] | None = None, **stdin: Any) -> Call:
    return Call("a", "ADD", "/bin/a", {**ENV, **(env or {})}, json.dumps(stdin).encode())


@pytest.mark.parametrize(
    ("expected", "seen", "place"),
    [
        ({}, Seen(failure=Failure("no")), "error"),
        ({"error": "CNIError"}, Seen(), "error"),
        ({"error": "CNIError"}, Seen(failure=Failure("no", ("OSError",))), "error.class"),
        ({"error": {"contains": "yes"}}, Seen(failure=Failure("no", ())), "error.text"),
        ({"error": {"code": 7}}, Seen(failure=Failure("no", (), {"code": 8})), "error.code"),
        ({"error": {"errors": ["A", "B"]}}, Seen(failure=Failure("no", (), {}, (Failure("a"),))), "error.errors"),
        ({"calls": []}, Seen(calls=[call()]), "calls"),
        ({"calls": ["a ADD", "b ADD"]}, Seen(calls=[call()]), "calls"),
        ({"calls": ["a ADD"]}, Seen(calls=[call({"CNI_ARGS": "K=V"})]), "calls[0].env.CNI_ARGS"),
        ({"calls": [{"plugin": "a", "env": {"X": None}}]}, Seen(calls=[call({"X": ""})]), "calls[0].env.X"),
        ({"calls": [{"plugin": "a", "path": "/bin/b"}]}, Seen(calls=[call()]), "calls[0].path"),
        ({"calls": [{"plugin": "a", "stdin": {"x": 1}}]}, Seen(calls=[call(x=2)]), "calls[0].stdin.x"),
        ({"calls": [{"plugin": "a", "stdin": {}}]}, Seen(calls=[call(x=2)]), "calls[0].stdin.x"),
        ({"calls": [{"plugin": "a", "stdin_text": '{"x": 1.0}'}]}, Seen(calls=[call(x=1)]), "calls[0].stdin.x"),
        ({"calls": [{"plugin": "a", "stdin_has": {"x": 1}}]}, Seen(calls=[call(y=1)]), "calls[0].stdin"),
        (
            {"calls": [{"plugin": "a", "stdin_has": {}, "stdin_order": ["x", "y"]}]},
            Seen(calls=[call(y=1, x=1)]),
            "calls[0].stdin (order)",
        ),
        ({"result": {"a": [1]}}, Seen(value={"result": exact({"a": [2]})}), "result.a[0]"),
        ({"result_has": {"a": 1}}, Seen(value={"result": exact({"a": 2})}), "result"),
        ({"warnings": ["x"]}, Seen(value={"warnings": ["y"]}), "warnings"),
        ({"loaded": {"name": "n"}}, Seen(value={"loaded": {"name": "m"}}), "loaded.name"),
        ({"record": None}, Seen(records=[("f", go_record(RECORD).encode())]), "record"),
        ({"record": {}}, Seen(), "record"),
        ({"record": {"netns": "x"}}, Seen(records=[("f", go_record(RECORD).encode())]), "record.netns"),
        ({"record": {"config": {}}}, Seen(records=[("f", go_record(RECORD).encode())]), "record.config.name"),
        ({"gone": ["f"]}, Seen(records=[("f", b"")]), "record file f"),
    ],
)
def test_a_difference_is_found(expected: dict[str, Any], seen: Seen, place: str, tmp_path: Path) -> None:
    assert found(expected, seen, tmp_path) == [f"1 add: {place}"]


def test_what_is_as_expected_is_no_difference(tmp_path: Path) -> None:
    expected = {"calls": [{"plugin": "a", "stdin": {"x": 1}}], "result": {"a": 1}, "record": {"networkName": "n"}}
    record = go_record(RECORD).encode()
    assert found(expected, Seen([call(x=1)], {"result": exact({"a": 1})}, None, [("f", record)]), tmp_path) == []


def test_numbers_are_compared_as_they_are_written() -> None:
    assert [one.place for one in compare("x", read("[1, 1.0]"), read("[1, 1]"))] == ["x[1]"]
    assert [one.place for one in compare("x", read("9007199254740993"), read("9007199254740992"))] == ["x"]


def test_part_of_a_document() -> None:
    assert has(exact({"a": [{"b": 1, "c": 2}]}), exact({"a": [{"b": 1}]}))
    assert not has(exact({"a": []}), exact({"a": [1]}))
