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


def test_a_file_named_just_conf_counts(tmp_path: Path) -> None:
    put(tmp_path, ".conf", "hidden")
    assert load_network_conf(tmp_path, "hidden").plugins[0].type == "a"


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


BAD_FILES = [
    ("0.conflist", b""),
    ("0.conflist", b'{"name":"good","plugins":[{'),
    ("0.conflist", b"\xff"),
    ("0.conflist", b"[" * 100_000),
    ("0.conflist", b'{"name":"good"}'),
    ("0.conflist", b'{"name":"good","type":"x"}'),
    ("0.conflist", b'{"name":"good","plugins":[{"type":"a/b"}]}'),
    ("0.conf", b'{"name":"good","plugins":[{"type":"a"}]}'),
    ("0.json", b"// comment\n{}"),
]


@pytest.mark.parametrize(("name", "content"), BAD_FILES)
def test_a_bad_file_never_hides_a_good_one(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    put(tmp_path, "1.conflist", "good")
    assert load_network_conf(tmp_path, "good").file == str(tmp_path / "1.conflist")
    (problem,) = read_config_directory(tmp_path).problems
    assert problem.file == str(tmp_path / name)
    with pytest.raises(NetworkNotFoundError, match="1 unusable") as caught:
        load_network_conf(tmp_path, "other")
    assert str(problem) in str(caught.value)
    assert caught.value.hint == "there are: good"


def test_of_many_bad_files_the_one_of_the_wanted_network_is_named(tmp_path: Path) -> None:
    for name in ("a", "b", "c", "d", "wanted"):
        (tmp_path / f"{name}.conflist").write_bytes(b"{")
    with pytest.raises(NetworkNotFoundError, match=r"5 unusable: .*wanted\.conflist") as caught:
        load_network_conf(tmp_path, "wanted")
    assert "c.conflist" not in str(caught.value)


def test_links_that_lead_nowhere_or_to_a_directory_hide_nothing(tmp_path: Path) -> None:
    (tmp_path / "0.conflist").symlink_to("nowhere")
    (tmp_path / "dir").mkdir()
    (tmp_path / "1.conflist").symlink_to("dir")
    put(tmp_path / "dir", "x.conflist", "linked")
    (tmp_path / "2.conflist").symlink_to("dir/x.conflist")
    found = read_config_directory(tmp_path)
    assert [net.name for net in found.networks] == ["linked"]
    assert [Path(problem.file or "").name for problem in found.problems] == ["0.conflist", "1.conflist"]


def test_a_bad_drop_in_spoils_its_network_alone(tmp_path: Path) -> None:
    put(tmp_path, "a.conflist", "a")
    put(tmp_path, "b.conflist", "b")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.conf").write_text("{")
    found = read_config_directory(tmp_path)
    assert [net.name for net in found.networks] == ["b"]
    assert [problem.file for problem in found.problems] == [str(tmp_path / "a" / "x.conf")]


def test_drop_ins_belong_to_the_network_that_is_loaded(tmp_path: Path) -> None:
    put(tmp_path, "a.conflist", "net")
    (tmp_path / "net").mkdir()
    put(tmp_path / "net", "x.conf")
    assert len(load_network_conf(tmp_path, "net").plugins) == 2


@pytest.mark.parametrize(
    ("name", "problem"), [("none", "the directory does not exist"), ("", "no network configurations")]
)
def test_there_are_no_configurations(tmp_path: Path, name: str, problem: str) -> None:
    directory = tmp_path / name
    found = read_config_directory(directory)
    assert (found.networks, found.problems) == ((), ())
    with pytest.raises(NetworkNotFoundError, match=problem) as caught:
        load_network_conf(directory, "x")
    assert (caught.value.network, caught.value.file) == ("x", str(directory))


def test_the_name_is_not_there(tmp_path: Path) -> None:
    put(tmp_path, "a.conflist")
    with pytest.raises(NetworkNotFoundError, match='no network named "x"'):
        load_network_conf(tmp_path, "x")


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
        f"{tmp_path}/b.conf: prevResult: the runtime sets this key; the document's value is left out"
    ]
