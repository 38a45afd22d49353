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
