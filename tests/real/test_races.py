"""Verbs that race with a reload, and kills of it, with the real plugins: nothing is left, and no container is lost.

``tests/sim`` tries every order of the same races in a simulated world.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from threading import Barrier, Thread
from typing import Any

import pytest
from nodes import Namespace, NewNamespace, RealNode
from processes import fork, kill_after, wait

from libcni import CNIConfig, CNIError, RuntimeConf
from libcni.cli import main
from libcni.oci.annotations import Wanted
from libcni.oci.hook import Hook
from libcni.oci.pins import OWNER, Pins, directory_for, namespace_of
from libcni.oci.state import ContainerState
from libcni.testing import wait_until

from .published import assert_works, conf, left, publish, rules

pytestmark = [pytest.mark.slow, pytest.mark.real]

RACES = int(os.environ.get("LIBCNI_RACES", "60"))
"""Of each kind; 250 for the 1,000 races of the release."""
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


@pytest.mark.parametrize("client", ["one client", "two clients"])
def test_del_beside_a_reload(real_node: RealNode, container: Namespace, client: str) -> None:
    node = publish(real_node)
    failures = []
    first = node.client()
    for number in range(RACES // 2):
        rt = conf("c1", container.path)
        node.cni.add_network_list("net", rt)
        other = first if client == "one client" else node.client()
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


def test_gc_beside_a_reload(real_node: RealNode, container: Namespace) -> None:
    node = publish(real_node)
    failures: list[Any] = []
    for number in range(RACES):
        rt = conf("c1", container.path)
        node.cni.add_network_list("net", rt)
        valid = [("c1", "eth0")] if number % 2 else []
        sweep = partial(node.client().gc_network_list, "net", valid)
        errors = at_once(sweep, partial(reload, node.client()))
        try:
            if valid:
                assert_works(node)
            # A sweep leaves alone what was attached anew after it has listed it. The next one detaches it.
            elif node.cni.gc_network_list("net", []).errors or left(node):
                failures.append((number, errors, left(node)))
        except (CNIError, AssertionError, ValueError) as error:
            failures.append((number, errors, error))
        node.cni.del_network_list("net", rt)
        assert left(node) == []
    assert not failures, f"{len(failures)} of {RACES}: {failures[:3]}"


def test_two_reloads_at_once(real_node: RealNode, container: Namespace) -> None:
    node = publish(real_node)
    node.cni.add_network_list("net", conf("c1", container.path))
    before = rules(node), node.leased()
    for _ in range(RACES):
        errors = at_once(partial(reload, node.client()), partial(reload, node.client()))
        assert None in errors
        assert_works(node)
        assert (rules(node), node.leased()) == before
    node.cni.del_network_list("net", conf("c1", container.path))
    assert left(node) == []


@pytest.fixture
def hook_node(real_node: RealNode) -> Iterator[RealNode]:
    yield publish(real_node)
    pins = Pins(directory_for(str(real_node.cache)))
    for pin in pins.all():
        pins.remove(pin)
    if os.path.isdir(pins.directory):
        os.rmdir(pins.directory)


def test_poststop_beside_a_reload(hook_node: RealNode) -> None:
    node = hook_node
    ports: Any = conf("c1", "").capability_args

    def hook() -> Hook:
        return Hook(os.pathsep.join(map(str, node.settings["path"])), str(node.cache), str(node.conf_dir))

    failures = []
    for number in range(RACES):
        with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", node.settings["env"]["PATH"])
            child = stack.enter_context(subprocess.Popen(["unshare", "--net", "sleep", "600"]))
            stack.callback(child.kill)
            wait_until(lambda: namespace_of(child.pid) not in {None, namespace_of(os.getpid())})  # noqa: B023
            hook().attach(ContainerState("c1", "created", child.pid, str(node.root)), Wanted([], (), dict(ports)))
            child.kill()
            child.wait()
            errors = at_once(lambda: hook().detach("c1"), partial(reload, node.client(owner=OWNER)))
            if errors[0] is not None or left(node):
                failures.append((number, errors, left(node)))
                hook().detach("c1")
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
