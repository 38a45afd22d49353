"""A DEL during a reload, and kills of a reload, with the real plugins.

No interface, address or rule remains after DEL, and each living container keeps its record.

``tests/sim`` tries every order of these races, and of GC, a second reload and the hook beside a reload.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from functools import partial
from threading import Barrier, Thread

import pytest
from nodes import Namespace, NewNamespace, RealNode
from processes import fork, kill_after, wait

from libcni import CNIConfig, CNIError, RuntimeConf
from libcni.cli import main

from .published import assert_works, conf, left, publish, rules

pytestmark = [pytest.mark.slow, pytest.mark.real]

RACES = int(os.environ.get("LIBCNI_RACES", "60"))
"""250 for a release."""
KILLS = int(os.environ.get("LIBCNI_RELOAD_KILLS", "12"))
CONTAINERS = 20


def reload(cni: CNIConfig, container: str = "c1") -> None:
    for one in cni.get_cached_attachments(container):
        cni.reload_attachment(one)


def at_once(*works: Callable[[], object]) -> list[BaseException | None]:
    """Run works in threads of their own, which begin at once; return the errors, of a CNIError alone."""
    ended: list[BaseException | None] = [None] * len(works)
    start = Barrier(len(works))

    def run(number: int, work: Callable[[], object]) -> None:
        start.wait()
        try:
            work()
        except CNIError as error:
            ended[number] = error

    threads = [Thread(target=run, args=pair) for pair in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ended


def test_del_beside_a_reload(real_node: RealNode, container: Namespace) -> None:
    node = publish(real_node)
    failures = []
    first, second = node.client(), node.client()
    for number in range(RACES):
        rt = conf("c1", container.path)
        node.cni.add_network_list("net", rt)
        other = first if number % 2 else second  # one client, or two
        # A reload takes longer than a DEL: in half of the races the DEL comes in the middle.
        late = random.Random(number).choice((0.0, random.Random(number).uniform(0.0, 0.15)))

        def delete(late: float = late, other: CNIConfig = other, rt: RuntimeConf = rt) -> None:
            time.sleep(late)
            other.del_network_list("net", rt)

        errors = at_once(delete, partial(reload, first))
        if errors[0] is not None or left(node) or "eth0" in container.links():
            failures.append((number, errors, left(node)))
            node.cni.del_network_list("net", rt)
    assert not failures, f"{len(failures)} of {RACES}: {failures[:3]}"


def reload_all(node: RealNode) -> None:
    """Run the command."""
    path = os.pathsep.join(map(str, node.settings["path"]))
    os.environ["PATH"] = node.settings["env"]["PATH"]
    words = [f"--conf-dir={node.conf_dir}", f"--path={path}", f"--cache-dir={node.cache}"]
    status = main(["reload", "--all", *words])
    if status:
        raise SystemExit(status)


def test_kills_of_a_reload_of_all(real_node: RealNode, new_namespace: NewNamespace) -> None:
    """Each container has a record at every moment, and one more reload makes all of them work."""
    node = publish(real_node)
    names = [f"c{number}" for number in range(CONTAINERS)]
    for number, name in enumerate(names):
        node.cni.add_network_list("net", conf(name, new_namespace().path, number))
    before = rules(node)
    began = time.monotonic()
    assert wait(fork(partial(reload_all, node)), 300) == 0
    seconds = time.monotonic() - began
    dice = random.Random(os.environ.get("LIBCNI_SEED", "1"))
    for kill in range(1, KILLS + 1):
        kill_after(fork(partial(reload_all, node)), dice.uniform(0.0, seconds))
        on_record = {one.container_id for one in node.cni.get_cached_attachments() if one.state != "corrupt"}
        assert on_record == set(names), f"after {kill} kills"
        if kill % 10 == 0 or kill == KILLS:
            assert wait(fork(partial(reload_all, node)), 300) == 0, f"after {kill} kills"
            for name in names:
                assert_works(node, name)
            assert rules(node) == before, f"after {kill} kills"
            assert len(node.leased()) == CONTAINERS
