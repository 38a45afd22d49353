"""VERSION, validation and negotiation, with canned answers and no process."""

from __future__ import annotations

import pytest

import libcni
from libcni import NetworkConfigList, Outcome
from libcni.verbs.version import negotiate, validate
from verbs.asked import drive, network


def says(*versions: str, own: str = "1.0.0") -> Outcome:
    listed = ",".join(f'"{version}"' for version in versions)
    return Outcome(stdout=f'{{"cniVersion":"{own}","supportedVersions":[{listed}]}}'.encode())


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


def test_negotiation_names_the_plugin_that_blocks() -> None:
    net = network("a", "b", versions=["1.0.0", "1.1.0"])
    with pytest.raises(libcni.VersionError, match=r'plugin "b" supports 0\.3\.1'):
        drive(negotiate, net, {"a": says("1.0.0"), "b": says("0.3.1")})


def test_negotiation_chooses_nothing_that_the_document_does_not_name() -> None:
    with pytest.raises(libcni.VersionError):
        drive(negotiate, network("a", version="1.1.0"), {"a": says("1.0.0")})
