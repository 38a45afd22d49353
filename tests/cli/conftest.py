"""The installed command, and nodes to run it on."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from forkserver import ForkServer

from cli.node import DBNET, GONE, GOOD, KILLED, REBOOTED, REPOSITORY, CommandNode


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], dict[str, str]]:
    """Return the console script, and the environment that it needs; installed for the session if it is not yet."""
    beside = Path(sys.executable).with_name("libcni")
    if beside.exists():
        return [str(beside)], {}
    site = tmp_path_factory.mktemp("site")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(REPOSITORY)]
    subprocess.run(install, check=True, capture_output=True)
    return [str(site / "bin" / "libcni")], {"PYTHONPATH": str(site)}


@pytest.fixture(scope="session")
def new_node(
    fork_server: ForkServer, installed: tuple[list[str], dict[str, str]]
) -> Iterator[Callable[[], CommandNode]]:
    """Return a function that makes nodes; all are removed at the end."""
    made: list[CommandNode] = []

    def make() -> CommandNode:
        made.append(CommandNode(fork_server, *installed))
        return made[-1]

    yield make
    for node in made:
        shutil.rmtree(node.root)


@pytest.fixture
def node(new_node: Callable[[], CommandNode]) -> CommandNode:
    """Return a node with the network dbnet."""
    node = new_node()
    node.write("10-dbnet.conflist", DBNET)
    return node


@pytest.fixture
def broken_node(node: CommandNode) -> CommandNode:
    """Return a node with all that can be wrong: configurations, plugins, records."""
    break_node(node)
    return node


@pytest.fixture(scope="session")
def shown_node(new_node: Callable[[], CommandNode]) -> CommandNode:
    """Return a broken node that is only looked at."""
    node = new_node()
    node.write("10-dbnet.conflist", DBNET)
    break_node(node)
    return node


def break_node(node: CommandNode) -> None:
    """Attach four containers and let three of them come to grief; break configurations."""
    node.write("05-broken.conflist", '{"cniVersion": "1.0.0", "name": "broken", "plugins": [\n {"type": "x"\n')
    node.write("20-other.conflist", {"cniVersion": "1.0.0", "name": "other", "plugins": [{"type": "nosuch"}]})
    node.write("dbnet/50-extra.conf", {"type": "fake"})
    for container, name in ((GOOD, "good"), (GONE, "gone"), (KILLED, "killed"), (REBOOTED, "rebooted")):
        node.add(container, name)
    (node.root / "ns" / "gone").unlink()
    node.change_record(KILLED, "dbnet", state="pending")
    node.change_record(REBOOTED, "dbnet", bootId="another")
    (node.results / "dbnet-lost-eth0").write_bytes(b"")
