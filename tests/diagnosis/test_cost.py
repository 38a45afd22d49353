"""No check of the doctor goes through all that a node has again for each container."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from diagnosis.made import BRIDGE, FIREWALL, PORTMAP, MadeNode, configure
from libcni.diagnosis.doctor import report_on
from libcni.diagnosis.node_state import NodeState
from libcni.diagnosis.repair_guard import belongings_of
from libcni.kernel.netlink import IPRoute, Link


class Searches(Counter[str]):
    """How often the program went through each kind of objects."""

    def of(self, kind: type, name: str) -> Callable[[Iterable[Any]], Any]:
        """Return a function that makes a copy of a list, tuple or dictionary whose searches are counted."""

        def counted(method: str) -> Callable[..., Any]:
            original = getattr(kind, method)

            def search(*args: Any) -> Any:
                self[name] += 1
                return original(*args)

            return search

        methods = ("__iter__", "values", "items") if kind is dict else ("__iter__", "__contains__", "index")
        return type("Counted", (kind,), {method: counted(method) for method in methods})


def attached(root: Path, count: int) -> MadeNode:
    root.mkdir()
    made = MadeNode(root)
    for number in range(count):
        ports = {"portMappings": [{"hostPort": 8080 + number, "containerPort": 80, "protocol": "tcp"}]}
        made.attach(f"c{number}", BRIDGE, PORTMAP, FIREWALL, capability_args=json.dumps(ports))
        made.make_rules(f"c{number}", f"10.1.0.{number + 2}")
        made.make_nft_rules(f"c{number}", f"10.1.0.{number + 2}")
    made.host.links["up0"] = Link("up0", 3, is_up=True, has_carrier=True, addresses=["192.0.2.7/24"])
    made.host = replace(made.host, routes=(*made.host.routes, IPRoute("0.0.0.0/0", "192.0.2.1", 3)))
    configure(made, BRIDGE, PORTMAP, FIREWALL)
    return made


def counting(made: MadeNode, searches: Searches) -> NodeState:
    made.host = replace(
        made.host,
        routes=searches.of(tuple, "routes")(made.host.routes),
        links=searches.of(dict, "links")(made.host.links),
    )
    node = made.reading()
    for name, table in tables_of(node):
        # A container has chains of its own, which a check may follow.
        table.chains = searches.of(dict, f"chains of {name}")(
            {
                chain: rules if len(rules) < len(made.records) else searches.of(list, f"rules of {name} {chain}")(rules)
                for chain, rules in table.chains.items()
            }
        )
    return replace(
        node,
        attachments=searches.of(tuple, "attachments")(node.attachments),
        spaces=searches.of(dict, "namespaces")(node.spaces),
        reservations={at: searches.of(list, "reservations")(found) for at, found in node.reservations.items()},
    )


def tables_of(node: NodeState) -> Iterator[tuple[str, Any]]:
    return (pair for tables in node.rules.values() for pair in tables.items())


def test_the_doctor_searches_as_often_for_many_containers_as_for_few(tmp_path: Path) -> None:
    few, many = Searches(), Searches()
    for count, searches in ((5, few), (15, many)):
        node = counting(attached(tmp_path / str(count), count), searches)
        report = report_on(node)
        belongings_of(node)  # a repair asks for it after each group of mends
        assert not any(unseen.is_bug for unseen in report.not_checked), report.not_checked
    assert few == many
    assert few.keys() >= {"routes", "links", "attachments", "namespaces", "reservations", "rules of nat POSTROUTING"}
