"""``libcni networks``."""

from __future__ import annotations

from cli.node import CommandNode


def test_a_missing_directory_of_configurations_is_named(node: CommandNode) -> None:
    nowhere = node.root / "nowhere"
    for words in ((), ("--validate",)):
        ran = node.run("networks", *words, NETCONFPATH=str(nowhere))
        assert (ran.code, ran.out) == (3, f"no networks in {nowhere}: there is no such directory\n")


def test_a_broken_drop_in_is_listed_with_its_directory(node: CommandNode) -> None:
    (node.conf_dir / "dbnet").mkdir()
    node.write("dbnet/20-x.conf", "{")
    assert "dbnet/20-x.conf" in node.run("networks").out


def test_the_check_of_networks_as_data_has_their_plugins_and_problems(node: CommandNode) -> None:
    node.write("20-other.conflist", {"cniVersion": "1.0.0", "name": "other", "plugins": [{"type": "nosuch"}]})
    data = node.run("networks", "--validate", "-o", "json").data
    assert [net["name"] for net in data["networks"]] == ["dbnet", "other"]
    plugins = {one["path"]: one["versions"] for one in data["plugins"]}
    assert plugins.keys() == {str(node.bin / name) for name in ("fake-bridge", "fake-ipam", "fake-tuning")}
    assert "1.1.0" in plugins[str(node.bin / "fake-bridge")]
    assert [(one["of"], one["kind"]) for one in data["problems"]] == [("other", "PluginNotFoundError")]
    named = node.run("networks", "--validate", "dbnet", "nosuch", "-o", "json")
    assert (named.code, [one["of"] for one in named.data["problems"]]) == (4, ["nosuch"])


def test_a_file_without_plugins_cannot_be_used(node: CommandNode) -> None:
    node.write("20-empty.conflist", {"cniVersion": "1.0.0", "name": "empty"})
    path = str(node.conf_dir / "20-empty.conflist")
    checked = node.run("networks", "--validate", path, "-o", "json")
    [problem] = checked.data["problems"]
    assert (problem["of"], problem["kind"], checked.code) == (path, "ConfigError", 3)


def test_a_value_that_the_plugin_refuses_is_a_problem_of_the_network(node: CommandNode) -> None:
    """The plugin answers VERSION, but no container can be attached."""
    node.plugin("bridge", result={"cniVersion": "1.0.0"})
    node.configure("big", {"type": "bridge", "mtu": 90000})
    checked = node.run("networks", "--validate", "big", "-o", "json")
    [problem] = checked.data["problems"]
    assert (checked.code, problem["of"], problem["kind"]) == (3, "big", "ConfigError")
