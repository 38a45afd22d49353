"""The real node, broken: what the doctor says, what its commands mend, and that nobody loses what worked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from real.breakages import BREAKAGES, PAIRS, THREES
from real.containerd_node import ContainerdNode

pytestmark = pytest.mark.slow

OLD, NEW = "containerd@bookworm", "containerd@sid"


def case(peer: str, *names: str) -> Any:
    marks = [pytest.mark.may_skip] if peer == NEW else []  # the packages of sid are not always whole
    return pytest.param(peer, names, id=f"{peer.partition('@')[2]}: {' + '.join(names)}", marks=marks)


CASES = [
    *(case(OLD, name) for name in BREAKAGES),
    *(case(OLD, *names) for names in (*PAIRS, *THREES)),
    *(case(NEW, *names) for names in THREES),
]


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
def test_a_broken_node(containerd: ContainerdNode, names: Sequence[str]) -> None:
    node = containerd
    broken = [BREAKAGES[name] for name in names]
    for one in broken:
        node.break_with(one.script)
    # Where all is expected to work, a call has time; where some are lost, each of those takes it.
    lost = node.traffic(None if any(one.loses for one in broken) else ())
    assert bool(lost) == any(one.loses for one in broken), lost

    told = node.libcni("doctor", code=None)
    # A finding on a line: its lines are folded.
    found = "\n".join(" ".join(part.split()) for part in told.partition("not checked:")[2].split("\n\n"))
    for one in broken:
        assert re.search(node.expanded(one.says), found, re.IGNORECASE), told
    said = repair(node, told)

    undone = [one.undo for one in broken if one.undo]
    after = node.traffic(lost if undone else ())
    assert not after.keys() - lost.keys(), said
    for script in undone:
        node.break_with(script)
    gone = {name for one in broken for name in one.gone}
    assert node.pods.keys() - node.living() == gone
    assert (node.traffic() if undone else after) == {}, f"{told}\n{said}"
    node.restart(gone)
    node.new_pod_talks()
    told = node.libcni("doctor", code=None)
    assert "no problems found" in told, f"{said}\n{told}"
    node.is_in_order = True
