"""The real node, broken: what the doctor says, what its commands mend, and that nobody loses what worked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from peers import peer_files

from real.breakages import BREAKAGES, PAIRS, THREES
from real.containerd_node import ContainerdNode, containerd_node, why_no_node

pytestmark = pytest.mark.slow

OLD, NEW = "containerd@bookworm", "containerd@sid"


def case(peer: str, *names: str) -> Any:
    # A node for the tests of each worker: half of them on one worker, half on another.
    half = list(BREAKAGES).index(names[0]) % 2 if peer == OLD else 0
    marks = [pytest.mark.xdist_group(f"broken node {half}: {peer}")]
    if peer == NEW:
        marks.append(pytest.mark.may_skip)  # the packages of sid are not always whole
    return pytest.param(peer, names, id=f"{peer.partition('@')[2]}: {' + '.join(names)}", marks=marks)


CASES = [
    *(case(OLD, name) for name in BREAKAGES),
    *(case(OLD, *names) for names in (*PAIRS, *THREES)),
    *(case(NEW, *names) for names in THREES),
]


class Keeper:
    """One node for all tests of a version of containerd; after a test that left it broken, a new one."""

    def __init__(self, peer: str) -> None:
        self.files = peer_files(peer)
        self._open: ContainerdNode | None = None
        self._stack = ExitStack()

    def node(self) -> ContainerdNode:
        if self._open is None:
            self._open = self._stack.enter_context(containerd_node(self.files))
        return self._open

    def drop(self) -> None:
        self._stack.close()
        self._open = None


@pytest.fixture(scope="module")
def keepers() -> Iterator[dict[str, Keeper]]:
    if reason := why_no_node():
        pytest.skip(reason)
    kept: dict[str, Keeper] = {}
    yield kept
    for one in kept.values():
        one.drop()


@pytest.fixture
def node(peer: str, keepers: dict[str, Keeper]) -> Iterator[ContainerdNode]:
    """Return a node in order."""
    keeper = keepers[peer] = keepers.get(peer) or Keeper(peer)
    made = keeper.node()
    made.is_in_order = False  # the test says so at its end
    yield made
    if not made.is_in_order:
        keeper.drop()


def printed_commands(told: str) -> list[str]:
    """Return the commands that the doctor or repair prints at its end."""
    return [line.strip() for line in told.splitlines() if line.startswith("  libcni repair")]


def repair(node: ContainerdNode, told: str) -> str:
    """Type the commands as they are printed; return all that they print."""
    typed: list[str] = []
    said = ""
    waiting = printed_commands(told)
    while waiting:
        command = waiting.pop(0)
        if command in typed:
            continue
        typed.append(command)
        done = node.run("bash", "-c", command, code=None)
        said += f"$ {command}\n{done.stdout}{done.stderr}[{done.returncode}]\n"
        assert done.returncode in {0, 1}, said  # 2: it was refused
        waiting += printed_commands(done.stdout + done.stderr)
    return said


@pytest.mark.parametrize(("peer", "names"), CASES)
def test_a_broken_node(node: ContainerdNode, names: Sequence[str]) -> None:
    broken = [BREAKAGES[name] for name in names]
    for one in broken:
        node.break_with(one.script)
    lost = node.traffic()
    assert bool(lost) == any(one.loses for one in broken), lost

    told = node.libcni("doctor", code=None)
    for one in broken:
        assert re.search(node.expanded(one.says), told.partition("not checked:")[2], re.IGNORECASE), told
    said = repair(node, told)

    after = node.traffic()
    assert not after.keys() - lost.keys(), said
    for one in broken:
        if one.undo:
            node.break_with(one.undo)
    gone = {name for one in broken for name in one.gone}
    assert {name for name, pod in node.pods.items() if not node.lives(pod)} == gone
    assert node.traffic() == {}, f"{told}\n{said}"
    node.restart(gone)
    node.new_pod_talks()
    told = node.libcni("doctor", code=None)
    assert "no problems found" in told, f"{said}\n{told}"
    node.is_in_order = True
