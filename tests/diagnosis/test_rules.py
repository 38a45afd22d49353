"""The check of rules alone: masquerade, ports, firewall and forwarding, on a reading that is made by hand."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from dataclasses import replace
from typing import Any

import pytest
from nodes import Namespace

from diagnosis.conftest import OperatorNode
from diagnosis.made import BRIDGE, FIREWALL, PORTMAP, PORTS, MadeNode
from libcni import RuntimeConf
from libcni.diagnosis import NodeFinding, rules
from libcni.diagnosis.acts import ACTS
from libcni.diagnosis.reading import FORWARDING, forwarding_of
from libcni.diagnosis.rules import check_rules
from libcni.diagnosis.rules_left import removals
from libcni.kernel.rules import Table, masquerade_chain, ports_chain, saved_rules
from libcni.store.model import READY
from libcni.testing import wait_until

PLUGINS = (BRIDGE, PORTMAP, FIREWALL)
CHAIN, DNAT = masquerade_chain("net", "c1"), ports_chain("net", "c1")


def remove(made: MadeNode, found: NodeFinding) -> None:
    """Carry out the mends of a finding, with the rules that the node has now."""
    state = made.reading()
    for mend in found.mends:
        change = ACTS[mend.kind].change
        assert change is not None
        change(replace(state, rules={program: saved_rules(program) for program in ("iptables", "nft")}), mend)


@pytest.fixture
def made(made: MadeNode) -> MadeNode:
    """Return a node with the file of the network."""
    config = {"cniVersion": "1.0.0", "name": "net", "plugins": [BRIDGE]}
    (made.root / "net.d" / "net.conflist").write_text(json.dumps(config), encoding="utf-8")
    return made


@pytest.fixture
def published(made: MadeNode, monkeypatch: pytest.MonkeyPatch) -> MadeNode:
    """Return a node with a container that is masqueraded, has a port, and is allowed by the firewall."""
    monkeypatch.setattr(rules, "FIREWALLD", "/nowhere")
    made.attach("c1", *PLUGINS, capability_args=json.dumps(PORTS))
    made.make_rules("c1", "10.1.0.2")
    return made


def test_a_bridge_whose_packets_are_not_forwarded(made: MadeNode) -> None:
    made.attach("c1", {**BRIDGE, "ipMasq": False})
    path = "/proc/sys/net/ipv4/conf/br0/forwarding"
    assert forwarding_of("br0.7") == "/proc/sys/net/ipv4/conf/br0/7/forwarding"
    made.host.links["br0"].settings = ("forwarding 0",)
    found = made.finding(check_rules)
    assert (found.name, found.subject, [one.target for one in found.mends]) == ("no-forwarding", path, [path])
    made.more["forwards"][FORWARDING[4]] = False
    assert made.finding(check_rules).subject == FORWARDING[4], "it changes that of each device"


@pytest.mark.parametrize("table", ["mangle", "raw"])
def test_a_rule_of_another_table_that_drops_all_packets(made: MadeNode, table: str) -> None:
    made.attach("c1", {**BRIDGE, "ipMasq": False})
    reading = made.reading()
    reading.rules["iptables"][table] = Table()
    for rule in ("-A PREROUTING -i br0 -j MARK --set-xmark 0x1", "-A PREROUTING -d 10.1.0.2/32 -j DROP"):
        reading.rules["iptables"][table].add("PREROUTING", tuple(rule.split()))
    [found] = [one for one in check_rules(reading) if isinstance(one, NodeFinding)]
    assert (found.name, found.subject) == ("dropped", f"chain PREROUTING of iptables, table {table}")
    reading.rules["iptables"][table].chains["PREROUTING"].insert(0, ("-A", "PREROUTING", "-j", "ACCEPT"))
    assert [one for one in check_rules(reading) if isinstance(one, NodeFinding)] == []


@pytest.mark.parametrize(
    ("rule", "is_all"),
    [
        ("-A INPUT -i br0 -j DROP", True),
        ("-A INPUT -s 10.1.0.2/32 -j REJECT", True),
        ("-A FORWARD -i br0 -j DROP", True),
        ("-A FORWARD -i br0 ! -o br0 -j REJECT --reject-with icmp-port-unreachable", True),
        ("-A FORWARD -o br0 -m comment --comment upgrade -j DROP", True),
        ("-A OUTPUT -d 10.1.0.2/32 -j DROP", True),
        ("-A FORWARD -i br0 ! -o eth0 -j DROP", False),
        ("-A FORWARD -i br0 -o br1 -j DROP", False),
        ("-A INPUT ! -i br0 -j DROP", False),
        ("-A INPUT -i br1 -j DROP", False),
        ("-A INPUT -i br0 -p udp -j DROP", False),
    ],
)
def test_a_rule_that_drops_all_packets_of_a_bridge(made: MadeNode, rule: str, is_all: bool) -> None:
    made.attach("c1", {**BRIDGE, "ipMasq": False})
    reading = made.reading()
    reading.rules["iptables"]["filter"].chains.clear()
    reading.rules["iptables"]["filter"].add(rule.split()[1], tuple(rule.split()))
    found = [one for one in check_rules(reading) if isinstance(one, NodeFinding)]
    some = [("dropped-in-part", "note")] if " -i br0" in rule and "! -i" not in rule else []
    assert [(one.name, one.severity) for one in found] == ([("dropped", "error")] if is_all else some)
    assert {(one.subject, one.containers) for one in found} <= {(f"chain {rule.split()[1]} of iptables", ("c1:eth0",))}


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
    assert found.seen == f"missing rules: {missing}"
    assert [(one.kind, one.details, one.interrupts) for one in found.mends] == [("add-rules", (missing,), ())]


def test_a_flush_is_one_finding(made: MadeNode) -> None:
    for number in range(25):
        made.attach(f"c{number}")
    found = made.finding(check_rules)
    assert found.seen.endswith("; and 22 more")
    assert (len(found.containers), {one.kind for one in found.mends}) == (25, {"add-rules"})


def test_rules_are_not_made_without_their_plugin(published: MadeNode) -> None:
    published.rules = [rule for rule in published.rules if "CNI-FORWARD" not in rule]
    assert [one.kind for one in published.finding(check_rules).mends] == ["add-rules"]
    (published.root / "bin" / "firewall").unlink()
    found = published.finding(check_rules)
    assert found.mends == ()
    assert 'plugin "firewall" not found' in found.remedy


def test_ports_are_made_in_place_although_another_interface_shares_their_chain(published: MadeNode) -> None:
    """A reload's DEL would remove those of the other interface, whose reload would remove these."""
    published.rules = [rule for rule in published.rules if "--dport" not in rule]
    published.attach("c2", {"type": "tuning"}, container_id="c1", ifname="eth1", state="pending")
    assert [one.kind for one in published.finding(check_rules).mends] == ["add-rules"]


NFT = ({**BRIDGE, "ipMasqBackend": "nftables"}, {**PORTMAP, "backend": "nftables"})


@pytest.fixture
def in_nftables(made: MadeNode) -> MadeNode:
    """Return a node with a container whose rules are in nftables."""
    made.attach("c1", *NFT, capability_args=json.dumps(PORTS))
    made.make_nft_rules("c1", "10.1.0.2")
    return made


def test_masquerade_in_nftables_needs_a_reload(in_nftables: MadeNode) -> None:
    in_nftables.nft_rules["masq"].clear()
    mends = in_nftables.finding(check_rules).mends
    assert [(one.kind, one.interrupts) for one in mends] == [("reload", ("c1:eth0",))]
    in_nftables.host.links["old"] = in_nftables.host.links.pop("br0")
    in_nftables.host.links["old"].name = "old"
    found = in_nftables.finding(check_rules)
    assert (found.mends, found.remedy.partition(":")[0]) == ((), "give the bridge its old name again first")


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
    [seen] = [one.seen for one in in_nftables.findings(check_rules) if one.name == "rules-missing"]
    assert seen == f"missing rules: {missing}"


@pytest.mark.parametrize("text", ["goto masq_checks", "jump hostports"])
def test_a_chain_of_nftables_that_nothing_leads_to(
    in_nftables: MadeNode, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = {
        name: "\n".join(one for one in table.splitlines() if text not in one)
        for name, table in in_nftables.nft().items()
    }
    monkeypatch.setattr(in_nftables, "nft", lambda: tables)
    [mend] = in_nftables.finding(check_rules).mends
    assert (mend.kind, mend.interrupts) == (("reload", ("c1:eth0",)) if "masq" in text else ("add-rules", ()))


def test_rules_that_are_elsewhere_are_not_missed(made: MadeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    made.attach("c1", *NFT, FIREWALL, capability_args=json.dumps(PORTS))
    monkeypatch.setattr(rules, "FIREWALLD", str(made.root))
    made.more |= {"rules": {}, "unread": {"the rules of nft": "the program is not in PATH"}}
    assert made.findings(check_rules) == []
    assert made.not_checked(check_rules) == [
        ("network net", "rules of nft: the program is not in PATH"),
        ("network net", "rules of firewalld: the doctor reads those of iptables and nftables only"),
    ]


def test_a_host_without_iptables_is_not_a_host_without_rules(made: MadeNode) -> None:
    made.attach("c1")
    made.more |= {"rules": {}, "unread": {"the rules of iptables": "the program is not in PATH"}}
    assert made.findings(check_rules) == []
    assert made.not_checked(check_rules) == [("network net", "rules of iptables: the program is not in PATH")]


@pytest.mark.real
def test_rules_of_nftables_of_a_container_that_has_gone(in_nftables: MadeNode, host: Namespace) -> None:
    """Their handles are looked up when they are removed: these change with each flush."""
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
    found = in_nftables.finding(check_rules)
    assert found.containers == ("c1:eth0", "c.1:eth0", "c1", "c.1")
    remove(in_nftables, found)
    left = host.run("nft", "list", "ruleset")
    assert not re.search(r'"c1"|id: c1"|c[.]1', left)
    assert (left.count("c11"), left.count("cx1")) == (3, 3)


def test_a_rule_of_nftables_whose_comment_is_cut_is_not_taken_for_another_containers(made: MadeNode) -> None:
    made.make_nft_rules("c12", "10.1.0.2")
    made.nft_rules = {"masq": [made.nft_rules["masq"][0].replace("id: c12", "id: c1")]}
    assert made.findings(check_rules) == []


def test_forwarding_is_needed_where_a_bridge_is_the_gateway(made: MadeNode) -> None:
    made.attach("c1", {"type": "bridge", "bridge": "br0"})
    made.more["forwards"] = {FORWARDING[4]: False, FORWARDING[6]: False}
    assert made.findings(check_rules) == []
    made.attach("c2", {"type": "ptp"})
    made.attach("c3", {"type": "bridge", "bridge": "br0", "isGateway": True})
    found = made.finding(check_rules)
    assert [(one.kind, one.target) for one in found.mends] == [("forward", FORWARDING[4])]
    assert found.containers == ("c2:eth0", "c3:eth0")


@pytest.mark.parametrize(
    ("rule", "containers"),
    [
        ("-j DROP", ("c1:eth0", "c2:eth0")),
        ("-j REJECT --reject-with x", ("c1:eth0", "c2:eth0")),
        ("-s 10.1.0.3/32 -j DROP", ("c2:eth0",)),
        ("-s 10.9.0.3/32 -j DROP", ()),
        ("-i eth0 -j DROP", ()),
    ],
)
def test_a_firewall_that_drops_the_packets_of_containers_is_named(
    made: MadeNode, rule: str, containers: tuple[str, ...]
) -> None:
    made.rules = [f"-A FORWARD {rule}"]
    assert made.findings(check_rules) == [], "nobody needs it"
    for name in ("c1", "c2"):
        made.attach(name, {"type": "bridge", "bridge": "br0"})
    reading = made.reading()
    chains = reading.table("iptables", "filter").chains
    chains["FORWARD"].reverse()
    found = [one for one in check_rules(reading) if isinstance(one, NodeFinding)]
    assert [(one.name, one.containers, one.mends) for one in found] == [("dropped", containers, ())] * bool(containers)
    chains["FORWARD"].reverse()
    for host in ("10.1.0.2/32", "10.1.0.3/32"):
        for option in ("-s", "-d"):
            reading.rules["iptables"]["filter"].add("CNI-FORWARD", ("-A", "CNI-FORWARD", option, host, "-j", "ACCEPT"))
    reading = replace(reading, rules=reading.rules)  # without what was found before
    assert {one.name for one in check_rules(reading) if isinstance(one, NodeFinding)} <= {"dropped-in-part"}, (
        "it is last"
    )


def test_rules_of_a_container_that_has_gone(published: MadeNode) -> None:
    published.records.clear()
    published.reservations.clear()
    published.spaces.clear()
    found = published.finding(check_rules)
    assert found.subject == "container c1"
    [mend] = found.mends
    assert [(table, rule[:3]) for _, table, rule in removals(published.reading(), mend)] == [
        ("nat", ("-A", "POSTROUTING", "-s")), ("nat", ("-X", CHAIN)), ("nat", ("-A", "CNI-HOSTPORT-DNAT", "-p")),
        ("nat", ("-X", DNAT)), ("filter", ("-A", "CNI-FORWARD", "-d")), ("filter", ("-A", "CNI-FORWARD", "-s")),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "foreign",
    [
        ("-A POSTROUTING -s 10.1.0.2/32 ! -o br0 -j MASQUERADE",),  # docker, of a single address
        ("-A POSTROUTING -s 10.1.0.0/24 ! -d 10.1.0.0/24 -m comment --comment 'flanneld masq' -j MASQUERADE",),
        (
            "-A POSTROUTING -m comment --comment 'flanneld masq' -j FLANNEL-POSTRTG",
            "-A FLANNEL-POSTRTG -s 10.1.0.0/24 -d 10.0.0.0/8 -m comment --comment 'flanneld masq' -j RETURN",
            "-A FLANNEL-POSTRTG -s 10.0.0.0/8 ! -d 224.0.0.0/4 -j MASQUERADE --random-fully",
        ),
    ],
)
def test_the_masquerade_of_other_programs_is_no_containers(published: MadeNode, foreign: tuple[str, ...]) -> None:
    published.rules += foreign
    assert published.findings(check_rules) == []
    published.records.clear()
    published.reservations.clear()
    published.spaces.clear()
    [mend] = published.finding(check_rules).mends
    kept = {tuple(shlex.split(rule)) for rule in foreign}
    assert not kept & {rule for _, _, rule in removals(published.reading(), mend)}


def test_masquerade_that_no_plugin_makes_is_not_checked(made: MadeNode) -> None:
    made.attach("c1", {**BRIDGE, "ipMasq": False})
    assert made.findings(check_rules) == []
    assert "masquerade of net" in [subject for subject, _ in made.not_checked(check_rules)]
    made.records.clear()
    made.attach("c2", {**BRIDGE, "ipMasq": False, "isDefaultGateway": False})
    assert made.not_checked(check_rules) == []


def test_rules_for_an_address_that_a_container_without_a_record_has_too_stay(published: MadeNode) -> None:
    """All records were lost, and the next container got the address of one that lives: these are its ports."""
    published.records.clear()
    published.reservations.clear()
    published.attach("c2", {"type": "tuning"}, address="10.1.0.2")
    assert published.findings(check_rules) == []


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


def test_rules_for_an_earlier_address_of_a_container_that_is_attached_again(published: MadeNode) -> None:
    rules = list(published.rules)
    published.make_rules("c1", "10.1.0.9")
    published.rules = [*rules, *(rule for rule in published.rules if "10.1.0.9" in rule)]
    found = published.finding(check_rules)
    assert found.meaning.endswith("the next DEL fails")
    [mend] = found.mends
    assert [rule[:5] for _, _, rule in removals(published.reading(), mend)] == [
        ("-A", "POSTROUTING", "-s", "10.1.0.9/32", "-m")
    ], "the next DEL removes its ports and those of firewall"
    published.reserve("10.1.0.9", "c1", "eth1")
    assert published.findings(check_rules) == [], "the reservation of an ADD that runs, or was killed"
    published.reservations.clear()
    second = published.attach("c2", address="10.1.0.9")
    published.make_rules("c2", "10.1.0.9")
    assert len(published.findings(check_rules)) == 1, "that it is another container's by now does not matter"
    published.records.pop()
    assert published.findings(check_rules) == [], "unless that has no record"
    second.links.clear()
    published.records[0] = published.records[0].with_fields(state="pending")
    assert "c1" not in {one.containers[0] for one in published.findings(check_rules)}, "it may have any address"
    published.records[0] = published.records[0].with_fields(state=READY, result=json.dumps({"cniVersion": "1.0.0"}))
    assert "c1" not in {one.containers[0] for one in published.findings(check_rules)}, "a result without addresses"


def test_rules_of_a_network_that_nobody_here_knows_are_another_runtimes(published: MadeNode) -> None:
    published.records.clear()
    published.reservations.clear()
    published.spaces.clear()
    assert len(published.findings(check_rules)) == 1
    (published.root / "net.d" / "net.conflist").unlink()
    assert published.findings(check_rules) == []


def test_firewall_rules_of_an_address_that_another_container_has_by_now_stay(published: MadeNode) -> None:
    published.records.clear()
    published.reservations.clear()
    published.spaces.clear()
    published.attach("c2", {"type": "tuning"}, address="10.1.0.2")
    [mend] = published.finding(check_rules).mends
    rules = [rule for _, _, rule in removals(published.reading(), mend)]
    assert not any("CNI-FORWARD" in rule for rule in rules)
    assert ("-X", DNAT) in rules


@pytest.mark.real
def test_rules_of_nftables_for_another_runtimes_container_of_the_same_id_stay(
    in_nftables: MadeNode, host: Namespace
) -> None:
    """portmap's mark is the ID alone."""
    in_nftables.records.clear()
    in_nftables.reservations.clear()
    in_nftables.spaces.clear()
    found = in_nftables.finding(check_rules)
    in_nftables.make_nft_rules("c1", "10.1.0.20")
    for one in in_nftables.nft().values():
        subprocess.run(["nft", "-f", "-"], input=one, text=True, check=True)
    remove(in_nftables, found)
    left = host.run("nft", "list", "ruleset")
    assert "10.1.0.2 " not in left
    assert "10.1.0.2:" not in left
    assert left.count("10.1.0.20") == 4


@pytest.mark.real
@pytest.mark.parametrize("is_alive", [False, True])
def test_the_next_container_of_the_id_keeps_its_chains(published: MadeNode, host: Namespace, is_alive: bool) -> None:
    """It may have started between the diagnosis and the mend."""
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
    published.rules = [rule for rule in published.rules if "CNI-FORWARD" not in rule]
    found = published.finding(check_rules)
    if is_alive:
        published.make_rules("c1", "10.1.0.20")
        load()
    remove(published, found)
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


def test_a_chain_of_masquerade_that_a_rule_ends_at_its_beginning_is_filled_anew(published: MadeNode) -> None:
    assert published.findings(check_rules) == []
    at = next(place for place, rule in enumerate(published.rules) if rule.startswith(f"-A {CHAIN} "))
    published.rules.insert(at, f"-A {CHAIN} -j RETURN")
    found = published.finding(check_rules)
    assert (found.seen, [one.kind for one in found.mends]) == ("missing rules: masquerade", ["add-rules"])


@pytest.mark.parametrize(
    "lost", ["-A OUTPUT -j CNI-HOSTPORT-DNAT", "-A CNI-HOSTPORT-SETMARK -j MARK", "-A POSTROUTING -j CNI-HOSTPORT-MASQ"]
)
def test_a_port_needs_the_rules_that_all_containers_share(published: MadeNode, lost: str) -> None:
    published.rules += [
        f"-A {DNAT} -s 10.1.0.0/24 -p tcp -m tcp --dport 8080 -j CNI-HOSTPORT-SETMARK",
        "-A CNI-HOSTPORT-SETMARK -j MARK --set-xmark 0x2000/0x2000",
        "-A POSTROUTING -j CNI-HOSTPORT-MASQ",
        "-A CNI-HOSTPORT-MASQ -m mark --mark 0x2000/0x2000 -j MASQUERADE",
    ]
    assert published.findings(check_rules) == []
    reading = published.reading()
    table = reading.rules["iptables"]["nat"] = Table()
    for chain, rules_of_chain in published.reading().rules["iptables"]["nat"].chains.items():
        for rule in rules_of_chain:
            if not " ".join(rule).startswith(lost):
                table.add(chain, rule)
    [found] = [one for one in check_rules(reading) if isinstance(one, NodeFinding)]
    assert found.seen == "missing rules: port 8080/tcp"


@pytest.mark.slow
@pytest.mark.real
def test_a_chain_of_masquerade_is_filled_anew_at_once(node: OperatorNode) -> None:
    node.configure("net", node.bridge(f"{node.net}.0/24", ipMasq=True, isDefaultGateway=True))
    netns = node.new_namespace().path
    for ifname in ("eth0", "eth1"):  # both have one chain
        node.cni.add_network_list("net", RuntimeConf("c1", netns, ifname))
    before = node.host.rules("nat")
    chain = masquerade_chain("net", "c1")
    for command in (f"-F {chain}", f"-A {chain} -j RETURN"):
        subprocess.run(["iptables", "-t", "nat", *command.split()], check=True)
    assert node.mend("missing rules: masquerade").name == "rules-missing"
    assert sorted(node.host.rules("nat")) == sorted(before)
    node.assert_healthy()


@pytest.mark.real
def test_the_rules_of_many_dead_containers_are_removed_at_once(
    node: OperatorNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one command for each rule, those of 5,000 containers take hours."""
    node.configure("net", {**node.bridge(f"{node.net}.0/24"), "ipMasq": True}, PORTMAP, {"type": "firewall"})
    text = ["*nat", ":CNI-HOSTPORT-DNAT - [0:0]", "-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT"]
    before = node.host.rules("nat")
    for last in (7, 8, 9):
        masquerade, ports = masquerade_chain("net", f"c{last}"), ports_chain("net", f"c{last}")
        about = f"-p tcp -m multiport --dports 80{last}"
        owner = f'-m comment --comment "name: \\"net\\" id: \\"c{last}\\""'
        text += [
            f":{masquerade} - [0:0]", f":{ports} - [0:0]",
            f"-A POSTROUTING -s {node.net}.{last}/32 {owner} -j {masquerade}",
            f"-A {masquerade} -d {node.net}.0/24 {owner} -j ACCEPT",
            f"-A {masquerade} -d {node.net}.0/24 {owner} -j ACCEPT",
            f"-A {masquerade} ! -d 224.0.0.0/4 {owner} -j MASQUERADE",
            f"-A CNI-HOSTPORT-DNAT {about} {owner.replace('name', 'dnat name')} -j {ports}",
            f"-A {ports} -p tcp -m tcp --dport 80{last} -j DNAT --to-destination {node.net}.{last}:80",
        ]  # fmt: skip
    subprocess.run(["iptables-restore"], input="\n".join([*text, "COMMIT", ""]), text=True, check=True)
    monkeypatch.setattr("libcni.kernel.rules.remove", None)

    def are_removed() -> bool:  # while another test hides a namespace, nobody is known to be dead
        node.repair()
        return not node.host.rules("nat", f"{node.net}.")

    wait_until(are_removed, 60)
    assert node.host.rules("nat")[: len(before)] == before
    assert not node.host.rules("nat", "CNI-DN-")


@pytest.mark.parametrize("backend", ["iptables", "nftables"])
@pytest.mark.parametrize(
    ("inside", "leads_to", "is_found"),
    [("80", "80", False), ("80", "81", True), ("81", "81", False), ("", "81", False), ("80.0", "80", False)],
)
def test_a_port_that_leads_to_another_port_of_its_container(
    made: MadeNode, backend: str, inside: str, leads_to: str, is_found: bool
) -> None:
    mapping = {"hostPort": 8080, "protocol": "tcp", **({"containerPort": float(inside)} if inside else {})}
    made.attach("c1", BRIDGE, PORTMAP, capability_args=json.dumps({"portMappings": [mapping]}))
    (made.make_rules if backend == "iptables" else made.make_nft_rules)("c1", "10.1.0.2")
    made.rules = [rule.replace("10.1.0.2:80", f"10.1.0.2:{leads_to}") for rule in made.rules]
    made.nft_rules = {
        chain: [rule.replace("10.1.0.2:80", f"10.1.0.2:{leads_to}") for rule in rules_of_chain]
        for chain, rules_of_chain in made.nft_rules.items()
    }
    assert [one.seen for one in made.findings(check_rules)] == ["missing rules: port 8080/tcp"] * is_found
