"""Kills at calls of the system, with the real plugins: the next verb finds what is there, and nothing is left."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
from moments import count_moments, moments, spread
from nodes import Namespace, RealNode
from processes import fork, wait

from libcni import RuntimeConf

from .published import assert_works, conf, left, publish, rules

pytestmark = [pytest.mark.slow, pytest.mark.real]

KILLS = int(os.environ.get("LIBCNI_KILLS", "30"))
"""Of each verb; 100 for the 200 of the release."""


def killed(work: Callable[[], object], number: int) -> bool:
    """Run a work in a child that is killed at a moment; return whether it was."""

    def die(moment: int) -> None:
        if moment == number:
            os.kill(os.getpid(), signal.SIGKILL)

    def child() -> None:
        with moments(die):
            work()

    return wait(fork(child)) == -signal.SIGKILL


@pytest.mark.parametrize("verb", ["ADD", "DEL"])
def test_a_verb_that_is_killed_can_be_repeated(
    real_node: RealNode, container: Namespace, other: Namespace, verb: str
) -> None:
    node, rt = publish(real_node), conf("c1", container.path)
    node.cni.add_network_list("net", conf("c2", other.path, 1))
    before = left(node), rules(node)

    def add() -> None:
        node.client().add_network_list("net", rt)

    def delete() -> None:
        node.client().del_network_list("net", rt)

    counts = {"ADD": count_moments(add), "DEL": count_moments(delete)}
    assert left(node) == before[0]
    numbers, kills = spread(counts[verb], KILLS), 0
    for number in numbers:
        if verb == "DEL":
            add()
        kills += killed(add if verb == "ADD" else delete, number)
        way = number % 3
        if way == 0:
            node.client().gc_network_list("net", [("c2", "eth0")])
        elif way == 1:
            node.client().add_network_list("net", rt, on_existing="replace")
            assert_works(node)
        delete()
        assert "eth0" not in container.links(), f"after a kill at {number} of {counts[verb]}"
        assert (left(node), rules(node)) == before, f"after a kill at {number} of {counts[verb]}"
        node.cni.check_network_list("net", RuntimeConf("c2", None, "eth0"))
    assert kills > 0.8 * len(numbers)  # the last moments may not come: what others have on record is read once
