"""``libcni gc --runtime`` and ``libcni doctor`` on containers that have ended without their hook."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from libcni.cli import main

from .conftest import HookNode, end

Process = Callable[[], int]


@pytest.fixture
def root(tmp_path: Path) -> str:
    path = tmp_path / "runc"
    path.mkdir()
    return str(path)


def run(node: HookNode, *words: str) -> int:
    directories = [f"--path={node.bin}", f"--cache-dir={node.cni.cache_dir}", f"--conf-dir={node.cni.conf_dir}"]
    return main([*words, *directories])


def test_gc_detaches_what_an_ended_container_left_and_shows_it_before(
    node: HookNode, process: Process, root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    [plugin] = node.configure_capable("front", "a")
    pid = process()
    assert node.attach(pid) == ""
    assert run(node, "gc", "--runtime", root) == 0
    assert capsys.readouterr().out == ""
    end(pid)
    assert run(node, "gc", "--runtime", root, "--dry-run") == 0
    assert "c1" in capsys.readouterr().out
    assert "DEL" not in plugin.verbs
    assert run(node, "gc", "--runtime", root) == 0
    assert "c1" in capsys.readouterr().out
    assert (node.attached, node.pinned) == ([], [])


def test_doctor_reports_an_ended_container_with_what_to_type(
    node: HookNode, process: Process, root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    node.configure_capable("front", "a")
    pid = process()
    assert node.attach(pid) == ""
    run(node, "doctor")
    assert "has ended" not in capsys.readouterr().out
    end(pid)
    assert run(node, "doctor") != 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "container c1, front, eth0" in printed
    assert "its runtime did not run the poststop hook" in printed
    assert f"libcni gc --runtime runc --runtime crun --conf-dir {node.conf_dir} " in printed


@pytest.mark.parametrize("words", [("gc",), ("gc", "front", "--runtime", "runc"), ("gc", "--runtime", "runk")])
def test_what_does_not_go_together_is_refused(node: HookNode, words: tuple[str, ...]) -> None:
    assert run(node, *words) in {2, 3}
