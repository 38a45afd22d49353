"""Networks and capability arguments, as words, files and stdin give them."""

from __future__ import annotations

import json

import pytest
import yaml

from cli.node import DBNET, CommandNode
from libcni import ConfigError
from libcni.cli.inputs import capability_args


def test_numbers_in_json_are_numbers_although_yaml_would_read_text() -> None:
    assert capability_args('{"rate": 1e3}') == {"rate": 1000.0}
    assert capability_args("{mac: c2:11:22:33:44:55}") == {"mac": "c2:11:22:33:44:55"}


def test_capability_arguments_are_an_object() -> None:
    with pytest.raises(ConfigError, match="must be an object"):
        capability_args("[1]")


def test_bad_yaml_is_named_with_its_place() -> None:
    with pytest.raises(ConfigError, match="line 1, column") as caught:
        capability_args("{a: [}")
    assert caught.value.file == "capability arguments"


def test_a_network_may_be_yaml_and_capabilities_too(node: CommandNode) -> None:
    (node.root / "net.yaml").write_text(yaml.safe_dump(DBNET), encoding="utf-8")
    (node.root / "caps.yaml").write_text("mac: c2:11:22:33:44:55\n", encoding="utf-8")
    ran = node.run("add", "./net.yaml", node.netns("a"), "--capabilities", "@caps.yaml")
    assert ran.data["interfaces"][-1]["mac"] == "c2:11:22:33:44:55"
    assert node.run("check", "net.yaml", node.netns("a")).code == 0
    assert node.run("del", "-", node.netns("a"), stdin=yaml.safe_dump(DBNET)).code == 0


def test_json_on_the_command_line_keeps_its_numbers(node: CommandNode) -> None:
    text = json.dumps({**DBNET, "plugins": [{"type": "fake", "big": 0}]}).replace('"big": 0', '"big": 1e400')
    ran = node.run("explain", "-", "-o", "json", stdin=text)
    assert '"big":1e400' in ran.data["verbs"][0]["calls"][0]["stdin_text"]
