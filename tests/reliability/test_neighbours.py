"""Two owners' runtimes and managers, Go libcni, and a person with ``ip``, at random, with real plugins."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from nodes import Namespace

from reliability.go_runtime import GoNode
from reliability.managers import ManagedNode
from reliability.neighbours import SharedNode, adopt_orphans

pytestmark = pytest.mark.real

STEPS = int(os.environ.get("LIBCNI_STEPS", "800"))
SEED = int(os.environ.get("LIBCNI_SEED", str(random.SystemRandom().randrange(1 << 32))))


NewNode = Callable[..., SharedNode]


@pytest.fixture
def new_node(tmp_path: Path, host: Namespace) -> Iterator[NewNode]:
    made: list[SharedNode] = []

    def make(kind: type[SharedNode], *args: Any) -> SharedNode:
        made.append(kind(tmp_path, host, *args))
        return made[-1]

    adopt_orphans(wanted=True)
    yield make
    adopt_orphans(wanted=False)
    for node in made:
        node.close()


@pytest.mark.parametrize("kind", [SharedNode, ManagedNode])
def test_nobody_loses_what_is_theirs_in_fifty_steps(new_node: NewNode, kind: type[SharedNode]) -> None:
    node = new_node(kind, 13)
    for _ in range(50):
        node.step()
    assert sum(node.counts.values()) > 25


@pytest.mark.slow
@pytest.mark.parametrize("kind", [SharedNode, ManagedNode, GoNode])
def test_nobody_loses_what_is_theirs(
    new_node: NewNode, kind: type[SharedNode], go_program: Path, say: Callable[[str], None]
) -> None:
    say(f"neighbours, {kind.__name__}: {STEPS} steps, LIBCNI_SEED={SEED}")
    started = time.monotonic()
    node = new_node(kind, SEED, *([go_program] if kind is GoNode else []))
    for _ in range(STEPS):
        node.step()
    done = ", ".join(f"{name.strip('_')} {count}" for name, count in sorted(node.counts.items()))
    say(f"neighbours: {time.monotonic() - started:.0f} s, {done}")
