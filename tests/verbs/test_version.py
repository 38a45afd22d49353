"""VERSION and validation, with canned answers and no process."""

from __future__ import annotations

from libcni import NetworkConfigList, Outcome
from libcni.verbs.version import validate
from verbs.asked import drive


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
