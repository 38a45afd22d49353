"""Which of a node's rules are read to answer a question about one container or a few ports, and which never are."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from nodes import FakeNode

import libcni.kernel.rules as rules_module
from libcni import AttachmentExistsError, RecordError, RuntimeConf
from libcni.config.port_mappings import HostPort
from libcni.kernel.rules import Listing, Rule, Table, masquerade_chain, port_rules, ports_chain, saved_rules
from libcni.verbs.port_rules import PortRules, port_rules_now

COUNT = 200
PORTS = range(80, 92)


def of_container(number: int) -> Iterator[str]:
    """Yield the lines of iptables-save for a container with a masqueraded address and a port."""
    about = f'-m comment --comment "name: \\"net\\" id: \\"c{number}\\""'
    masquerade, ports = masquerade_chain("net", f"c{number}"), ports_chain("net", f"c{number}")
    yield from (f":{chain} - [0:0]" for chain in (masquerade, ports))
    yield f"-A POSTROUTING -s 10.1.0.{number}/32 {about} -j {masquerade}"
    yield f"-A CNI-HOSTPORT-DNAT -p tcp {about} -m multiport --dports {9000 + number} -j {ports}"
    yield f"-A {masquerade} -d 10.1.0.0/16 {about} -j ACCEPT"
    yield f"-A {ports} -s 127.0.0.1/32 -p tcp -m tcp --dport {9000 + number} -j CNI-HOSTPORT-SETMARK"
    yield f"-A {ports} -p tcp -m tcp --dport {9000 + number} -j DNAT --to-destination 10.1.0.{number}:80"


def of_iptables(*further: str) -> str:
    """Return what iptables-save prints on a node with many containers."""
    lines = [line for number in range(COUNT) for line in of_container(number)] + list(further)
    shared = ["*nat", ":PREROUTING ACCEPT [0:0]", "-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT"]
    return "\n".join(["# Generated", *shared, *sorted(lines), "COMMIT", "*filter", ":INPUT DROP [0:0]", "COMMIT", ""])


def of_nft(*further: str) -> str:
    lines = [f'tcp dport {9000 + number} dnat to 10.1.0.{number}:80 comment "c{number}"' for number in range(COUNT)]
    begin = ["table ip cni_hostport {", "chain hostports {", *lines, *further, "}", "chain prerouting {"]
    hook = "type nat hook prerouting priority dstnat; policy accept;"
    return "\n".join([*begin, hook, "fib daddr type local jump hostports", "}", "}", ""])


class Firewall:
    """Programs in PATH that print rules; ``read``: the rules that were read, each in its words."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory, self.read = directory, list[Rule]()
        monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")
        for name in ("_iptables_rule", "_nft_rule"):
            monkeypatch.setattr(rules_module, name, self._reading(getattr(rules_module, name)))
        self.program("iptables-save", of_iptables())
        self.program("ip6tables-save", "")
        self.program("nft", "")

    def _reading(self, read: object) -> object:
        def counted(*args: str) -> Rule:
            self.read.append(read(*args))  # type: ignore[operator]
            return self.read[-1]

        return counted

    def program(self, name: str, text: str, tables: str = "") -> None:
        (self.directory / f"{name}.txt").write_bytes(text.encode(errors="surrogateescape"))
        file = self.directory / name
        file.write_text(f"#!/bin/sh\n[ \"$2\" = tables ] && echo '{tables}' || cat {file}.txt\n")
        file.chmod(0o755)


@pytest.fixture
def firewall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Firewall:
    (tmp_path / "sbin").mkdir()
    return Firewall(tmp_path / "sbin", monkeypatch)


def attach(node: FakeNode) -> None:
    """Attach container c7 with its address, by plugins that are called like those that make rules."""
    netns = str(node.netns("c7"))
    interface = {"name": "eth0", "sandbox": netns}
    node.result = {"interfaces": [interface], "ips": [{"interface": 0, "address": "10.1.0.7/16"}]}
    node.configure("net", {"type": "bridge", "ipMasq": True}, {"type": "portmap"})
    node.cni.add_network_list("net", RuntimeConf("c7", netns, "eth0"))


def reload(node: FakeNode) -> None:
    [one] = node.cni.get_cached_attachments("c7")
    node.cni.reload_attachment(one)


def test_a_reload_reads_only_the_rules_of_its_container(node: FakeNode, firewall: Firewall) -> None:
    attach(node)
    reload(node)
    own = {masquerade_chain("net", "c7"), ports_chain("net", "c7")}
    assert all(not own.isdisjoint(rule) for rule in firewall.read)
    assert len(firewall.read) == 5


@pytest.mark.parametrize(
    "rule",
    [
        f"-A POSTROUTING -s 10.99.0.2/32 -j {masquerade_chain('net', 'c7')}",
        f"-A {ports_chain('net', 'c7')} -p tcp -m tcp --dport 1 -j DNAT --to-destination 10.99.0.2:80",
    ],
)
def test_a_reload_finds_a_stranger_among_many_rules(node: FakeNode, firewall: Firewall, rule: str) -> None:
    attach(node)
    firewall.program("iptables-save", of_iptables(rule))
    with pytest.raises(RecordError, match=r"iptables has rules with this ID for 10\.99\.0\.2"):
        reload(node)


def test_a_reload_finds_a_stranger_among_many_rules_of_nftables(node: FakeNode, firewall: Firewall) -> None:
    attach(node)
    firewall.program("nft", of_nft('tcp dport 1 dnat to 10.99.0.2:80 comment "c7"'), "table ip cni_hostport")
    with pytest.raises(RecordError, match=r"nft has rules with this ID for 10\.99\.0\.2"):
        reload(node)
    assert len([rule for rule in firewall.read if rule[1:2] == ("rule",)]) < 15  # those of c7, c70 to c79


def test_a_strict_add_reads_only_the_rules_that_may_forward_its_ports(node: FakeNode, firewall: Firewall) -> None:
    node.configure("net", {"type": "portmap", "capabilities": {"portMappings": True}})
    ports = {"portMappings": [{"hostPort": 9007, "containerPort": 80, "protocol": "tcp"}]}
    rt = RuntimeConf("other", None, "eth0", capability_args=ports)
    with pytest.raises(AttachmentExistsError, match=r"9007/tcp is already forwarded to 10\.1\.0\.7"):
        node.cni.add_network_list("net", rt, strict=True)
    assert len(firewall.read) == 4
    (firewall.directory / "iptables-save").unlink()
    firewall.program("nft", of_nft(), "table ip cni_hostport")
    firewall.read.clear()
    with pytest.raises(AttachmentExistsError, match=r"9007/tcp is already forwarded to 10\.1\.0\.7"):
        node.cni.add_network_list("net", rt, strict=True)
    assert len(firewall.read) == 2


CHAINS = ("PREROUTING", "OUTPUT", "A", "AB", "B", "CNI-HOSTPORT-DNAT")
MATCHES = (
    "-p tcp", "-p udp", "-m tcp", "-d 192.0.2.1/32", "-i eth0", "! -i docker0", "-m addrtype --dst-type LOCAL",
)  # fmt: skip
TARGETS = (
    *(f"-j {chain}" for chain in CHAINS[2:]), "-g B", "-j RETURN", "-j ACCEPT", "-j MARK --set-xmark 0x1/0x1",
    *["-j DNAT --to-destination 10.1.0.5:80"] * 4, "-j REDIRECT --to-ports 81", "",
)  # fmt: skip


def random_rule(chance: random.Random) -> str:
    one, other, third = (chance.choice(PORTS) for _ in range(3))
    ports = (
        "", f"--dport {one}", f"-m multiport --dports {one},{other}", f"--dport {min(one, other)}:{max(one, other)}",
        f"! --dport {one}", f"-m multiport --dports {one},{min(other, third)}:{max(other, third)}",
    )  # fmt: skip
    texts = (
        "", "-m comment --comment web", f'-m comment --comment "x --dport {other} -j A "',
        f'-m comment --comment "\\\\ \\" --dports {other} \\""',
    )  # fmt: skip
    parts = [*chance.sample(MATCHES, chance.randrange(3)), chance.choice(ports), chance.choice(texts)]
    chance.shuffle(parts)
    return " ".join(filter(None, ["-A", chance.choice(CHAINS), "-p tcp", *parts, chance.choice(TARGETS)]))


def test_the_rules_left_unread_forward_none_of_the_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    chance, found = random.Random(55), 0
    for _ in range(150):
        rules = [random_rule(chance) for _ in range(chance.randrange(1, 25))]
        rules = rules if chance.random() < 0.2 else sorted(rules, key=lambda rule: rule.split()[1])
        text = "\n".join(["*nat", *(f":{chain} - [0:0]" for chain in CHAINS), *rules, "COMMIT", ""])
        monkeypatch.setattr(rules_module, "_run", lambda *_, text=text: text)
        all_rules = PortRules({"iptables": saved_rules("iptables")})
        for number in PORTS[:4]:
            port = HostPort(number, "tcp", "")
            expected = list(all_rules.of(port))
            assert list(port_rules_now([port]).of(port)) == expected, (port, text)
            found += bool(expected)
    assert found > 50


def test_rules_about_a_container_are_all_rules_that_name_it() -> None:
    """Names of others begin with its name, texts have it, and a text may have line breaks."""
    chain = ports_chain("net", "c7")
    odd = [f'-A INPUT -m comment --comment "see {chain}" -j ACCEPT', f"-A X{chain} -j {chain}X", f"-A B -g {chain}"]
    listing = Listing("nat", of_iptables(f"-A OUTPUT -j {chain}", *odd))
    whole, about = listing.read(), listing.about([chain])
    assert about.leading_to(chain) == whole.leading_to(chain) != []
    assert about.chains[chain] == whole.chains[chain] != []
    own = 'tcp dport 1 dnat to 10.1.0.9:80 comment "c7"'
    odd = [
        'tcp dport 1 comment "x',
        'y"',
        own,
        'iifname "x" jump {',
        own,
        '} comment "x"',
        own,
        "tcp dport { 3,",
        "4 } drop",
    ]
    odd += [
        'mark 1 comment "x" jump {',
        "drop",
        "}",
        'tcp dport 2 comment "c7"',
        "drop",
        'iifname "c7" comment "other"',
    ]
    listing = Listing("ip cni_hostport", of_nft(*odd))
    whole, about = listing.read(), listing.about(["c7"])
    assert of_c7(about) == of_c7(whole) != []
    assert (about.policies, about.hooks, about.unknown) == (whole.policies, whole.hooks, whole.unknown)
    assert len(about.chains["hostports"]) < 25


def of_c7(table: Table) -> list[tuple[str, str, Rule]]:
    return list(port_rules({"ip cni_hostport": table}, "c7"))


def test_bytes_that_are_no_text_stop_nothing(firewall: Firewall) -> None:
    firewall.program("iptables-save", of_iptables('-A INPUT -m comment --comment "caf\udce9" -j DROP'))
    [rule] = saved_rules("iptables")["nat"].chains["INPUT"]
    assert rule[5:] == ("caf\N{REPLACEMENT CHARACTER}", "-j", "DROP")
