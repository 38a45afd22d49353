"""The guard of a repair: compare the belongings of living containers before and after a mend, and find the losses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from libcni._dataclass import dataclass, field
from libcni.diagnosis.mends import id_of
from libcni.diagnosis.node_state import NodeState
from libcni.diagnosis.reading import forwarding_of, grouped
from libcni.diagnosis.rule_facts import facts_of
from libcni.errors import some
from libcni.kernel.foreign import Space
from libcni.kernel.namespace import NamespaceId, namespace_identity
from libcni.kernel.netlink import Network


@dataclass(slots=True)
class Belongings:
    """The interfaces, addresses, routes and ports of one network namespace.

    Attributes:
        things: these objects, as text.
        is_ours: whether it is the node's own namespace, or that of a container of the node. A machine can have others,
            which change by themselves.
        names: the containers whose record names the namespace.
        records: the records that name the namespace. If they change, the container's runtime is working on it.
        cookie: the kernel's number of the namespace, or 0.
    """

    things: set[str]
    is_ours: bool
    names: set[str] = field(default_factory=set)
    records: set[tuple[str, object, str]] = field(default_factory=set)
    cookie: int = 0


AllBelongings = dict[NamespaceId | None, Belongings]
"""The belongings in each namespace; the key of the node's own namespace is None."""


def belongings_of(node: NodeState) -> AllBelongings:
    """Return the belongings of the node and of its containers."""
    by_address: dict[str, list[tuple[str, str]]] = grouped(
        (fact.address, (owner[0] if owner is not None else "", f"the {fact.kind} of {fact.address}"))
        for facts in facts_of(node).values() for fact, owner in facts.items()
    )  # fmt: skip
    for address, reservations in node.reservations_of.items():
        reserved = [
            (reservation.container_id, f"the reservation {reservation.path} for {reservation.container_id}")
            for reservation in reservations
        ]
        by_address.setdefault(address, []).extend(reserved)
    own = namespace_identity("/proc/thread-self/ns/net")
    everything: AllBelongings = {None: Belongings(_of_node(node), is_ours=True)}
    for identity, space in node.spaces.items():
        if identity != own and space.network is not None:
            addresses = _addresses_in(space)
            # What a user can have made by himself changes as he likes.
            is_ours = any(
                text.partition("/")[0] in node.reservations_of for link in space.evidence for text in link.addresses
            )
            # A rule or a reservation of another container for the same address is left of one that has ended.
            owners = {attachment.container_id for attachment in node.by_namespace.get(identity, ())} | {""}
            own_rules = {
                address: [what for owner, what in by_address.get(address, ()) if owner in owners or len(owners) == 1]
                for address in addresses
            }
            things = set(_of_network(space.network, own_rules))
            everything[identity] = Belongings(things, is_ours, cookie=space.network.cookie)
    for namespace, attachments in node.by_namespace.items():
        for attachment in attachments if namespace in everything else ():
            belongings = everything[namespace]
            belongings.is_ours = True
            belongings.names.add(id_of(attachment))
            belongings.records.add((attachment.path, attachment.record.stamp, attachment.record.state))
            for end in node.host_ends(attachment):
                if end.is_up:
                    master = node.host_links_by_index.get(end.master)
                    belongings.things.add(f"{end.name} on {master.name if master is not None else 'no bridge'}")
    return everything


def losses(before: AllBelongings, after: AllBelongings, named: set[str]) -> list[tuple[str, set[str]]]:
    """Return (text, containers) of each loss, except losses of ``named`` containers and those that a verb works on."""
    # A container that has ended, or whose record is new or was removed, has lost nothing by the repair.
    return [
        (f"{some(sorted(earlier.names or {'a container without a record'}))} has lost {thing}", earlier.names)
        for identity, earlier in before.items()
        if earlier.is_ours
        and (current := after.get(identity)) is not None
        and not earlier.names & named
        and earlier.records == current.records
        and earlier.cookie == current.cookie  # the kernel soon gives the inode of an ended namespace to a new one
        for thing in sorted(earlier.things - current.things)
    ]


def _of_node(node: NodeState) -> set[str]:
    links = [link for link in (node.host.links.values() if node.host else ()) if link.kind != "veth" and link.is_up]
    forwarding = {path for path, is_on in node.forwards.items() if is_on}
    return {
        *forwarding,
        *(f"{link.name} with {text}" for link in links for text in link.addresses if not _is_link_local(text)),
        *(forwarding_of(link.name) for link in links if link.kind == "bridge" and "forwarding 0" not in link.settings),
    }


def _of_network(network: Network, by_address: Mapping[str, list[str]]) -> Iterator[str]:
    names = {link.index: link.name for link in network.links.values()}
    for link in network.links.values():
        if link.name != "lo" and link.is_up:
            yield f"the interface {link.name} with {link.mac}"
            for text in link.addresses:
                if not _is_link_local(text):
                    yield f"the address {text} of {link.name}"
                    yield from by_address.get(text.partition("/")[0], ())
    for route in network.routes:
        if not _is_link_local(route.destination):
            yield f"the route to {route.destination} via {route.gateway or names.get(route.ifindex, '?')}"


def _is_link_local(text: str) -> bool:
    return text.startswith(("fe80:", "ff00:"))


def _addresses_in(space: Space) -> list[str]:
    """Return the IP addresses in a namespace, without prefix lengths."""
    links = space.network.links.values() if space.network is not None else ()
    return [text.partition("/")[0] for link in links for text in link.addresses]
