"""Rules that cut containers of one network off from each other, though no configuration asks for it."""

from __future__ import annotations

from typing import Any

import pytest

from diagnosis.made import BRIDGE, IPAM, MadeNode
from libcni.diagnosis.reading import BRIDGED
from libcni.diagnosis.report import NodeFinding
from libcni.diagnosis.rules import check_rules
from libcni.kernel.rules import nft_table

PLAIN = {**BRIDGE, "ipMasq": False}
PTP = {"type": "ptp", "ipam": IPAM}
ISOLATED = {"type": "firewall", "ingressPolicy": "isolated"}
OPEN = {"type": "firewall"}


def severities(made: MadeNode, *rules: str) -> list[str]:
    reading = made.reading()
    reading.rules["iptables"]["filter"].chains["CNI-ADMIN"] = []
    for rule in rules:
        reading.rules["iptables"]["filter"].add(rule.split()[0], ("-A", *rule.split()))
    found = [one for one in check_rules(reading) if isinstance(one, NodeFinding) and one.name == "dropped-in-part"]
    for one in found:
        if one.severity == "warning":
            assert "containers of the network net do not reach each other, such as c1:eth0 and c2:eth0" in one.meaning
            assert one.remedy == f"if nobody wants this: iptables -D {rules[-1]}"
    return [one.severity for one in found]


@pytest.mark.parametrize(
    ("plugins", "is_bridged", "rules", "severity"),
    [
        ([PLAIN], True, ["CNI-ADMIN -i br0 -o br0 -j DROP"], "warning"),
        ([PLAIN], False, ["CNI-ADMIN -i br0 -o br0 -j DROP"], "note"),  # the rule never sees these packets
        ([PLAIN], True, ["FORWARD -s 10.1.0.2/32 -d 10.1.0.3/32 -j REJECT"], "warning"),
        ([PLAIN], True, ["FORWARD -s 10.1.0.0/24 -d 10.1.0.0/24 -j DROP"], "warning"),
        ([PTP], False, ["FORWARD -s 10.1.0.0/24 -d 10.1.0.0/24 -j DROP"], "warning"),
        ([PTP], False, ["FORWARD -i vethc1 -o veth+ -j DROP"], "warning"),
        ([PLAIN], True, ["FORWARD -i br0 -o docker0 -j DROP"], "note"),
        ([PLAIN], True, ["FORWARD -i br0 -o br0 -p tcp -m tcp --dport 25 -j DROP"], "note"),
        ([PLAIN], True, ["FORWARD -i br0 -o br0 -j ACCEPT", "FORWARD -s 10.1.0.0/24 -d 10.1.0.0/24 -j DROP"], "note"),
        ([PLAIN], True, ["FORWARD -j KUBE-NWPLCY-1", "KUBE-NWPLCY-1 -d 10.1.0.3/32 -s 10.1.0.0/24 -j DROP"], "note"),
        ([PLAIN], True, ["FORWARD -j cali-tw-1", "cali-tw-1 -i br0 -o br0 -j DROP"], "note"),
        ([PLAIN, ISOLATED], True, ["CNI-ADMIN -i br0 -o br0 -j DROP"], "note"),
        ([{**PLAIN, "portIsolation": True}], True, ["CNI-ADMIN -i br0 -o br0 -j DROP"], "note"),
    ],
)
def test_a_rule_between_containers_of_one_network(
    made: MadeNode, plugins: list[dict[str, Any]], is_bridged: bool, rules: list[str], severity: str
) -> None:
    for name in ("c1", "c2"):
        made.attach(name, *plugins)
    made.more["forwards"] = {**made.more["forwards"], BRIDGED[4]: is_bridged}
    assert severities(made, "FORWARD -j CNI-FORWARD", "CNI-FORWARD -j CNI-ADMIN", *rules) == [severity]


@pytest.mark.parametrize(
    ("name", "rule", "severity"),
    [
        ("bridge own", 'iifname "vethc1" oifname "vethc2" drop', "warning"),
        ("bridge own", 'iifname "vethc1" oifname "vethc2" tcp dport 25 drop', "note"),
        ("ip own", "ip saddr 10.1.0.0/24 ip daddr 10.1.0.3 drop", "note"),
        ("inet kube-network-policies", 'iifname "br0" oifname "br0" drop', "note"),
    ],
)
def test_a_rule_of_nft_between_containers(made: MadeNode, name: str, rule: str, severity: str) -> None:
    for container in ("c1", "c2"):
        made.attach(container, PLAIN, OPEN)
        made.make_rules(container, "10.1.0.2" if container == "c1" else "10.1.0.3")
    reading = made.reading()
    hook = "type filter hook forward priority 0; policy accept;"
    table = nft_table(name, f"table {name} {{\nchain f {{\n{hook}\n{rule} # handle 7\n}}\n}}")
    reading.rules["nft"][name] = table
    found = [one for one in check_rules(reading) if isinstance(one, NodeFinding) and one.name == "dropped-in-part"]
    assert [one.severity for one in found] == [severity]
    assert found[0].remedy.endswith(f": nft delete rule {name} f handle 7")
