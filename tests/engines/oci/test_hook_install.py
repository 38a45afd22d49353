"""The hook's entry in a bundle, as the command writes it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from libcni.cli import main

SPEC: dict[str, Any] = {
    "ociVersion": "1.0.2",
    "linux": {"namespaces": [{"type": "pid"}, {"type": "network"}]},
    "hooks": {"prestart": None, "poststop": [{"path": "/bin/other", "args": ["other"]}]},
    "mounts": [{"destination": "/proc"}],
}


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    write(tmp_path, SPEC)
    return tmp_path


def write(bundle: Path, document: Any) -> None:
    (bundle / "config.json").write_text(json.dumps(document))


def read(bundle: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((bundle / "config.json").read_text())
    return document


def run(*words: str) -> int:
    return main(["oci-hook", *words])


def test_a_bundle_gets_the_hook_at_both_stages_and_keeps_all_else(bundle: Path) -> None:
    assert run("--install", str(bundle), "--timeout", "20") == 0
    document = read(bundle)
    [attach], [other, detach] = document["hooks"]["createRuntime"], document["hooks"]["poststop"]
    assert other == SPEC["hooks"]["poststop"][0]
    assert attach == detach
    assert os.access(attach["path"], os.X_OK)
    assert [word.partition("=")[0] for word in attach["args"][-5:]] == [
        "oci-hook", "--conf-dir", "--path", "--cache-dir", "--timeout",
    ]  # fmt: skip
    assert attach["timeout"] == 30
    assert {**document, "hooks": 0} == {**SPEC, "hooks": 0}


def test_a_directory_that_is_missing_is_named_before_the_first_container(
    bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"conf-dir": bundle, "path": f"/nowhere:{bundle}", "log": bundle / "log"}
    assert run("--install", str(bundle), *(f"--{name}={path}" for name, path in given.items())) == 0
    assert "no directory" not in capsys.readouterr().out
    given = {"conf-dir": "/no/conf", "path": "/no/bin", "log": "/no/log/file"}
    assert run("--install", str(bundle), *(f"--{name}={path}" for name, path in given.items())) == 0
    printed = capsys.readouterr().out.splitlines()[-3:]
    assert printed == [f"warning: there is no directory {path}" for path in ("/no/bin", "/no/conf", "/no/log")]


def test_a_wrong_option_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run("--uninstall")
    error = "error: unrecognized arguments: --uninstall; see: libcni oci-hook --help\n"
    assert capsys.readouterr().err == error


def test_a_second_installation_replaces_the_first(bundle: Path) -> None:
    run("--install", str(bundle), "--timeout", "20")
    assert run("--install", str(bundle / "config.json"), "--timeout", "30") == 0
    hooks = read(bundle)["hooks"]
    assert [one["args"][-1] for one in hooks["createRuntime"]] == ["--timeout=30"]
    assert [one["args"][-1] for one in hooks["poststop"]] == ["other", "--timeout=30"]
    assert list(bundle.iterdir()) == [bundle / "config.json"]


def test_paths_become_absolute_because_a_runtime_runs_hooks_in_the_bundle(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bundle)
    monkeypatch.setenv("LIBCNI_CACHE_DIR", "/var/cache/cni")
    assert run("--install", ".", "--conf-dir", "net.d", "--path", "a:/b") == 0
    words = read(bundle)["hooks"]["poststop"][1]["args"]
    assert words[-4:-1] == [f"--conf-dir={bundle}/net.d", f"--path={bundle}/a:/b", "--cache-dir=/var/cache/cni"]


def test_resolv_conf_is_mounted_once_from_a_file_that_exists(bundle: Path) -> None:
    for _ in range(2):
        assert run("--install", str(bundle), "--resolv-conf") == 0
    [_, mount] = read(bundle)["mounts"]
    assert (mount["destination"], mount["source"], mount["type"]) == ("/etc/resolv.conf", "resolv.conf", "bind")
    assert (bundle / "resolv.conf").read_text() == ""


def test_print_shows_what_install_would_write(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--print", str(bundle)) == 0
    printed = capsys.readouterr().out
    assert read(bundle) == SPEC
    run("--install", str(bundle))
    assert (bundle / "config.json").read_text() == printed
    hook = json.loads(printed)["hooks"]["createRuntime"][0]
    command = [*hook["args"], "--help"]
    done = subprocess.run(command, executable=hook["path"], env={}, check=True, capture_output=True, text=True)
    assert done.stdout.startswith("usage: libcni oci-hook")


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({**SPEC, "linux": {"namespaces": [{"type": "pid"}]}}, 'no network namespace of its own (add {"type": "net'),
        ({**SPEC, "linux": []}, "no network namespace"),
        ({**SPEC, "linux": 5}, "linux is not an object"),
        ({**SPEC, "hooks": [1]}, "hooks is not an object"),
        ([], "[] is not a JSON object"),
    ],
)
def test_a_bundle_that_cannot_work_is_refused_and_left_as_it_is(
    bundle: Path, document: Any, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(bundle, document)
    assert run("--install", str(bundle)) == 1
    error = capsys.readouterr().err
    assert said in error
    assert str(bundle) in error
    assert read(bundle) == document


def test_a_directory_that_is_no_bundle_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--install", str(tmp_path)) == 1
    assert f"{tmp_path}/config.json" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
