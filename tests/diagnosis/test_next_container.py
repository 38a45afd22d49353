"""Would the next container work? The default network, the bridges' addresses, and the way out of the node."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from diagnosis.conftest import OperatorNode
from diagnosis.made import BRIDGE, IPAM, MadeNode, configure
from libcni import CNIError, RuntimeConf
from libcni.config.host_local import Reservation
from libcni.diagnosis.config_drift import check_drift
from libcni.diagnosis.configuration import check_configuration
from libcni.diagnosis.next_container import check_next
from libcni.diagnosis.report import NodeFinding
from libcni.kernel.netlink import Link

POD = (("K8S_POD_NAMESPACE", "shop"), ("K8S_POD_NAME", "web-0"))


def test_a_node_in_order_says_which_network_is_the_default(made: MadeNode) -> None:
    made.attach("c1", args=POD)
    configure(made)
    assert made.findings(check_next) == []
    assert made.checked(check_next) == ["the next pod is attached to net of net.conflist", "bridges of net"]


@pytest.mark.parametrize(
    ("addresses", "more", "is_refused"),
    [
        (["10.9.0.1/24"], {}, True),
        (["10.9.0.1/24", "10.1.0.1/24"], {}, True),
        (["10.1.0.1/16"], {}, True),
        (["10.1.0.1/24", "10.9.0.1/24"], {}, False),
        (["fe80::1/64"], {}, False),
        ([], {}, False),
        (["10.9.0.1/24"], {"forceAddress": True}, False),
        (["10.9.0.1/24"], {"isGateway": False, "isDefaultGateway": False}, False),
    ],
)
def test_a_bridge_whose_address_the_plugin_refuses(
    made: MadeNode, addresses: list[str], more: dict[str, bool], is_refused: bool
) -> None:
    """The plugin takes the addresses in order, and stops at the gateway's or at the first other one."""
    configure(made, {**BRIDGE, **more})
    made.host.links["br0"].addresses = addresses
    found = made.findings(check_next)
    assert [one.name for one in found] == ["bridge-address"] * is_refused
    if found:
        wrong = [address for address in addresses if address != "10.1.0.1/24"]
        assert [(one.kind, one.target, one.details) for one in found[0].mends] == [
            ("remove-address", "br0", (address,)) for address in wrong
        ]
        made.attach("c1")
        [inhabited] = made.findings(check_next)
        assert inhabited.containers == ("c1:eth0",)
        is_gateway = addresses == ["10.1.0.1/16"]  # with another prefix length: it is replaced in place
        mends = [(one.kind, one.details, one.interrupts) for one in inhabited.mends]
        assert mends == is_gateway * [
            ("remove-address", ("10.1.0.1/16",), ("c1:eth0",)), ("add-address", ("10.1.0.1/24",), ("c1:eth0",)),
        ], "nobody who lives there loses the gateway"  # fmt: skip
        assert inhabited.seen.endswith("on the bridge: c1:eth0")


TWO = {**BRIDGE, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00:1::/64"}]]}}


@pytest.mark.parametrize(
    ("addresses", "others"),
    [
        (["10.1.0.1/24", "fd00:1::1/64"], []),
        (["10.1.0.1/24", "fd00:2::1/64"], []),
        (["10.1.0.1/24", "fd00:1::1/112"], ["fd00:1::1/112"]),
        (["10.1.0.1/24", "fd00:1::1/64", "fd00:1::2/64"], []),
        (["10.1.0.1/24", "fd00:1::2/64"], ["fd00:1::2/64"]),
    ],
)
def test_of_ipv6_the_plugin_refuses_only_an_address_of_an_overlapping_subnet(
    made: MadeNode, addresses: list[str], others: list[str]
) -> None:
    configure(made, TWO)
    made.host.links["br0"].addresses = addresses
    assert [mend.details[0] for one in made.findings(check_next) for mend in one.mends] == others


def test_a_file_whose_subnet_was_changed_while_containers_live(made: MadeNode) -> None:
    made.attach("c1")
    configure(made, {**BRIDGE, "ipam": {**IPAM, "subnet": "10.2.0.0/24"}})
    found = made.finding(check_next)
    assert found.remedy.startswith("if the file was changed by mistake, make its gateway 10.1.0.1/24 again; else give")
    assert found.mends == ()


def test_a_file_that_sorts_first_changes_the_default_of_the_pods(made: MadeNode) -> None:
    made.attach("c1", args=POD)
    configure(made)
    plugin = {**BRIDGE, "bridge": "br1", "ipam": {**IPAM, "subnet": "10.2.0.0/24"}}
    first = {"cniVersion": "1.0.0", "name": "left", "plugins": [plugin]}
    Path(made.cni.conf_dir, "00-left.conflist").write_text(json.dumps(first), encoding="utf-8")
    found = made.finding(check_next)
    assert (found.name, found.severity) == ("default-changed", "warning")
    assert found.seen.startswith("the next pod is attached to left of 00-left.conflist")
    assert found.remedy.endswith("then the next pod is attached to net of net.conflist")
    made.records[0] = made.records[0].with_fields(args=())
    assert made.findings(check_next) == [], "podman and nerdctl choose the network of a container"


def test_the_network_of_pods_that_a_failed_verb_has_detached_is_not_left_over(made: MadeNode) -> None:
    """To move its file away would give them the other network at their next start."""
    made.attach("c1", args=POD)
    configure(made)
    plugin = {**BRIDGE, "bridge": "br1", "ipam": {**IPAM, "subnet": "10.2.0.0/24"}}
    first = Path(made.cni.conf_dir, "00-first.conflist")
    first.write_text(json.dumps({"cniVersion": "1.0.0", "name": "first", "plugins": [plugin]}), encoding="utf-8")
    assert made.finding(check_next).name == "default-changed"
    made.attach("c2", args=POD, network="first", state="detaching", address="10.2.0.2")
    assert made.findings(check_next) == []
    del made.records[1]
    # Its pool is full of addresses that were not released, or its bridge has another address: no pod can start.
    made.reservations["net", "/leases/first"] = [Reservation("10.2.0.9", "gone", "eth0", "/leases/first/10.2.0.9", 1.0)]
    assert "default-changed" not in [one.name for one in made.findings(check_next)]
    made.reservations.popitem()
    made.host.links["br1"] = Link("br1", 60, kind="bridge", is_up=True)
    assert "default-changed" not in [one.name for one in made.findings(check_next)]
    del made.host.links["br1"]
    # A pod that came after the file went to the other network: the runtime has another default.
    made.records[0] = made.records[0].with_fields(created=first.stat().st_ctime + 1)
    assert made.findings(check_next) == []
    made.records[0] = made.records[0].with_fields(created=first.stat().st_ctime - 1)
    assert made.finding(check_next).name == "default-changed"


def test_of_all_kinds_of_files_the_first_by_name_is_the_one_of_the_next_pod(made: MadeNode) -> None:
    """libcni takes a .conflist file first; containerd and CRI-O sort all files."""
    made.attach("c1", args=POD)
    configure(made)
    other = {**BRIDGE, "bridge": "br1", "ipam": {**IPAM, "subnet": "10.2.0.0/24"}}
    file = Path(made.cni.conf_dir, "net.conf")
    file.write_text(json.dumps({"cniVersion": "1.0.0", "name": "net", **other}), encoding="utf-8")
    found = made.finding(check_next)
    assert (found.name, found.severity, found.subject) == ("default-changed", "error", str(file))
    assert found.seen.endswith(f"1 attachment of the network net were made with {made.cni.conf_dir}/net.conflist")
    assert found.remedy == f"if it is left over: mv {file} {file}.off"
    assert "the next pod is attached to net of net.conf" in made.checked(check_next)
    file.rename(f"{file}.off")
    assert made.findings(check_next) == []
    file.write_text(json.dumps({"cniVersion": "1.0.0", "name": "net", **BRIDGE}), encoding="utf-8")
    assert made.findings(check_next) == [], "both say the same"


@pytest.mark.parametrize(("name", "blocks"), [("10-bad.conf", True), ("zz-bad.conflist", False)])
def test_a_broken_file_that_sorts_first_keeps_containerd_from_loading_any(
    made: MadeNode, name: str, blocks: bool
) -> None:
    """CRI-O skips it. The runtime does not see every way in which the lost network's file comes back."""
    made.attach("c1", args=POD)
    configure(made).rename(Path(made.cni.conf_dir, "20-net.conflist"))
    bad = Path(made.cni.conf_dir, name)
    bad.write_text("{", encoding="utf-8")
    attached = "the next pod is attached to net of 20-net.conflist"
    assert (attached in made.checked(check_next)) == (not blocks)
    found = made.finding(check_configuration)
    assert ("no new pod starts: cni plugin not initialized" in found.meaning) == blocks
    assert found.meaning.endswith(". CRI-O skips it and attaches pods to net of 20-net.conflist") == blocks
    made.records[0] = made.records[0].with_fields(network="lost")
    [lost] = [one for one in made.findings(check_drift) if one.name == "no-file"]
    assert lost.meaning.endswith(
        f"CRI-O attaches the next pod to net; containerd attaches none, because of {bad}"
        if blocks
        else "the next pod will be attached to net"
    )


NO_GATEWAY = {"isGateway": False, "isDefaultGateway": False}


@pytest.mark.parametrize(
    ("plugin", "name", "shared"),
    [
        (
            {**BRIDGE, "bridge": "br1", "ipam": {**IPAM, "subnet": "10.1.0.128/25"}},
            "00-new",
            "10.1.0.129 to 10.1.0.254",
        ),
        ({**BRIDGE, **NO_GATEWAY}, "00-new", "10.1.0.1 to 10.1.0.254"),
        ({**BRIDGE, "bridge": "br1", "ipam": {**IPAM, "subnet": "10.2.0.0/24"}}, "00-new", ""),
        ({**BRIDGE, "bridge": "br1", **NO_GATEWAY}, "00-new", ""),  # a link of its own
        (BRIDGE, "zz-unused", ""),
        ({**BRIDGE, "ipam": {"type": "dhcp"}}, "00-new", ""),
    ],
)
def test_two_networks_that_are_in_use_share_no_addresses(
    made: MadeNode, plugin: dict[str, object], name: str, shared: str
) -> None:
    made.attach("c1")
    configure(made)
    plugin = {"ipam": IPAM, **plugin}
    text = json.dumps({"cniVersion": "1.0.0", "name": "other", "plugins": [plugin]})
    Path(made.cni.conf_dir, f"{name}.conflist").write_text(text, encoding="utf-8")
    found = [one for one in made.findings(check_next) if one.name == "pools-overlap"]
    assert [one.seen for one in found] == ([f"both give containers the addresses from {shared}"] if shared else [])


@pytest.mark.parametrize("other", [[{**BRIDGE, "bridge": "br1"}], [BRIDGE]])
def test_a_network_without_its_file_is_one_finding_whose_advice_is_not_to_move_another_away(
    made: MadeNode, other: list[dict[str, object]]
) -> None:
    """Whether the file was removed or has another name in it: the other file is the node's last one."""
    made.attach("c1", args=POD)
    Path(made.cni.conf_dir, "20-other.conflist").write_text(
        json.dumps({"cniVersion": "1.0.0", "name": "other", "plugins": other}), encoding="utf-8"
    )
    assert made.findings(check_next) == []
    found = made.finding(check_drift)
    assert found.name == "no-file"
    assert found.meaning.endswith("; the next pod will be attached to other")
    assert ("if new pods still fail then, restart containerd" in found.remedy) == (other != [BRIDGE])


@pytest.mark.real
def test_the_address_of_an_earlier_network_is_removed_from_a_bridge_on_which_nobody_lives(node: OperatorNode) -> None:
    for command in ("add br-node type bridge", "set br-node up"):
        subprocess.run(["ip", "link", *command.split()], check=True)
    subprocess.run(["ip", "address", "add", "10.9.77.1/24", "dev", "br-node"], check=True)
    with pytest.raises(CNIError, match="already has an IP address different from") as caught:
        node.attach("c1")
    assert caught.value.hint is not None
    assert caught.value.hint.command == "doctor"
    found = node.mend("but the bridge br-node has another address, 10.9.77.1/24; on the bridge: nobody")
    assert found.severity == "error"
    node.cni.del_network_list("net", RuntimeConf("c1", None, "eth0"))
    with suppress(CNIError):  # the plugin cannot set the MAC of a bridge that it has not made, and can a second time
        node.attach("c1")
    node.attach("c2")
    assert "bridge-address" not in [one.name for one in node.diagnose().findings]


@pytest.mark.parametrize("policy", ["DROP", "ACCEPT"])
@pytest.mark.parametrize(
    ("rules", "passing"),
    [
        (["-p tcp -m tcp --dport 443 -j ACCEPT", "-p icmp -j ACCEPT"], "tcp 443, icmp"),
        (["-i cni9 -j ACCEPT"], ""),
        (["-i br0 -j ACCEPT"], None),
        (["-s 10.1.0.0/16 -j ACCEPT"], None),
    ],
)
def test_a_firewall_that_would_drop_the_packets_of_the_first_container(
    made: MadeNode, policy: str, rules: list[str], passing: str | None
) -> None:
    """On a node without containers."""
    configure(made)
    reading = made.reading()
    table = reading.rules["iptables"]["filter"]
    table.policies["FORWARD"] = policy
    table.chains["CNI-FORWARD"] = []
    rules = ["-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", *rules, *["-j DROP"] * (policy == "ACCEPT")]
    for rule in rules:
        table.add("FORWARD", ("-A", "FORWARD", *rule.split()))
    found = [one for one in check_next(reading) if isinstance(one, NodeFinding)]
    name = "policy-drops" if policy == "DROP" else "dropped"
    assert [(one.severity, one.name, one.subject) for one in found] == [
        ("warning", name, "chain FORWARD of iptables")
    ] * (passing is not None)
    assert all(f"only {passing} of the containers pass" in one.seen for one in found if passing)


@pytest.mark.real
def test_a_policy_that_would_drop_the_packets_of_the_first_container(node: OperatorNode) -> None:
    subprocess.run(["iptables", "-P", "FORWARD", "DROP"], check=True)
    found = node.finding("the policy drops")
    assert (found.check, found.severity) == ("next", "warning")
    node.configure("net", node.bridge(f"{node.net}.0/24"), {"type": "firewall"})
    node.assert_healthy()


@pytest.mark.real
def test_a_program_that_came_after_the_container_to_its_port(
    node: OperatorNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("libcni.kernel.sockets._SECONDS", 60.0)
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    node.configure("net", node.bridge(f"{node.net}.0/24"), portmap)
    mapping = {"hostPort": 8099, "containerPort": 80, "protocol": "tcp"}
    wanted = RuntimeConf("c1", node.new_namespace().path, "eth0", capability_args={"portMappings": [mapping]})
    node.cni.add_network_list("net", wanted)
    node.assert_healthy()
    with socket.create_server(("127.0.0.1", 8099)):
        found = node.finding(f"(process {os.getpid()}) listens on host port 127.0.0.1:8099/tcp")
        assert (found.check, found.severity, found.name) == ("next", "warning", "port-shadowed")
        assert found.containers == ("c1:eth0",)
    node.assert_healthy()
