"""FakePlugins: plugins that play steps or shell, and write down what they received."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from plugin.plugins import config

from libcni.testing import Answer, FakePlugins, call_plugin
from libcni.testing.__main__ import main
from testing.faulty import write_shell_plugin


def call(fakes: FakePlugins, verb: str = "ADD", name: str = "fake", **more: Any) -> Answer:
    return call_plugin(fakes.path / name, verb, config("1.1.0", **more), args="A=1", path=str(fakes.path))


def test_what_it_received_can_be_read_back(cni_fakes: FakePlugins) -> None:
    fake = cni_fakes.scenario("fake")
    call_plugin(fake.path, "ADD", b'{"n": 1e400, "bytes": "\xff"}', container_id="c7")
    call(cni_fakes, "DEL", key="value")
    first, second = fake.calls
    assert first.stdin == b'{"n": 1e400, "bytes": "\xff"}'
    assert (first.plugin, first.verb, first.env["CNI_CONTAINERID"]) == ("fake", "ADD", "c7")
    assert (second.verb, second.config["key"], second.env["CNI_ARGS"]) == ("DEL", "value", "A=1")
    assert fake.verbs == ("ADD", "DEL")
    fake.forget()
    assert fake.calls == ()


STEPS = """
ADD:
  - error: {code: 11, msg: later, details: much later}
  - {result: {ips: [{address: 10.0.0.2/24}]}, stderr: a log line}
  - {stdout: garbage, exit: 3}
CHECK: {signal: 9}
versions: ["0.4.0", "1.1.0"]
"""


def test_a_scenario_is_played_step_by_step(cni_fakes: FakePlugins) -> None:
    fake = cni_fakes.scenario("fake", STEPS)
    error = {"cniVersion": "1.1.0", "code": 11, "msg": "later", "details": "much later"}
    assert call(cni_fakes).document == error
    assert call(cni_fakes) == Answer(0, '{"cniVersion": "1.1.0", "ips": [{"address": "10.0.0.2/24"}]}\n', "a log line")
    for _ in range(2):
        assert call(cni_fakes) == Answer(3, "garbage", "")
    assert call(cni_fakes, "CHECK", prevResult={}).status == -9
    assert call(cni_fakes, "VERSION").document["supportedVersions"] == ["0.4.0", "1.1.0"]
    fake.forget()
    assert call(cni_fakes).code == 11


def test_a_silent_plugin_is_said_to_be_silent(cni_fakes: FakePlugins) -> None:
    cni_fakes.scenario("fake", {"ADD": {"stdout": "", "stderr": "why"}})
    with pytest.raises(ValueError, match=r"printed nothing on stdout \(exit status 0\); stderr: 'why'"):
        _ = call(cni_fakes).document


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
    first = cni_fakes.shell("fake", result="text, as $CNI_IFNAME is").path.stat().st_ino
    assert call(cni_fakes).stdout == "text, as $CNI_IFNAME is\n"
    fake = cni_fakes.shell("fake", "echo only this", result=None)
    assert fake.path.stat().st_ino != first, "a shell that runs the old text would go on in the new one"
    assert [call(cni_fakes, verb).stdout for verb in ("ADD", "VERSION")] == ["only this\n"] * 2
    assert fake.verbs == ("ADD", "ADD", "VERSION")


def test_the_calls_of_a_directory_are_in_order_whatever_the_plugins_are(cni_fakes: FakePlugins) -> None:
    cni_fakes.shell("shell")
    cni_fakes.scenario("steps")
    for name in ("shell", "steps", "shell"):
        call(cni_fakes, "ADD", name)
        call(cni_fakes, "DEL", name)
    names = ["shell", "shell", "steps", "steps", "shell", "shell"]
    assert cni_fakes.verbs == list(zip(["ADD", "DEL"] * 3, names, strict=True))
    for fake in cni_fakes:
        fake.forget()
    assert cni_fakes.calls == ()


def test_writing_a_scenario_again_replaces_it(cni_fakes: FakePlugins) -> None:
    cni_fakes.shell("fake", "echo shell", result=None)
    call(cni_fakes)
    fake = cni_fakes.scenario("fake", {"ADD": {"stdout": "scenario"}})
    assert fake.calls == ()
    assert call(cni_fakes).stdout == "scenario"


@pytest.mark.parametrize(("name", "kind"), [("fake-ipam", {}), ("mine", {"kind": "ipam"})])
def test_a_fake_keeps_its_state_in_files(cni_fakes: FakePlugins, name: str, kind: dict[str, str]) -> None:
    cni_fakes.scenario(name, kind)
    assert call(cni_fakes, "ADD", name, ipam={"subnet": "10.9.0.0/29"}).status == 0
    assert [path.name for path in (cni_fakes.path / ".state/addresses/net").iterdir()] == ["10.9.0.2"]
    assert [fake.path.name for fake in cni_fakes] == [name]


@pytest.mark.parametrize("value", ["", "plain", "two\nlines", "a'b", "'", "a'\nexport X='1'\n", '"', "export X="])
def test_a_shell_plugin_keeps_any_text_of_its_environment(cni_fakes: FakePlugins, value: str) -> None:
    plugin = cni_fakes.shell("a", "")
    subprocess.run([plugin.path], env={"PATH": os.environ["PATH"], "M": value, "Z": "\n"}, input=b"", check=True)
    [call] = plugin.calls
    assert {name: call.env.get(name) for name in ("M", "X", "Z")} == {"M": value, "X": None, "Z": "\n"}


@pytest.mark.parametrize("there", ["bridge", ".bridge/precious"])
@pytest.mark.parametrize("write", ["shell", "scenario"])
def test_nothing_but_a_fake_is_replaced(tmp_path: Path, there: str, write: str) -> None:
    """A developer may give the directory of the real plugins, or the home directory."""
    path = tmp_path / there
    path.parent.mkdir(exist_ok=True)
    path.write_text("theirs", encoding="utf-8")
    with pytest.raises(FileExistsError, match="is no fake plugin"):
        getattr(FakePlugins(tmp_path), write)("bridge")
    assert path.read_text(encoding="utf-8") == "theirs"


def test_calls_in_pid_namespaces_are_kept_apart(cni_fakes: FakePlugins) -> None:
    """In each namespace the process has the same number."""
    fake = cni_fakes.shell("fake")
    for number in range(3):
        command = ["unshare", "--pid", "--fork", "--map-root-user", "--user", str(fake.path)]
        env = {"PATH": os.environ["PATH"], "CNI_COMMAND": "DEL", "N": str(number)}
        done = subprocess.run(command, env=env, input=str(number).encode(), check=False, capture_output=True)
        if b"unshare failed" in done.stderr:
            pytest.skip("this machine allows no user namespaces")
    assert [(one.env["N"], one.stdin) for one in fake.calls] == [(str(n), str(n).encode()) for n in range(3)]


def test_broken_yaml_is_a_value_error(cni_fakes: FakePlugins) -> None:
    with pytest.raises(ValueError, match="the steps of a fake plugin are not YAML"):
        cni_fakes.scenario("fake", "ADD: [")


def test_the_stand_alone_fakes_keep_the_same_log(fake_path: str, fake_state: Path) -> None:
    document = config(ipam={"subnet": "10.9.0.0/29"}, runtimeConfig={"mac": "02:00:00:00:00:01"})
    assert call_plugin(f"{fake_path}/fake-bridge", "ADD", document, container_id="c1").status == 0
    (one,) = FakePlugins(fake_state).calls
    assert (one.plugin, one.verb, one.env["CNI_CONTAINERID"]) == ("fake-bridge", "ADD", "c1")
    assert one.config == document


def test_the_command_writes_fakes_and_checks_a_plugin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fakes", str(tmp_path / "fakes"), "fake", "bridge=bridge"]) == 0
    assert f"CNI_PATH={tmp_path}/fakes" in capsys.readouterr().out
    plugin = str(tmp_path / "fakes" / "bridge")
    bad = call_plugin(plugin, "ADD", config(ipam={"subnet": "10.9.0.0/29"}), container_id="../../escaped")
    assert bad.code == 4
    assert main(["check", plugin, "[]"]) == 2
    assert (
        main(["check", plugin, '{"type": "bridge"}', "--versions", "0.4.0", "--only", "life", "--known", "ADD=why"])
        == 1
    )
    assert "ADD: it passes: remove it from known (why)" in capsys.readouterr().out
    capsys.readouterr()
    for words, text in (((plugin, "{}", "--only", "live"), "there is no group of checks live; choose from refusals"),):
        assert main(["check", *words]) == 2
        assert text in capsys.readouterr().err


def test_the_command_takes_cni_path_and_names_the_option_for_a_namespace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = f'{{ echo "$CNI_PATH" >> {tmp_path}/paths; echo "no $CNI_NETNS" >&2; exit 1; }}'
    plugin = write_shell_plugin(tmp_path, ADD=line)
    monkeypatch.setenv("CNI_PATH", "/own")
    assert main(["check", str(plugin), "{}", "--only", "life", "--versions", "1.1.0"]) == 2
    assert "pass namespace= (--namespace) for a plugin that enters the namespace" in capsys.readouterr().err
    assert "/own\n" in (tmp_path / "paths").read_text()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["{x"], "CONFIG is not JSON: {x: Expecting property name"),
        (["[]"], "CONFIG is neither a JSON object nor a file: []: No such file or directory"),
        (["{}", "--prev-result", "nosuch"], "--prev-result is neither a JSON object nor a file: nosuch: "),
        (["{}", "--known", "ADD"], "--known needs CHECK=REASON, not ADD"),
        (["{}", "--versions", "1.1"], "there is no version of the specification 1.1; choose from 0.1.0, "),
        (["{}"], "/nosuch cannot be started: there is no such file"),
    ],
)
def test_a_wrong_argument_of_the_command_is_named(
    words: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "/nosuch", *words]) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err.startswith(problem)) == ("", True), printed.err


def test_the_command_says_that_namespaces_need_root(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert main(["check", "/nosuch", "{}", "--namespace"]) == 2
    assert capsys.readouterr().err == "network namespaces need root\n"


@pytest.mark.real
@pytest.mark.usefixtures("cni_namespaces")
def test_the_command_makes_the_links_of_the_previous_result(tmp_path: Path) -> None:
    plugin = write_shell_plugin(
        tmp_path, ADD='ip -n "${CNI_NETNS##*/}" link show dev "$CNI_IFNAME" >/dev/null || exit 1'
    )
    (tmp_path / "previous").write_text(
        '{"interfaces": [{"name": "eth7", "sandbox": "/run/netns/x"}]}', encoding="utf-8"
    )
    words = [str(plugin), "{}", "--namespace", "--prev-result", str(tmp_path / "previous"), "--versions", "1.1.0"]
    known = "ADD keeps prevResult=the test prints an empty result"
    assert main(["check", *words, "--only", "life", "--known", known, "VERSION echoes cniVersion=as well"]) == 0
