"""The logging observer: one log record per verb and call, with fields, and without secrets if that is wanted."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from libcni import Invocation, Outcome
from libcni.observe import LoggingObserver, Operation
from libcni.testing import RecordingExecutor
from observe.canned import NET, RT, client, failure_of, fields, refusal


def test_each_call_and_the_verb_are_logged_with_their_fields(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "libcni.calls")
    client(tmp_path, RecordingExecutor(), LoggingObserver()).add_network_list(NET, RT)
    first, second, last = (fields(record) for record in caplog.records)
    assert {**first, "seconds": 0} == {
        "verb": "ADD", "network": "dbnet", "container_id": "c1", "ifname": "eth0", "plugin": "bridge",
        "path": "/opt/cni/bin/bridge", "call": "ADD", "index": 0, "outcome": "ok", "exit_status": 0, "signal": None,
        "seconds": 0,
    }  # fmt: skip
    assert second["plugin"] == "tuning"
    assert {**last, "seconds": 0, "waited": 0} == {
        "verb": "ADD", "network": "dbnet", "container_id": "c1", "ifname": "eth0", "outcome": "ok", "seconds": 0,
        "waited": 0,
    }  # fmt: skip
    assert 0 < last["waited"] < last["seconds"]
    assert caplog.records[-1].getMessage().startswith("ADD dbnet c1 eth0: ok in ")


def test_a_failure_is_a_warning_with_code_and_text(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    failure_of(client(tmp_path, RecordingExecutor({("tuning", "ADD"): refusal(11)}), LoggingObserver()))
    call, verb = (record for record in caplog.records if record.levelno == logging.WARNING)
    assert fields(call)["outcome"] == "failed"
    assert fields(call)["exit_status"] == 1
    assert fields(call)["seconds"] == 0.25
    assert fields(verb)["outcome"] == "PluginError"
    assert fields(verb)["code"] == 11
    assert "busy" in fields(verb)["error"]


def test_the_message_of_a_log_record_is_printable(caplog: pytest.LogCaptureFixture) -> None:
    observer, operation = LoggingObserver(), Operation("ADD", network="n\x1b[2J")
    invocation = Invocation("ADD", "a\x1b[31m", "/a", '{"x":"\u202e"}'.encode(), {})
    with caplog.at_level(logging.DEBUG, "libcni.calls"):
        observer.begin(operation)
        observer.before_call(operation, invocation)
        observer.after_call(operation, invocation, Outcome(), None)
        observer.end(operation, None)
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "a\\x1b[31m ADD",
        "a\\x1b[31m ADD",
        "ADD n\\x1b[2J",
    ]
    assert "\\u202e" in caplog.records[0].getMessage()
