"""FakePlugins: plugins that play a scenario, and write down what they received."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from plugin.plugins import config

from libcni.testing import Answer, FakePlugins, call_plugin, wait_until


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
VERSION: {versions: ["0.4.0", "1.0.0"]}
"""


def test_a_scenario_is_played_step_by_step(cni_fakes: FakePlugins) -> None:
    fake = cni_fakes.scenario("fake", SCENARIO)
    error = {"cniVersion": "1.0.0", "code": 11, "msg": "later", "details": "much later"}
    assert call(cni_fakes) == Answer(1, json.dumps(error), "")
    assert call(cni_fakes) == Answer(0, '{"cniVersion": "1.0.0", "ips": [{"address": "10.0.0.2/24"}]}', "a log line")
    for _ in range(2):
        assert call(cni_fakes) == Answer(3, "garbage", "")
    assert call(cni_fakes, "CHECK").status == -9
    assert call(cni_fakes, "VERSION").document["supportedVersions"] == ["0.4.0", "1.0.0"]
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
    "scenario", ["- ADD", "ADDD: {}", "ADD: {reslut: {}}", {"ADD": [{"exit": 1}, {"nope": 1}]}, "ADD: 3", "7"]
)
def test_a_misspelt_scenario_is_refused(cni_fakes: FakePlugins, scenario: Any) -> None:
    with pytest.raises(ValueError, match="scenario"):
        cni_fakes.scenario("fake", scenario)


def test_a_fake_refuses_versions_that_it_does_not_list(cni_fakes: FakePlugins) -> None:
    fake = cni_fakes.scenario("fake", {"VERSION": {"versions": ["0.4.0"]}})
    refused = call_plugin(fake.path, "ADD", config("1.1.0"))
    assert (refused.code, refused.document["details"]) == (1, 'config is "1.1.0", plugin supports ["0.4.0"]')
    assert call_plugin(fake.path, "ADD", config("0.4.0")).status == 0
    assert call_plugin(fake.path, "VERSION").document["supportedVersions"] == ["0.4.0"]


@pytest.mark.parametrize(
    ("version", "shape"),
    [
        ("1.1.0", {"ips": [{"address": "10.0.0.2/24"}], "routes": [{"dst": "0.0.0.0/0"}]}),
        ("0.4.0", {"ips": [{"version": "4", "address": "10.0.0.2/24"}], "routes": [{"dst": "0.0.0.0/0"}]}),
        ("0.2.0", {"ip4": {"ip": "10.0.0.2/24", "routes": [{"dst": "0.0.0.0/0"}]}}),
    ],
)
def test_a_result_is_printed_in_the_form_of_the_configuration(
    cni_fakes: FakePlugins, version: str, shape: dict[str, Any]
) -> None:
    result = {"ips": [{"address": "10.0.0.2/24"}], "routes": [{"dst": "0.0.0.0/0"}]}
    fake = cni_fakes.scenario("fake", {"ADD": {"result": result}})
    assert call_plugin(fake.path, "ADD", config(version)).document == {"cniVersion": version, **shape}
    raw = cni_fakes.scenario("raw", {"ADD": {"result": {"cniVersion": "0.3.0", **result}}})
    assert call_plugin(raw.path, "ADD", config(version)).document == {"cniVersion": "0.3.0", **result}


def test_a_fake_can_fail_after_it_has_acted(cni_fakes: FakePlugins, tmp_path: Path) -> None:
    acted = tmp_path / "acted"
    fake = cni_fakes.scenario("fake", {"ADD": {"touch": str(acted), "error": {"code": 11, "msg": "later"}}})
    assert call_plugin(fake.path, "ADD", config()).code == 11
    assert acted.exists()


def test_a_fake_can_wait_for_a_file_and_ignore_sigterm(cni_fakes: FakePlugins, tmp_path: Path) -> None:
    go, ready = tmp_path / "go", tmp_path / "ready"
    fake = cni_fakes.scenario("fake", {"ADD": {"ignoreTerm": True, "touch": str(ready), "waitFor": str(go)}})
    env = {**os.environ, "CNI_COMMAND": "ADD"}
    with subprocess.Popen([fake.path], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        wait_until(ready.exists)
        process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
        go.touch()
        assert process.wait(20) == 0


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_fake_can_print_without_end(cni_fakes: FakePlugins, stream: str) -> None:
    fake = cni_fakes.scenario("fake", {"ADD": {"endless": stream}})
    env = {**os.environ, "CNI_COMMAND": "ADD"}
    pipes: dict[str, Any] = {stream: subprocess.PIPE}
    with subprocess.Popen([fake.path], env=env, stdin=subprocess.DEVNULL, **pipes) as process:
        assert len(getattr(process, stream).read(1_000_000)) == 1_000_000
        process.kill()


def test_a_child_can_be_detached(cni_fakes: FakePlugins) -> None:
    fake = cni_fakes.scenario("fake", {"ADD": {"linger": 2, "detach": True}})
    assert call_plugin(fake.path, "ADD", config()).stdout_held


def test_a_stateful_fake_keeps_its_state_in_files(cni_fakes: FakePlugins) -> None:
    fake = cni_fakes.stateful("fake-ipam")
    pool = config(ipam={"subnet": "10.9.0.0/29"})
    answer = call_plugin(fake.path, "ADD", pool, path="/x", container_id="c1")
    assert answer.document["ips"][0]["address"] == "10.9.0.2/29"
    assert call_plugin(fake.path, "ADD", pool, path="/x", container_id="c1").code == 999
    state = cni_fakes.path / ".state" / "addresses" / "net"
    assert [path.name for path in state.iterdir()] == ["10.9.0.2"]
    assert call_plugin(fake.path, "DEL", pool, path="/x", container_id="c1").status == 0
    assert list(state.iterdir()) == []
    assert fake.verbs == ("ADD", "ADD", "DEL")
    assert [one.path.name for one in cni_fakes] == ["fake-ipam"]


def test_a_stateful_fake_has_the_knobs_of_the_fake_plugins(cni_fakes: FakePlugins) -> None:
    fake = cni_fakes.stateful("my-ipam", "ipam", {"ADD": {"errorAfter": {"code": 11, "msg": "later"}}})
    pool = config(ipam={"subnet": "10.9.0.0/29"})
    assert call_plugin(fake.path, "ADD", pool, path="/x").code == 11
    assert (cni_fakes.path / ".state/addresses/net/10.9.0.2").exists()
    with pytest.raises(ValueError, match="no stateful fake 'nothing'"):
        cni_fakes.stateful("nothing")


@pytest.mark.parametrize("value", ["", "plain", "two\nlines", "a'b", "'", "a'\nexport X='1'\n", '"', "export X="])
def test_a_shell_plugin_keeps_any_text_of_its_environment(cni_fakes: FakePlugins, value: str) -> None:
    plugin = cni_fakes.shell("a", "")
    subprocess.run([plugin.path], env={"PATH": os.environ["PATH"], "M": value, "Z": "\n"}, input=b"", check=True)
    [call] = plugin.calls
    assert {name: call.env.get(name) for name in ("M", "X", "Z")} == {"M": value, "X": None, "Z": "\n"}
