"""Many random verbs of many processes at once: verbs that must stay apart do, and nothing is lost."""

from __future__ import annotations

import itertools
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable

import pytest
from processes import fork, wait

from libcni import CNIConfig, CNIError, LockTimeoutError, NetworkConfigList, RuntimeConf
from reliability.c_node import Call, CNode

PROCESSES = 8
VERBS = int(os.environ.get("LIBCNI_VERBS", "500"))
CONTAINERS = [RuntimeConf(f"c{number}", None, "eth0") for number in range(20)]
SEED = int(os.environ.get("LIBCNI_SEED", str(random.SystemRandom().randrange(1 << 32))))


def networks(c_node: CNode) -> list[NetworkConfigList]:
    return [
        c_node.chain("quick", "alloc-a"),
        c_node.chain("failing", "alloc-a", "plain", fail=15),
        c_node.chain("slow", "alloc-b", "plain", slow=3, fail=5),
    ]


def random_verbs(cni: CNIConfig, c_node: CNode, chance: random.Random, number: int) -> None:
    nets = networks(c_node)
    for _ in range(number):
        net, rt = chance.choice(nets), chance.choice(CONTAINERS)
        verb = chance.choices(["add", "check", "del", "gc", "list"], [45, 10, 35, 5, 5])[0]
        try:
            if verb == "add":
                cni.add_network_list(net, rt, on_existing=chance.choice(["refuse", "refuse", "replace"]))
            elif verb == "check":
                cni.check_network_list(net, rt)
            elif verb == "del":
                cni.del_network_list(net, rt)
            elif verb == "gc":
                stay = chance.sample(CONTAINERS, 15)
                cni.gc_network_list(net, [(one.container_id, one.ifname) for one in stay])
            else:
                assert not [one for one in cni.get_cached_attachments() if one.state == "corrupt"]
        except LockTimeoutError:
            raise  # nobody holds a lock that long: it would be a deadlock
        except CNIError:
            continue


def run_processes(c_node: CNode, number: int, verbs: int) -> float:
    chance = random.Random(SEED)
    started = time.monotonic()
    children = []
    for _ in range(number):
        own = random.Random(chance.randrange(1 << 32))

        def work(own: random.Random = own) -> None:
            cni = c_node.client(timeout=60, start_ahead=own.choice(["never", "always"]))
            random_verbs(cni, c_node, own, verbs)

        children.append(fork(work))
    assert [wait(child, 3600) for child in children] == [0] * number
    return time.monotonic() - started


def assert_apart(calls: Iterable[Call], what: str) -> None:
    """Assert that no call begins before the one before it has ended."""
    for first, second in itertools.pairwise(calls):
        assert second.start >= first.end, f"two {what} at once:\n{first}\n{second}"


def assert_verbs_apart(calls: Iterable[Call], what: str) -> None:
    """Assert that the calls of one verb stand together: its token is the same in all of them, and no other's."""
    tokens = [token for token, _ in itertools.groupby(calls, key=lambda call: call.token)]
    again = [token for token, times in Counter(tokens).items() if times > 1]
    assert not again, f"two {what} interleaved: {again[0]}"


def grouped(calls: list[Call], key: Callable[[Call], str]) -> list[list[Call]]:
    return [list(group) for _, group in itertools.groupby(sorted(calls, key=lambda call: (key(call), call.start)), key)]


def assert_invariants(c_node: CNode) -> list[Call]:
    calls = c_node.logged()
    assert all(call.end for call in calls)
    for group in grouped([call for call in calls if call.container != "-"], lambda call: call.container):
        assert_apart(group, f"verbs for {group[0].container}")
        assert_verbs_apart(group, f"verbs for {group[0].container}")
    for group in grouped(calls, lambda call: call.network):
        sweeps = [call for call in group if call.verb == "GC"]
        rest = [call for call in group if call.verb in {"ADD", "DEL"}]
        for sweep in sweeps:
            beside = [call for call in rest if call.start < sweep.end and sweep.start < call.end]
            assert not beside, f"a GC and another verb ran at the same time: {beside[0]}"
    assert not [call for call in calls if call.outcome == "already-there"], "a second ADD without a DEL"
    return calls


def assert_everything_comes_to_an_end(c_node: CNode) -> list[Call]:
    cni = c_node.client()
    listed = {(one.network, one.container_id, one.ifname) for one in cni.get_cached_attachments()}
    assert {owner[:3] for owner in c_node.owners()} <= listed, "a record was lost"
    c_node.calm()
    for net in networks(c_node):
        cni.gc_network_list(net, [])
    assert (c_node.owners(), cni.get_cached_attachments()) == ([], [])
    calls = assert_invariants(c_node)
    ended = [call for call in calls if call.verb in {"ADD", "DEL"}]
    last = {(call.network, call.container, call.ifname, call.type): call.verb for call in ended}
    assert set(last.values()) == {"DEL"}, "an ADD without a DEL"
    return calls


def run(c_node: CNode, processes: int, verbs: int) -> str:
    seconds = run_processes(c_node, processes, verbs)
    assert_invariants(c_node)
    calls = assert_everything_comes_to_an_end(c_node)
    counted = Counter(call.verb for call in calls)
    failed = sum(call.outcome != "ok" for call in calls)
    kinds = ", ".join(f"{number} {verb}" for verb, number in sorted(counted.items()))
    verbs_run = f"{processes} processes x {verbs} verbs in {seconds:.0f} s"
    return f"{verbs_run}: {len(calls)} plugin calls ({kinds}; {failed} failed)"


@pytest.mark.slow
def test_eight_processes_and_many_random_verbs(c_node: CNode, say: Callable[[str], None]) -> None:
    say(f"concurrency: LIBCNI_SEED={SEED}")
    say(run(c_node, PROCESSES, VERBS))


def test_three_processes_and_some_random_verbs(c_node: CNode) -> None:
    assert run(c_node, 3, 60), f"LIBCNI_SEED={SEED}"
