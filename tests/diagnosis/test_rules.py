"""The check of rules alone: masquerade, ports, firewall and forwarding, on a reading that is made by hand."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest
from nodes import Namespace

from diagnosis.made import BRIDGE, FIREWALL, PORTMAP, PORTS, MadeNode
from libcni._rules import masquerade_chain, ports_chain, saved_rules
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


NFT = ({**BRIDGE, "ipMasqBackend": "nftables"}, {**PORTMAP, "backend": "nftables"})


@pytest.fixture
def in_nftables(made: MadeNode) -> MadeNode:
    """Return a node with a container whose rules are in nftables."""
    made.attach("c1", *NFT, capability_args=json.dumps(PORTS))
    made.make_nft_rules("c1", "10.1.0.2")
    return made


@pytest.mark.parametrize("plugins", [NFT, (BRIDGE, PORTMAP)], ids=["configured", "chosen by the plugin"])
def test_rules_in_nftables(made: MadeNode, plugins: tuple[dict[str, Any], ...]) -> None:
    made.attach("c1", *plugins, capability_args=json.dumps(PORTS))
    made.make_nft_rules("c1", "10.1.0.2")
    assert made.findings(check_rules) == []
    assert made.not_checked(check_rules) == []
    made.make_rules("c1", "10.1.0.2")
    made.nft_rules.clear()
    assert bool(made.findings(check_rules)) == (plugins == NFT), (
        "iptables is the plugins' first choice, if they have one"
    )


@pytest.mark.parametrize(("chain", "missing"), [("masq", "masquerade"), ("ports", "port 8080/tcp")])
def test_each_rule_of_nftables_that_is_missing_is_seen(in_nftables: MadeNode, chain: str, missing: str) -> None:
    in_nftables.attach("c2", *NFT, capability_args=json.dumps(PORTS))
    in_nftables.make_nft_rules("c2", "10.1.0.3")
    in_nftables.nft_rules["ports"].append('ct state new counter packets 0 bytes 0 comment "of an operator"')
    del in_nftables.nft_rules[chain][0]
    assert in_nftables.finding(check_rules).seen == f"missing: c1:eth0: {missing}"


@pytest.mark.parametrize("text", ["goto masq_checks", "jump hostports"])
def test_a_chain_of_nftables_that_nothing_leads_to(
    in_nftables: MadeNode, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = {
        name: "\n".join(one for one in table.splitlines() if text not in one)
        for name, table in in_nftables.nft().items()
    }
    monkeypatch.setattr(in_nftables, "nft", lambda: tables)
    assert in_nftables.finding(check_rules).commands == ("libcni reload c1:eth0",)


def test_rules_that_are_elsewhere_are_not_missed(made: MadeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    made.attach("c1", *NFT, FIREWALL, capability_args=json.dumps(PORTS))
    monkeypatch.setattr(rules, "_FIREWALLD", str(made.root))
    made.more |= {"rules": {}, "unread": {"the rules of nft": "there is no such program in PATH"}}
    assert made.findings(check_rules) == []
    assert made.not_checked(check_rules) == [
        ("network net", "rules of nft: there is no such program in PATH"),
        ("network net", "rules of firewalld: the doctor reads those of iptables and nftables only"),
    ]


def test_a_host_without_iptables_is_not_a_host_without_rules(made: MadeNode) -> None:
    made.attach("c1")
    made.more |= {"rules": {}, "unread": {"the rules of iptables": "there is no such program in PATH"}}
    assert made.findings(check_rules) == []
    assert made.not_checked(check_rules) == [("network net", "rules of iptables: there is no such program in PATH")]


@pytest.mark.real
def test_rules_of_nftables_of_a_container_that_has_gone(in_nftables: MadeNode, host: Namespace) -> None:
    """The commands remove its rules, and look for them when they are typed: handles change with each flush."""
    for container, address in (("c11", "10.1.0.3"), ("c.1", "10.1.0.4"), ("cx1", "10.1.0.5")):
        in_nftables.make_nft_rules(container, address)
    tables = "".join(in_nftables.nft().values())
    subprocess.run(["nft", "-f", "-"], input=tables, text=True, check=True)
    assert in_nftables.reading().rules["nft"].keys() == saved_rules("nft").keys()
    in_nftables.attach("c11", *NFT)
    in_nftables.attach("c.1", *NFT)
    in_nftables.attach("cx1", *NFT)
    del in_nftables.records[2], in_nftables.records[0]
    assert in_nftables.findings(check_rules) == [], "reserved"
    in_nftables.reservations.clear()
    assert in_nftables.findings(check_rules) == [], "an interface has the address"
    in_nftables.spaces.clear()
    found = in_nftables.findings(check_rules)
    assert [one.subject for one in found] == ["rules of container c1", "rules of container c.1"]
    for command in (command for one in found for command in one.commands):
        subprocess.run(["bash", "-c", command], check=True)
    left = host.run("nft", "list", "ruleset")
    assert not re.search(r'"c1"|id: c1"|c[.]1', left)
    assert (left.count("c11"), left.count("cx1")) == (3, 3)


def test_a_rule_of_nftables_whose_comment_is_cut_is_not_taken_for_another_containers(made: MadeNode) -> None:
    made.make_nft_rules("c12", "10.1.0.2")
    made.nft_rules = {"masq": [made.nft_rules["masq"][0].replace("id: c12", "id: c1")]}
    assert made.findings(check_rules) == []


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
    assert found.subject == "rules of container c1"
    assert [command.split()[2:4] for command in found.commands] == [
        ["nat", "-D"], ["nat", "-S"], ["nat", "-D"], ["nat", "-S"], ["CNI-FORWARD", "-d"], ["CNI-FORWARD", "-s"],
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


@pytest.mark.real
def test_rules_of_nftables_for_another_runtimes_container_of_the_same_id_stay(
    in_nftables: MadeNode, host: Namespace
) -> None:
    """portmap's mark is the ID alone. The command finds the address, too, whatever is there when it is typed."""
    in_nftables.records.clear()
    in_nftables.reservations.clear()
    in_nftables.spaces.clear()
    (found,) = in_nftables.findings(check_rules)
    in_nftables.make_nft_rules("c1", "10.1.0.20")
    for one in in_nftables.nft().values():
        subprocess.run(["nft", "-f", "-"], input=one, text=True, check=True)
    for command in found.commands:
        subprocess.run(["bash", "-c", command], check=True)
    left = host.run("nft", "list", "ruleset")
    assert "10.1.0.2 " not in left
    assert "10.1.0.2:" not in left
    assert left.count("10.1.0.20") == 4


@pytest.mark.real
@pytest.mark.parametrize("is_alive", [False, True])
def test_the_next_container_of_the_id_keeps_its_chains(published: MadeNode, host: Namespace, is_alive: bool) -> None:
    """It may have started between the doctor's look and the operator's command."""
    published.records.clear()
    published.reservations.clear()
    published.spaces.clear()
    chains = f":{CHAIN} -\n:{DNAT} -\n:CNI-HOSTPORT-DNAT -\n-A PREROUTING -j CNI-HOSTPORT-DNAT"

    def load() -> str:
        rules = "\n".join(dict.fromkeys(rule for rule in published.rules if "CNI-FORWARD" not in rule))
        text = rules.replace("'", '"').replace('name: "net" id: "c1"', 'name: \\"net\\" id: \\"c1\\"')
        subprocess.run(["iptables-restore"], input=f"*nat\n{chains}\n{text}\nCOMMIT\n", text=True, check=True)
        return host.run("iptables-save", "-t", "nat")

    load()
    commands = [command for command in published.finding(check_rules).commands if "CNI-FORWARD" not in command]
    if is_alive:
        published.make_rules("c1", "10.1.0.20")
        load()
    for command in commands:
        subprocess.run(["bash", "-c", command], check=True)
    left = host.run("iptables-save", "-t", "nat")
    assert not re.search(r"10[.]1[.]0[.]2\b", left)
    assert (CHAIN in left, DNAT in left) == (is_alive, is_alive)
    for part in (
        "-s 10.1.0.20/32 .*-j CNI-",
        "-j MASQUERADE",
        "--dports 8080 .*-j CNI-DN-",
        "--to-destination 10.1.0.20:80",
    ):
        assert bool(re.search(part, left)) == is_alive, part
