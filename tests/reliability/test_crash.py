"""Killed at random moments: what is left can be found and detached. test_injected.py kills at every call of libc."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable

import pytest

from libcni import CNIConfig, CNIError, RuntimeConf, repair_records
from reliability.forked import fork, kill_after
from reliability.support import Place

KILLS = int(os.environ.get("LIBCNI_KILLS", "200"))
SEED = int(os.environ.get("LIBCNI_SEED", str(random.SystemRandom().randrange(1 << 32))))
CONTAINERS = [RuntimeConf(f"c{number}", None, "eth0") for number in range(3)]


def random_verbs(cni: CNIConfig, place: Place, seed: int) -> None:
    chance = random.Random(seed)
    networks = [place.network("good", slow=3), place.network("bad", slow=3, fail=30)]
    while True:
        net, rt = chance.choice(networks), chance.choice(CONTAINERS)
        try:
            if chance.random() < 2 / 3:
                cni.add_network_list(net, rt)
            else:
                cni.del_network_list(net, rt)
        except CNIError:
            continue


def assert_survived(place: Place, what: str) -> None:
    """Assert what must hold after any crash, and put the place back to its beginning."""
    cni = place.client()
    assert_known(place, what)
    listed = cni.get_cached_attachments()
    assert {attachment.state for attachment in listed} <= {"pending", "ready", "detaching"}, what  # no torn file
    place.calm()
    for name in ("good", "bad"):  # these meet the orphans, if there are any, and wait for them
        cni.gc_network_list(place.network(name), [])
    assert (place.owners(), cni.get_cached_attachments()) == ([], []), what
    place.wait_for_plugins()
    assert place.owners() == [], f"{what}: an orphan allocated after GC"
    repair_records(place.cache)
    left = {name: os.listdir(place.cache / name) for name in os.listdir(place.cache) if name != "locks"}
    assert not any(left.values()), f"{what}: {left}"
    place.empty()
    (place.state / "calm").unlink()


def assert_known(place: Place, what: str) -> None:
    """Assert that every address that is held belongs to a listed attachment."""
    owners = place.owners()  # before the list: nobody removes a record now, and an orphan may still allocate
    listed = {(one.network, one.container_id, one.ifname) for one in place.client().get_cached_attachments()}
    assert {owner[:3] for owner in owners} <= listed, what


@pytest.mark.slow
def test_killed_at_random_moments(place: Place, say: Callable[[str], None]) -> None:
    chance = random.Random(SEED)
    started = time.monotonic()
    say(f"crash test: {KILLS} kills at random moments, LIBCNI_SEED={SEED}")
    for number in range(KILLS):
        seed = chance.randrange(1 << 32)

        def work(seed: int = seed) -> None:
            random_verbs(place.client(), place, seed)

        assert kill_after(fork(work), chance.uniform(0.002, 0.08))
        assert_survived(place, f"kill {number} of seed {SEED}")
    say(f"crash test: {KILLS} kills at random moments in {time.monotonic() - started:.0f} s")
