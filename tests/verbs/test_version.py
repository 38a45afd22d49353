"""VERSION, validation and negotiation, with canned answers and no process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from helpers import RecordingNode

import libcni
from libcni import NetworkConfigList, Outcome
from libcni.verbs.version import negotiate, validate, version
from verbs.asked import drive, fails, network


def says(*versions: str, own: str = "1.0.0") -> Outcome:
    listed = ",".join(f'"{version}"' for version in versions)
    return Outcome(stdout=f'{{"cniVersion":"{own}","supportedVersions":[{listed}]}}'.encode())


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
