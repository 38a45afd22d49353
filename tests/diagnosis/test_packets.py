"""The way of packets through rules: which rule gets a port of the host, and what a policy drops."""

from __future__ import annotations

import ipaddress
import json
import os
import shlex
import subprocess
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from nodes import PLUGINS, Namespace

from diagnosis.conftest import OperatorNode
from diagnosis.made import BRIDGE, IPAM, PORTMAP, PORTS, MadeNode
from libcni import RuntimeConf
from libcni.diagnosis.packets import Forwarding, Packet
from libcni.diagnosis.ports import check_ports
from libcni.diagnosis.report import NodeFinding, NotChecked
from libcni.diagnosis.rules import check_rules
from libcni.kernel.netlink import IPRoute, Link
from libcni.kernel.rules import Table, address_set, filtering_tables, ip_set, nft_table, ports_chain, read_sets
from libcni.verbs.port_rules import translations

ADDRESS, CNI0 = "10.1.0.2", "cni0"


def drops_forwarded(
    rules: dict[str, dict[str, Table]], address: str, interface: str, bridges: Collection[str] = ()
) -> str:
    return str(Forwarding(rules, bridges).dropped_by(address, interface) or "")


def tables(*rules: str, name: str = "filter", **policies: str) -> dict[str, dict[str, Table]]:
    table = Table()
    table.policies |= policies
    for rule in rules:
        table.add(rule.split()[1], tuple(rule.split()))
    return {"iptables": {name: table}}


@pytest.mark.parametrize(
    "rules",
    [
        (),
        ("-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",),
        ("-A FORWARD -j DOCKER-USER", "-A DOCKER-USER -j RETURN", "-A FORWARD -i docker0 ! -o docker0 -j ACCEPT"),
        (
            "-A FORWARD -o docker0 -j DOCKER",
            "-A DOCKER -d 172.17.0.2/32 ! -i docker0 -p tcp -m tcp --dport 80 -j ACCEPT",
        ),
        ("-A FORWARD -p icmp -m icmp --icmp-type 8 -j ACCEPT",),
        ("-A FORWARD -m comment --comment kubernetes -m mark --mark 0x4000/0x4000 -j ACCEPT",),
        ("-A FORWARD -s 10.1.0.9/32 -j ACCEPT", "-A FORWARD -s 10.2.0.0/16 -j ACCEPT"),
    ],
)
def test_a_policy_drops_what_no_rule_accepts(rules: tuple[str, ...]) -> None:
    assert drops_forwarded(tables(*rules, FORWARD="DROP"), ADDRESS, CNI0) == "chain FORWARD of iptables"
    assert drops_forwarded(tables(*rules, FORWARD="ACCEPT"), ADDRESS, CNI0) == ""
    assert drops_forwarded(tables(*rules, FORWARD="DROP"), "fd00::2", CNI0) == "", "another family has its own policy"


@pytest.mark.parametrize(
    "rules",
    [
        ("-A FORWARD -j ACCEPT",),
        ("-A FORWARD -s 10.1.0.0/16 -j ACCEPT",),
        ("-A FORWARD -j CNI-FORWARD", "-A CNI-FORWARD -s 10.1.0.2/32 -j ACCEPT"),
        ("-A FORWARD -i cni+ -j ACCEPT",),
        ("-A FORWARD ! -i docker0 -j ACCEPT",),
        ("-A FORWARD -s 10.0.0.2/255.0.0.255 -j ACCEPT",),
        ("-A FORWARD -m set --match-set pods src -j ACCEPT",),
        ("-A FORWARD -m conntrack --ctstate NEW -j ACCEPT",),
    ],
)
def test_a_policy_is_no_fault_if_a_rule_may_accept_the_packets(rules: tuple[str, ...]) -> None:
    assert drops_forwarded(tables(*rules, FORWARD="DROP"), ADDRESS, CNI0) == ""


@pytest.mark.parametrize(
    ("rules", "passing"),
    [
        (("-p tcp -m tcp --dport 443 -j ACCEPT",), "tcp 443"),
        (("-p tcp -m multiport --dports 443,10250 -j ACCEPT", "-p icmp -j ACCEPT"), "tcp 443,10250, icmp"),
        (("-p udp -m udp --dport 53 -j ACCEPT", "-s 10.9.0.0/16 -p tcp -j ACCEPT"), "udp 53"),
        (("-i cni0 -p tcp -j WEB", "-N WEB --dport 80 -j ACCEPT"), "tcp 80"),
        (("-p udp -j ALL", "-N ALL -j ACCEPT"), "udp"),
        (("-p tcp -m tcp --dport 443 -j ACCEPT", "-p tcp -j ACCEPT"), None),
        (("-p tcp -m tcp ! --dport 25 -j ACCEPT",), None),
        (("-p tcp -m tcp --dport 1:65535 -j ACCEPT",), None),
        (("-p tcp -m tcp --dport 443 -j ACCEPT", "-i cni+ -j ACCEPT"), None),
        (("-p tcp -m tcp --dport 443 -j ACCEPT", "-m set --match-set pods src -j ACCEPT"), None),
        (("-p tcp -m tcp --dport 443 -j ACCEPT", "-s 10.1.0.0/24 -d 10.0.0.0/8 -j ACCEPT"), None),
        (("-p tcp --dport 443 -j MARK --set-xmark 0x1/0x1", "-m mark --mark 0x1/0x1 -j ACCEPT"), None),
        (("-p tcp --dport 443 -j POD", "-N POD -j MARK --set-xmark 1/1", "-m mark --mark 1/1 -j ACCEPT"), None),
    ],
)
@pytest.mark.parametrize("end", ["", "-j DROP", "-g END", "-p tcp -j REJECT"])
def test_a_rule_that_accepts_some_ports_accepts_no_other_packets(
    made: MadeNode, rules: tuple[str, ...], end: str, passing: str | None
) -> None:
    """What no rule accepts is dropped by the policy, or by the last rule."""
    made.attach("c1", {**BRIDGE, "ipMasq": False})
    reading = made.reading()
    texts = ["-A FORWARD " + one.replace("cni", "br") if one[:2] != "-N" else f"-A{one[2:]}" for one in rules]
    texts += [f"-A FORWARD {end}", "-A END -j REJECT"] if end else []
    texts.insert(0, "-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT")
    reading.rules["iptables-legacy"] = tables(*texts, FORWARD="" if end else "DROP")["iptables"]
    found = [one for one in check_rules(reading) if isinstance(one, NodeFinding) and one.severity != "note"]
    assert [(one.name, one.severity, one.subject) for one in found] == [
        ("dropped" if end else "policy-drops", "warning", "chain FORWARD of iptables-legacy")
    ] * bool(passing)
    assert all(f"only {passing} of the containers pass" in one.seen for one in found)
    assert all("if nobody wants this: iptables-legacy -I FORWARD -i br0 -j ACCEPT; " in one.remedy for one in found)


@pytest.mark.parametrize(
    ("rules", "passing"),
    [
        (
            "ct state established accept\nip protocol icmp accept\ntcp dport { 443, 10250 } accept",
            "icmp, tcp 443,10250",
        ),
        ("udp dport 53 accept\ntcp dport @open accept", "udp 53, tcp @open"),
        ("tcp dport 443 accept\nmeta l4proto { tcp, udp } accept", None),
        ("tcp dport 443 accept\ntcp dport != 25 accept", None),
        ("tcp dport 443 meta mark set 0x1\nmeta mark 0x1 accept", None),
    ],
)
@pytest.mark.parametrize("end", ["", "reject with icmpx admin-prohibited"])
def test_a_rule_of_nft_that_accepts_some_ports_accepts_no_other_packets(
    made: MadeNode, rules: str, end: str, passing: str | None
) -> None:
    made.attach("c1", {**BRIDGE, "ipMasq": False})
    reading = made.reading()
    policy = "accept" if end else "drop"
    text = f"table inet x {{\nchain c {{\ntype filter hook forward priority 0; policy {policy};\n{rules}\n{end}\n}}\n}}"
    reading.rules["nft"]["inet x"] = nft_table("inet x", text)
    found = [one for one in check_rules(reading) if isinstance(one, NodeFinding)]
    assert [(one.name, one.severity) for one in found] == [("dropped" if end else "policy-drops", "warning")] * bool(
        passing
    )
    assert all(f"only {passing} of the containers pass" in one.seen for one in found)


@pytest.mark.parametrize(
    ("rules", "severity"),
    [
        (["-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", "-i br0 -j ACCEPT", "-j DROP"], ""),
        (["-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", "-o br0 -j DROP"], ""),
        (["-o br0 -p tcp --tcp-flags FIN,SYN,RST,ACK SYN -j DROP"], ""),
        (["-i br0 -j ACCEPT", "-j DROP"], "error"),
        (["-o br0 -j DROP"], "error"),
        (["-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", "-j DROP"], "error"),
    ],
)
def test_a_firewall_that_lets_answers_in_keeps_nothing_from_a_container(
    made: MadeNode, rules: list[str], severity: str
) -> None:
    made.attach("c1", {**BRIDGE, "ipMasq": False})
    reading = made.reading()
    reading.rules["iptables-legacy"] = tables(*(f"-A FORWARD {one}" for one in rules))["iptables"]
    found = [one for one in check_rules(reading) if isinstance(one, NodeFinding) and one.name == "dropped"]
    assert [(one.severity, one.containers) for one in found] == [(severity, ("c1:eth0",))] * bool(severity)


@pytest.mark.parametrize("policy", ["DROP", "ACCEPT"])
def test_a_firewall_of_the_node_that_accepts_some_ports_is_a_note(made: MadeNode, policy: str) -> None:
    made.attach("c1", {**BRIDGE, "ipMasq": False})
    reading = made.reading()
    rules = ["-i lo -j ACCEPT", "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", "-p tcp --dport 22 -j ACCEPT"]
    rules += ["-j DROP"] if policy == "ACCEPT" else []
    reading.rules["iptables-legacy"] = tables(*(f"-A INPUT {one}" for one in rules), INPUT=policy)["iptables"]
    [found] = [one for one in check_rules(reading) if isinstance(one, NodeFinding)]
    assert (found.severity, found.subject) == ("note", "chain INPUT of iptables-legacy")
    assert "only tcp 22 of the containers pass" in found.seen
    assert found.remedy == "if nobody wants this: iptables-legacy -I INPUT -i br0 -j ACCEPT"


@pytest.mark.real
@pytest.mark.parametrize("program", ["iptables", "nft"])
def test_a_hardened_policy_is_found_and_its_commands_mend_it(node: OperatorNode, program: str) -> None:
    node.configure("net", node.bridge(f"{node.net}.0/24"), PORTMAP)
    netns = node.new_namespace()
    node.cni.add_network_list("net", RuntimeConf("c1", netns.path, "eth0", capability_args=ports(8080)))
    for command in (
        "ip link add up0 type veth peer name far0",
        "ip address add 192.0.2.1/24 dev up0",
        "ip link set far0 up; ip link set up0 up",
        "ip route add default via 192.0.2.254",
    ):
        node.type(command)
    node.assert_healthy()
    for command in (
        (
            "iptables -P FORWARD DROP",
            "iptables -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
            "iptables -A FORWARD -p icmp -j ACCEPT",
            "iptables -A FORWARD -p tcp -m multiport --dports 443,10250 -j ACCEPT",
            "iptables -A FORWARD -p udp --dport 53 -j ACCEPT",
        )
        if program == "iptables"
        else (
            "nft add table inet filter",
            "nft add chain inet filter forward '{ type filter hook forward priority 0; policy drop; }'",
            "nft add rule inet filter forward ct state established,related accept",
            "nft add rule inet filter forward meta l4proto { icmp, ipv6-icmp } accept",
            "nft add rule inet filter forward tcp dport { 443, 10250 } accept",
        )
    ):
        node.type(command)
    found = {one.name: one for one in node.diagnose().findings}
    assert {name: one.severity for name, one in found.items()} == {"policy-drops": "warning", "port-caught": "error"}
    assert "443,10250" in found["policy-drops"].seen
    for one in found.values():
        for command in filter(None, one.remedy.partition(": ")[2].split("; ")):
            node.type(command)
    node.assert_healthy()


@pytest.mark.parametrize(
    ("rule", "is_dropped"),
    [
        ("-o cni+ -j ACCEPT", True),
        ("-o docker0 -j ACCEPT", True),
        ("-o wg0 -j ACCEPT", False),  # a node may let its containers out over one network alone
        ("! -o docker0 -j ACCEPT", False),
    ],
)
def test_an_accept_for_packets_to_a_bridge_of_containers_is_none_to_other_networks(rule: str, is_dropped: bool) -> None:
    rules = tables(f"-A FORWARD {rule}", FORWARD="DROP")
    assert bool(drops_forwarded(rules, ADDRESS, CNI0, ["cni0", "docker0"])) == is_dropped
    assert not drops_forwarded(rules, ADDRESS, CNI0), "unknown bridges"


@pytest.mark.parametrize(
    ("rules", "lost"),
    [
        (["-A FORWARD -j DROP"], 0),
        (["-A FORWARD -s 10.1.0.0/24 -j DROP"], 0),
        (["-A FORWARD -s 10.2.0.0/24 -j DROP"], None),
        (["-A FORWARD ! -s 10.2.0.0/24 -j DROP"], 0),
        (["-A FORWARD -i cni0 ! -o cni0 -j REJECT --reject-with icmp-port-unreachable"], 0),
        (["-A FORWARD -p tcp -m tcp --dport 80 -j DROP", "-A FORWARD -j DROP"], 1),
        (["-A FORWARD -m conntrack --ctstate INVALID -j DROP"], None),
        (["-A FORWARD -m comment --comment mine -m conntrack --ctstate NEW -j DROP"], 0),
        (["-A FORWARD -m set --match-set bad src -j DROP"], None),
        (["-A FORWARD -s 10.1.0.2/32 -j ACCEPT", "-A FORWARD -j DROP"], None),
        (["-A FORWARD -s 10.1.0.3/32 -j ACCEPT", "-A FORWARD -j DROP"], 1),
        (["-A FORWARD -p tcp -j ACCEPT", "-A FORWARD -j DROP"], None),  # some are dropped
        (["-A FORWARD -j NFQUEUE --queue-num 0", "-A FORWARD -j DROP"], None),
        (["-A FORWARD -j OWN", "-A OWN -s 10.1.0.2/32 -j DROP"], 1),
        (["-A FORWARD -p tcp -j OWN", "-A OWN -j DROP"], 1),
        (["-A FORWARD -p udp -j OWN", "-A OWN -j DROP"], None),
        (["-A FORWARD -j OWN", "-A FORWARD -j DROP", "-A OWN -j RETURN", "-A OWN -j ACCEPT"], 1),
        (["-A FORWARD -j OWN", "-A OWN -m set --match-set good src -j RETURN", "-A OWN -j DROP"], None),
        (["-A FORWARD -g OWN", "-A FORWARD -j DROP", "-A OWN -j RETURN"], None),
        (["-A FORWARD -j OWN", "-A OWN -m mark ! --mark 0x1/0x1 -j REJECT", "-A OWN -j MARK --set-xmark 0x1/0x1"], 1),
        (["-A FORWARD -j MARK --set-xmark 0x2/0x2", "-A FORWARD -m mark ! --mark 0x1/0x1 -j DROP"], 1),
        (["-A FORWARD -j OWN", "-A FORWARD -m mark ! --mark 1 -j DROP", "-A OWN -j MARK --set-xmark 0x1/0x1"], None),
        (["-A FORWARD -j CONNMARK --restore-mark", "-A FORWARD -m mark ! --mark 0x1/0x1 -j DROP"], None),
        (["-A FORWARD -m mark --mark 0x1/0x1 -j DROP"], None),
        (["-A FORWARD -p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -j DROP"], 0),
        (["-A FORWARD -p tcp -m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN -j DROP"], None),
        (["-A FORWARD -p tcp -m tcp --tcp-flags FIN,SYN,RST,PSH,ACK,URG NONE -j DROP"], None),
        (["-A FORWARD -p tcp -m tcp --dport 80 -j DROP"], None),
        (["-A FORWARD -m mark --mark 0x0/0x1 -j DROP"], 0),
        (["-A FORWARD -m mark --mark 0x1/0x1 -j RETURN", "-A FORWARD -j DROP"], 1),
    ],
)
def test_the_rule_that_loses_all_packets_of_a_container(rules: list[str], lost: int | None) -> None:
    packet = Packet(ipaddress.ip_address(ADDRESS), CNI0)
    found = Forwarding(tables(*rules)).lost_by("iptables", "filter", "FORWARD", packet)
    assert found == (None if lost is None else tuple(rules[lost].split()))
    assert Forwarding(tables(*rules)).lost_by("ip6tables", "filter", "FORWARD", packet) is None


IPSET = "create bad hash:net family inet hashsize 1024 maxelem 65536\nadd bad 10.1.0.2\nadd bad 10.1.1.0/24\n"


@pytest.mark.parametrize(
    ("rule", "address", "is_lost"),
    [
        ("-m set --match-set bad src -j DROP", "10.1.0.2", True),
        ("-m set --match-set bad src -j DROP", "10.1.1.7", True),
        ("-m set --match-set bad src -j DROP", "10.1.0.3", False),
        ("-m set ! --match-set bad src -j DROP", "10.1.0.3", True),
        ("-m set ! --match-set bad src -j DROP", "10.1.0.2", False),
        ("-m set --match-set bad dst -j DROP", "10.1.0.2", False),
        ("-m set --match-set bad src,dst -j DROP", "10.1.0.2", False),
        ("-m set --match-set other src -j DROP", "10.1.0.2", False),
    ],
)
def test_a_set_of_ipset_that_drops_a_container(rule: str, address: str, is_lost: bool) -> None:
    rules = tables(f"-A FORWARD {rule}")
    rules["iptables"]["filter"].sets["bad"] = ip_set(IPSET)
    packet = Packet(ipaddress.ip_address(address), CNI0)
    assert bool(Forwarding(rules).lost_by("iptables", "filter", "FORWARD", packet)) == is_lost


def test_sets_of_ipset_are_read_once_or_named(made: MadeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "ipset"
    program.write_text(
        f"#!/bin/sh\necho $2 >>{tmp_path}/asked\n[ $2 = bad ] && printf '{IPSET}'\n".replace("\nadd", "\\nadd")
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    made.attach("c1", {**BRIDGE, "ipMasq": False})
    reading = made.reading()
    filters = reading.rules["iptables"]["filter"]
    for name, target in (("bad", "DROP"), ("bad", "REJECT"), ("good", "ACCEPT"), ("gone", "DROP")):
        filters.chains["FORWARD"].insert(0, tuple(f"-A FORWARD -m set --match-set {name} src -j {target}".split()))
    filters.chains["FORWARD"].remove(("-A", "FORWARD", "-m", "set", "--match-set", "good", "src", "-j", "ACCEPT"))
    read_sets(reading.rules["iptables"])
    assert sorted((tmp_path / "asked").read_text().split()) == ["bad", "gone"]
    found = [one for one in check_rules(reading) if isinstance(one, NodeFinding)]
    assert [(one.name, one.containers) for one in found] == [("dropped", ("c1:eth0",))]
    assert found[0].remedy == "find out who banned them, and take them off the set: ipset del bad 10.1.0.2"
    [unread] = [one for one in check_rules(reading) if isinstance(one, NotChecked) and "gone" in one.subject]
    assert "exit status 1" in unread.reason
    monkeypatch.setenv("PATH", "/none")
    filters.sets.clear()
    filters.unread.clear()
    read_sets(reading.rules["iptables"])
    assert filters.unread["bad"] == "the program is not in PATH"


@pytest.mark.parametrize(
    "text", ["", "create bad hash:ip,port family inet\n", "create bad hash:net\nadd bad 10.0.0.0/8 nomatch\n"]
)
def test_a_set_of_more_than_addresses_is_not_understood(text: str) -> None:
    with pytest.raises(ValueError, match="only sets of addresses without nomatch"):
        ip_set(text)


def test_ranges_of_a_set_of_ipset_may_overlap() -> None:
    found = ip_set("create bad hash:net\nadd bad 10.0.0.0/8\nadd bad 10.1.0.0/24\n")
    assert ipaddress.ip_address("10.200.0.1") in found
    assert ipaddress.ip_address("11.0.0.1") not in found


@pytest.mark.parametrize(
    ("rules", "mark"),
    [
        ('iifname "cni0" meta mark set 0x00000001', 1),
        ('iifname "cni0" meta mark set 0x00000001\nmeta mark set meta mark & 0x000000f0 | 0x00000004', 4),
        ('iifname "cni0" counter packets 1 bytes 2 meta mark set meta mark | 0x00000010 accept\nmeta mark set 0x3', 16),
        ("meta mark set 0x00000001\nmeta mark 0x00000002 accept\nmeta mark 0x00000001 meta mark set 0x00000008", 8),
        ("udp dport 53 meta mark set 0x00000001", 0),
        ('iifname "docker0" meta mark set 0x00000001', 0),
        ("ct mark != 0x00000000 meta mark set ct mark", None),
        ("meta mark set ct mark", None),
        ("ip saddr @own meta mark set 0x00000001", None),
    ],
)
def test_the_mark_of_a_packet_when_the_kernel_chooses_its_route(rules: str, mark: int | None) -> None:
    text = f"table inet m {{\nchain p {{\ntype filter hook prerouting priority mangle; policy accept;\n{rules}\n}}\n}}"
    packet = Packet(ipaddress.ip_address(ADDRESS), CNI0, port=("tcp", -1))
    assert Forwarding({"nft": {"inet m": nft_table("inet m", text)}}).mark(packet, "prerouting")[0] == mark
    assert Forwarding({"nft": {"inet m": nft_table("inet m", text)}}).mark(packet, "output")[0] == 0


def test_a_mark_that_another_table_may_set_decides_nothing() -> None:
    """As kube-router marks what its network policies allow; nat marks connections to services alone."""
    refused = "-A FORWARD -m mark ! --mark 0x1/0x1 -j REJECT"
    packet = Packet(ipaddress.ip_address(ADDRESS), CNI0)
    for table, bit, lost in (("mangle", 1, False), ("mangle", 2, True), ("nat", 1, False), ("raw", 4, True)):
        rules = tables(refused)["iptables"]
        rules |= tables(f"-A PREROUTING -j MARK --set-xmark {bit}/{bit}", name=table)["iptables"]
        found = Forwarding({"iptables": rules}).lost_by("iptables", "filter", "FORWARD", packet)
        assert bool(found) == lost, (table, bit)
    accepted = tables("-A FORWARD -m mark --mark 0x1/0x1 -j ACCEPT", FORWARD="DROP")["iptables"]
    for table, is_dropped in (("nat", True), ("mangle", False)):
        rules = accepted | tables("-A PREROUTING -j MARK --set-xmark 1/1", name=table)["iptables"]
        assert bool(drops_forwarded({"iptables": rules}, ADDRESS, CNI0)) == is_dropped


def give_uplink(made: MadeNode) -> None:
    made.host.links["up0"] = Link("up0", 50, is_up=True, addresses=["192.0.2.1/24"])
    object.__setattr__(made.host, "routes", (*made.host.routes, IPRoute("0.0.0.0/0", "192.0.2.254", 50)))


@pytest.mark.parametrize(
    ("table", "rule", "is_found"),
    [
        ("raw", "-A PREROUTING -s 10.1.0.0/24 -j NOTRACK", True),
        ("raw", "-A PREROUTING -s 10.1.0.0/24 -j CT --notrack", True),
        ("raw", "-A PREROUTING -s 10.1.0.0/24 -j CT --zone 7", True),
        ("raw", "-A PREROUTING -j CT --zone 7", False),
        ("raw", "-A PREROUTING -i br9 -j CT --zone 7", False),
        ("mangle", "-A PREROUTING -i br0 -j TTL --ttl-set 1", True),
        ("mangle", "-A PREROUTING -i br0 -j TTL --ttl-set 64", False),
        ("mangle", "-A POSTROUTING -j TTL --ttl-set 1", False),
        ("security", "-A FORWARD -d 10.1.0.0/26 -j DROP", True),
        ("filter", "-A FORWARD -j NFQUEUE --queue-num 0", True),
        ("filter", "-A FORWARD -j NFQUEUE --queue-num 0 --queue-bypass", False),
        ("filter", "-A FORWARD -j NFQUEUE --queue-num 7", False),
        ("filter", "-A FORWARD -j NFQUEUE --queue-balance 6:8", False),
        ("filter", "-A FORWARD -j NFQUEUE --queue-balance 1:3", True),
        ("nat", "-A POSTROUTING -s 10.1.0.0/24 -o up0 -j SNAT --to-source 192.0.2.99", True),
        ("nat", "-A POSTROUTING -s 10.1.0.0/24 -o up0 -j SNAT --to-source 192.0.2.1", False),
        ("nat", "-A POSTROUTING -s 10.1.0.0/24 -o up0 -j SNAT --to-source 198.51.100.7", False),
        ("nat", "-A POSTROUTING -s 10.1.0.0/24 -o up9 -j SNAT --to-source 192.0.2.99", False),
        ("nat", "-A POSTROUTING -m addrtype ! --dst-type LOCAL -j ACCEPT", True),
        ("nat", "-A POSTROUTING -m addrtype --dst-type LOCAL -j ACCEPT", False),
        ("nat", "-A POSTROUTING -s 10.1.0.0/24 -j ACCEPT", True),
        ("nat", "-A POSTROUTING -s 10.1.0.0/24 -j RETURN", True),
        ("nat", "-A POSTROUTING -s 10.1.0.0/24 -d 10.0.0.0/8 -j RETURN", False),
        ("nat", "-A POSTROUTING -s 10.1.0.0/24 ! -o br0 -j MASQUERADE", False),
    ],
)
def test_a_rule_that_comes_before_masquerade(made: MadeNode, table: str, rule: str, is_found: bool) -> None:
    made.attach("c1")
    made.make_rules("c1", "10.1.0.2")
    give_uplink(made)
    made.more["queues"] = frozenset({7})
    reading = made.reading()
    chain, words = rule.split()[1], tuple(rule.split())
    reading.rules["iptables"].setdefault(table, Table()).chains.setdefault(chain, []).insert(0, words)
    found = [one for one in check_rules(reading) if isinstance(one, NodeFinding)]
    assert [(one.name, one.containers) for one in found] == [("dropped", ("c1:eth0",))] * is_found
    if found:
        command = f"iptables -t {table} -D {rule.removeprefix('-A ')}".replace(" -t filter", "").replace("!", "'!'")
        assert found[0].remedy == f"find out who added the rule, and remove it: {command}"


@pytest.mark.parametrize(
    ("rule", "severity"),
    [
        ("-d 192.0.2.0/24 -j ACCEPT", "note"),
        ("-d 198.51.100.0/24 -j ACCEPT", ""),
        ("-d 192.0.2.0/24 -j RETURN", ""),
        ("-o up0 -j ACCEPT", "error"),
    ],
)
def test_a_chain_before_masquerade_that_ends_it(made: MadeNode, rule: str, severity: str) -> None:
    """As ip-masq-agent's chain is asked."""
    made.attach("c1")
    made.make_rules("c1", "10.1.0.2")
    give_uplink(made)
    reading = made.reading()
    nat = reading.rules["iptables"]["nat"]
    nat.add("AGENT", ("-A", "AGENT", *rule.split()))
    nat.chains["POSTROUTING"].insert(
        0, ("-A", "POSTROUTING", "-m", "addrtype", "!", "--dst-type", "LOCAL", "-j", "AGENT")
    )
    found = [one for one in check_rules(reading) if isinstance(one, NodeFinding)]
    assert [(one.name, one.severity) for one in found] == [("dropped", severity)] * bool(severity)
    assert all(one.remedy.endswith(f": iptables -t nat -D AGENT {rule}") for one in found)


@pytest.mark.parametrize(
    ("chain", "target", "is_found"),
    [
        ("POSTROUTING", "--set-xmark 0x0/0xffffffff", True),
        ("FORWARD -i br0", "--set-xmark 0x7/0xffffffff", True),
        ("POSTROUTING", "--set-xmark 0x0/0xff", False),
        ("POSTROUTING", "--set-xmark 0x2000/0xffffffff", False),
        ("POSTROUTING -o up9", "--set-xmark 0x0/0xffffffff", False),
        ("POSTROUTING -p tcp", "--set-xmark 0x4000/0x0", False),
    ],
)
def test_a_rule_that_takes_the_mark_of_published_ports_away(
    made: MadeNode, chain: str, target: str, is_found: bool
) -> None:
    rule = f"-A {chain} -j MARK {target}"
    made.attach("c1", {**BRIDGE, "ipMasq": False}, PORTMAP, capability_args=json.dumps(PORTS))
    made.attach("c2", {**BRIDGE, "ipMasq": False})
    reading = made.reading()
    reading.rules["iptables"]["mangle"] = tables(rule, name="mangle")["iptables"]["mangle"]
    found = [one for one in check_rules(reading) if isinstance(one, NodeFinding) and one.name == "dropped"]
    assert [one.containers for one in found] == [("c1:eth0",)] * is_found
    assert all(one.remedy.endswith(f": iptables -t mangle -D {rule.removeprefix('-A ')}") for one in found)


@pytest.mark.parametrize(
    ("rule", "containers"),
    [
        ("CNI-ADMIN -s 10.1.0.0/24 -d 10.2.0.0/24 -j DROP", ("c1:eth0", "c2:eth0")),
        ("FORWARD -d 10.1.0.2/31 -p tcp -m tcp --dport 80 -j REJECT", ("c1:eth0", "c2:eth0")),
        ("FORWARD -s 10.2.0.0/24 -j DROP", ()),
        ("FORWARD -i up0 -s 10.0.0.0/8 -j DROP", ()),
        ("CNI-ISOLATION-STAGE-1 -s 10.1.0.0/24 -d 10.2.0.0/24 -j DROP", ()),
    ],
)
def test_rules_that_drop_packets_of_a_network_are_named(made: MadeNode, rule: str, containers: tuple[str, ...]) -> None:
    made.attach("c1", {**BRIDGE, "ipMasq": False})
    made.attach("c2", {**BRIDGE, "ipMasq": False})
    reading = made.reading()
    reading.rules["iptables"]["filter"].add(rule.split(maxsplit=1)[0], ("-A", *rule.split()))
    found = [one for one in check_rules(reading) if isinstance(one, NodeFinding)]
    assert [(one.name, one.severity, one.containers) for one in found] == [
        ("dropped-in-part", "note", containers)
    ] * bool(containers)


def test_a_rule_between_two_containers_is_named_and_no_fault(made: MadeNode) -> None:
    made.attach("c1", {**BRIDGE, "ipMasq": False})
    made.attach("c2", {**BRIDGE, "ipMasq": False})
    rule = "FORWARD -s 10.1.0.2/32 -d 10.1.0.3/32 -j DROP"
    made.rules.append(f"-A {rule}")
    found = made.finding(check_rules)
    assert (found.name, found.severity, found.containers) == ("dropped-in-part", "note", ("c1:eth0", "c2:eth0"))
    assert found.remedy == f"if nobody wants this: iptables -D {rule}"


def test_the_bridges_of_containers_are_those_without_a_default_route(made: MadeNode) -> None:
    made.host.links["br0"].kind = "bridge"
    assert made.reading().inner_bridges == {"br0"}
    object.__setattr__(made.host, "routes", (IPRoute("0.0.0.0/0", "192.0.2.1", made.host.links["br0"].index),))
    assert made.reading().inner_bridges == frozenset(), "the node's own network card is on it"


def test_a_chain_of_nftables_can_drop_by_policy_too() -> None:
    text = """table inet fw {
\tchain forward {
\t\ttype filter hook forward priority filter; policy drop;
\t\tct state established,related accept
\t}
}"""
    assert "table inet fw" in drops_forwarded({"nft": {"inet fw": nft_table("inet fw", text)}}, ADDRESS, CNI0)
    text = text.replace("accept", 'accept\n\t\tiifname "cni0" accept')
    assert drops_forwarded({"nft": {"inet fw": nft_table("inet fw", text)}}, ADDRESS, CNI0) == ""


EBTABLES = """table bridge filter {
\tchain FORWARD {
\t\ttype filter hook forward priority filter; policy accept;
\t\tether type arp xt match arp counter packets 0 bytes 0 drop # handle 2
\t\tether saddr 02:00:00:00:00:01 counter packets 0 bytes 0 drop # handle 5
\t\tether saddr 02:00:00:00:00:02 counter packets 0 bytes 0 accept # handle 6
\t\toifname "vethx9" counter packets 0 bytes 0 drop # handle 7
\t}
}"""


def test_rules_that_are_not_understood_are_counted(made: MadeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    made.attach("c1", {**BRIDGE, "ipMasq": False})
    reading = made.reading()
    reading.rules["nft"]["bridge filter"] = nft_table("bridge filter", EBTABLES)
    monkeypatch.setattr("libcni.diagnosis.rules._EBTABLES", "/proc/self/stat")
    subjects = [one.subject for one in check_rules(reading) if isinstance(one, NotChecked)]
    assert "tables of nft: bridge filter (2 rules not understood)" in subjects
    assert "rules of ebtables-legacy" in subjects
    monkeypatch.setattr("libcni.diagnosis.rules._EBTABLES", "/none")
    assert "rules of ebtables-legacy" not in str(list(check_rules(reading)))


FIREWALLD = """table inet fw {
\tchain forward {
\t\ttype filter hook forward priority filter + 10; policy accept;
\t\tct state established,related accept
\t\tct status dnat accept
\t\tiifname "lo" accept
\t\tct state vmap { invalid : drop, related : accept }
\t\tmeta nfproto ipv6 jump own
\t\tRULE
\t\treject with icmpx admin-prohibited
\t}
\tchain own {
\t\taccept
\t}
}"""
LAST = "reject with icmpx admin-prohibited"


@pytest.mark.parametrize(
    ("rule", "lost"),
    [
        ("meta mark & 0x00000001 != 0x00000001 counter reject", "meta mark & 0x00000001 != 0x00000001 counter reject"),
        ("meta mark != 0x00000001 drop", "meta mark != 0x00000001 drop"),
        ("meta mark set 0x00000001 meta mark != 0x00000001 accept", ""),
        ("meta mark & 0x00000001 == 0x00000000 accept", ""),
        ('iifname "docker0" oifname != "docker0" accept', LAST),
        ('iifname "cni0" accept', ""),
        ('iifname { "docker0", "cni*" } accept', ""),
        ("ip saddr 10.1.0.0/24 counter packets 7 bytes 9 accept", ""),
        ("ip saddr 10.1.0.0/24 ip daddr 0.0.0.0/0 accept", ""),
        ("ip saddr 10.1.0.2 ip daddr 198.51.100.7 accept", LAST),
        ("ip saddr 10.2.0.0/24 accept", LAST),
        ("ip6 saddr != fd00::/8 accept", LAST),
        ('iifname vmap { "docker0" : jump own }', ""),
        ("meta mark 0x7 accept", LAST),
        ("tcp flags syn accept", ""),
        ("tcp flags != syn accept", LAST),
        ("tcp flags & (fin | syn) == syn accept", ""),
        ("limit rate 5/second burst 5 packets accept", ""),
        ("tcp flags syn / fin,syn,rst,ack drop", "tcp flags syn / fin,syn,rst,ack drop"),
        ("tcp flags ack drop", LAST),
        ("ip saddr 10.1.0.0/24 jump own", ""),
        ('iifname "cni0" log prefix "DROP it: " level info drop comment "drop in"', 'iifname "cni0" log'),
        ("tcp dport 8080 drop", LAST),
        ("meta l4proto { tcp, udp } accept", ""),
        ("meta l4proto icmp accept", LAST),
        ("icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept", LAST),
        ("return", ""),
        ("queue to 0", ""),
    ],
)
def test_rules_of_nftables_that_lose_the_packets_of_a_container(made: MadeNode, rule: str, lost: str) -> None:
    """As firewalld writes them: what nobody has accepted is rejected at the end."""
    made.attach("c1", {**BRIDGE, "bridge": "cni0", "ipMasq": False})
    reading = made.reading()
    reading.rules["nft"]["inet fw"] = nft_table("inet fw", FIREWALLD.replace("RULE", rule))
    found = [one for one in check_rules(reading) if isinstance(one, NodeFinding)]
    assert [(one.name, one.subject) for one in found] == [("dropped", "chain forward of nft, table inet fw")] * bool(
        lost
    )
    assert all(one.seen.startswith(f"the container's packets end at the rule {lost}") for one in found)
    if lost == LAST:
        start = "nft insert rule inet fw forward"
        assert found[0].remedy.startswith(
            f"accept their packets before that rule: {start} iifname cni0 accept; {start} oifname"
        )


@pytest.mark.parametrize(
    ("table", "hook", "rule", "name"),
    [
        ("netdev d", 'ingress device "vethc1"', "drop", "dropped"),
        ("netdev d", 'ingress device "vethc2"', "drop", ""),
        ("netdev d", 'ingress devices = { "lo", "br0" }', "ip saddr 10.1.0.2 drop", "dropped"),
        ("bridge filter", "forward", 'iifname "vethc1" drop', "dropped"),
        ("bridge filter", "forward", 'iifname "vethc2" drop', ""),
        ("bridge filter", "forward", "ether type arp counter packets 0 bytes 0 drop", "dropped"),
        ("bridge filter", "forward", "ether type ip6 counter packets 0 bytes 0 drop", ""),
        ("bridge filter", "forward", "ether type arp xt match arp counter packets 0 bytes 0 drop", ""),
        ("bridge x", "forward", "arp operation request arp daddr ip 10.1.0.2 drop", "dropped"),
        ("bridge x", "forward", "arp daddr ip 10.1.0.3 drop", ""),
        ("bridge x", "forward", "arp saddr ip != 10.1.0.0/24 drop", ""),
        ("bridge x", "forward", "arp saddr ether 02:00:00:00:00:07 drop", ""),
        ("arp guard", "input", 'iifname != "up0" drop', "dropped"),
        ("inet fw", "input", 'iifname "br0" drop', "dropped"),
        ("inet fw", "forward", 'iifname "br0" tcp dport 8080 drop', "dropped-in-part"),
        ("inet fw", "forward", "ip daddr 10.1.0.2 udp dport 53 drop", "dropped-in-part"),
        ("inet fw", "forward", 'iifname "br0" ct state invalid drop', ""),
        ("ip6 fw", "forward", "drop", ""),
    ],
)
def test_hooks_of_nftables_where_packets_of_a_container_are_dropped(
    made: MadeNode, table: str, hook: str, rule: str, name: str
) -> None:
    made.attach("c1", {**BRIDGE, "ipMasq": False})
    reading = made.reading()
    text = f"table {table} {{\n\tchain c {{ # handle 1\n\t\ttype filter hook {hook} priority 0; policy accept;\n\t\t"
    reading.rules["nft"][table] = nft_table(table, f"{text}{rule} # handle 7\n\t}}\n}}")
    found = [one for one in check_rules(reading) if isinstance(one, NodeFinding)]
    assert [(one.name, one.containers) for one in found] == [(name, ("c1:eth0",))] * bool(name)
    commands = (f": nft delete rule {table} c handle 7", f": nft insert rule {table} c iifname br0 accept")
    assert all(one.remedy.endswith(commands) for one in found)
    if not name:
        said = [one.subject for one in check_rules(reading) if isinstance(one, NotChecked)]
        assert any(one.startswith(f"tables of nft: {table}") for one in said)


def test_containers_on_links_of_their_own_are_accepted_by_their_network(made: MadeNode) -> None:
    """The next container has another interface."""
    for number in (2, 3, 4):
        made.attach(f"p{number}", {"type": "ptp", "ipam": IPAM}, address=f"10.2.0.{number}", gateway="10.2.0.1")
    reading = made.reading()
    reading.rules["iptables-legacy"] = tables(FORWARD="DROP")["iptables"]
    [found] = [one for one in check_rules(reading) if isinstance(one, NodeFinding)]
    commands = found.remedy.partition("running containers: ")[2].split("; ")
    assert commands == [
        "iptables-legacy -I FORWARD -s 10.2.0.0/24 -j ACCEPT",
        "iptables-legacy -I FORWARD -d 10.2.0.0/24 -m conntrack --ctstate RELATED,ESTABLISHED,DNAT -j ACCEPT",
    ]
    for command in commands:
        reading.rules["iptables-legacy"]["filter"].add("FORWARD", ("-A", *command.split()[2:]))
    assert [one for one in check_rules(reading) if isinstance(one, NodeFinding)] == []


@pytest.mark.parametrize("hook", ["forward", "postrouting", "prerouting"])
@pytest.mark.parametrize("accepts", [False, True])
def test_a_policy_of_nft_that_drops_at_any_hook(made: MadeNode, hook: str, accepts: bool) -> None:
    made.attach("c1", {**BRIDGE, "ipMasq": False})
    reading = made.reading()
    rule = 'iifname "br0" accept' if accepts else 'iifname "lo" accept'
    text = f"table ip x {{\n\tchain c {{\n\t\ttype filter hook {hook} priority 0; policy drop;\n\t\t{rule}\n\t}}\n}}"
    reading.rules["nft"]["ip x"] = nft_table("ip x", text)
    found = [one for one in check_rules(reading) if isinstance(one, NodeFinding)]
    assert [(one.name, one.severity) for one in found] == [("policy-drops", "error")] * (not accepts)
    assert all("nft insert rule ip x c iifname br0 accept" in one.remedy for one in found)


def test_a_policy_that_drops_connections_to_the_node_is_a_note(made: MadeNode) -> None:
    made.attach("c1", {**BRIDGE, "ipMasq": False})
    reading = made.reading()
    reading.rules["iptables-legacy"] = tables(INPUT="DROP")["iptables"]
    [found] = [one for one in check_rules(reading) if isinstance(one, NodeFinding)]
    assert (found.severity, found.name, found.subject) == ("note", "policy-drops", "chain INPUT of iptables-legacy")
    assert found.remedy == "if nobody wants this: iptables-legacy -I INPUT -i br0 -j ACCEPT"


def test_the_rules_of_other_containers_are_not_compared_with_each_packet() -> None:
    """The plugin firewall makes two for each of 10,000 containers."""
    hosts = [f"10.1.{high}.{low}" for high in range(40) for low in range(250)]
    each = [f"-A CNI-FORWARD {option} {host}/32 -j ACCEPT" for host in hosts for option in ("-d", "-s")]
    forwarding = Forwarding(tables("-A FORWARD -j CNI-FORWARD", *each, FORWARD="DROP"))
    began = time.process_time()
    assert not any(forwarding.dropped_by(host, CNI0) for host in hosts)
    assert forwarding.dropped_by("10.2.0.1", CNI0)
    assert time.process_time() - began < 3.0, "0.2 s; each with each takes minutes"


def test_rules_in_a_circle_are_followed_for_a_while() -> None:
    circle = ("-A FORWARD -j ONE", "-A ONE -j TWO", "-A TWO -j ONE")
    assert drops_forwarded(tables(*circle, FORWARD="DROP"), ADDRESS, CNI0)
    [found] = translations(tables("-A PREROUTING -j ONE", *circle[1:], name="nat"))
    assert found == []


def test_translations_come_in_the_order_of_the_kernel() -> None:
    [found] = translations(
        tables(
            "-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER",
            "-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT",
            "-A CNI-HOSTPORT-DNAT -p tcp -m multiport --dports 80,8000:8001 -j CNI-DN-1",
            "-A CNI-DN-1 -s 10.1.0.2/32 -p tcp -m tcp --dport 80 -j CNI-HOSTPORT-SETMARK",
            "-A CNI-DN-1 -d 192.0.2.1/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.1.0.2:8080",
            "-A CNI-DN-1 -p tcp -m tcp --dport 8001 -j DNAT --to-destination [fd00::1]:8080",
            "-A CNI-DN-1 -p tcp -m tcp --dport 9 -j DNAT --to-destination 10.1.0.2:9",
            "-A PREROUTING -p udp -m udp --dport 9 -j DNAT --to-destination 10.1.0.3",
            "-A PREROUTING -p udp -m udp --dport 9 -j DNAT --to-destination fd00::3",
            "-A DOCKER ! -i docker0 -p tcp -m tcp --dport 80 -j DNAT --to-destination 172.17.0.2:80",
            name="nat",
        )
    )
    assert [(str(one.port), one.target) for one in found] == [
        ("80/tcp", "172.17.0.2"), ("192.0.2.1:80/tcp", "10.1.0.2"), ("8001/tcp", "fd00::1"),
        ("9/udp", "10.1.0.3"), ("9/udp", "fd00::3"),
    ]  # fmt: skip


@pytest.mark.parametrize("backend", ["iptables", "nftables"])
def test_a_port_that_an_older_rule_leads_to_another_container_is_said_of_both(made: MadeNode, backend: str) -> None:
    for container, address in (("c1", "10.1.0.2"), ("c2", "10.1.0.3")):
        made.attach(container, {**BRIDGE, "ipMasq": False}, PORTMAP, capability_args=json.dumps(PORTS))
        (made.make_rules if backend == "iptables" else made.make_nft_rules)(container, address)
    [found] = made.findings(check_ports)
    assert (found.severity, found.containers) == ("error", ("c2:eth0", "c1:eth0"))
    assert found.seen.startswith(
        "port 8080/tcp leads to 10.1.0.2, not to 10.1.0.3: the first rule that matches is that"
    )


@pytest.mark.parametrize(
    "rule",
    [
        "-A CNI-HOSTPORT-DNAT -p tcp -m multiport --dports 8080 -j RETURN",
        "-A PREROUTING -p tcp -m tcp --dport 8080 -j ACCEPT",
        "-A PREROUTING -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.9.9.9:80",
        "-A PREROUTING -p tcp -m tcp --dport 8080 -j REDIRECT --to-ports 99",
    ],
)
@pytest.mark.parametrize("program", ["iptables", "iptables-legacy"])
def test_a_rule_that_catches_a_port_is_named(made: MadeNode, rule: str, program: str) -> None:
    made.attach("c1", {**BRIDGE, "ipMasq": False}, PORTMAP, capability_args=json.dumps(PORTS))
    made.make_rules("c1", "10.1.0.2")
    reading = made.reading()
    assert list(check_rules(reading))
    before = tables(rule, name="nat")["iptables"]["nat"]
    if program == "iptables":
        for chain, rules in reading.rules["iptables"]["nat"].chains.items():
            for one in rules:
                before.add(chain, one)
    reading.rules[program] = {**reading.rules["iptables"], "nat": before}
    found = [one.seen for one in check_ports(reading) if isinstance(one, NodeFinding)]
    # Nobody knows which of two programs' rules come first; a RETURN or ACCEPT hides no rule of another chain.
    if program == "iptables" or "--to" in rule:
        target = "10.9.9.9" if "10.9.9.9" in rule else "no container"
        remedies = [one.remedy for one in check_ports(reading) if isinstance(one, NodeFinding)]
        command = f"{program} -t nat -D {rule.removeprefix('-A ')}"
        assert remedies == [f"find out who added the rule, and remove it: {command}"]
        assert found == [f"port 8080/tcp leads to {target}, not to 10.1.0.2: the first rule that matches is {rule}"]
    else:
        assert found == []


BANS = """table ip crowdsec {
\tset bans {
\t\ttype ipv4_addr
\t\tELEMENTS
\t}
\tchain forward {
\t\ttype filter hook forward priority filter - 10; policy accept;
\t\tip saddr @bans counter packets 0 bytes 0 drop # handle 4
\t}
}"""


@pytest.mark.parametrize(
    ("elements", "remedy"),
    [
        ('elements = { 192.0.2.7 timeout 4h comment "a }, { b", 10.1.0.2 timeout 4h }', "'{ 10.1.0.2 }'"),
        ("elements = { 10.1.0.0/31, 10.1.0.2-10.1.0.4 }", "handle 4"),
        ("elements = { 10.1.0.0/24 }", "handle 4"),
        ("elements = { 192.0.2.7, 10.1.0.3 }", ""),
        ("elements = { 10.1.0.2 . tcp . 80 }", ""),
        ("flags interval", ""),
    ],
)
def test_a_set_of_nft_that_bans_a_container(made: MadeNode, elements: str, remedy: str) -> None:
    made.attach("c1", {**BRIDGE, "ipMasq": False})
    reading = made.reading()
    text = BANS.replace("ELEMENTS", elements)
    reading.rules["nft"]["ip crowdsec"] = table = nft_table("ip crowdsec", text)
    table.sets["bans"] = address_set(text)
    found = [one for one in check_rules(reading) if isinstance(one, NodeFinding)]
    assert [(one.name, one.severity) for one in found] == [("dropped", "error")] * bool(remedy)
    assert all(one.remedy.endswith(remedy) for one in found)


@pytest.mark.real
def test_the_elements_of_sets_that_drop_are_read(host: Namespace) -> None:
    del host
    text = BANS.replace("ELEMENTS", "elements = { 10.1.0.2, 192.0.2.7 }").replace(" # handle 4", "")
    subprocess.run(["nft", "-f", "-"], input=text, text=True, check=True)
    assert filtering_tables()["ip crowdsec"].sets["bans"].hosts == {"10.1.0.2", "192.0.2.7"}


NETAVARK = """table inet netavark {
\tchain NETAVARK-HOSTPORT-DNAT {
\t\tRULE # handle 3
\t}
\tchain PREROUTING { # handle 2
\t\ttype nat hook prerouting priority PRIORITY; policy accept;
\t\tfib daddr type local jump NETAVARK-HOSTPORT-DNAT # handle 4
\t}
}"""


@pytest.mark.parametrize(
    ("rule", "priority", "target"),
    [
        ("tcp dport 8080 dnat ip to 10.89.0.2:80", "dstnat - 10", "10.89.0.2"),
        ("tcp dport 8080 counter packets 7 bytes 9 dnat to 10.89.0.2", "-110", "10.89.0.2"),
        ("tcp dport { 80, 8080-8090 } dnat ip to 10.89.0.2", "mangle", "10.89.0.2"),
        ("tcp dport 8080 redirect to :9", "-110", "no container"),
        ('iifname != "docker0" tcp dport 8080 dnat to 10.89.0.2:80', "-110", "10.89.0.2"),
        ('meta nfproto ipv4 log prefix "for port " tcp dport 8080 dnat to 10.89.0.2:80', "-110", "10.89.0.2"),
        ("meta l4proto { tcp, udp } th dport 8080 dnat ip to 10.89.0.2:80", "-110", "10.89.0.2"),
        ('iifname "up0" tcp dport 8080 dnat to 10.89.0.2:80', "-110", ""),
        ("fib daddr type broadcast tcp dport 8080 dnat to 10.89.0.2:80", "-110", ""),
        ("tcp dport 8080 dnat ip to 10.89.0.2:80", "dstnat + 10", ""),
        ("tcp dport 8081 dnat ip to 10.89.0.2:80", "-110", ""),
        ("udp dport 8080 dnat ip to 10.89.0.2:80", "-110", ""),
        ("tcp dport 8080 dnat ip6 to [fd00::2]:80", "-110", ""),
        ("ip saddr 10.89.0.0/24 tcp dport 8080 dnat ip to 10.89.0.2:80", "-110", ""),
        ("ip daddr 10.96.0.1 tcp dport 8080 dnat ip to 10.89.0.2:80", "-110", ""),
        ("tcp dport 8080 accept", "-110", ""),
    ],
)
def test_a_rule_of_nft_that_catches_a_port_is_named(made: MadeNode, rule: str, priority: str, target: str) -> None:
    made.attach("c1", {**BRIDGE, "ipMasq": False}, PORTMAP, capability_args=json.dumps(PORTS))
    made.make_rules("c1", "10.1.0.2")
    reading = made.reading()
    text = NETAVARK.replace("RULE", rule).replace("PRIORITY", priority)
    reading.rules["nft"]["inet netavark"] = nft_table("inet netavark", text)
    found = [one for one in check_ports(reading) if isinstance(one, NodeFinding)]
    assert [one.name for one in found] == ["port-caught"] * bool(target)
    for one in found:
        assert one.seen.startswith(f"port 8080/tcp leads to {target}, not to 10.1.0.2")
        assert one.remedy.endswith(": nft delete rule inet netavark NETAVARK-HOSTPORT-DNAT handle 3")


def ports(number: int) -> dict[str, Any]:
    return {"portMappings": [{"hostPort": number, "containerPort": 80, "protocol": "tcp"}]}


@pytest.mark.real
@pytest.mark.parametrize(
    "wrong_target", ["9:80", "3:80", "2:81"], ids=["of nobody", "of its other interface", "another port"]
)
def test_a_wrong_rule_in_the_chain_of_a_containers_ports_is_removed_at_once(
    node: OperatorNode, wrong_target: str
) -> None:
    """Its two interfaces on the network share the chain: the rules of the other one stay."""
    node.configure("net", node.bridge(f"{node.net}.0/24"), PORTMAP)
    netns = node.new_namespace().path
    for ifname, number in (("eth0", 8080), ("eth1", 8081)):
        node.cni.add_network_list("net", RuntimeConf("c1", netns, ifname, capability_args=ports(number)))
    node.assert_healthy()
    before = node.host.rules("nat")
    chain = ports_chain("net", "c1")
    right = next(rule for rule in before if rule.startswith(f"-A {chain}") and "--to-destination" in rule)
    wrong = right.replace(f"{node.net}.2:80", f"{node.net}.{wrong_target}").removeprefix("-A ")
    subprocess.run(["iptables", "-t", "nat", *shlex.split(right.replace("-A ", "-D ", 1))], check=True)
    subprocess.run(["iptables", "-t", "nat", "-A", *shlex.split(wrong)], check=True)
    found = node.mend("missing rules: port 8080/tcp")
    assert (found.name, found.containers) == ("rules-missing", ("c1:eth0",))
    assert sorted(node.host.rules("nat")) == sorted(before)
    node.assert_healthy()


@pytest.mark.real
def test_rules_in_both_variants_of_iptables_are_read(node: OperatorNode, tmp_path: Path) -> None:
    """The kernel obeys both. The plugins of a container may have used the variant that is not the default now."""
    legacy = tmp_path / "legacy"
    legacy.mkdir()
    for name in ("iptables", "ip6tables", "iptables-save", "iptables-restore"):
        (legacy / name).symlink_to(f"/usr/sbin/{name.replace('tables', 'tables-legacy')}")
    node.configure("net", node.bridge(f"{node.net}.0/24"), PORTMAP)
    container = node.new_namespace()
    cni = node.client(env={**os.environ, "PATH": f"{legacy}:{PLUGINS}:/usr/sbin:/usr/bin:/sbin:/bin"})
    cni.add_network_list("net", RuntimeConf("c1", container.path, "eth0", capability_args=ports(8080)))
    assert f"{node.net}.2:80" in subprocess.check_output(["iptables-legacy-save"], text=True)
    node.assert_healthy()
    node.cni.del_network_list("net", RuntimeConf("c1", container.path, "eth0"))
    assert f"{node.net}.2:80" in subprocess.check_output(["iptables-legacy-save"], text=True), "DEL used the other one"
    assert node.mend(f"there are rules for {node.net}.2").name == "rules-left"
    assert f"{node.net}.2:80" not in subprocess.check_output(["iptables-legacy-save"], text=True)


@pytest.mark.real
def test_a_variant_that_cannot_be_read_is_not_checked(node: OperatorNode, monkeypatch: pytest.MonkeyPatch) -> None:
    node.attach("c1")
    subprocess.run(["iptables-legacy", "-t", "nat", "-A", "POSTROUTING", "-j", "ACCEPT"], check=True)
    only = Path(node.root, "sbin")
    only.mkdir()
    for name in ("iptables-save", "ip6tables-save", "nft"):
        (only / name).symlink_to(f"/usr/sbin/{name}")
    monkeypatch.setenv("PATH", str(only))
    assert "the rules of iptables-legacy" in [one.subject for one in node.diagnose().not_checked]


@pytest.mark.real
def test_tables_of_nftables_that_are_not_followed_are_named(node: OperatorNode) -> None:
    node.attach("c1")
    subprocess.run(["iptables", "-A", "FORWARD", "-j", "ACCEPT"], check=True)
    node.assert_healthy()
    assert not [one for one in node.diagnose().not_checked if "nft" in one.subject]
    chain = "add chain inet fw f { type filter hook forward priority 0; }"
    subprocess.run(["nft", f"add table inet fw; {chain}; add rule inet fw f tcp dport 80 drop"], check=True)
    assert ("rules", "tables of nft: inet fw") in [(one.check, one.subject) for one in node.diagnose().not_checked]
    node.type(node.finding("packets to ports of or from the containers of br-node end").remedy.rpartition(": ")[2])
    host_end = json.loads(node.host.run("ip", "-j", "link", "show", "master", "br-node"))[0]["ifname"]
    chain = f"add chain netdev d i {{ type filter hook ingress device {host_end} priority 0; }}"
    subprocess.run(["nft", f"add table netdev d; {chain}; add rule netdev d i counter drop"], check=True)
    node.type(node.finding("the container's packets end at the rule counter").remedy.rpartition(": ")[2])
    node.assert_healthy()


@pytest.mark.real
def test_the_policy_of_docker_is_found_and_the_plugin_firewall_mends_it(node: OperatorNode) -> None:
    node.attach("c1")
    subprocess.run(["iptables", "-P", "FORWARD", "DROP"], check=True)
    found = node.finding("the policy drops the packets of containers")
    assert (found.name, found.severity, found.containers) == ("policy-drops", "error", ("c1:eth0",))
    node.cni.del_network_list("net", RuntimeConf("c1", None, "eth0"))
    node.configure("net", node.bridge(f"{node.net}.0/24"), {"type": "firewall"})
    node.attach("c1")
    node.assert_healthy()


@pytest.mark.parametrize(
    ("hook", "rules", "lost"),
    [
        ("forward", "", "do not reach the others on their bridge"),
        ("forward", "ether type arp accept", "do not reach the others on their bridge"),
        ("forward", "ether type { arp, ip, ip6 } accept", ""),
        ("forward", 'iifname "vethc1" accept', ""),
        ("forward", 'iifname "br0" accept', "do not reach the others on their bridge"),  # it is no port
        ("input", "", "cannot reach this node, or be reached from it"),
    ],
)
def test_a_policy_for_packets_within_bridges(made: MadeNode, hook: str, rules: str, lost: str) -> None:
    made.attach("c1", {**BRIDGE, "ipMasq": False})
    reading = made.reading()
    text = f"type filter hook {hook} priority 0; policy drop;\n{rules}"
    reading.rules["nft"]["bridge own"] = nft_table("bridge own", f"table bridge own {{\nchain f {{\n{text}\n}}\n}}")
    found = [one for one in check_rules(reading) if isinstance(one, NodeFinding)]
    assert [(one.name, one.meaning) for one in found] == [("policy-drops", f"1 container {lost}")] * bool(lost)
    for one in found:
        assert one.remedy.endswith(": nft insert rule bridge own f ether type { arp, ip, ip6 } accept")


@pytest.mark.parametrize(
    ("rules", "policy", "name", "severity"),
    [
        ("tcp dport 443 accept", "drop", "policy-drops", "warning"),
        ("ether type arp accept\nip daddr 10.9.0.0/16 accept", "drop", "policy-drops", "error"),
        ("ct state established,related accept", "drop", "policy-drops", "error"),
        ("ip saddr 10.1.0.0/24 ip daddr 10.1.0.0/24 accept", "drop", "", ""),
        ('iifname "veth*" oifname "veth*" accept', "drop", "", ""),
        ('meta ibrname "br0" accept', "drop", "", ""),
        ('meta ibrname "br9" accept', "drop", "policy-drops", "error"),
        ("ct state new drop", "accept", "dropped", "error"),
        ("ct state invalid drop", "accept", "", ""),
        ("ip saddr 10.1.0.0/24 ip daddr 10.1.0.0/24 counter packets 0 bytes 0 drop", "accept", "dropped", "error"),
        ("ip saddr 10.1.0.0/24 ip daddr 10.9.0.0/24 drop", "accept", "dropped-in-part", "note"),
        ('iifname "veth*" oifname "veth*" drop', "accept", "dropped", "error"),
        ('meta ibrname "br0" drop', "accept", "dropped", "error"),
        ('meta obrname "br9" drop', "accept", "", ""),
        ("ip protocol tcp drop", "accept", "dropped", "error"),
        ("tcp dport 443 accept\ndrop", "accept", "dropped", "warning"),
    ],
)
def test_frames_between_two_ports_of_a_bridge(
    made: MadeNode, rules: str, policy: str, name: str, severity: str
) -> None:
    made.attach("c1", {**BRIDGE, "ipMasq": False})
    made.attach("c2", {**BRIDGE, "ipMasq": False})
    reading = made.reading()
    text = f"type filter hook forward priority 0; policy {policy};\n{rules}"
    reading.rules["nft"]["bridge own"] = nft_table("bridge own", f"table bridge own {{\nchain f {{\n{text}\n}}\n}}")
    found = [one for one in check_rules(reading) if isinstance(one, NodeFinding)]
    assert [(one.name, one.severity, one.containers) for one in found] == [
        (name, severity, ("c1:eth0", "c2:eth0"))
    ] * bool(name)
    if name and severity != "note":
        assert found[0].meaning.startswith("2 containers do not reach the others on their bridge")


def test_connections_of_the_node_that_are_not_tracked(made: MadeNode) -> None:
    made.attach("c1", {**BRIDGE, "ipMasq": False})
    reading = made.reading()
    table = reading.rules["iptables"]["raw"] = Table()
    table.add(
        "OUTPUT", ("-A", "OUTPUT", "-d", "169.254.20.10/32", "-p", "tcp", "-j", "NOTRACK")
    )  # of NodeLocal DNSCache
    assert [one for one in check_rules(reading) if isinstance(one, NodeFinding)] == []
    table.add("OUTPUT", ("-A", "OUTPUT", "-p", "tcp", "-j", "NOTRACK"))
    [found] = [one for one in check_rules(reading) if isinstance(one, NodeFinding)]
    assert found.seen.startswith("the node does not recognize the connections of the packets after the rule -A OUTPUT")
    assert found.meaning == "1 container cannot be reached from this node, or not at their published ports"
    assert found.remedy.endswith(": iptables -t raw -D OUTPUT -p tcp -j NOTRACK")


@pytest.mark.parametrize(("hook", "priority"), [("prerouting", "raw"), ("output", "-300"), ("prerouting", "0")])
def test_packets_that_are_not_tracked_because_of_nftables(made: MadeNode, hook: str, priority: str) -> None:
    made.attach("c1", {**BRIDGE, "ipMasq": False})
    reading = made.reading()
    rules = f"type filter hook {hook} priority {priority}; policy accept;\nmeta l4proto tcp notrack"
    reading.rules["nft"]["inet raw"] = nft_table("inet raw", f"table inet raw {{\nchain c {{\n{rules}\n}}\n}}")
    found = [one for one in check_rules(reading) if isinstance(one, NodeFinding)]
    assert [one.seen.partition(" meta")[0] for one in found] == [
        "the node does not recognize the connections of the packets after the rule"
    ] * (priority != "0"), "it comes too late"
    assert all(one.meaning.endswith("or do so without masquerade and published ports") for one in found)
