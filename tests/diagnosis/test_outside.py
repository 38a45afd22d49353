"""Rules that lose the packets of published ports, and those between containers and an address outside."""

from __future__ import annotations

import json

import pytest

from diagnosis.made import BRIDGE, PORTMAP, PORTS, MadeNode
from libcni.diagnosis.outside import check_outside
from libcni.diagnosis.report import NodeFinding
from libcni.kernel.netlink import IPRoute, Link
from libcni.kernel.rules import Table, address_set, ip_set, nft_table


@pytest.fixture
def published(made: MadeNode) -> MadeNode:
    made.attach("c1", BRIDGE, PORTMAP, capability_args=json.dumps(PORTS))
    made.attach("c2", BRIDGE)
    made.host.links["up0"] = Link("up0", 50, is_up=True, addresses=["192.0.2.1/24"])
    object.__setattr__(made.host, "routes", (*made.host.routes, IPRoute("0.0.0.0/0", "192.0.2.254", 50)))
    return made


def found_with(made: MadeNode, table: str, *rules: str) -> list[NodeFinding]:
    reading = made.reading()
    added = reading.rules["iptables"].setdefault(table, Table())
    for rule in reversed(rules):
        added.chains.setdefault(rule.split()[1], []).insert(0, tuple(rule.split()))
    return [one for one in check_outside(reading) if isinstance(one, NodeFinding)]


def found_with_nft(made: MadeNode, name: str, hook: str, *rules: str) -> list[NodeFinding]:
    reading = made.reading()
    lines = "\n".join(f"{rule} # handle {number}" for number, rule in enumerate(rules, 4))
    text = f"table {name} {{\nchain own {{\ntype filter hook {hook}; policy accept;\n{lines}\n}}\n}}"
    reading.rules["nft"][name] = nft_table(name, text)
    return [one for one in check_outside(reading) if isinstance(one, NodeFinding)]


@pytest.mark.parametrize(
    ("rule", "is_found"),
    [
        ("-p tcp -m tcp --dport 8080 -j DROP", True),
        ("-i up0 -p tcp -m multiport --dports 22,8000:8100 -j DROP", True),
        ("-d 192.0.2.1/32 -p tcp -m tcp --dport 8080 -j DROP", True),
        ("-i up9 -p tcp -m tcp --dport 8080 -j DROP", False),
        ("-d 192.0.2.9/32 -p tcp -m tcp --dport 8080 -j DROP", False),
        ("-p udp -m udp --dport 8080 -j DROP", False),
        ("-p tcp -m tcp --dport 8081 -j DROP", False),
        ("-p tcp -m tcp --sport 8080 -j DROP", False),
        ("-p tcp -m tcp --dport 8080 -m set --match-set bad src -j DROP", False),
        ("-s 10.9.0.0/16 -p tcp -m tcp --dport 8080 -j DROP", False),
    ],
)
@pytest.mark.parametrize("table", ["raw", "mangle"])
def test_a_rule_that_drops_a_published_port(published: MadeNode, table: str, rule: str, is_found: bool) -> None:
    found = found_with(published, table, f"-A PREROUTING {rule}")
    assert [(one.name, one.severity, one.containers) for one in found] == [
        ("port-caught", "error", ("c1:eth0",))
    ] * is_found
    assert all(one.remedy.endswith(f"remove it: iptables -t {table} -D PREROUTING {rule}") for one in found)


@pytest.mark.parametrize(
    ("name", "hook", "rule", "is_found"),
    [
        ("netdev guard", 'ingress device "up0" priority 0', "tcp dport 8080 drop", True),
        ("netdev guard", 'ingress device "up0" priority 0', "tcp dport { 22, 8000-8100 } counter drop", True),
        ("netdev guard", 'ingress device "up9" priority 0', "tcp dport 8080 drop", False),
        ("inet guard", "prerouting priority raw", "tcp dport 8080 drop", True),
        ("inet guard", "prerouting priority raw", "udp dport 8080 drop", False),
        ("inet guard", "prerouting priority raw", "fib daddr type local tcp dport 8080 drop", True),
        ("inet guard", "prerouting priority raw", "fib daddr type != local tcp dport 8080 drop", False),
        ("inet guard", "prerouting priority raw", "tcp sport 8080 drop", False),
        ("inet guard", "prerouting priority raw", "ip saddr 198.51.100.7 tcp dport 8080 drop", False),
        ("inet guard", "prerouting priority filter", "tcp dport 8080 drop", False),  # translated before
    ],
)
def test_a_rule_of_nft_that_drops_a_published_port(
    published: MadeNode, name: str, hook: str, rule: str, is_found: bool
) -> None:
    found = found_with_nft(published, name, hook, rule)
    assert [(one.name, one.containers) for one in found] == [("port-caught", ("c1:eth0",))] * is_found
    assert all(one.remedy.endswith(f"remove it: nft delete rule {name} own handle 4") for one in found)


@pytest.mark.parametrize(
    ("rule", "severity"),
    [
        ("-s 192.0.2.254/32 -j REJECT", "warning"),
        ("-d 192.0.2.254/32 -j REJECT", "warning"),
        ("-s 192.0.2.7/32 -j DROP", "warning"),
        ("-s 198.51.100.7/32 -j DROP", "note"),
        ("-d 169.254.169.254/32 -j DROP", "note"),
        ("-d 198.51.100.7/32 -p tcp -m tcp --dport 25 -j DROP", ""),
        ("-s 198.51.100.7/32 -m conntrack --ctstate INVALID -j DROP", ""),
        ("-d 127.0.0.0/8 -j DROP", ""),
        ("-s 198.51.100.7/32 -i up9 -j DROP", ""),
    ],
)
def test_an_address_outside_that_a_chain_refuses(published: MadeNode, rule: str, severity: str) -> None:
    """As fail2ban bans a client."""
    for rules in (["-A FORWARD -p tcp -j BANS", f"-A BANS {rule}"], [f"-A FORWARD {rule}"]):
        found = found_with(published, "filter", *rules)
        assert [(one.name, one.severity) for one in found] == [("dropped-in-part", severity)] * bool(severity)
        assert all(one.remedy == f"if nobody wants this: iptables -D {rules[-1].removeprefix('-A ')}" for one in found)
    assert found_with(published, "filter", f"-A BANS {rule}") == [], "no rule leads to the chain"
    assert found_with(published, "filter", "-A FORWARD -j ACCEPT", f"-A FORWARD {rule}") == []


@pytest.mark.parametrize(
    ("rule", "is_found"),
    [
        ("FORWARD -p tcp -m multiport --dports 8080,8443 -j REJECT --reject-with tcp-reset", True),
        ("FORWARD -p udp -m udp --dport 53 -j DROP", True),
        ("FORWARD -p tcp -m tcp --dport 25 -m conntrack --ctstate NEW -j DROP", True),
        ("FORWARD -p tcp -m tcp --dport 25 -j ACCEPT", False),
        ("FORWARD -p tcp -m tcp --sport 25 -j DROP", False),
        ("FORWARD -s 10.9.0.0/16 -p tcp -m tcp --dport 25 -j DROP", False),
        ("FORWARD -p tcp -m tcp --dport 25 -m set --match-set bad src -j DROP", False),
        ("KUBE-NWPLCY-1 -p tcp -m tcp --dport 25 -j DROP", False),
        ("FORWARD -p udp -j DROP", True),
        ("INPUT -p udp -m udp --dport 53 -j DROP", True),
        ("INPUT -d 10.1.0.1/32 -p udp -m udp --dport 53 -j DROP", True),
        ("INPUT -p udp -j DROP", True),
        ("INPUT -p tcp -m tcp --dport 10250 -j REJECT --reject-with tcp-reset", True),
        ("OUTPUT -p tcp -m tcp --dport 80 -j DROP", True),
        ("INPUT -i up0 -p udp -m udp --dport 53 -j DROP", False),
        ("INPUT -d 192.0.2.1/32 -p udp -m udp --dport 53 -j DROP", False),
        ("INPUT -i lo -p udp -m udp --dport 53 -j DROP", False),
        ("INPUT -s 198.51.100.0/24 -p udp -m udp --dport 53 -j DROP", False),
        ("INPUT -p icmp -j DROP", False),
        ("INPUT -p tcp -m conntrack --ctstate INVALID -j DROP", False),
        ("OUTPUT -o up0 -p tcp -m tcp --dport 80 -j DROP", False),
    ],
)
def test_a_rule_that_refuses_ports_of_all_containers(published: MadeNode, rule: str, is_found: bool) -> None:
    found = found_with(published, "filter", f"-A {rule}", "-A FORWARD -j KUBE-NWPLCY-1")
    assert [(one.name, one.severity, one.containers) for one in found] == [("dropped-in-part", "note", ())] * is_found
    assert all(one.remedy == f"if nobody wants this: iptables -D {rule}" for one in found)


@pytest.mark.parametrize(
    ("rule", "is_found"),
    [
        ("-i br+ -p tcp -m tcp --dport 80 -j REDIRECT --to-ports 3128", True),
        ("-p tcp -m multiport --dports 80,443 -j REDIRECT --to-ports 3128", True),
        ("-i docker0 -p tcp -m tcp --dport 80 -j REDIRECT --to-ports 3128", False),
        ("-d 192.0.2.1/32 -p tcp -m tcp --dport 80 -j REDIRECT --to-ports 3128", False),
        ("-p tcp -m addrtype --dst-type LOCAL -m tcp --dport 80 -j REDIRECT --to-ports 3128", False),
        ("-p tcp -m tcp --dport 80 -j ACCEPT", False),
    ],
)
def test_a_port_of_others_that_a_rule_leads_to_this_node(published: MadeNode, rule: str, is_found: bool) -> None:
    found = [one for one in found_with(published, "nat", f"-A PREROUTING {rule}") if one.name == "dropped-in-part"]
    assert [(one.severity, one.containers) for one in found] == [("note", ())] * is_found
    assert all(one.remedy.endswith(f": iptables -t nat -D PREROUTING {rule}") for one in found)


def test_docker_keeps_others_from_its_containers(published: MadeNode) -> None:
    published.host.links["docker0"] = Link("docker0", 51, is_up=True, addresses=["172.17.0.1/16"])
    assert found_with(published, "raw", "-A PREROUTING -d 172.17.0.2/32 ! -i docker0 -j DROP") == []


def test_many_bans_are_one_note(published: MadeNode) -> None:
    rules = [f"-A BANS -s 198.51.100.{last}/32 -j REJECT" for last in range(1, 40)]
    [found] = found_with(published, "filter", "-A FORWARD -p tcp -j BANS", *rules)
    assert "38 more rules of this chain name such addresses" in found.seen
    assert found.containers == (), "this explains no packet that is lost elsewhere"


def test_an_address_outside_that_nft_refuses(published: MadeNode) -> None:
    [found] = found_with_nft(published, "inet fw", "forward priority filter", "ip daddr 192.0.2.254 drop")
    assert (found.severity, found.remedy) == ("warning", "if nobody wants this: nft delete rule inet fw own handle 4")
    assert "(the gateway of this node)" in found.meaning


BANNED = "create bad hash:net\nadd bad 192.0.2.254\nadd bad 198.51.100.7\nadd bad 203.0.113.0/24\n"


@pytest.mark.parametrize(
    ("rule", "is_found"),
    [
        ("-m set --match-set bad src -j DROP", True),
        ("-m set --match-set bad dst -j REJECT", True),
        ("-m set --match-set bad src -p tcp -m tcp --dport 25 -j DROP", False),
        ("-m set ! --match-set bad src -j DROP", False),
        ("-m set --match-set bad src,dst -j DROP", False),
        ("-m set --match-set good src -j DROP", False),
        ("-i up9 -m set --match-set bad src -j DROP", False),
    ],
)
def test_a_set_of_ipset_with_an_address_that_the_node_needs(published: MadeNode, rule: str, is_found: bool) -> None:
    reading = published.reading()
    filters = reading.rules["iptables"]["filter"]
    filters.sets |= {"bad": ip_set(BANNED), "good": ip_set("create good hash:ip\n")}
    filters.chains["FORWARD"].insert(0, ("-A", "FORWARD", *rule.split()))
    found = [one for one in check_outside(reading) if isinstance(one, NodeFinding)]
    assert [(one.name, one.severity, one.remedy) for one in found] == [
        ("dropped-in-part", "warning", "if nobody wants this: ipset del bad 192.0.2.254")
    ] * is_found
    assert all("192.0.2.254 (the gateway of this node) do not reach each other" in one.meaning for one in found)


@pytest.mark.parametrize(
    ("rule", "elements", "remedy"),
    [
        ("ip daddr @bad drop", "192.0.2.254, 198.51.100.7", "nft delete element inet fw bad '{ 192.0.2.254 }'"),
        ("ip saddr @bad drop", "192.0.2.0/24", "nft delete rule inet fw own handle 4"),
        ("ip saddr @bad tcp dport 80 drop", "192.0.2.254", ""),
        ("ip saddr @bad drop", "198.51.100.7", ""),
    ],
)
def test_a_set_of_nft_with_an_address_that_the_node_needs(
    published: MadeNode, rule: str, elements: str, remedy: str
) -> None:
    reading = published.reading()
    text = "type filter hook forward priority filter; policy accept;"
    table = nft_table("inet fw", f"table inet fw {{\nchain own {{\n{text}\n{rule} # handle 4\n}}\n}}")
    table.sets["bad"] = address_set(f"elements = {{ {elements} }}")
    reading.rules["nft"]["inet fw"] = table
    found = [one for one in check_outside(reading) if isinstance(one, NodeFinding)]
    assert [one.remedy for one in found] == [f"if nobody wants this: {remedy}"] * bool(remedy)


@pytest.mark.parametrize(
    ("rule", "is_found"),
    [
        ("-i up0 -p tcp -m tcp --dport 8080 -j REDIRECT --to-ports 5432", True),
        ("-i up0 -p tcp -m multiport --dports 8080,9090 -j DNAT --to-destination 172.17.0.9:5432", True),
        ("-i up0 -p tcp -j REDIRECT --to-ports 5432", True),
        ("-i up0 -p tcp -m tcp --dport 8080 -j RETURN", True),
        ("-i up0 -j RETURN", True),
        ("-i up+ -p tcp -j ACCEPT", True),
        ("-d 192.0.2.1/32 -p tcp -j RETURN", True),
        ("-i up9 -j RETURN", False),
        ("-i up0 -p udp -j RETURN", False),
        ("-d 192.0.2.9/32 -p tcp -j RETURN", False),
        ("-s 198.51.100.0/24 -p tcp -j RETURN", False),
        ("-m mark --mark 0x1 -j RETURN", False),
        ("-p tcp -m tcp --dport 8080 -j REDIRECT --to-ports 5432", False),  # the check of ports finds it
        ("-i up9 -p tcp -m tcp --dport 8080 -j REDIRECT --to-ports 5432", False),
        ("-i up0 -p tcp -m tcp --dport 9090 -j REDIRECT --to-ports 5432", False),
        ("-i up0 -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.1.0.2:80", False),
        ("-m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT", False),
    ],
)
def test_a_rule_that_leads_a_port_elsewhere_for_one_interface(published: MadeNode, rule: str, is_found: bool) -> None:
    published.make_rules("c1", "10.1.0.2")
    found = found_with(published, "nat", f"-A PREROUTING {rule}")
    assert [(one.name, one.containers) for one in found] == [("port-caught", ("c1:eth0",))] * is_found
    assert all(one.remedy.endswith(f"remove it: iptables -t nat -D PREROUTING {rule}") for one in found)


@pytest.mark.parametrize(
    ("chain", "rule", "severity"),
    [
        ("PREROUTING", "-i br0 -p tcp -m tcp --dport 8080 -j RETURN", "note"),
        ("OUTPUT", "-d 192.0.2.1/32 -p tcp -j RETURN", "warning"),
        ("OUTPUT", "-o lo -p tcp -m tcp --dport 8080 -j REDIRECT --to-ports 9", "warning"),
        ("OUTPUT", "-o up0 -j RETURN", ""),
        ("OUTPUT", "-d 127.0.0.0/8 -j ACCEPT", ""),
    ],
)
def test_a_rule_that_takes_a_port_from_containers_or_the_node_alone(
    published: MadeNode, chain: str, rule: str, severity: str
) -> None:
    published.make_rules("c1", "10.1.0.2")
    found = found_with(published, "nat", f"-A {chain} {rule}")
    assert [(one.name, one.severity, one.subject) for one in found] == [
        ("port-caught", severity, f"chain {chain} of iptables, table nat")
    ] * bool(severity)
    assert all(one.remedy.endswith(f": iptables -t nat -D {chain} {rule}") for one in found)


def test_a_chain_that_keeps_packets_of_an_interface_from_the_ports(published: MadeNode) -> None:
    published.make_rules("c1", "10.1.0.2")
    [found] = found_with(published, "nat", "-A PREROUTING -i up0 -j KEEP", "-A KEEP -p tcp -j ACCEPT")
    assert (found.name, found.severity) == ("port-caught", "error")
    assert found.remedy.endswith("iptables -t nat -D KEEP -p tcp -j ACCEPT")
    assert found_with(published, "nat", "-A PREROUTING -i up0 -j KEEP", "-A KEEP -p tcp -j RETURN") == []


@pytest.mark.parametrize(
    ("rule", "priority", "word"),
    [
        ('iifname "up0" tcp dport 8080 redirect to :3128', -110, "end at"),
        ('iifname "up0" tcp dport 8080 dnat to 10.9.0.1:80', -100, "may end at"),
        ('iifname "up0" redirect to :3128', -110, "end at"),
        ('iifname "up0" tcp dport 8080 redirect to :3128', -90, ""),
        ('iifname "up9" tcp dport 8080 redirect to :3128', -110, ""),
        ('iifname "up0" tcp dport 8080 dnat to 10.1.0.2:80', -110, ""),
        # The kernel goes on to the next chain with type nat.
        ('iifname "up0" tcp dport 8080 accept', -110, ""),
    ],
)
def test_a_rule_of_nft_that_leads_a_port_elsewhere_for_one_interface(
    published: MadeNode, rule: str, priority: int, word: str
) -> None:
    published.make_rules("c1", "10.1.0.2")
    reading = published.reading()
    hook = f"type nat hook prerouting priority {priority}; policy accept;"
    reading.rules["nft"]["ip own"] = nft_table("ip own", f"table ip own {{\nchain p {{\n{hook}\n{rule}\n}}\n}}")
    found = [one for one in check_outside(reading) if isinstance(one, NodeFinding)]
    severity = "warning" if "may" in word else "error"
    assert [(one.name, one.severity, one.containers) for one in found] == [
        ("port-caught", severity, ("c1:eth0",))
    ] * bool(word)
    assert all(f"packets for port 8080/tcp {word} the rule" in one.seen for one in found)


@pytest.mark.parametrize("end", ["", "-j DROP"])
@pytest.mark.parametrize(
    ("rule", "is_found"),
    [
        ("-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", True),
        ("-o br0 -m conntrack --ctstate DNAT -j ACCEPT", False),
        ("-m conntrack --ctstatus DNAT -j ACCEPT", False),
        ("-o br0 -p tcp -m tcp --dport 80 -j ACCEPT", False),
        ("-i br0 -j ACCEPT", True),
        ("-p tcp -m multiport --dports 443,10250 -j ACCEPT", True),  # the container's port is 80
        ("-p tcp -m tcp --dport 8080 -j ACCEPT", True),
        ("-p udp -m udp --dport 80 -j ACCEPT", True),
        ("-p tcp -m tcp ! --dport 25 -j ACCEPT", False),
        ("-p tcp -m tcp --dport 1:1024 -j ACCEPT", False),
    ],
)
def test_a_policy_that_drops_published_ports_alone(published: MadeNode, rule: str, end: str, is_found: bool) -> None:
    """As ufw's: the plugin firewall accepts a container's own connections and the answers."""
    published.make_rules("c1", "10.1.0.2")
    reading = published.reading()
    filters = reading.rules["iptables"]["filter"]
    filters.policies["FORWARD"] = "ACCEPT" if end else "DROP"
    filters.chains["FORWARD"].insert(0, ("-A", "FORWARD", *rule.split()))
    filters.chains["FORWARD"] += [("-A", "FORWARD", *end.split())] * bool(end)
    found = [one for one in check_outside(reading) if isinstance(one, NodeFinding)]
    assert [(one.name, one.severity, one.containers) for one in found] == [
        ("port-caught", "error", ("c1:eth0",))
    ] * is_found
    for one in found:
        assert one.remedy == "accept these packets: iptables -I FORWARD -o br0 -m conntrack --ctstate DNAT -j ACCEPT"


@pytest.mark.parametrize(
    ("rule", "is_found"),
    [
        ("-p tcp -m tcp --dport 80 -j REJECT --reject-with tcp-reset", True),
        ("-i up0 -p tcp -m tcp --dport 80 -j DROP", True),
        ("-d 10.1.0.2/32 -p tcp -m multiport --dports 22,80 -j DROP", True),
        ("-p tcp -m tcp --dport 8080 -j DROP", False),  # the port of the host, which is translated before
        ("-d 10.1.0.3/32 -p tcp -m tcp --dport 80 -j DROP", False),
        ("-s 198.51.100.0/24 -p tcp -m tcp --dport 80 -j DROP", False),
        ("-i br0 -p tcp -m tcp --dport 80 -j DROP", False),
        ("-p udp -m udp --dport 80 -j DROP", False),
    ],
)
@pytest.mark.parametrize("table", ["filter", "mangle"])
def test_a_rule_that_drops_packets_to_the_containers_port(
    published: MadeNode, table: str, rule: str, is_found: bool
) -> None:
    found = [one for one in found_with(published, table, f"-A FORWARD {rule}") if one.name == "port-caught"]
    assert [(one.severity, one.containers) for one in found] == [("error", ("c1:eth0",))] * is_found
    assert all(one.remedy.endswith(f" -D FORWARD {rule}") for one in found)


def test_a_rule_of_nft_that_drops_packets_to_the_containers_port(published: MadeNode) -> None:
    [found] = found_with_nft(published, "inet fw", "forward priority 0", "tcp dport { 22, 80 } drop")
    assert (found.name, found.severity, found.containers) == ("port-caught", "error", ("c1:eth0",))
    assert found.remedy.endswith(": nft delete rule inet fw own handle 4")


@pytest.mark.parametrize(
    ("rules", "is_found"),
    [
        (["-p ipv6-icmp -j DROP"], True),
        (["-p ipv6-icmp -m icmp6 --icmpv6-type 135 -j ACCEPT", "-p ipv6-icmp -j DROP"], False),
        (["-p ipv6-icmp -m icmp6 --icmpv6-type 128 -j DROP"], False),
        (["-m conntrack --ctstate INVALID -j DROP"], False),
        (["-p tcp -j DROP"], False),
        (["-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", "-p ipv6-icmp -j DROP"], True),
        (["-m conntrack --ctstate UNTRACKED -j ACCEPT", "-p ipv6-icmp -j DROP"], False),
        (["-i br9 -p ipv6-icmp -j DROP"], False),
    ],
)
@pytest.mark.parametrize("chain", ["INPUT", "OUTPUT"])
def test_a_rule_that_drops_neighbour_discovery(made: MadeNode, chain: str, rules: list[str], is_found: bool) -> None:
    made.attach("c1", address="fd00::2", gateway="fd00::1")
    reading = made.reading()
    table = Table()
    for rule in rules:
        table.add(chain, ("-A", chain, *rule.split()))
    reading.rules["ip6tables"] = {"filter": table}
    found = [one for one in check_outside(reading) if isinstance(one, NodeFinding)]
    assert [(one.name, one.containers) for one in found] == [("dropped", ("c1:eth0",))] * is_found
    assert all(one.remedy.endswith(f"ip6tables -D {chain} {rules[-1]}") for one in found)


HARDENED = "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", "-p tcp -m tcp --dport 22 -j ACCEPT"


@pytest.mark.parametrize(
    ("rules", "is_found"),
    [
        ([*HARDENED, "-p ipv6-icmp -m icmp6 --icmpv6-type 128 -j ACCEPT"], True),
        ([*HARDENED, "-p ipv6-icmp -j ACCEPT"], False),
        ([*HARDENED, "-p ipv6-icmp -m icmp6 --icmpv6-type 135 -j ACCEPT"], False),
        ([*HARDENED, "-i br0 -j ACCEPT"], False),
    ],
)
def test_a_policy_that_drops_neighbour_discovery(made: MadeNode, rules: list[str], is_found: bool) -> None:
    made.attach("c1", address="fd00::2", gateway="fd00::1")
    reading = made.reading()
    table = Table()
    table.policies["INPUT"] = "DROP"
    for rule in rules:
        table.add("INPUT", ("-A", "INPUT", *rule.split()))
    reading.rules["ip6tables"] = {"filter": table}
    found = [one for one in check_outside(reading) if isinstance(one, NodeFinding)]
    assert [(one.name, one.severity, one.containers) for one in found] == [
        ("policy-drops", "error", ("c1:eth0",))
    ] * is_found
    assert all(one.remedy == "accept these packets: ip6tables -I INPUT -p ipv6-icmp -j ACCEPT" for one in found)


@pytest.mark.parametrize(
    ("rule", "is_found"),
    [
        ("icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept", False),
        ("icmpv6 type { echo-request } accept", True),
        ("meta l4proto ipv6-icmp accept", False),
        ("ip6 nexthdr ipv6-icmp accept", False),
    ],
)
def test_a_policy_of_nft_that_drops_neighbour_discovery(made: MadeNode, rule: str, is_found: bool) -> None:
    made.attach("c1", address="fd00::2", gateway="fd00::1")
    reading = made.reading()
    hook = "type filter hook input priority 0; policy drop;\nct state established,related accept"
    reading.rules["nft"]["inet fw"] = nft_table("inet fw", f"table inet fw {{\nchain i {{\n{hook}\n{rule}\n}}\n}}")
    found = [one for one in check_outside(reading) if isinstance(one, NodeFinding)]
    assert [(one.name, one.severity) for one in found] == [("policy-drops", "error")] * is_found
    assert all(one.remedy.endswith(": nft insert rule inet fw i meta l4proto ipv6-icmp accept") for one in found)


def test_rules_of_the_node_that_refuse_ports_are_one_note(published: MadeNode) -> None:
    rules = [f"-A INPUT -p tcp -m tcp --dport {port} -j DROP" for port in (25, 111, 10250)]
    [found] = found_with(published, "filter", *rules)
    assert found.remedy.count("iptables -D INPUT") == 3


@pytest.mark.parametrize(
    ("rules", "is_found"),
    [
        (["-A FORWARD -p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -j FLOOD",
          "-A FLOOD -m limit --limit 1/sec --limit-burst 3 -j RETURN", "-A FLOOD -j DROP"], True),
        (["-A FORWARD -m limit --limit 1/sec -j ACCEPT", "-A FORWARD -j DROP"], True),
        (["-A FORWARD -p tcp -m connlimit --connlimit-above 20 --connlimit-mask 32 --connlimit-saddr -j DROP"], True),
        (["-A FORWARD -m limit --limit 1/sec -j LOG"], False),
        (["-A FORWARD -m limit --limit 1/sec -j DROP"], False),
        (["-A FORWARD -m set --match-set bad src -m limit --limit 1/sec -j ACCEPT"], False),
    ],
)  # fmt: skip
def test_a_limit_of_connections_is_a_note(published: MadeNode, rules: list[str], is_found: bool) -> None:
    """As guides against floods of SYN have it."""
    found = found_with(published, "filter", *rules)
    assert [(one.name, one.severity) for one in found] == [("dropped-in-part", "note")] * is_found
    assert all(one.remedy == f"if nobody wants this: iptables -D {rules[-1].removeprefix('-A ')}" for one in found)


@pytest.mark.parametrize(
    ("rules", "numbers"),
    [
        (["limit rate 5/second burst 5 packets accept", "drop"], [5]),
        (["limit rate over 10/second burst 5 packets counter packets 0 bytes 0 drop"], [4]),
        (["tcp flags syn limit rate 5/second accept", "tcp flags syn / fin,syn,rst,ack drop"], [5]),
        (["limit rate 5/second burst 5 packets log"], []),
        (["tcp flags != syn / fin,syn,rst,ack limit rate over 5/second drop"], []),
    ],
)
def test_a_limit_of_nft(published: MadeNode, rules: list[str], numbers: list[int]) -> None:
    found = found_with_nft(published, "inet fw", "forward priority filter", *rules)
    assert [one.remedy for one in found] == [
        f"if nobody wants this: nft delete rule inet fw own handle {one}" for one in numbers
    ]
