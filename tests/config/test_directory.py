"""A configuration directory: load order, duplicates, drop-ins, and bad files that never hide good ones."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from helpers import document

from libcni.config.directory import load_network_conf, read_config_directory
from libcni.errors import ConfigError, NetworkNotFoundError


def put(directory: Path, name: str, network: str | None = None, **more: Any) -> None:
    """Write a good file: a list or a single plugin, by its ending."""
    made = document("a", name=network or name.partition(".")[0], **more)
    if not name.endswith(".conflist"):
        made = {**made, "type": "a"}
        del made["plugins"]
    (directory / name).write_text(json.dumps(made))


def test_lists_come_first_then_single_plugins_each_bytewise(tmp_path: Path) -> None:
    for name in ("b.conflist", "a.conf", "Z.conflist", "ä.conflist", "b2.json", "c.conf"):
        put(tmp_path, name, "n" + str(len(list(tmp_path.iterdir()))))
    for name in ("x.yaml", "x.conf.bak", "x.CONF", "README"):
        (tmp_path / name).write_text("not looked at")
    (tmp_path / "dir.conf").mkdir()
    found = read_config_directory(tmp_path)
    order = [Path(net.file or "").name for net in found.networks]
    assert order == ["Z.conflist", "b.conflist", "ä.conflist", "a.conf", "b2.json", "c.conf"]
    assert found.problems == ()
    assert found.directory == str(tmp_path)


def test_of_many_bad_files_the_one_of_the_wanted_network_is_named(tmp_path: Path) -> None:
    for name in ("a", "b", "c", "d", "wanted"):
        (tmp_path / f"{name}.conflist").write_bytes(b"{")
    with pytest.raises(NetworkNotFoundError, match=r"5 files cannot be used: .*wanted\.conflist") as caught:
        load_network_conf(tmp_path, "wanted")
    assert "c.conflist" not in str(caught.value)


def test_a_directory_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="Not a directory") as caught:
        read_config_directory(tmp_path / "file")
    assert not isinstance(caught.value, NetworkNotFoundError)
    assert caught.value.file == str(tmp_path / "file")


def test_only_the_loaded_network_is_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    put(tmp_path, "a.conf", prevResult={})
    put(tmp_path, "b.conf", prevResult={})
    with caplog.at_level(logging.WARNING, "libcni"):
        read_config_directory(tmp_path)
        assert caplog.records == []
        load_network_conf(tmp_path, "b")
    assert [record.message for record in caplog.records] == [
        f"{tmp_path}/b.conf: prevResult: the runtime sets this key; the document's value is ignored"
    ]


@pytest.mark.parametrize(
    ("first", "second"), [("a.conflist", "b.conflist"), ("z.conflist", "a.conf"), ("a.conf", "b.json")]
)
def test_the_first_file_with_a_name_counts(tmp_path: Path, first: str, second: str) -> None:
    put(tmp_path, second, "same")
    put(tmp_path, first, "same")
    found = read_config_directory(tmp_path)
    assert found.network("same").file == str(tmp_path / first)
    (problem,) = found.problems
    assert (problem.file, problem.location) == (str(tmp_path / second), "name")
    assert first in problem.problem


def test_field_11_every_look_at_the_directory_sees_what_is_there_now(tmp_path: Path) -> None:
    directory = tmp_path / "net.d"
    for name in ("first", "second"):
        directory.mkdir()
        put(directory, "10.conflist", name)
        assert [net.name for net in read_config_directory(directory).networks] == [name]
        directory.rename(tmp_path / name)
    assert read_config_directory(directory).networks == ()
