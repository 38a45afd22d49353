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


@pytest.mark.parametrize(("end", "notes"), [("wait", False), ("exit 0", True)])
@pytest.mark.slow
def test_a_plugin_and_its_children_are_killed_at_the_timeout(cni_fakes: FakePlugins, end: str, notes: bool) -> None:
    fake = cni_fakes.shell("fake", f'sleep 300 & echo $! > "$0.child"; {end}', result=None)
    with pytest.raises(TimeoutExpired) as caught:
        call_plugin(fake.path, "DEL", config(), timeout=4)
    assert any("keeps its output open" in note for note in getattr(caught.value, "__notes__", ())) == notes
    child = int(fake.path.with_name("fake.child").read_text())
    wait_until(lambda: not is_running(child))


def test_an_answer_without_output_is_an_empty_document_if_the_plugin_has_succeeded() -> None:
    assert call_plugin(Recorder().plugin, "DEL", config()).document == {}
    for silent in (Answer(1, "", "why\n", "DEL"), Answer(0, "", "why\n", "ADD")):
        with pytest.raises(ValueError, match=r"printed nothing on stdout .*; stderr: 'why'"):
            _ = silent.document
