"""The check of rules alone: masquerade, ports, firewall and forwarding, on a reading that is made by hand."""

from __future__ import annotations

import json

import pytest

from diagnosis.made import BRIDGE, FIREWALL, PORTMAP, PORTS, MadeNode
from libcni._iptables import masquerade_chain, ports_chain
from libcni.diagnosis import rules
from libcni.diagnosis.rules import check_rules

PLUGINS = (BRIDGE, PORTMAP, FIREWALL)
CHAIN, DNAT = masquerade_chain("net", "c1"), ports_chain("net", "c1")


@pytest.fixture
def published(made: MadeNode, monkeypatch: pytest.MonkeyPatch) -> MadeNode:
    """Return a node with a container that is masqueraded, has a port, and is allowed by the firewall."""
    monkeypatch.setattr(rules, "_FIREWALLD", "/nowhere")
    made.attach("c1", *PLUGINS, capability_args=json.dumps(PORTS))
    made.make_rules("c1", "10.1.0.2")
    return made


def test_rules_in_order(published: MadeNode) -> None:
    assert published.findings(check_rules) == []
    assert published.checked(check_rules) == ["rules of 1 ready attachment"]


@pytest.mark.parametrize(
    ("part", "missing"),
    [
        ("-A POSTROUTING", "masquerade"),
        ("MASQUERADE", "masquerade"),
        ("--dport 8080", "port 8080/tcp"),
        ("-A CNI-HOSTPORT-DNAT", "port 8080/tcp"),
        ("-A CNI-FORWARD -d", "firewall"),
        ("-A CNI-FORWARD -s", "firewall"),
    ],
)
def test_each_rule_that_is_missing_is_seen(published: MadeNode, part: str, missing: str) -> None:
    published.attach("c2", {"type": "bridge", "bridge": "br0"})
    published.rules = [rule for rule in published.rules if part not in rule]
    found = published.finding(check_rules)
    assert found.seen == f"missing: c1:eth0: {missing}"
    assert found.commands == ("libcni reload c1:eth0",)


def test_a_flush_is_one_finding_and_of_many_containers_one_command(made: MadeNode) -> None:
    for number in range(25):
        made.attach(f"c{number}")
    found = made.finding(check_rules)
    assert found.commands == ("libcni reload --all --network net",)
    assert found.seen.endswith("; and 20 more")
    made.make_rules("c3", "10.1.0.5")
    assert [command.count(":eth0") for command in made.finding(check_rules).commands] == [20, 4]


def test_after_a_flush_a_missing_plugin_is_installed_first(published: MadeNode) -> None:
    published.rules = []
    published.more["missing_plugins"] = frozenset({"portmap"})
    found = published.finding(check_rules)
    assert found.commands == ()
    assert found.remedy.startswith("install the missing portmap in ")


def test_rules_that_are_elsewhere_are_not_missed(made: MadeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    made.attach(
        "c1", {**BRIDGE, "ipMasqBackend": "nftables"}, {**PORTMAP, "backend": "nftables"}, FIREWALL,
        capability_args=json.dumps(PORTS),
    )  # fmt: skip
    monkeypatch.setattr(rules, "_FIREWALLD", str(made.root))
    assert made.findings(check_rules) == []
    text = "they are in nftables; the doctor reads those of iptables only"
    assert made.not_checked(check_rules) == [
        ("rules of plugin bridge, network net", text),
        ("rules of plugin portmap, network net", text),
        ("rules of plugin firewall, network net", text.replace("nftables", "firewalld")),
    ]


def test_a_host_without_iptables_is_not_a_host_without_rules(made: MadeNode) -> None:
    made.attach("c1")
    made.more |= {"rules": {}, "unread": {"the rules of iptables": "there is no such program in PATH"}}
    assert made.findings(check_rules) == []
    [(subject, reason)] = made.not_checked(check_rules)
    assert subject == "the rules of iptables"
    assert reason == "there is no such program in PATH; a plugin may have made them in nftables"


def test_forwarding_is_needed_where_a_bridge_is_the_gateway(made: MadeNode) -> None:
    made.attach("c1", {"type": "bridge", "bridge": "br0"})
    made.more["forwards"] = {4: False, 6: False}
    assert made.findings(check_rules) == []
    made.attach("c2", {"type": "ptp"})
    found = made.finding(check_rules)
    assert found.commands == ("echo 1 > /proc/sys/net/ipv4/ip_forward",)
    assert found.containers == ("c2:eth0",)


def test_rules_of_a_container_that_has_gone(published: MadeNode) -> None:
    published.records.clear()
    published.reservations.clear()
    published.spaces.clear()
    found = published.finding(check_rules)
    assert found.subject == "rules of container c1, net"
    assert [command.split()[2:4] for command in found.commands] == [
        ["nat", "-D"], ["nat", "-D"], ["nat", "-F"], ["nat", "-X"], ["nat", "-F"], ["nat", "-X"],
        ["CNI-FORWARD", "-d"], ["CNI-FORWARD", "-s"],
    ]  # fmt: skip
    assert {CHAIN, DNAT} <= {word for command in found.commands for word in command.split()}


def test_rules_stay_if_anybody_may_need_them(published: MadeNode) -> None:
    """Another runtime's container has the address, or there is a reservation, or nobody can know."""
    published.records.clear()
    reserved = {**published.reservations}
    assert published.findings(check_rules) == [], "reserved"
    published.reservations.clear()
    assert published.findings(check_rules) == [], "an interface has the address"
    published.live_in(str(published.netns("c1")), None)
    assert published.findings(check_rules) == [], "a namespace cannot be entered"
    published.spaces.clear()
    published.reservations.update(reserved)
    assert published.findings(check_rules) == [], "reserved, and dead"


def test_firewall_rules_of_an_address_that_another_container_has_by_now_stay(published: MadeNode) -> None:
    published.records.clear()
    published.reservations.clear()
    published.spaces.clear()
    published.attach("c2", {"type": "tuning"}, address="10.1.0.2")
    commands = published.finding(check_rules).commands
    assert not any("CNI-FORWARD" in command for command in commands)
    assert any(DNAT in command for command in commands)
