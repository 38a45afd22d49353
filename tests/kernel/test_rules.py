"""The listings of nft, as firewalls of many programs make them."""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from libcni.diagnosis.one_rule import named_in_drop
from libcni.diagnosis.packets import Forwarding
from libcni.kernel.rules import Table, nft_table

LISTING = Path(__file__).parents[2] / "testdata" / "nft" / "firewalls.nft"
"""As ``nft list ruleset`` prints it: crowdsec, fail2ban, firewalld with all kinds of objects, kube-proxy and others."""

_CHAINS = {
    "ip crowdsec": {"crowdsec-chain-input", "crowdsec-chain-forward"},
    "inet f2b-table": {"f2b-chain"},
    "inet firewalld": {"own", "filter_FORWARD", "filter_FORWARD.2", "nat_PREROUTING"},
    "ip kube-proxy": {
        "filter-forward", "service-endpoints-check", "reject-chain", "mark-for-masquerade", "masquerading",
        "nat-prerouting", "nat-postrouting", "services", "svc", "ep",
    },
    "inet with-offload": set(),
    "netdev d": {"in"},
    "bridge b": {"f"},
    "arp guard": {"in"},
}  # fmt: skip


def tables_in(listing: str) -> dict[str, Table]:
    parts = [part for part in re.split(r"^(?=table )", listing, flags=re.MULTILINE) if part.startswith("table ")]
    names = [part.partition(" {")[0].removeprefix("table ") for part in parts]
    return {name: nft_table(name, part) for name, part in zip(names, parts, strict=True)}


def assert_understood(found: dict[str, Table], chains: dict[str, set[str]]) -> None:
    assert {name: {*table.chains} for name, table in found.items()} == chains
    assert not any(table.unknown for table in found.values())
    hooks = {(name, at): tuple(hook) for name, table in found.items() for at, hook in table.hooks.items()}
    assert len(hooks) == 11
    assert hooks["netdev d", "in"] == ("filter", "ingress", ("lo",), -500)
    assert hooks["inet firewalld", "nat_PREROUTING"] == ("nat", "prerouting", (), -90)
    rules = found["ip crowdsec"].chains["crowdsec-chain-forward"]
    assert [" ".join(rule[5:]) for rule in rules] == ["ip saddr @crowdsec-blacklists counter packets 0 bytes 0 drop"]
    firewalld = found["inet firewalld"].chains
    assert firewalld["own"][1][-2:] == ("comment", '"x # handle 9"')
    assert [rule[-1] for rule in firewalld["filter_FORWARD"]][4] == "filter_FORWARD.2", "a chain within a rule"
    assert [rule[5] for rule in firewalld["filter_FORWARD.2"]] == ["counter", "drop"]


def test_all_objects_of_nft_are_known() -> None:
    assert_understood(tables_in(LISTING.read_text()), _CHAINS)


@pytest.mark.real
def test_all_objects_are_listed_so_by_this_nft() -> None:
    # The kernel may lack the module of flow tables.
    listing = re.sub(r"table inet with-offload \{.*?\n\}\n", "", LISTING.read_text(), flags=re.DOTALL)
    script = "ip link set lo up; nft -f - && nft -a --terse list ruleset"
    run = subprocess.run(
        ["unshare", "--net", "sh", "-c", script], input=listing, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    found = tables_in(run.stdout)
    chains = {name: chains for name, chains in _CHAINS.items() if name != "inet with-offload"}
    assert_understood(found, chains)
    rules = [
        (table, rule) for name, table in found.items() for at, rules in table.chains.items() for rule in rules
        if "." not in at
    ]  # fmt: skip
    assert rules
    assert all(table.handles[rule].isdecimal() for table, rule in rules)


def damaged(lines: list[str], chance: random.Random) -> str:
    """Cut, doubled and mixed lines."""
    text = list(lines)
    for _ in range(chance.randrange(1, 8)):
        place, other = chance.randrange(len(text)), chance.randrange(len(text))
        line = text[place]
        text[place : place + chance.choice([0, 1, 1, 3])] = chance.choice([
            [line, line], [], [line[: chance.randrange(len(line) + 1)]], [line[chance.randrange(len(line) + 1) :]],
            [text[other]], [line + text[other].strip()], [line.replace(chance.choice(['"', "{", "}", " "]), "", 1)],
        ])  # fmt: skip
        if not text:
            break
    return "\n".join(text)


def test_no_listing_stops_the_reader() -> None:
    lines, chance = LISTING.read_text().splitlines(), random.Random(7)
    for _ in range(300):
        text = damaged(lines, chance)
        name = "inet firewalld"
        table = nft_table(name, text)
        for hook in ("INPUT", "FORWARD"):
            Forwarding({"nft": {name: table}}).dropped_by("10.1.0.2", "cni0", hook)
        for rule in chain.from_iterable(table.chains.values()):
            named_in_drop(rule)


def lines_of(*lines: str) -> Iterator[str]:
    yield from ("table ip x {", *lines, "}")


@pytest.mark.parametrize(
    ("lines", "unknown"),
    [
        (["chain c {", "type filter hook forward;", "drop", "}"], ["c: type filter hook forward;"]),
        (["chain c {", "drop"], ["its end"]),
        (["newthing {", "type filter hook forward priority 0;", "drop"], ["its end"]),
        (["newthing n {", "chain c {", "drop", "}", "}"], []),
    ],
)
def test_what_is_not_understood_is_named(lines: list[str], unknown: list[str]) -> None:
    table = nft_table("ip x", "\n".join(lines_of(*lines)))
    assert table.unknown == unknown
    assert table.hooks == {}
