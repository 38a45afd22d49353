"""The directories of containerd's own configuration, compared with those that the doctor checks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from diagnosis.made import BRIDGE, PORTMAP, MadeNode, configure
from libcni.diagnosis import containerd
from libcni.diagnosis.containerd import check_containerd
from libcni.diagnosis.report import NodeFinding

CNI = """
version = {version}
[plugins."{plugin}".cni]
  {key} = {value}
  conf_dir = "{conf_dir}"
"""
FORMATS = [
    (1, "cri", "bin_dir", '"{}"'),
    (2, "io.containerd.grpc.v1.cri", "bin_dir", '"{}"'),
    (3, "io.containerd.cri.v1.runtime", "bin_dir", '"{}"'),
    (3, "io.containerd.cri.v1.runtime", "bin_dirs", '["/none", "{}"]'),
]
POD: dict[str, Any] = {"args": (("K8S_POD_NAMESPACE", "shop"), ("K8S_POD_NAME", "web-0")), "version": ""}


@pytest.fixture
def config(made: MadeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the configuration of a containerd whose pod was attached by bridge and portmap."""
    made.attach("c1", BRIDGE, PORTMAP, **POD)
    configure(made, BRIDGE, PORTMAP)
    path = tmp_path / "config.toml"
    path.touch(0o644)
    monkeypatch.setattr(containerd, "_configurations", lambda: [str(path)])
    return path


def write(config: Path, made: MadeNode, kind: tuple[int, str, str, str], directory: str) -> None:
    version, plugin, key, value = kind
    text = CNI.format(
        version=version, plugin=plugin, key=key, value=value.format(directory), conf_dir=made.cni.conf_dir
    )
    config.write_text(text, encoding="utf-8")


def findings(made: MadeNode) -> list[NodeFinding]:
    return made.findings(check_containerd)


@pytest.mark.parametrize("kind", FORMATS)
def test_plugins_that_are_not_where_containerd_looks_for_them(
    made: MadeNode, config: Path, tmp_path: Path, kind: tuple[int, str, str, str]
) -> None:
    write(config, made, kind, f"{tmp_path}/bin")
    assert findings(made) == []
    (tmp_path / "moved").mkdir()
    for name in ("bridge", "host-local"):
        (tmp_path / "moved" / name).touch(0o755)
    write(config, made, kind, f"{tmp_path}/moved")
    [found] = findings(made)
    assert (found.severity, found.name) == ("error", "no-plugins")
    assert "does not have portmap; " in found.seen
    assert str(config) in found.remedy
    Path(tmp_path, "bin", "portmap").unlink()
    assert findings(made) == [], "it is nowhere: the check of the plugins says so"


def test_an_imported_file_wins(made: MadeNode, config: Path, tmp_path: Path) -> None:
    write(config, made, FORMATS[2], f"{tmp_path}/bin")
    config.write_text(f'imports = ["conf.d/*.toml"]\n{config.read_text(encoding="utf-8")}', encoding="utf-8")
    assert findings(made) == []
    imported = tmp_path / "conf.d" / "own.toml"
    imported.parent.mkdir()
    imported.touch(0o644)
    imported.write_text('[plugins."io.containerd.cri.v1.runtime".cni]\nbin_dir = "/none"\n', encoding="utf-8")
    assert [one.subject for one in findings(made)] == ["containerd's directory /none"]


def test_a_containerd_without_pods_says_nothing(made: MadeNode, config: Path) -> None:
    write(config, made, FORMATS[1], "/none")
    disabled = f'disabled_plugins = ["cri"]\n{config.read_text(encoding="utf-8")}'
    assert len(findings(made)) == 1
    config.write_text(disabled, encoding="utf-8")
    assert findings(made) == [], "that of docker"
    write(config, made, FORMATS[1], "/none")
    made.records.clear()
    assert findings(made) == []


def test_another_directory_of_networks_is_not_checked(made: MadeNode, config: Path, tmp_path: Path) -> None:
    write(config, made, FORMATS[1], "/none")
    config.write_text(config.read_text(encoding="utf-8").replace("net.d", "other.d"), encoding="utf-8")
    [found] = findings(made)
    assert (found.severity, found.name, found.subject) == (
        "error", "no-configuration", f"containerd's directory {tmp_path}/other.d"
    )  # fmt: skip
    (tmp_path / "other.d").mkdir()
    (tmp_path / "other.d" / "10-own.conflist").touch()
    assert findings(made) == []
    assert [subject for subject, _ in made.not_checked(check_containerd)] == [f"{tmp_path}/other.d"]


def replace_by_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda path: path.write_text("plugins = ["), "Invalid value"),
        (lambda path: path.write_bytes(b"\xff"), "utf-8"),
        (lambda path: path.chmod(0o666), "another user than root may change it"),
        (lambda path: os.truncate(path, 1 << 40), "has 1,099,511,627,776 bytes"),
        (replace_by_fifo, "not a regular file"),
        (lambda path: path.write_text("plugins = [1]\nimports = 7\n"), ""),
        (lambda path: path.write_text('[plugins."cri"]\ncni = "x"\n'), ""),
    ],
)
def test_a_file_that_cannot_be_used_is_named(made: MadeNode, config: Path, spoil: object, reason: str) -> None:
    assert callable(spoil)
    spoil(config)
    assert findings(made) == []
    unread = made.not_checked(check_containerd)
    assert [reason in why for _, why in unread] == [True] * bool(reason)


@pytest.mark.parametrize(
    ("words", "path"),
    [
        ("containerd", "/etc/containerd/config.toml"),
        ("containerd -c /a/b.toml --log-level debug", "/a/b.toml"),
        ("containerd --config=/a/b.toml", "/a/b.toml"),
        ("containerd -c", os.getcwd()),
    ],
)
def test_the_configuration_on_containerds_command_line(words: str, path: str) -> None:
    assert containerd._named(words.split()) == path


@pytest.mark.real
def test_the_containerd_that_runs_here_names_its_configuration(tmp_path: Path) -> None:
    program, config = tmp_path / "program.py", tmp_path / "config.toml"
    program.write_text("open('/proc/self/comm', 'w').write('containerd')\nprint(flush=True)\ninput()\n")
    config.touch()
    words = [sys.executable, str(program), "--config", str(config)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert str(config) in containerd._configurations()
        process.kill()
    assert str(config) not in containerd._configurations()
