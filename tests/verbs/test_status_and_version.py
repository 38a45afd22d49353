"""VERSION, STATUS, validation and negotiation, with canned answers and no process."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import pytest
from helpers import RecordingNode

import libcni
from libcni import NetworkConfigList, Outcome
from libcni.protocol.invocation import Invocation
from libcni.verbs.status import status
from libcni.verbs.version import negotiate, validate, version


def network(*types: str, version: str = "1.1.0", versions: list[str] | None = None) -> NetworkConfigList:
    document: dict[str, Any] = {"name": "n", "cniVersion": version, "plugins": [{"type": name} for name in types]}
    return NetworkConfigList.from_dict(document | ({"cniVersions": versions} if versions else {}))


Verb = Callable[..., Coroutine[Any, Any, Any]]


def drive(
    verb: Verb, asked: NetworkConfigList | str, answers: Mapping[str, Outcome | None], **options: Any
) -> tuple[Any, list[Invocation]]:
    """Run a verb; ``answers`` has what each plugin type answers, None for a missing one."""
    missing = [name for name, answer in answers.items() if answer is None]
    given = {(name, plugin): answer for plugin, answer in answers.items() if answer for name in ("VERSION", "STATUS")}
    node = RecordingNode(given, missing=missing, path=["/bin1"])
    return node.run(verb, asked, **options), node.calls


def says(*versions: str, own: str = "1.0.0") -> Outcome:
    listed = ",".join(f'"{version}"' for version in versions)
    return Outcome(stdout=f'{{"cniVersion":"{own}","supportedVersions":[{listed}]}}'.encode())


def fails(code: int, msg: str) -> Outcome:
    return Outcome(exit_status=1, stdout=f'{{"cniVersion":"1.0.0","code":{code},"msg":"{msg}"}}'.encode())


def test_version_asks_with_what_old_plugins_insist_on() -> None:
    info, (call,) = drive(version, "a", {"a": says("0.4.0", "1.0.0")})
    assert info == libcni.PluginInfo("1.0.0", ("0.4.0", "1.0.0"))
    assert call.stdin == b'{"cniVersion":"1.1.0"}'
    assert call.env == {
        "CNI_COMMAND": "VERSION",
        "CNI_CONTAINERID": "",
        "CNI_NETNS": "dummy",
        "CNI_IFNAME": "dummy",
        "CNI_ARGS": "",
        "CNI_PATH": "dummy",
    }


def test_a_plugin_that_does_not_know_version_supports_the_first_one() -> None:
    info, _ = drive(version, "a", {"a": fails(4, "unknown CNI_COMMAND: VERSION")})
    assert info.supported_versions == ("0.1.0",)


def test_a_plugin_of_0_2_0_may_leave_its_versions_out() -> None:
    info, _ = drive(version, "a", {"a": Outcome(stdout=b'{"cniVersion":"0.2.0"}')})
    assert info.supported_versions == ("0.1.0", "0.2.0")


@pytest.mark.parametrize(
    "stdout",
    [
        b"",
        b"x",
        b"[]",
        b"null",
        b"{}",
        b'{"cniVersion":1}',
        b'{"cniVersion":"1.0.0"}',
        b'{"cniVersion":"1.0.0","supportedVersions":"1.0.0"}',
        b'{"cniVersion":"1.0.0","supportedVersions":[1]}',
        b'{"cniVersion":"1.0.0","supportedVersions":[]}',
    ],
)
def test_a_version_document_that_is_none_is_an_error(stdout: bytes) -> None:
    with pytest.raises(libcni.InvalidOutputError, match="version document") as caught:
        drive(version, "a", {"a": Outcome(stdout=stdout)})
    assert (caught.value.plugin, caught.value.verb) == ("a", "VERSION")


def test_another_error_is_not_taken_for_an_old_plugin() -> None:
    with pytest.raises(libcni.PluginError, match="broken"):
        drive(version, "a", {"a": fails(999, "broken")})


def test_validation_reports_plugin_by_plugin() -> None:
    net = NetworkConfigList.from_dict(
        {
            "name": "n",
            "cniVersion": "1.0.0",
            "plugins": [{"type": "good", "capabilities": {"mac": True}}, {"type": "old"}, {"type": "gone"}],
        }
    )
    answers = {"good": says("1.0.0"), "old": says("0.3.1"), "gone": None}
    report, _ = drive(validate, net, answers)
    assert [type(plugin.problem).__name__ for plugin in report.plugins] == [
        "NoneType",
        "VersionError",
        "PluginNotFoundError",
    ]
    assert [plugin.path for plugin in report.plugins] == ["/bin1/good", "/bin1/old", ""]
    assert report.plugins[1].supported_versions == ("0.3.1",)
    assert report.capabilities == ("mac",)
    assert 'plugin "old" does not support version "1.0.0"' in str(report.problems[0])


def test_the_same_executable_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("libcni.verbs.version.file_identity", len)
    _, calls = drive(validate, network("a", "a", version="1.0.0"), {"a": says("1.0.0")})
    assert len(calls) == 1


def test_an_executable_that_was_replaced_is_asked_again(tmp_path: Path) -> None:
    executable = tmp_path / "a"
    executable.write_text("old", encoding="utf-8")
    before = executable.stat()
    node = RecordingNode({("VERSION", "a"): says("1.0.0")}, path=[str(tmp_path)])
    node.run(version, "a")
    node.run(version, "a")
    assert len(node.calls) == 1
    # Like cp -p over a file: the same inode, size and modification time.
    executable.write_text("new", encoding="utf-8")
    os.utime(executable, ns=(before.st_atime_ns, before.st_mtime_ns))
    node.run(version, "a")
    assert len(node.calls) == 2


def test_negotiation_takes_the_highest_version_that_all_support() -> None:
    net = network("a", "b", versions=["0.3.1", "0.4.0", "1.0.0", "1.1.0"])
    answers = {"a": says("0.3.1", "0.4.0", "1.0.0"), "b": says("1.1.0", "0.4.0", "0.3.1")}
    chosen, _ = drive(negotiate, net, answers)
    assert (net.cni_version, chosen.cni_version) == ("1.1.0", "0.4.0")


def test_negotiation_names_the_plugin_that_blocks() -> None:
    net = network("a", "b", versions=["1.0.0", "1.1.0"])
    with pytest.raises(libcni.VersionError, match=r'plugin "b" supports 0\.3\.1'):
        drive(negotiate, net, {"a": says("1.0.0"), "b": says("0.3.1")})


def test_negotiation_chooses_nothing_that_the_document_does_not_name() -> None:
    with pytest.raises(libcni.VersionError):
        drive(negotiate, network("a", version="1.1.0"), {"a": says("1.0.0")})


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


def test_before_1_1_0_there_is_no_status_but_a_missing_plugin_is_noticed() -> None:
    found, calls = drive(status, network("a", "b", version="1.0.0"), {"a": Outcome(), "b": None})
    assert [plugin.state for plugin in found.plugins] == ["unsupported", "missing"]
    assert calls == []
