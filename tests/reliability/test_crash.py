"""Killed at random moments: what is left can be found and detached. test_injected.py kills at every call of libc."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable

import pytest
from processes import fork, kill_after

from libcni import CNIError, RuntimeConf, repair_records
from libcni.store import repair
from reliability.c_node import CNode

KILLS = int(os.environ.get("LIBCNI_KILLS", "200"))
SEED = int(os.environ.get("LIBCNI_SEED", str(random.SystemRandom().randrange(1 << 32))))
CONTAINERS = [RuntimeConf(f"c{number}", None, "eth0") for number in range(3)]


def random_verbs(c_node: CNode, seed: int) -> None:
    chance = random.Random(seed)
    cni = c_node.client(start_ahead=chance.choice(["never", "always"]))
    networks = [c_node.chain("good", slow=3), c_node.chain("bad", slow=3, fail=30)]
    while True:
        net, rt = chance.choice(networks), chance.choice(CONTAINERS)
        try:
            if chance.random() < 2 / 3:
                cni.add_network_list(net, rt)
            else:
                cni.del_network_list(net, rt)
        except CNIError:
            continue


def assert_survived(c_node: CNode, what: str) -> None:
    """Assert what must hold after any crash, and put the place back to its beginning."""
    cni = c_node.client()
    assert_known(c_node, what)
    listed = cni.get_cached_attachments()
    assert {attachment.state for attachment in listed} <= {"pending", "ready", "detaching"}, what  # no torn file
    c_node.calm()
    for name in ("good", "bad"):  # these meet the orphans, if there are any, and wait for them
        cni.gc_network_list(c_node.chain(name), [])
    assert (c_node.owners(), cni.get_cached_attachments()) == ([], []), what
    c_node.wait_for_plugins()
    assert c_node.owners() == [], f"{what}: an orphan allocated after GC"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repair, "_OLD", 0.0)
        repair_records(c_node.cache)
    left = {name: os.listdir(c_node.cache / name) for name in os.listdir(c_node.cache) if name != "locks"}
    assert not any(left.values()), f"{what}: {left}"
    c_node.empty()
    (c_node.state / "calm").unlink()


def assert_known(c_node: CNode, what: str) -> None:
    """Assert that every address that is held belongs to a listed attachment."""
    owners = c_node.owners()  # before the list: nobody removes a record now, and an orphan may still allocate
    listed = {(one.network, one.container_id, one.ifname) for one in c_node.client().get_cached_attachments()}
    assert {owner[:3] for owner in owners} <= listed, what


@pytest.mark.slow
def test_killed_at_random_moments(c_node: CNode, say: Callable[[str], None]) -> None:
    chance = random.Random(SEED)
    started = time.monotonic()
    say(f"crash test: {KILLS} kills at random moments, LIBCNI_SEED={SEED}")
    for number in range(KILLS):
        seed = chance.randrange(1 << 32)

        def work(seed: int = seed) -> None:
            random_verbs(c_node, seed)

        assert kill_after(fork(work), chance.uniform(0.002, 0.08))
        assert_survived(c_node, f"kill {number} of seed {SEED}")
    say(f"crash test: {KILLS} kills at random moments in {time.monotonic() - started:.0f} s")
