"""A plugin's executable is found in the directories of the path."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from executor.plugins import script
from libcni.errors import PluginNotFoundError
from libcni.executor import find_plugin


def test_a_file_that_cannot_be_executed_is_skipped(tmp_path: Path) -> None:
    for name in ("a", "b", "c", "d"):
        (tmp_path / name).mkdir()
    script(tmp_path / "a", "", name="x", mode=0o644)
    (tmp_path / "b" / "x").mkdir()
    (tmp_path / "c" / "x").symlink_to("nowhere")
    path = [str(tmp_path / name) for name in ("a", "b", "c", "d")]
    with pytest.raises(PluginNotFoundError) as caught:
        find_plugin("x", path)
    error = caught.value
    assert (error.plugin, error.searched) == ("x", tuple(path))
    assert error.rejected == (
        f"{path[0]}/x is not executable",
        f"{path[1]}/x is not a regular file",
        f"{path[2]}/x is a link to nowhere, which leads nowhere",
    )
    assert str(error.hint) == f"make the file executable: chmod +x {path[0]}/x"
    with pytest.raises(PluginNotFoundError) as caught:
        find_plugin("x", path[1:])
    assert "chmod" not in str(caught.value), "a directory is not made executable"
    (tmp_path / "d" / "x").symlink_to(script(tmp_path, "", name="real"))
    assert find_plugin("x", path) == f"{path[3]}/x"


@pytest.mark.parametrize(
    ("mode", "flags", "text"),
    [(0o755, os.ST_NOEXEC, "mounted noexec"), (0o755, 0, "by this user"), (0o644, os.ST_NOEXEC, "is not executable")],
)
def test_chmod_is_advised_only_if_the_mode_is_why_a_file_is_not_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, flags: int, text: str
) -> None:
    script(tmp_path, "", name="x", mode=mode)
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=flags))
    with pytest.raises(PluginNotFoundError, match=text) as caught:
        find_plugin("x", [str(tmp_path)])
    assert ("chmod +x" in str(caught.value)) is (mode == 0o644)


def test_a_plugin_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PluginNotFoundError) as caught:
        find_plugin("x", [str(tmp_path), "/a\0b", "\ud800"])
    assert caught.value.rejected == ()
    assert str(caught.value.hint) == "install the plugin there, or pass its directory with path"
    script(tmp_path, "", name="bridge")
    with pytest.raises(PluginNotFoundError, match=r"did you mean bridge\?"):
        find_plugin("brige", ["/nowhere", str(tmp_path)])
    with pytest.raises(PluginNotFoundError, match="no plugin directories") as caught:
        find_plugin("x", [])
    assert str(caught.value.hint) == "pass a plugin directory with path"
