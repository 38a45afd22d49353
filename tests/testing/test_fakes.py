"""FakePlugins: plugins that play a scenario, and write down what they received."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

import pytest
from plugin.plugins import config

from libcni.testing import Answer, FakePlugins, call_plugin


def call(fakes: FakePlugins, verb: str = "ADD", name: str = "fake", **more: Any) -> Answer:
    return call_plugin(fakes.path / name, verb, config("1.0.0", **more), args="A=1", path=str(fakes.path))


def test_a_fake_without_a_scenario_is_a_polite_plugin(cni_fakes: FakePlugins) -> None:
    cni_fakes.scenario("fake")
    assert call(cni_fakes).document == {"cniVersion": "1.0.0"}
    assert call(cni_fakes, prevResult={"ips": [], "x": 1}).document == {"cniVersion": "1.0.0", "ips": [], "x": 1}
    assert call(cni_fakes, "VERSION").document["supportedVersions"][-1] == "1.1.0"
    for verb in ("DEL", "CHECK", "GC", "STATUS"):
        assert call(cni_fakes, verb) == Answer(0, "", "")


def test_what_it_received_can_be_read_back(cni_fakes: FakePlugins) -> None:
    fake = cni_fakes.scenario("fake")
    call_plugin(fake.path, "ADD", b'{"n": 1e400, "bytes": "\xff"}', container_id="c7")
    call(cni_fakes, "DEL", key="value")
    first, second = fake.calls
    assert first.stdin == b'{"n": 1e400, "bytes": "\xff"}'
    assert (first.verb, first.env["CNI_CONTAINERID"], first.argv) == ("ADD", "c7", (str(fake.path),))
    assert (second.verb, second.config["key"], second.env["CNI_ARGS"]) == ("DEL", "value", "A=1")
    assert fake.verbs == ("ADD", "DEL")
    fake.forget()
    assert fake.calls == ()


SCENARIO = """
ADD:
  - error: {code: 11, msg: later, details: much later}
  - {result: {ips: [{address: 10.0.0.2/24}]}, stderr: a log line}
  - {stdout: garbage, exit: 3}
CHECK: {signal: 9}
DEL: {sleep: 0.2}
VERSION: {versions: ["0.4.0"]}
"""


def test_a_scenario_is_played_step_by_step(cni_fakes: FakePlugins) -> None:
    fake = cni_fakes.scenario("fake", SCENARIO)
    error = {"cniVersion": "1.0.0", "code": 11, "msg": "later", "details": "much later"}
    assert call(cni_fakes) == Answer(1, json.dumps(error), "")
    assert call(cni_fakes) == Answer(0, '{"cniVersion": "1.0.0", "ips": [{"address": "10.0.0.2/24"}]}', "a log line")
    for _ in range(2):
        assert call(cni_fakes) == Answer(3, "garbage", "")
    assert call(cni_fakes, "CHECK").status == -9
    assert call(cni_fakes, "VERSION").document["supportedVersions"] == ["0.4.0"]
    start = time.monotonic()
    call(cni_fakes, "DEL")
    assert time.monotonic() - start >= 0.2
    fake.forget()
    assert call(cni_fakes).code == 11


def test_a_child_that_lingers_holds_stdout(cni_fakes: FakePlugins) -> None:
    fake = cni_fakes.scenario("fake", {"DEL": {"linger": 3}})
    answer = call_plugin(fake.path, "DEL", config())
    assert (answer.status, answer.stdout_held) == (0, True)
    assert answer.seconds < 3
    assert not call_plugin(fake.path, "VERSION").stdout_held
    assert fake.verbs == ("DEL", "VERSION")


def test_a_silent_plugin_is_said_to_be_silent(cni_fakes: FakePlugins) -> None:
    cni_fakes.scenario("fake", {"ADD": {"stdout": "", "stderr": "why"}})
    with pytest.raises(ValueError, match=r"printed nothing on stdout \(exit status 0\); stderr: 'why'"):
        _ = call(cni_fakes).document


def test_a_plugin_that_does_not_end_in_time_is_stopped(cni_fakes: FakePlugins) -> None:
    fake = cni_fakes.scenario("fake", {"DEL": {"sleep": 60}})
    with pytest.raises(subprocess.TimeoutExpired):
        call_plugin(fake.path, "DEL", config(), timeout=0.5)


def test_a_few_lines_of_python_are_a_plugin(cni_fakes: FakePlugins) -> None:
    fake = cni_fakes.python(
        "fake",
        """
        import sys
        print(verb, env["CNI_IFNAME"], config["name"], len(stdin))
        sys.exit(5)
        """,
    )
    answer = call(cni_fakes)
    assert answer == Answer(5, f"ADD eth0 net {len(json.dumps(config('1.0.0')))}\n", "")
    assert fake.verbs == ("ADD",)


def test_python_gets_an_empty_configuration_for_garbage(cni_fakes: FakePlugins) -> None:
    fake = cni_fakes.python("fake", "print(config)")
    assert call_plugin(fake.path, "ADD", b"garbage").stdout == "{}\n"
    assert call_plugin(fake.path, "ADD", b"[]").stdout == "{}\n"


def test_a_few_lines_of_shell_are_a_plugin(cni_fakes: FakePlugins) -> None:
    answers = "[ $CNI_COMMAND != DEL ] || exit 4"
    fake = cni_fakes.shell("fake", answers, versions=["0.4.0"], result={"x": '$CNI_IFNAME `$HOME` \\ "'})
    assert call(cni_fakes).document == {"x": 'eth0 `$HOME` \\ "'}
    assert call(cni_fakes, "VERSION").document["supportedVersions"] == ["0.4.0"]
    assert call(cni_fakes, "DEL", key="it's") == Answer(4, "", "")
    assert call(cni_fakes, "CHECK") == Answer(0, "", "")
    assert fake.verbs == ("ADD", "VERSION", "DEL", "CHECK")
    assert (fake.calls[2].config["key"], fake.calls[0].env["CNI_ARGS"]) == ("it's", "A=1")


def test_a_shell_plugin_that_is_written_again_keeps_its_calls(cni_fakes: FakePlugins) -> None:
    cni_fakes.shell("fake", result="text, as $CNI_IFNAME is")
    assert call(cni_fakes).stdout == "text, as $CNI_IFNAME is\n"
    fake = cni_fakes.shell("fake", "echo only this", result=None)
    assert [call(cni_fakes, verb).stdout for verb in ("ADD", "VERSION")] == ["only this\n"] * 2
    assert fake.verbs == ("ADD", "ADD", "VERSION")


def test_the_calls_of_a_directory_are_in_order_whatever_the_plugins_are(cni_fakes: FakePlugins) -> None:
    cni_fakes.shell("shell")
    cni_fakes.python("python", "print('{}')")
    for name in ("shell", "python", "shell"):
        call(cni_fakes, "ADD", name)
        call(cni_fakes, "DEL", name)
    names = ["shell", "shell", "python", "python", "shell", "shell"]
    assert cni_fakes.verbs == list(zip(["ADD", "DEL"] * 3, names, strict=True))
    for fake in cni_fakes:
        fake.forget()
    assert cni_fakes.calls == ()


def test_writing_a_fake_again_replaces_it(cni_fakes: FakePlugins) -> None:
    cni_fakes.python("fake", "print('python')")
    call(cni_fakes)
    fake = cni_fakes.scenario("fake", {"ADD": {"stdout": "scenario"}})
    assert fake.calls == ()
    assert call(cni_fakes).stdout == "scenario"


def test_all_fakes_of_a_directory(cni_fakes: FakePlugins) -> None:
    for name in ("two", "one"):
        cni_fakes.scenario(name)
    assert [fake.path.name for fake in cni_fakes] == ["one", "two"]


@pytest.mark.parametrize(
    "scenario", ["- ADD", "ADDD: {}", "ADD: {reslut: {}}", {"ADD": [{"exit": 1}, {"nope": 1}]}, "7"]
)
def test_a_misspelt_scenario_is_refused(cni_fakes: FakePlugins, scenario: Any) -> None:
    with pytest.raises(ValueError, match="scenario"):
        cni_fakes.scenario("fake", scenario)
