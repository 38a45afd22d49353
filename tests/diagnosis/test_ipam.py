"""The check of reservations alone, on a reading that is made by hand; and what a person types, on a real node."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from diagnosis.conftest import OperatorNode
from diagnosis.made import BRIDGE, IPAM, MadeNode, configure
from libcni import RuntimeConf
from libcni.config.host_local import Reservation
from libcni.diagnosis import NodeFinding
from libcni.diagnosis.ipam import check_ipam
from libcni.diagnosis.lock_holders import process_age
from libcni.kernel.foreign import Space
from libcni.kernel.namespace import namespace_identity
from libcni.kernel.netlink import Link, Network
from libcni.kernel.system import uptime
from libcni.testing import wait_until


def mends_of(found: NodeFinding) -> list[tuple[str, ...]]:
    """Return kind, target and details of the mends."""
    return [(one.kind, one.target, *one.details) for one in found.mends]


LEASES = "/leases/net"
CONFIG = {"cniVersion": "1.0.0", "name": "net", "plugins": [BRIDGE]}


@pytest.fixture
def made(made: MadeNode) -> MadeNode:
    """Return a node with the file of the network, the container c1, and a reservation of nobody's."""
    Path(made.cni.conf_dir, "net.conflist").write_text(json.dumps(CONFIG), encoding="utf-8")
    made.attach("c1")
    made.reserve("10.1.0.77", "lost")
    return made


def interface_with(address: str) -> Network:
    return Network({"eth0": Link("eth0", 3, is_up=True, addresses=[f"{address}/24"])}, (), 99)


def test_a_reservation_that_nobody_uses_is_a_leak(made: MadeNode) -> None:
    found = made.finding(check_ipam)
    assert found.meaning.startswith("a leak: the address is in no network namespace of this node")
    assert mends_of(found) == [("release", LEASES, "10.1.0.77")]
    made.make_rules("lost", "10.1.0.77")
    assert mends_of(made.finding(check_ipam))[1] == ("remove-rules", "lost", "10.1.0.77")


def test_files_that_host_local_did_not_write_are_a_note(made: MadeNode, tmp_path: Path) -> None:
    pool = tmp_path / "pool" / "net"
    pool.mkdir(parents=True)
    made.reservations = {("net", str(pool)): []}
    for name in ("lock", "last_reserved_ip.0", "10.1.0.9", "fd00::9", ".libcni-77"):
        (pool / name).touch()
    assert [one.name for one in made.findings(check_ipam)] == []
    (pool / "10.1.0.9.bak").touch()
    [found] = made.findings(check_ipam)
    assert (found.name, found.severity, found.subject, found.mends) == ("junk", "note", str(pool), ())
    assert found.seen == "the directory has 1 file that host-local did not write: 10.1.0.9.bak"


def test_an_empty_reservation_is_a_leak_like_any_other(made: MadeNode) -> None:
    """A power cut leaves it: host-local does not write its files in one step."""
    made.reservations["net", LEASES].pop()
    made.reserve("10.1.0.78", "", "")
    found = made.finding(check_ipam)
    assert (found.subject, mends_of(found)) == ("container ?, net, eth0", [("release", LEASES, "10.1.0.78")])
    made.live_in(str(made.netns("other")), interface_with("10.1.0.78"), "7")
    assert made.finding(check_ipam).mends == ()


def test_leaks_of_many_containers_are_one_finding_with_a_mend_for_each(made: MadeNode) -> None:
    Path(made.cni.conf_dir, "net.conflist").unlink()
    made.reserve("fd00::77", "lost")
    for number in range(100, 158):
        made.reserve(f"10.1.0.{number}", f"dead{number}")
    found = made.finding(check_ipam)
    assert (found.subject, len(found.containers), found.seen.count("; ")) == ("59 attachments", 59, 3)
    assert [mend.kind for mend in found.mends] == ["release"] * 59


def test_a_leak_of_another_interface_does_not_cost_a_container_its_ports(made: MadeNode) -> None:
    """DEL of portmap removes the ports of all its interfaces, from nftables even those of other networks."""
    made.reservations["net", "/leases/net"].pop()
    made.reserve("10.1.0.77", "c1", ifname="eth9")
    made.make_nft_rules("c1", "10.1.0.2")
    assert mends_of(made.finding(check_ipam)) == [("release", LEASES, "10.1.0.77")]


@pytest.mark.parametrize("backend", ["iptables", "nftables"])
def test_a_leak_does_not_cost_another_runtimes_container_of_the_same_id_its_ports(made: MadeNode, backend: str) -> None:
    make = made.make_rules if backend == "iptables" else made.make_nft_rules
    make("lost", "10.1.0.99")
    assert mends_of(made.finding(check_ipam)) == [("release", LEASES, "10.1.0.77")]


def test_the_reservation_of_a_delegate_is_that_of_the_recorded_container(made: MadeNode) -> None:
    """Multus calls a delegate by the delegate's network name, and records its own."""
    made.reservations["cbr0", "/leases/cbr0"] = [Reservation("10.1.0.2", "c1", "eth0", "/leases/cbr0/10.1.0.2", 1.0)]
    made.reservations["net", LEASES].pop()
    assert made.findings(check_ipam) == []
    made.records.pop()
    assert {one.name for one in made.findings(check_ipam)} == {"unrecorded"}


def test_the_address_of_a_container_that_lives_is_no_leak(made: MadeNode) -> None:
    """Its record is lost, or another runtime's."""
    netns = str(made.netns("cni-1"))
    made.live_in(netns, interface_with("10.1.0.77"))
    found = made.finding(check_ipam)
    assert (found.mends, "nothing runs in that namespace" in found.meaning) == ((), True), "killed within its ADD"
    made.live_in(netns, interface_with("10.1.0.77"), "77")
    found = made.finding(check_ipam)
    assert found.mends == ()
    assert f"is on eth0 in {netns}: the container lives" in found.meaning
    assert found.meaning.endswith("libcni gc of this network needs --valid lost:eth0")
    assert "if another runtime attached the container, do nothing" in found.remedy


def test_who_cannot_look_everywhere_says_nothing_about_leaks(made: MadeNode) -> None:
    made.blind = "without CAP_SYS_PTRACE the processes of others are hidden"
    assert made.findings(check_ipam) == []
    [(about, reason)] = made.not_checked(check_ipam)
    assert (about, made.blind in reason) == ("address 10.1.0.77 of network net", True)


def test_an_address_that_a_user_gave_to_a_namespace_of_his_own_counts_for_nothing(made: MadeNode) -> None:
    """Anybody can make a network namespace with any addresses. An interface that root tied to the node counts."""
    netns = str(made.netns("users"))
    network = Network(
        {"eth0": Link("eth0", 3, is_up=True, addresses=["10.1.0.77/24", "10.1.0.2/24", "10.1.0.9/24"])}, ()
    )
    identity = namespace_identity(netns)
    assert identity is not None
    made.spaces[identity] = Space(netns, "7", network, is_trusted=False)
    names = {one.name: one for one in made.findings(check_ipam)}
    assert names.keys() == {"leak", "ignored-addresses"}, "neither in use, nor a duplicate, nor unreserved"
    assert names["ignored-addresses"].severity == "note"
    made.spaces[identity] = Space(netns, "7", network, is_trusted=False, tied=frozenset([3]))
    assert {one.name for one in made.findings(check_ipam)} == {"duplicate-address", "unrecorded", "unreserved"}


def test_a_reservation_of_a_moment_ago_may_be_of_an_add_that_runs(made: MadeNode) -> None:
    made.reservations["net", "/leases/net"].pop()
    made.reserve("10.1.0.78", "new", changed=made.more["started"] - 299)
    assert made.findings(check_ipam) == []
    assert [reason for _, reason in made.not_checked(check_ipam)] == [
        "this address was reserved a moment ago: the ADD may still run"
    ]


@pytest.mark.parametrize("name", ["c9:eth0", "c1:eth9"])
def test_a_reservation_with_another_name_becomes_that_of_the_container_that_has_the_address(
    made: MadeNode, name: str
) -> None:
    made.reservations.clear()
    made.reserve("10.1.0.2", *name.partition(":")[::2])
    found = made.finding(check_ipam)
    assert found.seen == f"its address 10.1.0.2 is reserved for {name} in /leases/net"
    assert mends_of(found) == [("reserve", LEASES, "10.1.0.2")]
    made.reservations.clear()
    made.reserve("10.1.0.2", "c1", "")
    assert made.findings(check_ipam) == [], "of host-local before 0.8"


def test_an_address_that_a_container_without_a_record_has_too_is_a_duplicate(made: MadeNode) -> None:
    """The records were lost, and the next ADD got the address of a container that lives."""
    made.reservations["net", LEASES].pop()
    made.live_in(str(made.netns("older")), interface_with("10.1.0.2"))
    found = made.finding(check_ipam)
    assert (found.name, found.containers) == ("duplicate-address", ("c1:eth0",))
    assert f"also on eth0 in {made.netns('older')} (nothing runs there)" in found.seen
    assert found.mends == (), "a reload would ask for the same address"
    command = f"nsenter --net={made.netns('older')} ip address del 10.1.0.2/24 dev eth0"
    assert found.remedy == f"if c1:eth0 had the address first: {command}; else: restart c1"


@pytest.mark.parametrize("is_ours", [True, False])
def test_of_two_containers_the_one_that_came_later_is_restarted(made: MadeNode, *, is_ours: bool) -> None:
    """The record of the other one was on a disk that hid the records, or is hidden by it."""
    made.reservations["net", LEASES].pop()
    pod = (("K8S_POD_NAMESPACE", "shop"), ("K8S_POD_NAME", "db-0"))
    with subprocess.Popen(["sleep", "600"]) as process:
        wait_until(lambda: (process_age(str(process.pid)) or 0) > 0.1)
        made.records[0] = made.records[0].with_fields(args=pod, uptime=uptime() - (60 if is_ours else 0))
        made.live_in(str(made.netns("other")), interface_with("10.1.0.2"), str(process.pid))
        found = made.finding(check_ipam)
        process.kill()
    assert found.name == "duplicate-address"
    ours = f"c1:eth0 had the address first, so restart the other container (process {process.pid})"
    others = "the other container had the address first: kubectl delete pod -n shop db-0"
    assert found.remedy == (f"{ours}: it gets another address" if is_ours else others)


@pytest.mark.parametrize("name", ["kube-ipvs0", "lo"])
def test_an_address_of_a_container_that_the_node_has_too_has_its_command(made: MadeNode, name: str) -> None:
    """As kube-ipvs0 or keepalived have them: not a process, but this node itself."""
    made.reservations["net", LEASES].pop()
    made.records[0] = made.records[0].with_fields(args=(("K8S_POD_NAMESPACE", "shop"), ("K8S_POD_NAME", "db-0")))
    link = Link(name, 99, kind="dummy", is_up=True, addresses=["127.0.0.1/8", "10.1.0.2/32", "::1/128"])
    made.host.links[link.name] = link
    made.live_in("/proc/self/ns/net", made.host, "18324")
    found = made.finding(check_ipam)
    assert f"also on {name} of this node itself" in found.seen
    assert found.remedy == (
        f"if c1:eth0 had the address first: ip address del 10.1.0.2/32 dev {name}; "
        "else: kubectl delete pod -n shop db-0"
    )


def test_lo_of_a_container_and_the_addresses_of_localhost_are_evidence_of_nothing(made: MadeNode) -> None:
    """A pod that is a real server of LVS has the address of its service on ``lo``."""
    made.reservations["net", LEASES].pop()
    lo = Link("lo", 1, is_up=True, addresses=["127.0.0.1/8", "::1/128"])
    made.host.links[lo.name] = lo
    made.live_in("/proc/self/ns/net", made.host, "18324")
    assert made.reading().holders.keys().isdisjoint({"127.0.0.1", "::1"})
    inside = Network({"lo": replace(lo, addresses=["10.1.0.2/32"])}, (), 77)
    made.live_in(str(made.netns("other")), inside)
    assert made.findings(check_ipam) == []


def test_of_two_pods_of_a_runtime_that_records_no_time_the_one_with_the_newer_file_is_deleted(made: MadeNode) -> None:
    made.records.clear()
    made.reservations.clear()
    for container, changed in (("c1", 2000), ("c2", 1000)):
        made.attach(container, args=(("K8S_POD_NAMESPACE", "shop"), ("K8S_POD_NAME", container)), address="10.1.0.2")
        file = made.root / container
        file.touch()
        os.utime(file, (changed, changed))
        made.records[-1] = made.records[-1].with_fields(path=str(file), created=None)
    [found] = [one for one in made.findings(check_ipam) if one.name == "duplicate-address"]
    assert (found.remedy, found.mends) == ("kubectl delete pod -n shop c1", ())
    made.attach("c3", address="10.1.0.9")
    made.reservations["net", LEASES].pop()
    first, second = made.findings(check_ipam)
    assert first.name == "not-reserved", "the new pod would get the address of c3"
    assert second.remedy.startswith("first run libcni repair --yes, or ")
    assert second.remedy.endswith("; then: kubectl delete pod -n shop c1")
    (made.root / "c1").unlink()
    [found] = [one for one in made.findings(check_ipam) if one.name == "duplicate-address"]
    assert found.remedy.startswith("decide which of them keeps the address")


def test_a_container_that_got_the_address_of_another_one_beside_its_own_is_named(made: MadeNode) -> None:
    made.attach("c2", args=(("K8S_POD_NAMESPACE", "shop"), ("K8S_POD_NAME", "db-0"))).links["eth0"].addresses.append(
        "10.1.0.2/24"
    )
    [found] = [one for one in made.findings(check_ipam) if one.name == "duplicate-address"]
    assert found.containers == ("c1:eth0",)
    assert f"also on eth0 in {made.netns('c2')} (shop/db-0)" in found.seen
    assert found.remedy == f"nsenter --net={made.netns('c2')} ip address del 10.1.0.2/24 dev eth0"


def test_a_container_that_has_the_address_of_its_gateway(made: MadeNode) -> None:
    made.attach("c2").links["eth0"].addresses.append("10.1.0.1/24")
    made.live_in(str(made.netns("elsewhere")), interface_with("10.1.0.1"))  # of another network
    [found] = [one for one in made.findings(check_ipam) if one.name == "duplicate-address"]
    assert (found.subject, found.containers) == ("gateway 10.1.0.1 of network net", ("c2:eth0",))
    assert found.remedy == f"nsenter --net={made.netns('c2')} ip address del 10.1.0.1/24 dev eth0"


def test_the_reservation_of_a_record_that_was_set_aside_is_no_leak(made: MadeNode) -> None:
    made.more["set_aside"] = ("net-lost-eth0.1795338822684574478",)
    assert made.findings(check_ipam) == []


def test_a_missing_reservation_is_made_again(made: MadeNode) -> None:
    made.reservations["net", "/leases/net"].clear()
    found = made.finding(check_ipam)
    assert found.seen == "its address 10.1.0.2 is not reserved in /leases/net"
    assert mends_of(found) == [("reserve", LEASES, "10.1.0.2")]


@pytest.mark.parametrize(("reserved_for", "wrong"), [("c1", "c2"), ("c2", ""), ("", "c2")])
def test_one_address_in_two_records_costs_the_one_without_reservation_its_own(
    made: MadeNode, reserved_for: str, wrong: str
) -> None:
    made.attach("c2", address="10.1.0.2")
    made.records = [one.with_fields(created=number) for number, one in enumerate(made.records)]
    made.reservations["net", "/leases/net"].clear()
    if reserved_for:
        made.reserve("10.1.0.2", reserved_for)
    [found] = [one for one in made.findings(check_ipam) if one.name == "duplicate-address"]
    assert found.seen.startswith("on record for c1:eth0, c2:eth0")
    # A reload of c2 would ask for the address that is reserved for it, and the older c1 keeps its own.
    assert [(one.kind, one.interrupts) for one in found.mends] == [("reload", (f"{wrong}:eth0",))] * bool(wrong)
    made.records = [
        one.with_fields(args=(("K8S_POD_NAMESPACE", "shop"), ("K8S_POD_NAME", "web-1"))) for one in made.records
    ]
    [found] = [one for one in made.findings(check_ipam) if one.name == "duplicate-address"]
    assert found.remedy.endswith("kubectl delete pod -n shop web-1"), "Kubernetes keeps the old address"
    assert found.mends == ()


def test_one_address_in_two_networks_on_one_bridge_is_a_duplicate(made: MadeNode) -> None:
    """After a network was renamed: host-local reserves by the name."""
    made.attach("c1", address="10.1.0.9", created=1.0)
    made.attach("c2", {**BRIDGE, "vlan": 7}, address="10.1.0.9", created=2.0, network="second")
    assert [one.name for one in made.findings(check_ipam) if "duplicate" in one.name] == [], "two VLANs"
    made.records.pop()
    made.attach("c2", address="10.1.0.9", created=2.0, network="second")
    [found] = [one for one in made.findings(check_ipam) if "duplicate" in one.name]
    assert (found.subject, found.containers) == ("address 10.1.0.9 of network net and second", ("c1:eth0", "c2:eth0"))
    configure(made)
    [found] = [one for one in made.findings(check_ipam) if "duplicate" in one.name]
    assert (found.remedy, found.mends) == ("restart c2", ()), "the network of c1 has its file"


def test_reservations_of_other_plugins_are_not_read(made: MadeNode) -> None:
    other = {**CONFIG, "name": "other", "plugins": [{"type": "bridge", "ipam": {"type": "whereabouts"}}]}
    Path(made.cni.conf_dir, "other.conflist").write_text(json.dumps(other), encoding="utf-8")
    assert made.not_checked(check_ipam) == [
        ("network other", "the doctor cannot read reservations of the IPAM plugin whereabouts")
    ]


def test_an_address_of_which_everything_is_lost_but_the_interface(made: MadeNode) -> None:
    """Somebody removed all of /var/lib/cni while containers ran."""
    made.reservations["net", "/leases/net"].pop()
    made.attach("c2")
    made.records.pop()
    assert [one.name for one in made.findings(check_ipam)] == ["unrecorded"], "reserved"
    made.reservations["net", "/leases/net"].pop()
    found = made.finding(check_ipam)
    assert f"is on eth0 in {made.netns('c2')} (nothing runs there), and it is neither reserved nor on" in found.seen
    assert found.mends == ()
    made.live_in(str(made.netns("node")), made.host)
    made.live_in(str(made.netns("c3")), interface_with("10.2.0.3"))
    assert made.finding(check_ipam) == found, "the gateway, and an address of another network"


def test_the_old_gateway_of_the_bridge_is_no_foreign_address(made: MadeNode) -> None:
    """The gateway was changed in the file, while containers use the old one."""
    made.reservations["net", LEASES].pop()
    configure(made, {**BRIDGE, "ipam": {**IPAM, "gateway": "10.1.0.254"}})
    made.live_in("/proc/self/ns/net", made.host, "18324")
    assert made.findings(check_ipam) == []


def test_an_address_of_the_pool_on_the_node_itself(made: MadeNode) -> None:
    """Another program uses the same subnet. No container has it, and none can be restarted."""
    made.host.links["docker9"] = Link("docker9", 9, is_up=True, addresses=["10.1.0.9/16"])
    made.live_in(str(made.netns("node")), made.host)
    [found] = [one for one in made.findings(check_ipam) if one.name == "unreserved"]
    assert (found.containers, found.mends) == ((), ())
    assert found.seen == "address 10.1.0.9 of the pool is on docker9 of the node, which is not the bridge"
    del made.host.links["docker9"]
    made.host.links["lo"] = Link("lo", 1, is_up=True, addresses=["127.0.0.1/8", "10.1.0.9/32"])
    [found] = [one for one in made.findings(check_ipam) if one.name == "unreserved"]
    assert found.remedy.endswith("then run: ip address del 10.1.0.9/32 dev lo")


@pytest.mark.real
def test_a_reservation_is_made_as_host_local_makes_it(node: OperatorNode) -> None:
    node.attach("c1")
    reservation = node.leases / "net" / f"{node.net}.2"
    content = reservation.read_bytes()
    reservation.unlink()
    node.mend("is not reserved")
    assert reservation.read_bytes() == content
    node.cni.del_network_list("net", RuntimeConf("c1", None, "eth0"))
    assert node.leased() == {}


def test_reservations_that_cannot_be_read_are_said(made: MadeNode) -> None:
    made.more["unread"] = {"/nowhere": "denied"}
    assert made.not_checked(check_ipam) == [("/nowhere", "denied")]


@pytest.mark.real
def test_the_address_of_a_living_interface_without_a_record_is_reserved(node: OperatorNode) -> None:
    """Somebody removed all of /var/lib/cni while containers ran."""
    namespace = node.attach("c1")
    shutil.rmtree(node.cache / "results")
    (node.leases / "net" / f"{node.net}.2").unlink()
    found = node.mend("it is neither reserved nor on record")
    assert (found.name, found.mends[0].interrupts) == ("unreserved", ())
    assert found.remedy == f"if no container needs it: ip netns del {namespace.name}", "nothing runs there"
    assert node.leased() == {f"{node.net}.2": f"{namespace.name}\neth0"}
    assert [(one.name, one.severity) for one in node.diagnose().findings] in ([], [("unrecorded", "note")])
    node.age_leases()
    kept = node.finding("is reserved for a container without a record")
    assert (kept.severity, kept.remedy) == (
        "note", f"when the container has ended, repair frees the address after: ip netns del {namespace.name}"
    )  # fmt: skip
    assert node.attach("c2").addresses("eth0") == [f"{node.net}.3/24"]


@pytest.mark.parametrize(
    ("name", "ipam", "directory"),
    [
        ("net", {"dataDir": "/other"}, "/other/net"),
        ("new", {}, "/leases/new"),
        ("net", {"dataDir": "/other", "subnet": "10.7.0.0/24"}, ""),
        ("net", {}, ""),
    ],
)
def test_living_addresses_are_reserved_where_the_next_add_looks(
    made: MadeNode, name: str, ipam: dict[str, str], directory: str
) -> None:
    """The file has another directory of reservations, or the network another name, than at the containers' ADDs."""
    made.reservations["net", LEASES].pop()
    made.attach("c2")
    assert made.findings(check_ipam) == []
    plugin = {**BRIDGE, "ipam": {**BRIDGE["ipam"], **ipam}}  # type: ignore[dict-item]
    text = json.dumps({**CONFIG, "name": name, "plugins": [plugin]})
    Path(made.cni.conf_dir, "net.conflist").write_text(text, encoding="utf-8")
    found = made.findings(check_ipam)
    wanted = [("reserve", directory, "10.1.0.2"), ("reserve", directory, "10.1.0.3")] if directory else []
    assert [mend for one in found for mend in mends_of(one)] == wanted
    if directory:
        [one] = found
        assert (one.name, one.subject) == ("not-reserved", "2 attachments")
        assert f"is not reserved in {directory}, where the next ADD looks" in one.seen
        # Reserved for another one, or already for it: nothing to do.
        for number, container in ((2, "c1"), (3, "late")):
            path = f"{directory}/10.1.0.{number}"
            found_at = Reservation(f"10.1.0.{number}", container, "eth0", path, 1.0)
            made.reservations.setdefault((name, directory), []).append(found_at)
        assert [mend for one in made.findings(check_ipam) for mend in mends_of(one) if mend[0] == "reserve"] == []


@pytest.mark.real
def test_a_moved_directory_of_reservations_gets_those_of_living_containers(node: OperatorNode) -> None:
    node.attach("c1")
    other = node.root / "other"
    node.write_bridge(ipam={"dataDir": str(other)})
    node.repair()
    assert (other / "net" / f"{node.net}.2").read_text(encoding="utf-8").split() == ["c1", "eth0"]
    assert [one.name for one in node.diagnose().findings] == ["changed-configuration"]
    node.attach("c2")
    assert (other / "net" / f"{node.net}.3").exists()


def test_a_reservation_from_the_future_is_named(made: MadeNode) -> None:
    """As after a dead clock: nobody knows its age, and it was not made a moment ago."""
    made.reserve("10.1.0.9", "gone", changed=1e9)
    [(subject, reason)] = made.not_checked(check_ipam)
    assert "10.1.0.9" in subject
    assert reason.endswith("if no ADD runs: touch /leases/net/10.1.0.9")
