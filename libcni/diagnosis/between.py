"""Find out whether a rule cuts containers of one network off from each other, without a policy that asks for it."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from libcni.diagnosis.mends import id_of
from libcni.diagnosis.node_state import NodeState
from libcni.diagnosis.packets import Forwarding, Packet, Place
from libcni.diagnosis.reading import BRIDGED, grouped
from libcni.kernel.rules import Rule
from libcni.store.attachments import Attachment

_OF_POLICIES = re.compile(r"KUBE|cali|CILIUM|cilium|ANTREA|antrea|WEAVE|CNI-(?!ADMIN)|kube|OVN|ROMANA", re.ASCII)
"""The beginning of the names of chains and tables with policies of Kubernetes' networks, and of the plugin firewall."""
_HOOKS = {"prerouting", "forward", "postrouting"}
_PAIRS = 3
"""The most pairs of containers for which a rule is examined."""


def keeps_apart(documents: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a network's configuration keeps its containers apart from each other."""
    return any(document.get("ingressPolicy") == "isolated" or document.get("portIsolation") for document in documents)


def is_of_policy(place: Place, rule: Rule) -> bool:
    """Return whether a rule is in a chain or a table with policies of Kubernetes, or of the plugin firewall."""
    chain = rule[4] if rule[0] == "add" else rule[1]
    return bool(_OF_POLICIES.match(chain) or _OF_POLICIES.match(place.table.split()[-1]))


class Between:
    """Finds containers of one network between which a rule drops all packets."""

    def __init__(self, node: NodeState, forwarding: Forwarding, live: list[Attachment]) -> None:
        self._node = node
        self._forwarding = forwarding
        self._by_name = {id_of(attachment): attachment for attachment in live}
        self._networks = grouped((attachment.network, attachment) for attachment in live)

    def cut_off_by(self, place: Place, rule: Rule, names: Collection[str]) -> tuple[Attachment, Attachment] | None:
        """Return two containers of a network between which a rule drops all packets, or None.

        ``names``: the containers that the rule names.
        """
        if is_of_policy(place, rule):
            return None
        for one, other in islice(self._pairs(names), _PAIRS):
            for packet in self._packets(place, one, other):
                # The search through a chain of 10,000 containers takes a tenth of a second for each pair.
                if self._forwarding.drops_all(place, rule, packet) and any(
                    self._forwarding.lost_by(*hook, packet) == rule for hook in self._hooks(place)
                ):
                    return one, other
        return None

    def _pairs(self, names: Collection[str]) -> Iterator[tuple[Attachment, Attachment]]:
        for network, named in grouped((self._by_name[name].network, self._by_name[name]) for name in names).items():
            others = [*named[1:], *self._networks[network]]
            if keeps_apart(self._node.documents(named[0])):
                continue
            for one in named:
                other = next((other for other in others if other.container_id != one.container_id), None)
                if other is not None:
                    yield one, other

    def _hooks(self, place: Place) -> list[Place]:
        if place.program != "nft":
            return [place._replace(chain="FORWARD")]
        hooks = self._node.table(place.program, place.table).hooks
        return [
            place._replace(chain=one) for one, hook in hooks.items() if hook.kind == "filter" and hook.name in _HOOKS
        ]

    def _packets(self, place: Place, one: Attachment, other: Attachment) -> Iterator[Packet]:
        """Yield the packets of each of two containers to the other one that come to a table."""
        of_ports = place.table.startswith("bridge ")
        ways = [self._interfaces(attachment, of_ports=of_ports) for attachment in (one, other)]
        for source in self._node.addresses_of(one):
            for target in self._node.addresses_of(other):
                version = 6 if ":" in source else 4
                # The kernel asks the rules for packets within a bridge only with this setting.
                is_asked = of_ports or ways[0] != ways[1] or self._node.forwards.get(BRIDGED[version], False)
                if (":" in source) == (":" in target) and all(ways) and is_asked:
                    ends = list(zip(map(ipaddress.ip_address, (source, target)), (way[0] for way in ways), strict=True))
                    for (address, interface), (far, beyond) in (ends, ends[::-1]):
                        yield Packet(address, interface, other=far, beyond=beyond)

    def _interfaces(self, attachment: Attachment, *, of_ports: bool) -> list[str]:
        if of_ports:
            return [link.name for link in self._node.host_ends(attachment)]
        return self._node.gateway_interfaces(attachment)
