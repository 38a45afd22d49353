"""``libcni networks``."""

from __future__ import annotations

from cli.node import CommandNode


def test_a_missing_directory_of_configurations_is_named(node: CommandNode) -> None:
    nowhere = node.root / "nowhere"
    assert (
        node.run("networks", NETCONFPATH=str(nowhere)).out == f"no networks in {nowhere}: there is no such directory\n"
    )


def test_a_broken_drop_in_is_listed_with_its_directory(node: CommandNode) -> None:
    (node.conf_dir / "dbnet").mkdir()
    node.write("dbnet/20-x.conf", "{")
    assert "dbnet/20-x.conf" in node.run("networks").out


def test_the_check_of_networks_as_data_has_their_plugins_and_problems(node: CommandNode) -> None:
    node.write("20-other.conflist", {"cniVersion": "1.0.0", "name": "other", "plugins": [{"type": "nosuch"}]})
    good, bad = node.run("networks", "--check", "-o", "json").data
    assert [one["plugin"] for one in good["plugins"]] == ["fake-bridge", "fake-ipam", "fake-tuning"]
    assert good["plugins"][0]["path"] == str(node.bin / "fake-bridge")
    assert "1.1.0" in good["plugins"][0]["versions"]
    assert (good["ok"], bad["ok"]) == (True, False)
    assert [one["kind"] for one in bad["problems"]] == ["PluginNotFoundError"]
