"""STATUS, with canned answers and no process."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from libcni import ConfigError, Outcome
from libcni.verbs.status import status
from libcni.verbs.version import validate
from verbs.asked import drive, fails, network


def test_status_says_for_each_plugin_whether_it_can_serve() -> None:
    answers = {"a": Outcome(), "b": fails(50, "no bridge"), "c": None, "d": fails(51, "uplink down")}
    found, calls = drive(status, network("a", "b", "c", "d"), answers)
    assert [plugin.state for plugin in found.plugins] == ["ready", "not-ready", "missing", "not-ready"]
    assert [getattr(error, "code", None) for error in found.errors] == [50, None, 51]
    assert not found.ready
    assert [call.env["CNI_COMMAND"] for call in calls] == ["STATUS"] * 3
    assert calls[0].stdin == b'{"cniVersion":"1.1.0","name":"n","type":"a"}'
    assert {calls[0].env[name] for name in ("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS")} == {""}


def test_status_that_stops_does_so_at_the_first_no() -> None:
    answers = {"a": fails(50, "no"), "b": Outcome()}
    found, calls = drive(status, network("a", "b"), answers, stop_at_first=True)
    assert len(found.plugins) == len(calls) == 1


@pytest.mark.parametrize("verb", [status, validate])
def test_a_network_without_plugins_is_not_called_ready(verb: Any) -> None:
    with pytest.raises(ConfigError, match='network "n" has no plugins'):
        drive(verb, replace(network("a"), plugins=()), {})
