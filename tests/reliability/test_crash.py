"""Killed at every file operation, at every plugin call, and at random: what is left can be found and detached."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable

import pytest

from libcni import CNIConfig, CNIError, RuntimeConf, repair_records
from reliability.forked import Injector, fork, kill_after, wait
from reliability.support import Place

KILLS = int(os.environ.get("LIBCNI_KILLS", "200"))
SEED = int(os.environ.get("LIBCNI_SEED", str(random.SystemRandom().randrange(1 << 32))))
CONTAINERS = [RuntimeConf(f"c{number}", None, "eth0") for number in range(3)]


def one_of_everything(cni: CNIConfig, place: Place) -> None:
    """Run a sequence in which every kind of step of the library occurs."""
    good, bad = place.network("good"), place.network("bad", fail=100)
    first, second, third = CONTAINERS
    cni.add_network_list(good, first)
    cni.check_network_list(good, first)
    with pytest.raises(CNIError):
        cni.add_network_list(bad, second)  # its roll-back fails, too: the record stays
    cni.del_network_list(good, first)
    cni.add_network_list(good, third)
    place.calm()
    cni.add_network_list(good, second)  # detaches what the failed one left
    cni.gc_network_list(good, [("c2", "eth0")])


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


def points(place: Place) -> int:
    """Return how many points the sequence has at which it can be killed."""
    reader, writer = os.pipe()

    def count() -> None:
        injector = Injector()
        one_of_everything(place.client(durable=True), place)
        os.write(writer, str(injector.points).encode())

    assert wait(fork(count)) == 0
    os.close(writer)
    number = int(os.read(reader, 100))
    os.close(reader)
    assert_survived(place, "not killed at all")
    return number


def kill_at_each(place: Place, numbers: Iterable[int]) -> int:
    kills = 0
    for number in numbers:

        def work(at: int = number) -> None:
            Injector(at)
            one_of_everything(place.client(durable=True), place)

        status = wait(fork(work))
        assert status in {0, -9}, f"point {number}"
        kills += status == -9
        assert_survived(place, f"killed at point {number}")
    return kills


@pytest.mark.slow
def test_killed_at_every_file_operation_and_every_plugin_call(place: Place, say: Callable[[str], None]) -> None:
    started = time.monotonic()
    total = points(place)
    kills = kill_at_each(place, range(total))
    say(f"crash test: killed at {kills} of {total} points in {time.monotonic() - started:.0f} s")
    assert kills > 150


def test_killed_at_some_file_operations_and_plugin_calls(place: Place) -> None:
    total = points(place)
    kill_at_each(place, sorted(random.Random(SEED).sample(range(total), 25)))


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
