"""The doctor checks the configuration directory."""

from __future__ import annotations

from pathlib import Path

import pytest
from nodes import FakeNode

from diagnosis.conftest import only
from diagnosis.made import MadeNode, configure
from libcni import CNIConfig
from libcni.cli import main
from libcni.diagnosis import diagnose
from libcni.diagnosis.configuration import check_configuration


def test_a_broken_configuration_has_its_file_and_hint(cni: CNIConfig) -> None:
    Path(cni.conf_dir, "bad.conflist").write_text('{"name": "x", "plugins": [{"type": "a",}]}', encoding="utf-8")
    finding = only(cni)
    assert (finding.check, finding.severity) == ("configuration", "error")
    assert finding.subject.endswith("bad.conflist")
    assert finding.remedy.startswith("remove the comma before the closing bracket; then: ")


def test_a_second_file_of_a_network_is_shown_by_the_printed_command(
    healthy: FakeNode, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file is in order by itself: a command that checks it alone would say so."""
    [first] = healthy.conf_dir.glob("*.conflist")
    second = healthy.write("zz.conflist", first.read_text(encoding="utf-8"))
    finding = only(healthy.cni)
    assert finding.subject == str(second)
    assert finding.remedy.startswith("move one of the two files elsewhere")  # either may be the good one
    options = [f"--conf-dir={healthy.conf_dir}", f"--path={healthy.bin}", f"--cache-dir={healthy.cache}"]
    command = finding.remedy.rpartition(": ")[2]
    main([*command.split()[1:], *options])
    assert "is already defined in" in capsys.readouterr().out


@pytest.mark.parametrize("text", [None, "{"])
def test_a_file_that_every_user_may_write_to(healthy: FakeNode, text: str | None) -> None:
    """Who may write it decides which programs root runs, whether the file is in order now or not."""
    [file] = healthy.conf_dir.glob("*.conflist")
    if text is not None:
        file.write_text(text, encoding="utf-8")
    file.chmod(0o666)
    assert (str(file), f"chmod o-w {file}") in {(one.subject, one.remedy) for one in diagnose(healthy.cni).findings}


def test_an_empty_and_a_missing_directory_differ(healthy: FakeNode) -> None:
    (healthy.root / "empty").mkdir()
    empty = healthy.client(conf_dir=healthy.root / "empty")
    findings = [one.seen for one in diagnose(empty).findings]
    assert findings[0] == "no usable network configuration"
    assert findings[1].startswith("it has no usable configuration file, and 1 attachment: c1")
    gone = healthy.client(conf_dir=healthy.root / "gone")
    assert diagnose(gone).findings[0].seen == "there is no such directory"
    file = healthy.client(conf_dir=healthy.netns("c1"))
    assert only(file).seen == "it is not a directory"


def test_a_file_that_the_plugins_read_and_their_daemon_writes(made: MadeNode, tmp_path: Path) -> None:
    env, kubeconfig = tmp_path / "subnet.env", tmp_path / "kubeconfig"
    configure(
        made, {"type": "flannel", "subnetFile": str(env)},
        {"type": "calico", "kubernetes": {"kubeconfig": str(kubeconfig)}, "log_file_path": str(tmp_path / "log")},
    )  # fmt: skip
    found = made.findings(check_configuration)
    assert {(one.name, one.subject) for one in found} == {("file-missing", str(path)) for path in (kubeconfig, env)}
    env.touch()
    kubeconfig.touch()
    assert made.findings(check_configuration) == []
    configure(made, {"type": "flannel"})
    assert made.finding(check_configuration).subject == "/run/flannel/subnet.env"
    ipam = {"type": "dhcp", "daemonSocketPath": str(tmp_path / "dhcp.sock")}
    configure(made, {"type": "bridge", "ipam": ipam})
    assert made.finding(check_configuration).subject == str(tmp_path / "dhcp.sock")


def test_a_value_that_the_plugin_refuses_is_an_error_of_its_file(made: MadeNode) -> None:
    file = configure(made, {"type": "bridge", "isGateway": "true"}, {"type": "other", "isGateway": "true"})
    found = [one for one in made.findings(check_configuration) if one.name == "unusable-file"]
    seen = "plugins[0].isGateway: it must be true or false, not 'true', without quotation marks"
    assert [(one.severity, one.subject, one.seen) for one in found] == [("error", str(file), seen)]
    configure(made)
    assert made.findings(check_configuration) == []
