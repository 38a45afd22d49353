"""Two owners' runtimes, their managers, and a person with ``ip``, at random, with real plugins in real namespaces."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from nodes import Namespace

from reliability.managers import ManagedNode
from reliability.neighbours import SharedNode, adopt_orphans

pytestmark = pytest.mark.real

STEPS = int(os.environ.get("LIBCNI_STEPS", "2000"))
SEED = int(os.environ.get("LIBCNI_SEED", str(random.SystemRandom().randrange(1 << 32))))


NODES = [SharedNode, ManagedNode]
NewNode = Callable[[type[SharedNode], int], SharedNode]


@pytest.fixture
def new_node(tmp_path: Path, host: Namespace) -> Iterator[NewNode]:
    made: list[SharedNode] = []

    def make(kind: type[SharedNode], seed: int) -> SharedNode:
        made.append(kind(tmp_path, host, seed))
        return made[-1]

    adopt_orphans(wanted=True)
    yield make
    adopt_orphans(wanted=False)
    for node in made:
        node.close()


@pytest.mark.parametrize("kind", NODES)
def test_nobody_loses_what_is_theirs_in_fifty_steps(new_node: NewNode, kind: type[SharedNode]) -> None:
    node = new_node(kind, 13)
    for _ in range(50):
        node.step()
    assert sum(node.counts.values()) > 25


@pytest.mark.slow
@pytest.mark.parametrize("kind", NODES)
def test_nobody_loses_what_is_theirs(new_node: NewNode, kind: type[SharedNode], say: Callable[[str], None]) -> None:
    say(f"neighbours, {kind.__name__}: {STEPS} steps, LIBCNI_SEED={SEED}")
    started = time.monotonic()
    node = new_node(kind, SEED)
    for _ in range(STEPS):
        node.step()
    done = ", ".join(f"{name.strip('_')} {count}" for name, count in sorted(node.counts.items()))
    say(f"neighbours: {time.monotonic() - started:.0f} s, {done}")
