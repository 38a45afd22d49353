"""repair_node: what it asks before each mend, under which locks, and what stops it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from nodes import PLUGINS, FakeNode, Namespace

from diagnosis.conftest import OperatorNode
from diagnosis.made import MadeNode
from libcni import CNIConfig, RuntimeConf
from libcni.diagnosis import NodeFinding, acts, doctor, lock_users, repair_node
from libcni.diagnosis import repair as engine
from libcni.diagnosis.acts import ACTS
from libcni.diagnosis.contradictions import without_contradictions, without_repetitions
from libcni.diagnosis.mends import Mend, MendKind, merged
from libcni.diagnosis.node_state import NodeState, read_node
from libcni.diagnosis.repair_guard import AllBelongings, Belongings, belongings_of, losses
from libcni.kernel.foreign import Space
from libcni.store.locks import LockRequest, LockSet
from libcni.testing import wait_until

pytestmark = pytest.mark.real


@contextmanager
def locked_as_by_host_local(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def replace_act(monkeypatch: pytest.MonkeyPatch, kind: MendKind, change: Callable[..., Any]) -> None:
    monkeypatch.setattr(acts, "ACTS", {**ACTS, kind: ACTS[kind]._replace(change=change)})


def also(monkeypatch: pytest.MonkeyPatch, kind: MendKind, change: Callable[..., Any]) -> None:
    """Carry out the mends of a kind, and then a change that comes at the same time."""
    act = ACTS[kind].change
    assert act is not None
    replace_act(monkeypatch, kind, lambda node, mend: (act(node, mend), change(node, mend)))


def test_a_dry_run_changes_nothing(node: OperatorNode) -> None:
    node.attach("c1")
    lease = node.lease(77, "lost\r\neth0")
    done = repair_node(node.cni, dry_run=True)
    assert [(one.state, one.mend.kind) for one in done.outcomes] == [("planned", "release")]
    assert lease.exists()


def test_a_mend_whose_cause_the_doctor_still_finds_has_failed(
    node: OperatorNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = node.lease(77, "lost\r\neth0")
    replace_act(monkeypatch, "release", lambda *_: None)  # as on a disk that became read-only
    [outcome] = repair_node(node.cni).outcomes
    assert (outcome.state, outcome.reason) == ("failed", "the doctor still reports the finding")
    assert lease.exists()


def test_what_is_named_must_be_a_collection(cni: CNIConfig) -> None:
    wrong: Any
    for wrong in ("all", iter([]), (name for name in ["c1"])):
        for name in ("interrupt", "only"):
            with pytest.raises(TypeError, match="collections of names"):
                repair_node(cni, **{name: wrong})


def test_rules_of_another_owners_dead_container_are_left_to_that_owner(
    node: OperatorNode, named_namespace: str
) -> None:
    node.write_bridge(ipMasq=True)
    other = node.client(owner="other")
    other.add_network_list("net", RuntimeConf("c1", f"/run/netns/{named_namespace}", "eth0"))
    subprocess.run(["ip", "netns", "del", named_namespace], check=True)
    # While another test hides a namespace, nothing is known to be dead.
    outcomes = wait_until(lambda: repair_node(node.cni).outcomes, 60)
    assert {(one.mend.kind, one.state, one.needs) for one in outcomes} == {
        ("remove-rules", "left", (("owner", "other"),)),
        ("detach", "left", (("owner", "other"),)),
    }
    states = wait_until(lambda: [one.state for one in repair_node(other).outcomes], 60)
    assert states == ["mended", "mended"]


def test_old_temporary_files_of_killed_writers_go(node: OperatorNode) -> None:
    node.attach("c1")
    drafts = node.cache / "tmp"
    old, young = drafts / "4194305-1-1", drafts / "4194305-2-1"
    for file in (old, young):
        file.touch()
    os.utime(old, (1, 1))
    repair_node(node.cni, dry_run=True)
    assert old.exists()
    repair_node(node.cni)
    assert sorted(drafts.iterdir()) == [young]


@pytest.mark.slow
def test_each_mend_is_asked_again_before_it_is_carried_out(node: OperatorNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one of this repair makes the second one needless: an operator does so meanwhile, for example."""
    container = node.attach("c1")
    subprocess.run(["ip", "link", "set", "br-node", "down"], check=True)
    container.run("ip", "link", "set", "eth0", "down")

    def set_all_up(*_: object) -> None:
        subprocess.run(["ip", "link", "set", "br-node", "up"], check=True)
        container.run("ip", "link", "set", "eth0", "up")

    replace_act(monkeypatch, "set-up", set_all_up)
    assert [one.state for one in node.repair().outcomes] == ["mended", "not needed"]
    subprocess.run(["ip", "link", "set", "br-node", "down"], check=True)
    node.lease(77, "lost\r\neth0")

    def release_all(*_: object) -> None:
        set_all_up()
        (node.leases / "net" / f"{node.net}.77").unlink()

    replace_act(monkeypatch, "set-up", release_all)
    assert [(one.mend.kind, one.state) for one in node.repair().outcomes] == [
        ("set-up", "mended"),
        ("release", "not needed"),
    ]


def test_of_a_planned_mend_only_the_part_is_made_that_a_new_diagnosis_requires_of_the_same_containers() -> None:
    planned = Mend("remove-rules", "c1", ("10.1.0.2", "10.1.0.3"), ("c1:eth0", "c1:eth1"), network="net")
    rest = replace(planned, details=("10.1.0.3",))
    assert engine._rest(planned, replace(planned, details=("10.1.0.3", "10.1.0.4"))) == rest
    assert engine._rest(planned, replace(planned, details=("10.1.0.4",))) is None
    assert engine._rest(planned, None) is None
    link = Mend("set-up", "eth0")
    assert engine._rest(link, link) == link
    assert engine._rest(link, replace(link, interrupts=("c3:eth0",))) is None
    assert engine._rest(replace(link, interrupts=("c3:eth0",)), link) == link


def test_the_same_mend_of_two_findings_interrupts_whom_either_of_them_names() -> None:
    detach = Mend("detach", "/results/net-c1-eth0", (), ("c1:eth0",), network="net")
    interrupting = replace(detach, interrupts=("c1:eth0",))
    for mends in ((detach, interrupting), (interrupting, detach)):
        assert merged(mends) == (interrupting,)


def test_only_the_named_container_is_repaired(node: OperatorNode) -> None:
    """The reservations of several containers are in one directory."""
    leases = [node.lease(77, "lost\r\neth0"), node.lease(78, "other\r\neth0")]
    done = repair_node(node.cni, only=["lost"])
    assert [(one.mend.containers, one.state) for one in done.outcomes] == [(("lost:eth0",), "mended")]
    assert [lease.exists() for lease in leases] == [False, True]


def test_a_named_container_is_repaired_whoever_owns_it(node: OperatorNode, named_namespace: str) -> None:
    node.client(owner="other").add_network_list("net", RuntimeConf("c1", f"/run/netns/{named_namespace}", "eth0"))
    subprocess.run(["ip", "netns", "del", named_namespace], check=True)
    assert [one.needs for one in repair_node(node.cni, only=["dead"]).outcomes] == [(("owner", "other"),)]
    assert [one.state for one in repair_node(node.cni, only=["c1"]).outcomes] == ["mended"]


@pytest.mark.parametrize("owner", ["c2", "dead"])
def test_a_container_has_its_own_rules_and_reservations_and_not_those_of_a_dead_one(made: MadeNode, owner: str) -> None:
    """They may lead to its address. A repair that removes them takes nothing from it."""
    made.attach("c2", address="10.1.0.2")
    made.reservations["net", "/leases/net"].clear()
    made.reserve("10.1.0.2", owner)
    made.make_rules(owner, "10.1.0.2")
    [belongings] = [one for one in belongings_of(made.reading()).values() if "c2:eth0" in one.names]
    has = [what for what in ("masquerade", "port 8080/tcp", "reservation") if what in str(belongings.things)]
    assert has == (["masquerade", "port 8080/tcp", "reservation"] if owner == "c2" else [])


def test_what_a_mend_names_or_a_runtime_changes_is_no_loss() -> None:
    records: set[tuple[str, object, str]] = {("net-c1-eth0", None, "ready")}
    before = Belongings({"a", "b"}, is_ours=True, names={"c1:eth0"}, records=records)
    after: AllBelongings = {(1, 2): replace(before, things={"a"})}
    assert losses({(1, 2): before}, after, {"c2:eth0"}) == [("c1:eth0 has lost b", {"c1:eth0"})]
    assert losses({(1, 2): before}, after, {"c1:eth0"}) == []
    assert losses({(1, 2): before}, {(1, 2): replace(after[1, 2], records=set())}, set()) == []
    assert losses({(1, 2): replace(before, is_ours=False)}, after, set()) == [], "not of this node"
    assert losses({(1, 2): before}, {}, set()) == [], "it has ended"
    assert losses({(1, 2): replace(before, cookie=7)}, {(1, 2): replace(after[1, 2], cookie=8)}, set()) == [], (
        "it has ended"
    )


def test_a_check_that_failed_is_run_again_before_a_container_is_attached_again(healthy: FakeNode) -> None:
    once = healthy.root / "once"
    answer = '{"cniVersion": "1.0.0", "code": 999, "msg": "eth0 has gone"}'
    fail = f"[ $CNI_COMMAND != CHECK ] || [ -e {once} ] || {{ touch {once}; echo '{answer}'; exit 1; }}"
    healthy.plugin("a", fail, result={"cniVersion": "1.0.0"})
    outcomes = repair_node(healthy.cni, run_check=True, interrupt=["c1"]).outcomes
    assert [(one.mend.kind, one.finding, one.state) for one in outcomes] == [("reload", "check-failed", "not needed")]
    healthy.plugin("a", fail.replace(f"[ -e {once} ]", "false"), result={"cniVersion": "1.0.0"})
    outcomes = repair_node(healthy.cni, run_check=True, interrupt=["c1"]).outcomes
    assert [one.state for one in outcomes] == ["failed"], "CHECK fails after the reload, too"


def test_the_locks_of_each_mend_are_those_of_an_add() -> None:
    """Verbs acquire their own locks: add-rules, reload and detach."""
    container = LockRequest((), "c1")
    locks = {kind: ACTS[kind].locks(Mend(kind, "/leases", containers=("c1:eth0",))) for kind in ACTS}
    assert {kind: held for kind, held in locks.items() if held} == {
        "set-aside": (LockRequest(all_containers=True),),
        "mount": (container,),
        "reserve": (container, "/leases"),
        "remove-rules": (container,),
        "release": ("/leases",),
    }


def test_two_repairs_acquire_the_locks_of_many_containers_in_one_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """In different orders each would wait 30 seconds for the other's lock."""
    acquired: list[LockRequest | str] = []

    def hold(_: CNIConfig, lock: LockRequest | str) -> AbstractContextManager[None]:
        acquired.append(lock)
        return nullcontext()

    monkeypatch.setattr(engine, "held", hold)
    repair = engine._Repair(CNIConfig("bin", "cache"), frozenset(), frozenset(), False, 0.0, None)
    names = [f"c{number}" for number in range(9)]
    mends = [Mend("reserve", f"/{name[1:]}", (), (f"{name}:eth0",)) for name in names]
    for planned in (mends, mends[::-1]):
        with ExitStack() as stack:
            repair._lock(stack, [engine.MendOutcome(mend, "", "planned") for mend in planned])
    in_order = [*(LockRequest((), name) for name in names), *(mend.target for mend in mends)]
    assert acquired == [*in_order, *in_order]


def test_an_attachment_that_another_program_detaches_meanwhile_is_detached(
    node: OperatorNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DEL acquires its locks itself, so two repairs at once find the same attachments."""
    subprocess.run(["ip", "netns", "del", node.attach("c1").name], check=True)
    del_attachments = CNIConfig.del_attachments

    def beside(cni: CNIConfig, listed: Any, **options: Any) -> Any:
        del_attachments(node.client(), listed)
        return del_attachments(cni, listed, **options)

    monkeypatch.setattr(CNIConfig, "del_attachments", beside)
    assert [(one.mend.kind, one.state, one.reason) for one in repair_node(node.cni).outcomes] == [
        ("detach", "mended", "")
    ]


def test_a_mend_whose_cause_is_hidden_for_a_moment_is_tried_again(
    node: OperatorNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program's namespace ended while it was read, for example: then no address is known to be unused."""
    node.attach("c1")
    lease = node.lease(77, "lost\r\neth0")
    looks = 0

    def read(*args: Any, **options: Any) -> NodeState:
        nonlocal looks
        looks += 1
        state = read_node(*args, **options)
        ended = {(0, looks): Space("/run/netns/ended")}
        return replace(state, spaces=state.spaces | ended) if looks == 2 else state

    monkeypatch.setattr(engine, "read_node", read)
    assert [one.state for one in node.repair().outcomes] == ["mended"]
    assert not lease.exists()


@pytest.mark.parametrize("damage", ["ip link del eth0", "ip address flush dev eth0", "ip route del default"])
@pytest.mark.parametrize("record", ["recorded", "without a record"])
def test_a_loss_that_the_mend_does_not_name_stops_the_repair(
    node: OperatorNode, monkeypatch: pytest.MonkeyPatch, damage: str, record: str
) -> None:
    node.write_bridge(isDefaultGateway=True)
    container = node.attach("c1")
    if record != "recorded":
        node.record("c1").unlink()
        node.age_leases()
    node.lease(77, "lost\r\neth0")
    monkeypatch.setattr(engine, "_SECOND_LOOK", 0.0)
    also(monkeypatch, "release", lambda *_: container.run(*damage.split()))
    done = repair_node(node.cni)
    assert [one.state for one in done.outcomes] == ["mended"]
    assert "after: release" in done.stopped
    assert ("c1:eth0 has lost" if record == "recorded" else "a container without a record has lost") in done.stopped
    assert {"link": "the interface eth0", "address": f"{node.net}.2/24", "route": "the route to 0.0.0.0/0"}[
        damage.split()[1]
    ] in done.stopped


def test_no_mend_follows_a_loss(node: OperatorNode, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("c1", "c2"):
        node.attach(name).run("ip", "link", "set", "eth0", "down")
    living = node.attach("c3")
    made: list[object] = []

    def damage(*_: object) -> None:
        made.append(living.run(*("ip", "link", "del", "eth0") if not made else ("true",)))

    monkeypatch.setattr(engine, "_SECOND_LOOK", 0.0)
    replace_act(monkeypatch, "set-up", damage)
    done = repair_node(node.cni)
    assert (len(made), "c3:eth0 has lost" in done.stopped) == (1, True)


def test_a_mend_of_an_attachment_before_the_reboot_explains_no_loss_of_the_next_container(
    node: OperatorNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path of its record leads to the namespace of another container now."""
    container = node.attach("c1")
    record = node.record("c1")
    copy = json.loads(record.read_text(encoding="utf-8"))
    copy["containerId"] = "c0"
    copy["libcni"]["bootId"] = "another"
    record.with_name("net-c0-eth0").write_text(json.dumps(copy), encoding="utf-8")
    node.lease(77, "lost\r\neth0")
    monkeypatch.setattr(engine, "_SECOND_LOOK", 0.0)

    def detach(*_: object, **__: object) -> list[None]:
        container.run("ip", "address", "flush", "dev", "eth0")
        return [None]

    monkeypatch.setattr(CNIConfig, "del_attachments", detach)
    assert "c1:eth0 has lost" in repair_node(node.cni).stopped


def test_a_port_that_is_lost_stops_the_repair(node: OperatorNode, monkeypatch: pytest.MonkeyPatch) -> None:
    node.configure("net", node.bridge(f"{node.net}.0/24"), {"type": "portmap", "capabilities": {"portMappings": True}})
    ports = {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}
    rt = RuntimeConf("c1", node.new_namespace().path, "eth0", capability_args=ports)
    node.cni.add_network_list("net", rt)
    node.lease(77, "lost\r\neth0")
    monkeypatch.setattr(engine, "_SECOND_LOOK", 0.0)
    flush = ["iptables", "-t", "nat", "-F", "CNI-HOSTPORT-DNAT"]
    also(monkeypatch, "release", lambda *_: subprocess.run(flush, check=True))
    assert "c1:eth0 has lost the port 8080/tcp" in repair_node(node.cni).stopped


def test_a_container_that_its_runtime_detaches_meanwhile_stops_nothing(
    node: OperatorNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.attach("c1")
    node.attach("c2").run("ip", "link", "set", "eth0", "down")
    monkeypatch.setattr(engine, "_SECOND_LOOK", 0.0)
    also(monkeypatch, "set-up", lambda *_: node.cni.del_network_list("net", RuntimeConf("c1", None, "eth0")))
    done = repair_node(node.cni)
    assert ([one.state for one in done.outcomes], done.stopped) == (["mended"], "")
    assert [one.container_id for one in node.cni.get_cached_attachments()] == ["c2"]


@pytest.mark.slow
def test_a_container_that_a_verb_works_on_has_lost_nothing_yet(
    node: OperatorNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reload takes the interface of a healthy container for a moment, which may last for several looks."""
    container, address = node.attach("c1"), f"{node.net}.2/24"
    node.lease(77, "lost\r\neth0")
    locks = LockSet(str(node.cache), LockRequest((), "c1"))
    seen: list[bool] = []

    def begin(*_: object) -> None:
        assert locks.try_acquire()
        container.run("ip", "address", "flush", "dev", "eth0")

    def look(state: NodeState) -> AllBelongings:
        found = belongings_of(state)
        seen.append(any(f"the address {address} of eth0" in one.things for one in found.values()))
        if seen == [True, True, False, False]:
            container.run("ip", "address", "add", address, "dev", "eth0")
            locks.close()
        return found

    monkeypatch.setattr(engine, "_SECOND_LOOK", 0.0)
    monkeypatch.setattr(engine, "belongings_of", look)
    also(monkeypatch, "release", begin)
    done = repair_node(node.cni)
    assert (done.outcomes[0].state, done.stopped) == ("mended", "")
    assert seen[:5] == [True, True, False, False, True]


@contextmanager
def waiting_repair(node: OperatorNode) -> Iterator[None]:
    """Repair the node while the block runs, and end the block before the repair gets the lock of host-local."""
    (node.leases / "net").mkdir(exist_ok=True)
    with locked_as_by_host_local(node.leases / "net"):
        repair = threading.Thread(target=lambda: repair_node(node.cni), daemon=True)
        with node.host.entered():
            repair.start()
        time.sleep(1.0)
        yield
    repair.join(20)


def test_an_address_is_released_under_the_lock_of_host_local(node: OperatorNode) -> None:
    """Who gets the address while the repair waits for the lock keeps it."""
    node.attach("c1")
    kept, freed = (node.lease(last, f"lost{last}\r\neth0") for last in (77, 78))
    other = node.new_namespace()
    with waiting_repair(node):
        assert freed.exists(), "it waits"
        other.run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "x")
        other.run("ip", "address", "add", f"{node.net}.77/24", "dev", "eth0")
    assert (kept.exists(), freed.exists()) == (True, False)


@pytest.mark.slow
def test_nothing_is_reserved_for_a_container_that_was_detached_meanwhile(node: OperatorNode) -> None:
    node.attach("c1")
    node.attach("c2")
    first, second = (node.leases / "net" / f"{node.net}.{last}" for last in (2, 3))
    first.unlink()
    second.unlink()
    with waiting_repair(node):
        assert not first.exists(), "it waits"
        node.record("c1").rename(node.root / "record-of-c1")
    assert second.exists()
    assert not first.exists() or "c1" not in first.read_text().split(), "it is reserved for the namespace that has it"


@pytest.mark.slow
def test_a_pool_is_made_anew_with_the_modes_of_host_local_whatever_the_umask(node: OperatorNode) -> None:
    node.attach("c1")
    pool = node.leases / "net"
    others_read = 0o044  # host-local 1.9 makes reservations 0600, 1.1 0644: both are in order
    modes = {path: path.stat().st_mode | others_read for path in (pool, pool / f"{node.net}.2")}
    shutil.rmtree(pool)
    umask = os.umask(0)
    try:
        node.mend("is not reserved")
    finally:
        os.umask(umask)
    assert {path: path.stat().st_mode | others_read for path in modes} == modes
    assert stat.S_IMODE((pool / "lock").stat().st_mode) == 0o750
    for path, mode, name in ((pool / "lock", 0o644, "open-lock"), (pool, 0o777, "writable-by-others")):
        path.chmod(mode)
        assert [(one.name, one.remedy.partition(" ")[0]) for one in node.diagnose().findings] == [(name, "chmod")]
        subprocess.run(node.diagnose().findings[0].remedy.split(), check=True)
    node.assert_healthy()


@pytest.mark.slow
def test_the_holder_of_a_lock_is_named_within_the_timeout(node: OperatorNode) -> None:
    lease = node.lease(77, "lost\r\neth0")
    with subprocess.Popen(["flock", "--no-fork", str(node.leases / "net" / "lock"), "sleep", "60"]) as holder:
        wait_until(lambda: any("sleep" in one for one in lock_users(str(node.leases / "net" / "lock"))))
        [outcome] = repair_node(node.client(timeout=0.5)).outcomes
        assert f"lock was held for 0.5 s by sleep ({holder.pid})" in outcome.reason
        assert lease.exists()
        holder.kill()


def test_nothing_is_read_while_the_lock_of_host_local_is_held(
    node: OperatorNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.lease(77, "lost\r\neth0")

    def read(*args: Any, **options: Any) -> NodeState:
        with open(node.leases / "net" / "lock", "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError, if it is held
        return read_node(*args, **options)

    monkeypatch.setattr(engine, "read_node", read)
    assert [one.state for one in node.repair().outcomes] == ["mended"]


@pytest.mark.slow
def test_a_host_local_that_hangs_does_not_hang_the_repair(node: OperatorNode, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = node.lease(77, "lost\r\neth0")
    monkeypatch.setattr(acts, "_SECONDS", 0.2)
    with locked_as_by_host_local(node.leases / "net"):
        [outcome] = repair_node(node.cni).outcomes
    assert (outcome.state, lease.exists()) == ("failed", True)
    assert f"{node.leases}/net/lock: host-local's lock was held for 0.2 s by " in outcome.reason


@pytest.mark.parametrize("kind", ["reserve", "add-rules", "set-aside"])
def test_a_verb_that_runs_keeps_the_repair_waiting(
    node: OperatorNode, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    node.write_bridge(ipMasq=True)
    node.attach("c1")
    if kind == "reserve":
        (node.leases / "net" / f"{node.net}.2").unlink()
    elif kind == "add-rules":
        node.host.run("sh", "-c", "iptables -t nat -F && iptables -t nat -X")
    else:
        (node.results / "net-c7-eth0").touch()
    monkeypatch.setattr(acts, "_SECONDS", 0.2)
    locks = LockSet(str(node.cache), LockRequest((), "c1"))
    assert locks.try_acquire()
    try:
        outcomes = repair_node(node.cni).outcomes
    finally:
        locks.close()
    assert [(one.mend.kind, one.state) for one in outcomes] == [(kind, "failed")]
    assert [one.state for one in node.repair().outcomes] == ["mended"]


def test_a_link_that_was_replaced_meanwhile_is_another_one(node: OperatorNode) -> None:
    """It is found by its number, and its namespace by a descriptor."""
    container, other = node.attach("c1"), node.new_namespace()
    container.run("ip", "link", "set", "eth0", "down")
    state = read_node(node.cni)
    [mend] = [one for one in repair_node(node.cni, dry_run=True).outcomes if one.mend.kind == "set-up"]
    other.run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "x")
    container.run("ip", "link", "del", "eth0")
    container.run("ip", "link", "add", "eth0", "index", "99", "type", "veth", "peer", "name", "x")
    change = ACTS["set-up"].change
    assert change is not None
    with pytest.raises(OSError, match="No such device"):
        change(state, mend.mend)
    with pytest.raises(OSError, match="the container's namespace has been replaced"):
        change(replace(state, spaces={}), mend.mend)
    assert "UP" not in container.link("eth0")["flags"]


def test_a_repair_that_is_killed_can_be_repeated(node: OperatorNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before each rename, unlink and plugin: what was begun is found again."""
    node.attach("c1")
    reservation = node.leases / "net" / f"{node.net}.2"
    content = reservation.read_bytes()
    reservation.unlink()

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "rename", stop)
    with pytest.raises(KeyboardInterrupt):
        repair_node(node.cni)
    monkeypatch.undo()
    assert not reservation.exists(), "no empty file, which would be a reservation of nobody's"
    node.repair()
    assert reservation.read_bytes() == content


def test_the_dead_are_detached_in_groups(healthy: FakeNode) -> None:
    for number in range(39):
        healthy.cni.add_network_list("net", RuntimeConf(f"n{number}", healthy.netns(f"n{number}"), "eth0"))
    for one in healthy.cni.get_cached_attachments():
        healthy.change_record(one.container_id, bootId="another")
    reads = 0

    def read(*args: object, **options: object) -> object:
        nonlocal reads
        reads += 1
        return read_node(*args, **options)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "read_node", read)
        outcomes = repair_node(healthy.cni).outcomes
    assert [one.state for one in outcomes] == ["mended"] * 40
    assert reads == 1 + 2 + 1, "the diagnosis, a look before each group, and the diagnosis"


def test_the_key_of_a_mend_tells_that_it_is_the_same_change() -> None:
    rules = Mend("remove-rules", "c1", ("10.1.0.2",), ("c1:eth0",), (), "net")
    assert rules.key == replace(rules, details=("10.1.0.3",)).key
    route = Mend("add-route", "eth0", ("10.0.0.0/8",), ("c1:eth0",), netns="/ns/c1")
    assert route.key != replace(route, details=("10.0.0.0/9",)).key
    assert route.key != replace(route, netns="/ns/c2").key


@pytest.mark.parametrize("owner", ["", "podman"])
@pytest.mark.parametrize("plugin", ["within the first plugin", "within the last plugin"])
def test_a_killed_set_up_leaves_no_rules(
    node: OperatorNode, tmp_path: Path, named_namespace: str, owner: str, plugin: str
) -> None:
    """Nothing else leads to them after its DEL if its network has no file, as podman's."""
    (node.conf_dir / "net.conflist").unlink()
    masquerading = node.bridge(f"{node.net}.0/24", ipMasq=True)
    kill = "kill -9 $PPID"
    node.plugin("last", f"[ $CNI_COMMAND != ADD ] || {{ {kill}; }}")
    path = node.bin / "killing-bridge"
    path.write_text(f"#!/bin/sh\n{PLUGINS}/bridge || exit 1\n[ $CNI_COMMAND != ADD ] || {{ {kill}; }}\n")
    path.chmod(0o755)
    first = {**masquerading, "type": "killing-bridge"} if plugin == "within the first plugin" else masquerading
    file = tmp_path / "podman.conflist"
    document = {"cniVersion": "1.0.0", "name": "net", "plugins": [first, {"type": "last"}]}
    file.write_text(json.dumps(document), encoding="utf-8")
    command = ["libcni", "add", str(file), f"/run/netns/{named_namespace}", "-c", "c1"]
    subprocess.run([*command, *(["--owner", owner] if owner else [])], env=node.env, cwd=node.root, check=False)
    subprocess.run(["ip", "netns", "del", named_namespace], check=True)
    assert node.host.rules("nat", "CNI-")
    done = repair_node(node.client(owner=owner))
    assert {one.state for one in done.outcomes} == {"mended"}
    assert not node.host.rules("nat", "CNI-")
    assert node.leased() == {}


def test_a_jump_to_an_empty_chain_of_masquerade_is_removed(
    node: OperatorNode, host: Namespace, container: Namespace
) -> None:
    """The interface was deleted by hand, so bridge left its rules; the next DEL empties the chain, and fails."""
    node.write_bridge(ipMasq=True)
    for _ in range(2):
        node.cni.add_network_list("net", RuntimeConf("c1", container.path, "eth0"))
        container.run("ip", "link", "del", "eth0")
        node.cni.del_attachments(node.cni.get_cached_attachments())
    chain = host.rules("nat", "-N CNI-")[0].split()[1]
    host.run("iptables", "-t", "nat", "-F", chain)
    assert len(host.rules("nat", f"-j {chain}")) == 2
    # While another test hides a namespace, who has an address is unknown.
    wait_until(lambda: repair_node(node.cni).stopped == "" and not host.rules("nat", "CNI-"), 60)


ANSWER = '#!/bin/sh\necho "$CNI_COMMAND" >> {log}\n[ $CNI_COMMAND != VERSION ] || {{ echo no; exit 1; }}\n'


@pytest.mark.slow
def test_a_container_is_not_detached_if_its_plugins_do_not_answer_before_the_reload(node: OperatorNode) -> None:
    """The file is a program that starts: only a call shows that its ADD would fail."""
    node.attach("c1").run("ip", "link", "del", "eth0")
    log = node.root / "log"
    plugin = node.bin / "bridge"
    plugin.write_text(ANSWER.format(log=log), encoding="utf-8")
    plugin.chmod(0o755)
    [outcome] = repair_node(node.cni).outcomes
    assert (outcome.mend.kind, outcome.state) == ("reload", "failed")
    assert 'plugin "bridge" failed (VERSION)' in outcome.reason
    assert set(log.read_text(encoding="utf-8").split()) == {"VERSION"}
    plugin.unlink()
    node.repair()


def test_nobody_is_detached_because_a_check_did_not_find_iptables(node: OperatorNode) -> None:
    node.write_bridge(ipMasq=True)
    container = node.attach("c1")
    programs = node.root / "programs"
    programs.mkdir()
    blind = node.client(env={"PATH": str(programs)})
    before = container.links_and_addresses()
    done = repair_node(blind, interrupt=["all"], run_check=True, include_go=True)
    assert done.outcomes == ()
    assert "program-missing" in {one.name for one in done.report.findings}
    assert container.links_and_addresses() == before
    assert node.states() == ["ready"]


@pytest.mark.slow
def test_a_bridge_gets_the_prefix_length_of_a_file_that_was_changed_in_one_repair(node: OperatorNode) -> None:
    node.attach("c1")
    node.attach("c2")
    node.configure("net", node.bridge(f"{node.net}.0/25"))
    plan = repair_node(node.cni, dry_run=True)
    assert {name for one in plan.outcomes for _, name in one.needs} == {"c1:eth0", "c2:eth0"}
    node.repair("c1", "c2")
    names = [one.name for one in node.diagnose().findings]
    assert names == ["changed-configuration"], "the two checks want the same"
    node.attach("c3")


def test_a_mend_that_would_undo_an_earlier_one_is_not_made(node: OperatorNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two findings that contradict each other would be repaired by turns for ever."""
    gateway = f"{node.net}.1/24"
    node.attach("c1")
    subprocess.run(["ip", "address", "del", gateway, "dev", "br-node"], check=True)
    mend = Mend("remove-address", "br-node", (gateway,))

    def wants_it_away(state: NodeState) -> Iterator[NodeFinding]:
        if state.host is not None and gateway in state.host.links["br-node"].addresses:
            yield NodeFinding("next", "error", "bridge-address", "bridge", "it has an address", mends=(mend,))

    checks = [*doctor._CHECKS, ("next", wants_it_away)]
    monkeypatch.setattr(doctor, "_CHECKS", checks)
    first, second = repair_node(node.cni).outcomes
    assert (first.mend.kind, first.state) == ("add-address", "mended")
    assert (second.mend.kind, second.state) == ("remove-address", "failed")
    assert second.reason.startswith(
        f"it would undo add-address {gateway}, which this repair did for the finding gateway-missing"
    )


def test_the_doctor_prints_no_two_mends_that_undo_each_other() -> None:
    there, away = (Mend(kind, "br0", ("10.1.0.1/24",)) for kind in ("add-address", "remove-address"))
    other = Mend("add-address", "br0", ("fd00::1/64",))
    findings = [
        NodeFinding("interfaces", "error", "gateway-missing", "bridge br0", "it has no address", mends=(there, other)),
        NodeFinding("next", "error", "bridge-address", "network net", "it has another address", mends=(away,)),
        NodeFinding("next", "error", "link-down", "bridge br0", "it is down", mends=(Mend("set-up", "br0"),)),
    ]
    found = list(without_contradictions(findings))
    assert [one.mends for one in found] == [(other,), (), (Mend("set-up", "br0"),)]
    start = "the finding bridge-address wants the opposite, so decide which one is right; if this one is: "
    assert found[0].remedy == f"{start}ip addr add 10.1.0.1/24 dev br0"
    assert found[1].remedy.endswith("if this one is: ip addr del 10.1.0.1/24 dev br0")
    same = [replace(found[2], mends=(there, away))]
    assert list(without_contradictions(same)) == same, "one finding may replace an address"


def test_a_command_that_cannot_be_typed_twice_is_printed_once() -> None:
    """Two chains drop what is in one set, and the kernel refuses to remove an element that is not there."""
    two, three = (f"nft delete element inet fw banned '{{ 10.1.0.{number} }}'" for number in (2, 3))
    remedies = [
        f"find out who banned them: {two}; {three}", f"find out who banned them: {three}; ip link set br0 up; ip rule",
        f"if nobody wants this: {two}", "type: ip link set br0 up; ip rule",
    ]  # fmt: skip
    findings = [
        NodeFinding("rules", "error", "dropped", f"chain {number}", "", "", remedy)
        for number, remedy in enumerate(remedies)
    ]
    found = [one.remedy for one in without_repetitions(findings)]
    done = "is done by the command of the finding dropped of chain 0"
    left = f"find out who banned them: ip link set br0 up; ip rule; the rest {done}"
    assert found == [remedies[0], left, f"this {done}", remedies[3]]


def test_a_quoted_semicolon_ends_no_command_that_is_printed_once() -> None:
    """A comment of a rule has any characters; half a command would be typed, or half of one named as done."""
    rule = "iptables -D FORWARD -m comment --comment 'old: VPN; see wiki' -j DROP"
    other = "iptables -D FORWARD -m comment --comment 'new: VPN; see wiki' -j DROP"
    remedies = [f"if nobody wants this: {rule}", f"if nobody wants this: {other}; {rule}", rule]
    findings = [NodeFinding("rules", "error", "dropped", f"chain {remedy}", "", "", remedy) for remedy in remedies]
    done = f"is done by the command of the finding dropped of {findings[0].subject}"
    found = [one.remedy for one in without_repetitions(findings)]
    assert found == [remedies[0], f"if nobody wants this: {other}; the rest {done}", f"this {done}"]
