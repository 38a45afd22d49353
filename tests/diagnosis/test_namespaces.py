"""The doctor finds namespaces that have gone, and attachments from before the last reboot."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from nodes import FakeNode

from diagnosis.conftest import OperatorNode, only
from diagnosis.made import BRIDGE, PORTMAP, PORTS, MadeNode, configure
from libcni import CNIConfig, RuntimeConf
from libcni.diagnosis import attachment_age, diagnose, repair_node
from libcni.diagnosis.namespaces import check_namespaces
from libcni.diagnosis.ports import check_ports
from libcni.diagnosis.records import check_records
from libcni.diagnosis.reload_mend import reloads
from libcni.diagnosis.rules import check_rules
from libcni.kernel.namespace import namespace_identity
from libcni.kernel.namespace_holders import Held
from libcni.testing import wait_until


def masquerade_rules() -> str:
    shown = subprocess.run(["iptables", "-t", "nat", "-S"], check=True, capture_output=True, text=True)
    return shown.stdout


@pytest.mark.slow
@pytest.mark.real
def test_a_namespace_that_has_gone_and_the_rules_that_the_plugin_cannot_remove(
    node: OperatorNode, named_namespace: str
) -> None:
    node.write_bridge(ipMasq=True)
    node.attach("other")
    node.cni.add_network_list("net", RuntimeConf("c1", f"/run/netns/{named_namespace}", "eth0"))
    subprocess.run(["ip", "netns", "del", named_namespace], check=True)
    found = node.mend("has gone")
    assert [one.kind for one in found.mends] == ["remove-rules", "detach"]
    assert 'id: \\"c1\\"' not in masquerade_rules()
    assert 'id: \\"other\\"' in masquerade_rules(), "a neighbour's rules stay"
    node.assert_healthy()


@pytest.mark.real
def test_del_says_what_its_plugins_leave_behind(node: OperatorNode, named_namespace: str) -> None:
    node.write_bridge(ipMasq=True)
    for container, netns in (("c1", f"/run/netns/{named_namespace}"), ("c2", node.new_namespace().path)):
        node.cni.add_network_list("net", RuntimeConf(container, netns, "eth0"))
    subprocess.run(["ip", "netns", "del", named_namespace], check=True)
    wait_until(lambda: "gone" in [one.state for one in node.cni.get_cached_attachments()])  # a doctor may read it
    left = [node.cni.del_network_list("net", RuntimeConf(one, None, "eth0")).left for one in ("c1", "c2")]
    assert [[one.kind for one in each] for each in left] == [["masquerade"], []]
    assert 'id: \\"c1\\"' in masquerade_rules()
    node.mend("but the container has no record")
    assert "CNI-" not in masquerade_rules()
    node.assert_healthy()


@pytest.mark.slow
@pytest.mark.real
def test_the_masquerade_rules_of_the_other_interface_of_a_container_stay(
    node: OperatorNode, named_namespace: str
) -> None:
    """One chain has the rules of all its interfaces on a network."""
    node.write_bridge(ipMasq=True)
    node.cni.add_network_list("net", RuntimeConf("c1", f"/run/netns/{named_namespace}", "eth0"))
    node.cni.add_network_list("net", RuntimeConf("c1", node.new_namespace().path, "eth1"), on_existing="allow")
    subprocess.run(["ip", "netns", "del", named_namespace], check=True)
    node.mend("has gone")
    assert f"-s {node.net}.2/32" not in masquerade_rules()
    assert f"-s {node.net}.3/32" in masquerade_rules()
    assert "-j MASQUERADE" in masquerade_rules()
    node.assert_healthy()
    node.type("libcni del -c c1")
    assert "CNI-" not in masquerade_rules()


NSFS = os.stat("/proc/self/ns/net").st_dev
BOOTED = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


@pytest.mark.parametrize(
    ("own", "seen"),
    [
        ({"bootId": "another"}, "before the last reboot"),
        ({"netnsId": [1, 1]}, "was replaced by another one"),
        pytest.param(
            {"state": "pending", "uptime": -700.0, "created": BOOTED - 700},
            "the ADD was interrupted",
            marks=pytest.mark.root,
        ),
        pytest.param(
            {"state": "pending", "created": None, "uptime": None}, "the ADD was interrupted", marks=pytest.mark.root
        ),
    ],
)
def test_what_is_left_over(healthy: FakeNode, cni: CNIConfig, own: dict[str, Any], seen: str) -> None:
    healthy.change_record(**own)
    found = only(cni)
    assert seen in found.seen
    assert [(one.kind, one.containers, one.interrupts) for one in found.mends] == [("detach", ("c1:eth0",), ())]
    assert repair_node(cni).report.findings == ()
    assert cni.get_cached_attachments() == []


@pytest.mark.usefixtures("sees_all")
def test_a_namespace_that_has_gone(healthy: FakeNode, cni: CNIConfig) -> None:
    Path(healthy.netns("c1")).unlink()
    found = only(cni)
    assert found.seen.endswith("has gone")
    assert found.meaning == "only the record is left", "it has no address"
    healthy.strip_record()
    assert repair_node(cni).outcomes == (), "of a young one nobody knows whether its runtime is working on it"

    def repaired(**options: Any) -> list[tuple[str, tuple[tuple[str, str], ...]]]:
        return [(one.state, one.needs) for one in repair_node(cni, pending_after=0.0, **options).outcomes]

    assert repaired() == [("left", (("include_go", ""),))], "a record of Go libcni"
    assert repaired(include_go=True) == [("mended", ())]


def test_a_namespace_in_which_a_process_lives_has_not_gone(
    healthy: FakeNode, cni: CNIConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its path may have been unmounted, or lead elsewhere in the mount namespace of a repair."""
    own = os.stat("/proc/self/ns/net")
    healthy.change_record(netnsId=[own.st_dev, own.st_ino])
    name = Path(healthy.netns("c1"))
    name.unlink()
    name.touch()  # as it is left if the namespace is unmounted from it
    finding = only(cni)
    assert "no longer leads to the namespace, but the namespace lives: a process lives in it" in finding.seen
    assert [(one.kind, one.interrupts) for one in finding.mends] == [("mount", ())]
    healthy.change_record(bootId="another")
    assert [one.kind for one in only(cni).mends] == ["detach"], "after a reboot the numbers are used again"


@pytest.mark.usefixtures("sees_all")
def test_an_attachment_whose_namespace_never_existed_stays(cni: CNIConfig) -> None:
    """Some plugins need no namespace: ``netns`` is any text that the plugins understand."""
    cni.add_network_list("net", RuntimeConf("c2", "/nowhere/c2", "eth0"))
    assert [one.state for one in cni.get_cached_attachments("c2")] == ["ready"]
    report = diagnose(cni)
    assert report.findings == ()
    (skipped,) = [one for one in report.not_checked if one.check == "namespaces"]
    assert skipped.reason == "/nowhere/c2 did not exist when the container was attached"


def test_another_owners_attachments_are_left_unless_they_are_named(healthy: FakeNode, cni: CNIConfig) -> None:
    healthy.change_record(bootId="another", owner="podman")
    [outcome] = repair_node(cni).outcomes
    assert (outcome.state, outcome.needs) == ("left", (("owner", "podman"),))
    assert [one.state for one in repair_node(cni, only=["c1"]).outcomes] == ["mended"]


def test_a_namespace_that_is_held_elsewhere_lives(made: MadeNode) -> None:
    made.attach("c1", netns="/nowhere/c1", netns_id=(NSFS, 7), created=1.0)
    assert made.finding(check_namespaces).name == "dead"
    made.held[7] = Held("", {"mount": ""}, {"/nowhere/c1"})
    assert made.findings(check_namespaces) == [], "in the mount namespace of a service its path is in order"
    assert "of another program only" in made.not_checked(check_namespaces)[0][1]
    made.held[7] = Held("", {"mount": "/proc/7/root/run/netns/x"}, {"/run/netns/x"})
    found = made.finding(check_namespaces)
    assert (found.name, [(one.kind, one.target) for one in found.mends]) == ("lost-path", [("mount", "/nowhere/c1")])
    made.records[0] = made.records[0].with_fields(netns="/proc/7/ns/net")
    made.held[7] = Held("8", {"thread": "/proc/8/task/9/ns/net"})
    found = made.finding(check_namespaces)
    assert (found.name, found.mends) == ("lost-path", ()), "nothing can be mounted in /proc"


POD = (("K8S_POD_NAMESPACE", "shop"), ("K8S_POD_NAME", "web-0"))


@pytest.mark.parametrize(("args", "process", "age", "names"), [
    (POD, "", 9000, ["empty-pod"]), (POD, "7", 9000, []), (POD, "", 20, []), ((), "", 9000, []),
])  # fmt: skip
def test_a_pod_in_which_nothing_runs_any_longer(
    made: MadeNode, args: tuple[tuple[str, str], ...], process: str, age: int, names: list[str]
) -> None:
    """Not even the process of its sandbox, which its runtime starts after the ADD."""
    inside = made.attach("c1", args=args, uptime=time.clock_gettime(time.CLOCK_BOOTTIME) - age)
    made.live_in(made.records[0].netns, inside, process)
    found = made.findings(check_namespaces)
    assert [(one.name, one.severity) for one in found] == [(name, "note") for name in names]


@pytest.mark.parametrize(("processes", "ages", "is_found"), [
    (("", "7"), (90, 20), True), (("6", "7"), (90, 20), False),
    (("", "7"), (20, 90), False), (("", ""), (90, 20), False),
])  # fmt: skip
def test_a_sandbox_that_a_reset_has_left_beside_the_pods_new_one(
    made: MadeNode, processes: tuple[str, str], ages: tuple[int, int], is_found: bool
) -> None:
    """Its rule comes first, so the pod's port leads to it. The commands are for the old sandbox alone."""
    for name, process, age in zip(("old", "new"), processes, ages, strict=True):
        uptime = time.clock_gettime(time.CLOCK_BOOTTIME) - age
        inside = made.attach(name, BRIDGE, PORTMAP, args=POD, uptime=uptime, capability_args=json.dumps(PORTS))
        made.live_in(made.records[-1].netns, inside, process)
        made.make_rules(name, f"10.1.0.{len(made.records) + 1}")
    caught = made.finding(check_ports)
    found = made.findings(check_namespaces)
    reading = made.reading()
    [old] = [one for one in reading.attachments if one.container_id == "old"]
    remedy, mends = reloads(reading, old)
    assert (remedy.startswith("its pod runs in a newer sandbox"), mends == ()) == (is_found, is_found)
    assert [(one.name, one.severity, one.containers) for one in found] == [
        ("empty-pod", "warning", ("old:eth0",))
    ] * is_found
    assert ("in which nothing runs: the pod shop/web-0 runs as new" in caught.seen) == is_found
    if is_found:
        assert caught.remedy == found[0].remedy
        assert caught.remedy.endswith("crictl stopp old; then crictl rmp old; if not: libcni del old")
    else:
        assert caught.remedy == "publish another port for one of the two containers"


def test_a_path_that_leads_to_another_pod_than_go_recorded(made: MadeNode) -> None:
    """Go records no identity of a namespace. A reload or a DEL would hit the other pod."""
    for name in ("c1", "c2"):
        made.netns(name).write_text("a namespace", encoding="utf-8")  # an empty file is what an unmounted one leaves
    made.attach("c1", version="")
    first = made.attach("c2", version="")
    assert made.findings(check_namespaces) == []
    kept = made.root / "kept"
    kept.touch()
    made.live_in(str(kept), first, "7")  # c2 lives there, and its path leads to c1's namespace
    made.records[1] = made.records[1].with_fields(netns=made.records[0].netns)
    del made.spaces[namespace_identity(str(made.netns("c2")))]  # type: ignore[arg-type]
    found = made.finding(check_namespaces)
    assert (found.name, found.containers, found.mends) == ("lost-path", ("c2:eth0",), ())
    assert [one.name for one in made.findings(check_records)] == [], "the two have an interface each"
    assert made.reading().life_of(made.reading().attachments[1]).netns == namespace_identity(str(kept))


def test_an_age_is_never_negative(healthy: FakeNode, cni: CNIConfig) -> None:
    healthy.change_record(created=time.time() + 1000)
    (one,) = cni.get_cached_attachments()
    assert attachment_age(one) is not None
    assert attachment_age(one) >= 0  # type: ignore[operator]


def test_an_age_is_measured_with_the_boot_clock(healthy: FakeNode, cni: CNIConfig) -> None:
    healthy.change_record(created=time.time() - 86400)
    (one,) = cni.get_cached_attachments()
    age = attachment_age(one)
    assert age is not None
    assert age < 3600, "the wall clock was set forward by a day since"


def test_what_seems_to_have_ended_and_whose_address_an_interface_has_is_not_detached(made: MadeNode) -> None:
    """Its record is of another boot, or its path leads elsewhere. DEL would free the address."""
    inside = made.attach("c1", boot="another", state="stale-boot")
    found = made.finding(check_namespaces)
    assert [(one.kind, one.interrupts) for one in found.mends] == [("detach", ("c1:eth0",))]
    assert "but the address 10.1.0.2 is on eth0 in " in found.seen
    made.attach("c2", address="10.1.0.2")
    inside.links.clear()
    assert [one.interrupts for one in made.finding(check_namespaces).mends] == [()], "it is that of c2 by now"


def test_the_rule_of_another_interface_that_has_the_address_since_the_reboot_stays(made: MadeNode) -> None:
    """The reservations were on a tmpfs. The masquerade rules of a container's interfaces are in one chain."""
    made.attach("c1", boot="another", state="stale-boot", address="10.1.0.2")
    made.make_rules("c1", "10.1.0.2")
    assert [one.kind for one in made.finding(check_namespaces).mends] == ["detach"], "a container may have the address"
    made.attach("c1", address="10.1.0.2", ifname="eth1", path="/cache/results/net-c1-eth1")
    assert [one.kind for one in made.finding(check_namespaces).mends] == ["detach"]


def test_the_rule_of_another_runtimes_container_that_has_the_address_of_a_killed_add_stays(made: MadeNode) -> None:
    """The ADD reserved the address, and was killed before it recorded it."""
    inside = made.attach("c1", boot="another", state="stale-boot", result=None)
    made.make_rules("c1", "10.1.0.2")
    found = made.finding(check_namespaces)
    assert [(one.kind, one.interrupts) for one in found.mends] == [("detach", ("c1:eth0",))], "DEL frees the address"
    inside.links.clear()
    assert [one.kind for one in made.finding(check_namespaces).mends] == ["remove-rules", "detach"]


def test_who_sees_only_a_part_of_the_node_says_so_and_calls_nothing_dead(made: MadeNode) -> None:
    made.attach("c1", netns="/nowhere/c1", netns_id=(NSFS, 7), created=1.0)
    made.make_rules("lost", "10.1.0.77")
    configure(made)
    assert made.finding(check_namespaces).name == "dead"
    made.blind = "/proc is of another PID namespace"
    assert made.findings(check_namespaces) == []
    assert [reason for _, reason in made.not_checked(check_namespaces)] == [
        f"the namespace /nowhere/c1 has gone, and {made.blind}", made.blind,
    ]  # fmt: skip
    assert [one for one in made.findings(check_rules) if one.name == "rules-left"] == []
    assert ("rules that containers without a record left", made.blind) in made.not_checked(check_rules)


@pytest.mark.real
def test_a_lost_path_is_mounted_again_and_interrupts_nobody(node: OperatorNode, named_namespace: str) -> None:
    path = f"/run/netns/{named_namespace}"
    node.cni.add_network_list("net", RuntimeConf("c1", path, "eth0"))
    before = os.stat(path).st_ino
    process = subprocess.Popen(["ip", "netns", "exec", named_namespace, "sleep", "60"])
    try:
        wait_until(lambda: os.stat(f"/proc/{process.pid}/ns/net").st_ino == before)
        for command in (["umount", path], ["rm", path]):
            subprocess.run(command, check=True)
            found = node.finding("no longer leads to the namespace, but the namespace lives")
            assert (found.name, [(one.kind, one.interrupts) for one in found.mends]) == ("lost-path", [("mount", ())])
        node.repair()
        assert os.stat(path).st_ino == before
        node.assert_healthy()
    finally:
        process.kill()
        process.wait()


@pytest.mark.real
@pytest.mark.parametrize("is_given_away", [False, True])
def test_the_empty_file_of_an_unmounted_namespace_is_no_container_of_go(
    node: OperatorNode, named_namespace: str, *, is_given_away: bool
) -> None:
    """Go libcni records the path alone, and there is a file."""
    path = f"/run/netns/{named_namespace}"
    node.cni.add_network_list("net", RuntimeConf("c1", path, "eth0"))
    node.strip_record()
    subprocess.run(["umount", path], check=True)
    if is_given_away:
        for file in (f"{node.net}.2", "last_reserved_ip.0"):
            (node.leases / "net" / file).unlink()
        second = node.attach("c2")
        before = second.links_and_addresses()
        assert f"{node.net}.2/24" in second.addresses("eth0")
    found = node.mend("was unmounted, and the empty file of its name is left", interrupt="c1")
    assert (found.name, [one.kind for one in found.mends]) == ("dead", ["detach"])
    if is_given_away:
        assert second.links_and_addresses() == before
        assert f"{node.net}.2" in node.leased()
        node.assert_healthy()
