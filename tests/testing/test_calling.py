"""One call of a plugin, and its answer."""

from __future__ import annotations

from subprocess import TimeoutExpired

import pytest
from plugin.plugins import Recorder, config, example
from processes import is_running

from libcni.testing import Answer, FakePlugins, call_plugin, wait_until


def test_the_answer_of_a_call_can_be_looked_into() -> None:
    got = call_plugin(example("hosts"), "VERSION")
    assert got.code is None
    with pytest.raises(ValueError, match="not a JSON object"):
        _ = Answer(0, "[]", "").document


def test_the_result_of_a_function_is_compared_with_the_specification() -> None:
    loose = Recorder(add=lambda request: {"ips": [{"address": "10.0.0.2"}]})
    answer = call_plugin(loose.plugin, "ADD", config())
    assert (answer.code, answer.document["msg"]) == (6, "ADD returned no valid result")
    assert "ips[0].address: '10.0.0.2' is not an address in CIDR notation" in answer.document["details"]


def test_a_plugin_that_does_not_end_in_time_is_killed_with_its_children(cni_fakes: FakePlugins) -> None:
    fake = cni_fakes.shell("fake", 'sleep 60 & echo $! > "$0.child"; wait', result=None)
    with pytest.raises(TimeoutExpired):
        call_plugin(fake.path, "DEL", config(), timeout=2)
    child = int(fake.path.with_name("fake.child").read_text())
    wait_until(lambda: not is_running(child))
