"""The doctor finds records that are corrupt, set aside or unfinished."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest
from nodes import FakeNode

from diagnosis.conftest import OperatorNode, only, plugins_of
from diagnosis.made import BRIDGE, PORTMAP, PORTS, MadeNode
from libcni import CNIConfig, InterfaceExistsError, RuntimeConf
from libcni.diagnosis import diagnose, repair_node
from libcni.diagnosis.acts import carry_out
from libcni.diagnosis.interfaces import check_interfaces
from libcni.diagnosis.ipam import check_ipam
from libcni.diagnosis.mends import Mend
from libcni.diagnosis.node_state import read_node
from libcni.diagnosis.records import check_records
from libcni.diagnosis.rules import check_rules
from libcni.store.locks import LockSet
from libcni.store.records import RecordStore
from libcni.testing import wait_until


def configure_hanging(node: OperatorNode, body: str) -> None:
    """Install a plugin that hangs after bridge has made the interface, and write a network with it."""
    node.plugin("oper-hangs", body)
    node.configure("net", node.bridge(f"{node.net}.0/24"), "oper-hangs")


@pytest.mark.real
def test_a_runtime_that_was_killed_within_add_and_its_plugin_that_still_runs(node: OperatorNode) -> None:
    configure_hanging(node, "[ $CNI_COMMAND != ADD ] || exec sleep 300")
    container = node.new_namespace()
    command = ["libcni", "add", "net", container.path, "-c", "c1"]
    with subprocess.Popen(command, env=node.env, stdout=subprocess.DEVNULL) as runtime:
        wait_until(lambda: bool(plugins_of(node, "c1", "sleep")))
        assert node.finding("the ADD runs now").severity == "note"
        runtime.kill()
        runtime.wait()
    (plugin,) = plugins_of(node, "c1", "sleep")
    found = node.finding("the ADD was interrupted, and a plugin still runs")
    assert (found.mends, found.remedy) == ((), "wait for the plugin, or end it")
    assert f": sleep ({plugin}), which has run for " in found.seen
    node.type(f"kill {plugin}")
    wait_until(lambda: not plugins_of(node, "c1", "sleep"))
    node.repair(pending_after=0)
    assert "eth0" not in container.links()
    node.assert_healthy()


@pytest.mark.real
def test_an_add_that_was_refused_for_an_interface(node: OperatorNode) -> None:
    node.configure("net", node.bridge(f"{node.net}.0/24"))
    container = node.new_namespace()
    container.run("ip", "link", "add", "eth0", "type", "veth", "peer", "x")
    links = container.links_and_addresses()
    with pytest.raises(InterfaceExistsError):
        node.cni.add_network_list("net", RuntimeConf("c1", container.path, "eth0"))
    node.mend("the ADD was refused, because the interface existed already")
    assert container.links_and_addresses() == links
    node.assert_healthy()


@pytest.mark.real
def test_a_runtime_that_was_killed_within_del(node: OperatorNode) -> None:
    once = node.root / "once"
    pass_on = "import json, sys; print(json.dumps(json.load(sys.stdin)['prevResult']))"
    body = f"""[ $CNI_COMMAND != DEL ] || [ -e {once} ] || {{ touch {once}; exec sleep 300; }}
[ $CNI_COMMAND != ADD ] || exec python3 -c "{pass_on}" < "$stdin\""""
    configure_hanging(node, body)
    container = node.attach("c1")
    with subprocess.Popen(["libcni", "del", "-c", "c1"], env=node.env) as runtime:
        wait_until(lambda: bool(plugins_of(node, "c1", "sleep")))
        assert node.finding("the DEL runs now").severity == "note"
        runtime.kill()
        runtime.wait()
    found = node.finding("the DEL was interrupted, and a plugin still runs: sleep")
    (plugin,) = plugins_of(node, "c1", "sleep")
    node.type(f"kill {plugin}")
    wait_until(lambda: not plugins_of(node, "c1", "sleep"))
    node.repair()
    assert found.meaning.startswith("the container is partly detached")
    assert "eth0" not in container.links()
    node.assert_healthy()


@pytest.mark.real
@pytest.mark.parametrize("is_set_aside", [False, True])
def test_the_corrupt_record_of_a_container_that_lives(node: OperatorNode, *, is_set_aside: bool) -> None:
    container = node.attach("c1")
    node.record("c1").write_bytes(b"")
    if is_set_aside:
        store = RecordStore(str(node.cache))
        store.set_aside(store.records()[0])
    found = node.finding("a corrupt record that was moved here" if is_set_aside else "it is empty")
    assert found.mends == (), "as long as it lives, the unreadable record keeps GC from freeing its address"
    assert f"is on eth0 in {container.path}, and nothing runs in that namespace" in found.meaning
    # Go libcni refuses a DEL whose file it cannot read: its runtime could not end the container.
    assert found.remedy.startswith("let the runtime" if is_set_aside else "move the file away, and then let")


@pytest.mark.real
def test_a_copy_of_a_record_over_another_one_is_set_aside(node: OperatorNode) -> None:
    node.attach("web")
    node.attach("db")
    node.record("db").write_bytes(node.record("web").read_bytes())
    found = node.mend("the record of web:eth0 has the file name of another: net-db-eth0")
    assert [one.kind for one in found.mends] == ["set-aside"]
    assert [one.container_id for one in node.cni.get_cached_attachments()] == ["web"]
    assert "nothing runs in that namespace" in node.finding("a corrupt record that was moved here").meaning
    node.record("web").rename(node.record("db"))
    found = node.finding("the record of web:eth0 has")
    assert (found.mends, found.containers) == ((), ("web:eth0",)), "the only record that there is"
    assert found.remedy.endswith(" the right name is net-web-eth0")


def test_two_records_of_one_interface_are_one_finding_without_a_mend(made: MadeNode) -> None:
    """Somebody copied a record, and wrote another ID into the copy. Rules for the copy would belong to nobody."""
    made.attach("c1", BRIDGE, PORTMAP, capability_args=json.dumps(PORTS))
    made.make_rules("c1", "10.1.0.2")
    copy = made.records[0].with_fields(container_id="c0", path="/cache/results/net-c0-eth0")
    made.records.append(copy)
    found = made.finding(check_records)
    assert (found.name, found.containers, found.mends) == ("two-records", ("c1:eth0", "c0:eth0"), ())
    for check in (check_rules, check_ipam, check_interfaces):
        assert made.findings(check) == []
    made.records[1] = copy.with_fields(container_id="c1", network="second")
    assert made.findings(check_records) == [], 'two networks of one container, with on_existing="allow"'


def test_a_reload_that_was_interrupted_is_repeated_if_the_container_lives(made: MadeNode) -> None:
    inside = made.attach("c1", state="detaching")
    made.live_in(str(made.netns("c1")), inside, process="77")
    [mend] = made.finding(check_records).mends
    assert (mend.kind, mend.interrupts) == ("reload", ("c1:eth0",))
    inside.links.clear()
    [mend] = made.finding(check_records).mends
    assert (mend.kind, mend.interrupts) == ("reload", ())
    made.live_in(str(made.netns("c1")), inside)
    assert [one.kind for one in made.finding(check_records).mends] == ["detach"], "no process: a DEL is to be ended"


@pytest.mark.parametrize("state", ["pending", "detaching"])
def test_where_processes_are_hidden_nothing_half_done_is_detached_that_may_live(made: MadeNode, state: str) -> None:
    """As in a pod without hostPID: a DEL that failed has left a container that runs on."""
    inside = made.attach("c1", state=state, uptime=1.0)
    made.live_in(str(made.netns("c1")), inside)
    made.attach("c2", state=state, uptime=1.0, netns="/nowhere/c2", netns_id=(4, 7))
    assert [one.kind for found in made.findings(check_records) for one in found.mends] == ["detach", "detach"]
    made.blind = "/proc is of another PID namespace"
    assert {(one.mends, one.remedy) for one in made.findings(check_records)} == {((), made.blind)}


def test_a_plugin_that_still_runs_where_nobody_sees_it_is_waited_for(
    made: MadeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock shows it, also to a program that does not see the processes of the node."""
    made.attach("c1", state="detaching")
    monkeypatch.setattr(LockSet, "has_running_plugin", lambda _: True)
    found = made.finding(check_records)
    assert "a plugin still runs: a thread of this program, or a process that it cannot see" in found.seen
    assert (found.mends, found.remedy) == ((), "wait for the plugin, or end it")


def test_a_record_whose_name_no_command_accepts_is_set_aside(cni: CNIConfig) -> None:
    Path(cni.cache_dir, "results", "net-\x1b[31m-eth0").touch()
    [mend] = only(cni).mends
    assert mend.kind == "set-aside"
    assert repair_node(cni).report.status == "ok"


def test_a_record_that_can_be_read_again_is_not_set_aside(healthy: FakeNode) -> None:
    """The diagnosis could not read it, for example because of too many open files."""
    record = healthy.cache / "results" / "net-c1-eth0"
    assert list(carry_out(read_node(healthy.cni), [Mend("set-aside", str(record))], None)) == [""]
    assert record.exists()


def test_a_cache_that_does_not_exist_is_said_to_be_missing(healthy: FakeNode) -> None:
    report = diagnose(healthy.client(cache_dir=healthy.root / "misspelt"))
    (checked,) = [one.what for one in report.checked if one.check == "records"]
    assert checked.endswith("misspelt, a directory that does not exist")


@pytest.mark.root
def test_an_interrupted_add_is_found_at_once_and_stale_only_later(healthy: FakeNode, cni: CNIConfig) -> None:
    healthy.change_record(state="pending", created=time.time() - 5, uptime=None)
    found = only(cni)
    assert (found.severity, found.seen) == ("warning", "the ADD was interrupted, or its roll-back failed")
    assert found.mends == ()
    [found] = diagnose(cni, pending_after=1).findings
    assert [one.kind for one in found.mends] == ["detach"]
