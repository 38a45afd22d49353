"""One configuration document: read, refused with file and location, or warned about; and its text kept."""

from __future__ import annotations

import dataclasses
import json
import logging
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import document, network

from libcni.config.network import NetworkConfigList, PluginConfig, inject_conf
from libcni.errors import ConfigError


def load(text: Any) -> NetworkConfigList:
    data = text if isinstance(text, str | bytes) else json.dumps(text)
    return NetworkConfigList.from_bytes(data, file="/etc/cni/net.d/x.conflist")


def test_a_list_is_read() -> None:
    text = json.dumps(
        document(
            {"type": "bridge", "capabilities": {"mac": True, "ips": False, "b": True}, "ipam": {"type": "host-local"}},
            {"type": "tuning", "name": "own", "cniVersion": "0.3.1", "x": [1]},
            cniVersions=["0.4.0", "1.1.0"],
            disableCheck=True,
            unknown={"kept": 1},
        )
    )
    net = load(text)
    assert (net.name, net.cni_version, net.cni_versions) == ("net", "1.1.0", ("0.4.0", "1.1.0", "1.0.0"))
    assert (net.disable_check, net.disable_gc, net.load_only_inlined_plugins, net.is_list) == (True, False, False, True)
    assert net.raw == text.encode()
    assert net.file == "/etc/cni/net.d/x.conflist"
    assert net.warnings == ()
    first, second = net.plugins
    assert (first.type, first.capabilities, first.ipam_type) == ("bridge", ("mac", "b"), "host-local")
    assert (second.type, second.name, second.cni_version) == ("tuning", "own", "0.3.1")
    assert second.ipam_type is None
    assert second.text == '{"type": "tuning", "name": "own", "cniVersion": "0.3.1", "x": [1]}'


def test_code_is_as_good_as_a_file() -> None:
    made = document({"type": "a", "x": 1})
    assert NetworkConfigList.from_dict(made).plugins == load(json.dumps(made, separators=(",", ":"))).plugins
    plugin = PluginConfig.from_dict({"type": "a", "name": "n", "cniVersion": "1.0.0"})
    net = NetworkConfigList.from_plugin(plugin, file="/f")
    assert (net.name, net.cni_version, net.file, net.plugins) == ("n", "1.0.0", "/f", (plugin,))


@pytest.mark.parametrize("bad", [{"name": {1}}, {"name": float("nan")}, {"name": 10**5000}])
def test_what_json_cannot_say_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="no JSON form"):
        NetworkConfigList.from_dict(bad)
    with pytest.raises(ConfigError, match="no JSON form"):
        PluginConfig.from_dict(bad)


def test_what_the_runtime_makes_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    plugin = {"type": "a", "prevResult": {}, "runtimeConfig": {"a": 1}, "cni.dev/valid-attachments": [], "args": {}}
    with caplog.at_level(logging.WARNING, "libcni"):
        net = load(document("b", plugin))
    places = ["plugins[1].prevResult", "plugins[1].runtimeConfig", "plugins[1].cni.dev/valid-attachments"]
    assert [text.split(":")[0] for text in net.warnings] == places
    assert all("ignored" in text for text in net.warnings)
    assert [record.message.split(": ")[1] for record in caplog.records] == places
    assert all(record.message.startswith("/etc/cni/net.d/x.conflist: ") for record in caplog.records)


def test_a_dict_in_place_of_a_plugin_is_a_type_error_that_says_what_to_do() -> None:
    net, plugin = network("a"), {"type": "a"}
    calls: list[Callable[[Any], object]] = [
        NetworkConfigList.from_plugin,
        lambda wrong: net.with_plugins([wrong]),
        lambda wrong: net.with_appended_plugins([wrong]),
        lambda wrong: inject_conf(wrong, {"k": 1}),
    ]
    for call in calls:
        with pytest.raises(TypeError, match=r"not dict; use PluginConfig\.from_dict"):
            call(plugin)


def test_versions_and_plugins_can_be_exchanged() -> None:
    net = network("a")
    assert net.with_version("1.0.0") is net
    assert net.with_version("0.4.0").cni_version == "0.4.0"
    assert net.with_appended_plugins([]) is net
    more = PluginConfig.from_dict({"type": "b", "prevResult": {}})
    longer = net.with_appended_plugins([more])
    assert [plugin.type for plugin in longer.plugins] == ["a", "b"]
    assert longer.warnings == more.warnings
    assert [plugin.type for plugin in longer.with_plugins(iter([more])).plugins] == ["b"]


def test_keys_are_set_in_a_plugin_configuration() -> None:
    plugin = PluginConfig.from_bytes('{"type": "a", "big": 9007199254740993, "x": 1e400, "name": "n"}')
    injected = inject_conf(plugin, {"x": {"y": [1]}, "new": "é", "cniVersion": "1.0.0"})
    assert injected.text == (
        '{"type":"a","big":9007199254740993,"x":{"y":[1]},"name":"n","new":"\\u00e9","cniVersion":"1.0.0"}'
    )
    assert (injected.type, injected.name, injected.cni_version) == ("a", "n", "1.0.0")
    assert plugin.text.startswith('{"type": "a"')
    assert inject_conf(plugin, {"type": "b"}).type == "b"
    net = network("a", "c")
    assert [one.type for one in net.with_plugins([inject_conf(one, {"k": 1}) for one in net.plugins]).plugins] == [
        "a",
        "c",
    ]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"": 1}, "it must not be empty"),
        ({"k": None}, 'key "k" has the value None'),
        ({"k": {1, 2}}, "k: it has no JSON form"),
        ({"k": float("nan")}, "k: it has no JSON form"),
        ({"type": ""}, "type"),
        ({"type": "../x"}, "type"),
        ({"cniVersion": 1}, "cniVersion"),
    ],
)
def test_what_cannot_be_set_in_a_plugin_configuration_is_named(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        inject_conf(PluginConfig.from_dict({"type": "a"}), values)


def test_broken_text_cannot_be_changed() -> None:
    broken = dataclasses.replace(PluginConfig.from_dict({"type": "a"}), text="{", forwarded_text="x")
    with pytest.raises(ConfigError):
        inject_conf(broken, {"k": 1})


def test_unused_capabilities() -> None:
    net = network({"type": "a", "capabilities": {"mac": True, "ips": False}})
    assert net.unused_capabilities({"mac": 1, "ips": 2, "x": 3}) == ("ips", "x")


def test_configurations_are_values() -> None:
    net = network({"type": "a", "x": [1e300]})
    assert pickle.loads(pickle.dumps(net)) == net
    assert hash(net) == hash(network({"type": "a", "x": [1e300]}))
    with pytest.raises(AttributeError):
        net.name = "other"  # type: ignore[misc]


# files


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def test_drop_ins_come_after_the_list_sorted_bytewise(tmp_path: Path) -> None:
    path = write(tmp_path / "x.conflist", document("a"))
    for name in ("b.conf", "B.conf", "ä.conf", ".conf", "c.json", "d.conflist", "e.CONF", "f.conf~"):
        write(tmp_path / "net" / name, {"type": f"drop-in-{name}", "prevResult": {}})
    write(tmp_path / "net" / "dir.conf" / "x.conf", {"type": "too-deep"})
    net = NetworkConfigList.from_file(path)
    assert [plugin.type.removeprefix("drop-in-") for plugin in net.plugins] == [
        "a",
        ".conf",
        "B.conf",
        "b.conf",
        "ä.conf",
    ]
    assert net.plugins[0].source is None
    assert net.plugins[2].source == str(tmp_path / "net" / "B.conf")
    assert len(net.warnings) == 4
    assert json.loads(net.raw) == document("a")


@pytest.mark.parametrize("bad", [b"{", b'{"type":1}', b'{"name":"x"}', b'{"type":"a/b"}'])
def test_a_bad_drop_in_is_named(tmp_path: Path, bad: bytes) -> None:
    path = write(tmp_path / "x.conflist", document("a"))
    drop_in = write(tmp_path / "net" / "bad.conf", bad)
    with pytest.raises(ConfigError) as caught:
        NetworkConfigList.from_file(path)
    assert caught.value.file == str(drop_in)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.conf", document("a"), "a list of plugins"),
        ("a.json", document("a"), "a list of plugins"),
        (".conf", document("a"), "a list of plugins"),
        ("a.conflist", {"name": "n", "type": "a"}, "a single plugin's configuration"),
    ],
)
def test_the_content_goes_with_the_ending(tmp_path: Path, name: str, content: Any, problem: str) -> None:
    path = write(tmp_path / name, content)
    with pytest.raises(ConfigError, match=problem) as caught:
        NetworkConfigList.from_file(path)
    assert caught.value.file == str(path)
    assert caught.value.hint


def test_a_plugin_put_together_in_code_is_passed_on_like_one_from_a_file() -> None:
    text = '{"type":"a","x":1e400,"capabilities":{"mac":true}}'
    made = PluginConfig(type="a", text=text)
    assert made.forwarded_text == PluginConfig.from_bytes(text).forwarded_text == '"type":"a","x":1e400'
