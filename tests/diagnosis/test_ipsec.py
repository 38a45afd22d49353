"""Policies of IPsec that block the packets of containers."""

from __future__ import annotations

import pytest
from nodes import Namespace

from diagnosis.made import MadeNode
from libcni.diagnosis.ipsec import check_ipsec
from libcni.diagnosis.report import NodeFinding
from libcni.kernel.ipsec import IPsecPolicy, ipsec_policies

pytestmark = pytest.mark.real


@pytest.mark.parametrize(
    ("policy", "severity"),
    [
        ("src 0.0.0.0/0 dst 10.1.0.0/28 dir {} action block", "error"),
        ("src 10.1.0.0/24 dst 0.0.0.0/0 dir {} action block", "error"),
        ("src 0.0.0.0/0 dst 10.1.0.0/28 proto tcp dport 22 dir {} action block", "note"),
        ("src 10.7.0.0/24 dst 10.1.0.2/32 dir {} action block", "note"),
        ("src 0.0.0.0/0 dst 10.9.0.0/24 dir {} action block", ""),
        ("src fd00::/8 dst fd01::/64 dir {} action block", ""),
        ("src 0.0.0.0/0 dst 10.1.0.0/28 dir {} action allow", ""),
    ],
)
def test_policies_that_block_packets_of_containers(made: MadeNode, host: Namespace, policy: str, severity: str) -> None:
    made.attach("c1")
    for direction in ("out", "fwd"):
        host.run("ip", "xfrm", "policy", "add", *policy.format(direction).split())
    made.more["ipsec"] = ipsec_policies()
    assert {one.direction for one in made.more["ipsec"]} == {"out", "fwd"}
    found = made.findings(check_ipsec)
    assert [(one.name, one.severity, one.containers) for one in found] == [("dropped", severity, ("c1:eth0",))] * bool(
        severity
    )
    if severity == "error":
        for command in found[0].remedy.partition(": ")[2].split("; "):
            host.run(*command.split())
        assert ipsec_policies() == ()


def test_policies_that_do_not_block_are_named(made: MadeNode) -> None:
    made.attach("c1")
    made.more["ipsec"] = (IPsecPolicy("0.0.0.0/0", "10.1.0.0/28", "out", blocks=False, is_whole=True),)
    assert [subject for subject, _ in made.not_checked(check_ipsec)] == ["1 policy of IPsec"]
    made.more |= {"ipsec": (), "unread": {"the policies of IPsec": "Operation not permitted"}}
    assert made.not_checked(check_ipsec) == [("policies of IPsec (ip xfrm policy)", "Operation not permitted")]
    assert [one for one in check_ipsec(made.reading()) if isinstance(one, NodeFinding)] == []
