"""7. Prices: how long each safeguard of an ADD takes, measured within this program."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from common import BUILD, EXT4, TMPFS, Row, chain_conf, fresh_cache, median, netns, p99
from subject import ANSWER

from libcni import NetworkConfigList, RuntimeConf
from libcni._namespace import namespace_identity
from libcni.executor.find import find_plugin
from libcni.protocol.answer import read_add_result
from libcni.protocol.invocation import Invocation, Outcome
from libcni.store.attachments import pending_record
from libcni.store.locks import LockRequest, LockSet
from libcni.store.namespace import EnteredNamespace, is_own_namespace
from libcni.store.record import READY
from libcni.store.records import RecordStore

NAME = "7 prices within one ADD"


def run(*, quick: bool) -> list[Row]:
    rounds = 50 if quick else 500
    net = NetworkConfigList.from_file(chain_conf())
    rt = RuntimeConf("c1", netns(), "eth0")
    invocation = Invocation("ADD", "noop", "/noop", b"", {})
    fast = fresh_cache("price", TMPFS)
    store = RecordStore(str(fast), durable=False)
    request = LockRequest((net.name,), "c1")
    prices: list[tuple[str, Callable[[], object]]] = [
        ("locks of the network and the container", lambda: _lock(str(fast), request)),
        ("search for other attachments of the interface", lambda: store.of_interface("c1", "eth0")),
        ("is the namespace this program's own?", lambda: is_own_namespace(rt.netns or "")),
        ("is the interface in the namespace already?", lambda: _look_up(rt.netns or "")),
        ("the namespace's device and inode", lambda: namespace_identity(rt.netns)),
        ("search for three executables", lambda: [find_plugin("noop", [str(BUILD / "bin")]) for _ in range(3)]),
        (
            "validation of one result",
            lambda: read_add_result(invocation, Outcome(stdout=ANSWER), net.cni_version, strict=False),
        ),
        ("both records, tmpfs", lambda: _records(store, net, rt)),
    ]
    for durable in (False, True):
        slow = RecordStore(str(fresh_cache("price", EXT4)), durable=durable)
        word = "durable" if durable else "not durable"
        prices.append((f"both records, ext4, {word}", lambda slow=slow: _records(slow, net, rt)))
    each: dict[str, list[float]] = {what: [] for what, _ in prices}
    for _ in range(rounds):
        for what, work in prices:
            began = time.perf_counter_ns()
            work()
            each[what].append((time.perf_counter_ns() - began) / 1e3)
    return [Row(NAME, what, "", "µs", median(taken), p99(taken)) for what, taken in each.items()]


def _look_up(netns: str) -> None:
    entered = EnteredNamespace.enter(netns)
    if entered is not None:
        entered.look_up("eth0")
        entered.close()


def _lock(cache: str, request: LockRequest) -> None:
    locks = LockSet(cache, request)
    assert locks.try_acquire()
    locks.plugin_descriptor("ADD")
    locks.close()


def _records(store: RecordStore, net: NetworkConfigList, rt: RuntimeConf) -> None:
    record = store.begin(pending_record(net, rt))
    store.complete(replace(record, state=READY, result=ANSWER.decode()))
    Path(record.path).unlink()
