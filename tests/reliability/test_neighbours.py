"""Two runtimes with different owners and a person with ``ip``, at random, with real plugins in real namespaces."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from real.namespaces import inside

from libcni.testing import network_namespace
from reliability.neighbours import Machine, adopt_orphans

pytestmark = pytest.mark.real

STEPS = int(os.environ.get("LIBCNI_STEPS", "2000"))
SEED = int(os.environ.get("LIBCNI_SEED", str(random.SystemRandom().randrange(1 << 32))))


@pytest.fixture
def new_machine(tmp_path: Path) -> Iterator[Callable[[int], Machine]]:
    """Return a function that makes a machine in a namespace of its own, in which this thread is meanwhile."""
    machines: list[Machine] = []

    def make(seed: int) -> Machine:
        machines.append(Machine(tmp_path, seed))
        return machines[0]

    with network_namespace() as host, inside(host.path):
        adopt_orphans(wanted=True)
        try:
            yield make
        finally:
            adopt_orphans(wanted=False)
            for machine in machines:
                machine.close()


def test_nobody_loses_what_is_theirs_in_a_hundred_steps(new_machine: Callable[[int], Machine]) -> None:
    machine = new_machine(13)
    for _ in range(100):
        machine.step()
    assert sum(machine.counts.values()) > 50


@pytest.mark.slow
def test_nobody_loses_what_is_theirs(new_machine: Callable[[int], Machine], say: Callable[[str], None]) -> None:
    say(f"neighbours: {STEPS} steps, LIBCNI_SEED={SEED}")
    started = time.monotonic()
    machine = new_machine(SEED)
    for _ in range(STEPS):
        machine.step()
    done = ", ".join(f"{name.strip('_')} {count}" for name, count in sorted(machine.counts.items()))
    say(f"neighbours: {time.monotonic() - started:.0f} s, {done}")
