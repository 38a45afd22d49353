"""Rules in containers' own namespaces: what drops packets is named, and what a service mesh makes is in order."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from nodes import Namespace

from diagnosis.made import MadeNode
from libcni.diagnosis.container_rules import check_container_rules
from libcni.diagnosis.report import NodeFinding, NotChecked, Observation
from libcni.kernel.namespace import NamespaceId, namespace_identity
from libcni.kernel.netfilter import Drop, Match, drops_in, legacy_tables
from libcni.testing import wait_until

Found = list[NodeFinding]


def checked(made: MadeNode, namespaces: dict[str, str]) -> list[Observation]:
    """Check a node whose containers, by name, have the rules of real namespaces."""
    paths = {str(made.netns(name)): path for name, path in namespaces.items()}

    def read(path: str, _: NamespaceId) -> list[Drop]:
        identity = namespace_identity(paths[path])
        assert identity is not None
        return drops_in(paths[path], identity)

    return list(check_container_rules(replace(made.reading(), drops_in=read)))


def findings(made: MadeNode, namespace: Namespace, *commands: str) -> Found:
    namespace.run("sh", "-ec", "; ".join(commands))
    return [one for one in checked(made, {"c1": namespace.path}) if isinstance(one, NodeFinding)]


CLOSED = (
    "iptables -A INPUT -i lo -j ACCEPT", "iptables -A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
    "iptables -A INPUT -p icmp -j ACCEPT", "iptables -A INPUT -p tcp --dport 22 -j ACCEPT", "iptables -A INPUT -j DROP",
)  # fmt: skip
ALL = "all packets that no earlier rule accepts"
FILTER = "add table inet f; add chain inet f in { type filter hook input priority 0; policy drop; }"


@pytest.mark.real
@pytest.mark.parametrize(
    ("commands", "seen", "printed"),
    [
        (CLOSED, f"input (chain INPUT of the table ip filter): {ALL}", "iptables -S INPUT"),
        (("iptables -P OUTPUT DROP",), f"output (chain OUTPUT of the table ip filter): {ALL}", "iptables -S OUTPUT"),
        (("iptables -A INPUT -p tcp --dport 8080 -j REJECT",), ": dport 8080", "iptables -S INPUT"),
        (("iptables -A INPUT ! -i lo -p tcp -m state --state NEW -j DROP",), f": {ALL}", "iptables -S INPUT"),
        (("iptables -A INPUT -s 10.64.0.0/10 -j DROP",), ": saddr 10.64.0.0/10", "iptables -S INPUT"),
        (("iptables -A INPUT -d 10.1.0.2 -j DROP",), f": {ALL}", "iptables -S INPUT"),
        (("iptables -N X", "iptables -A X -j REJECT", "iptables -A INPUT -p udp -j X"),
         ": l4proto udp", "iptables -S INPUT"),
        (("iptables -A INPUT -m multiport -p tcp --dports 1,2 -j DROP",),
         ": a condition on multiport", "iptables -S INPUT"),
        (("iptables -t raw -A PREROUTING -p udp --dport 53 -j DROP",),
         ": l4proto udp and dport 53", "iptables -t raw -S PREROUTING"),
        ((f"nft '{FILTER}'",), f"input (chain in of the table inet f): {ALL}", "nft list ruleset"),
        ((f"nft '{FILTER}; add rule inet f in tcp dport {{ 1, 2 }} drop; add rule inet f in accept'",),
         ": a condition on lookup", "nft list ruleset"),
        (("nft 'add table arp a; add chain arp a i { type filter hook input priority 0; policy drop; }'",),
         f"input (chain i of the table arp a): {ALL}", "nft list ruleset"),
    ],
)  # fmt: skip
def test_a_container_that_drops_packets_is_named(
    made: MadeNode, container: Namespace, commands: tuple[str, ...], seen: str, printed: str
) -> None:
    made.attach("c1")
    [found] = findings(made, container, *commands)
    assert (found.severity, found.name, found.containers) == ("note", "dropped-in-part", ("c1:eth0",))
    assert found.seen.endswith(seen)
    assert found.remedy == f"to see the rules: nsenter --net={made.netns('c1')} {printed}"


ISTIO = (
    "iptables -t nat -N ISTIO_INBOUND", "iptables -t nat -A PREROUTING -p tcp -j ISTIO_INBOUND",
    "iptables -t nat -A ISTIO_INBOUND -p tcp -j REDIRECT --to-ports 15006",
    "iptables -t mangle -A PREROUTING -m conntrack --ctstate INVALID -j DROP",
    "ip6tables -A INPUT -j REJECT",
)  # fmt: skip


@pytest.mark.real
@pytest.mark.parametrize(
    "commands",
    [
        ("true",),
        (*ISTIO[:2], *ISTIO[3:]),
        ("iptables -P FORWARD DROP", "iptables -A FORWARD -j DROP"),  # of docker in a container
        ("iptables -t raw -A PREROUTING -d 172.17.0.2 ! -i docker0 -j DROP",),
        ("iptables -A OUTPUT -d 169.254.169.254 -j REJECT",),  # the metadata service of a cloud
        ("iptables -A INPUT -m state --state INVALID -j DROP", "iptables -A INPUT -j ACCEPT", "iptables -P INPUT DROP"),
        ("iptables -A INPUT -i tun+ -j DROP",),
        (f"nft '{FILTER}; add rule inet f in iifname \"eth*\" accept; add rule inet f in accept'",),
        (f"nft '{FILTER}; add rule inet f in accept; add rule inet f in ip6 saddr ::/0 drop'",),
    ],
)  # fmt: skip
def test_rules_that_cut_nothing_off(made: MadeNode, container: Namespace, commands: tuple[str, ...]) -> None:
    made.attach("c1")
    container.run("sh", "-ec", "; ".join(commands))
    assert checked(made, {"c1": container.path}) == []


REDIRECT = (
    "add table inet n; add chain inet n p { type nat hook prerouting priority -100; }; "
    "add rule inet n p meta l4proto tcp redirect to :15006"
)


@pytest.mark.real
@pytest.mark.parametrize(
    ("commands", "chain"),
    [
        (ISTIO, "ISTIO_INBOUND of the table ip nat"),
        (("ip6tables -t nat -A OUTPUT -p tcp -j REDIRECT --to-ports 15006",), "OUTPUT of the table ip6 nat"),
        ((f"nft '{REDIRECT}'",), "p of the table inet n"),
    ],
)
def test_packets_that_are_redirected_to_a_port_where_nothing_listens(
    made: MadeNode, container: Namespace, commands: tuple[str, ...], chain: str
) -> None:
    """As a service mesh leaves them whose proxy has ended."""
    made.attach("c1", address="fd00::2" if "ip6" in chain else "")
    [found] = findings(made, container, *commands)
    assert (found.severity, found.name, found.containers) == ("note", "dropped-in-part", ("c1:eth0",))
    assert found.seen.endswith(f"redirect packets to port 15006, where nothing listens (chain {chain})")
    listener = subprocess.Popen(["ip", "netns", "exec", container.name, sys.executable, "-c", LISTEN])
    try:
        wait_until(lambda: not findings(made, container, "true"))
    finally:
        listener.kill()
        listener.wait()


LISTEN = "import socket, time; one = socket.create_server(('', 15006)); time.sleep(60)"


def test_containers_with_such_rules_are_one_finding(made: MadeNode) -> None:
    for name in ("c1", "c2", "c3", "c4"):
        made.attach(name)
    drops = {"c1": ["1"], "c2": ["2"], "c3": [""], "c4": []}

    def read(path: str, _: NamespaceId) -> list[Drop]:
        ports = drops[path.rpartition("/")[2]]
        conditions = (Match("dport", is_negated=False, value=port) for port in ports)
        return [Drop("ip filter", "INPUT", "input", (one,) * bool(one.value)) for one in conditions]

    found = list(check_container_rules(replace(made.reading(), drops_in=read)))
    assert [one.containers for one in found if isinstance(one, NodeFinding)] == [("c1:eth0", "c2:eth0"), ("c3:eth0",)]
    assert "dport 1; 1 more container has such rules" in str(found[0])


def test_a_filter_that_cannot_be_read_is_named(made: MadeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    made.attach("c1")
    made.attach("c2")

    def fail(_: str, __: NamespaceId) -> list[Drop]:
        raise TimeoutError(110, "the kernel's answers about the namespace take too long")

    reading = replace(made.reading(), drops_in=fail)
    assert [one.subject for one in check_container_rules(reading) if isinstance(one, NotChecked)] == [
        "rules in container c1, net, eth0", "rules in container c2, net, eth0"
    ]  # fmt: skip
    monkeypatch.setattr("libcni.diagnosis.container_rules._SECONDS", -1)
    [unread] = check_container_rules(reading)
    assert isinstance(unread, NotChecked)
    assert unread.subject == "rules in 2 containers"


@pytest.mark.real
def test_tables_of_the_legacy_variant_are_named(made: MadeNode, container: Namespace) -> None:
    made.attach("c1")
    identity = namespace_identity(container.path)
    assert identity is not None
    if "legacy" not in container.run("sh", "-c", "iptables-legacy -P INPUT DROP && echo legacy || true"):
        pytest.skip("the kernel has no legacy variant of iptables")
    assert legacy_tables([(container.path, identity)]) == {container.path: ["filter of iptables-legacy"]}
    path = str(made.netns("c1"))
    reading = replace(
        made.reading(), drops_in=lambda *_: [], legacy_tables=lambda _: {path: ["raw of iptables-legacy"]}
    )
    [unread] = check_container_rules(reading)
    assert isinstance(unread, NotChecked)
    assert unread.reason == f"to see them: nsenter --net={path} iptables-legacy-save"


def _rules(count: int) -> str:
    lines = [f"-A INPUT -s 10.{number >> 8}.{number & 255}.7 -j DROP" for number in range(count)]
    return "\n".join(["*filter", *lines, "COMMIT", ""])


@pytest.mark.real
def test_very_many_rules_end_the_reading(container: Namespace, tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text(_rules(9_000), encoding="ascii")
    container.run("iptables-restore", str(rules))
    identity = namespace_identity(container.path)
    assert identity is not None
    with pytest.raises(OSError, match="more than 1 MiB"):
        drops_in(container.path, identity)


def test_another_namespace_at_the_path_is_refused(host: Namespace, container: Namespace) -> None:
    identity = namespace_identity(host.path)
    assert identity is not None
    with pytest.raises(OSError, match="Stale"):
        drops_in(container.path, identity)
