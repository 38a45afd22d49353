"""List packets that should arrive: from the node, to gateways, between containers of a network, between networks.

Only packets that must arrive are listed: the routes lead there and back, and no configuration forbids the packets.
"""

from __future__ import annotations

import ipaddress
import itertools
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import libcni.kernel.system as system
from libcni.diagnosis.between import keeps_apart
from libcni.diagnosis.mends import id_of
from libcni.diagnosis.node_state import NodeState
from libcni.diagnosis.reading import bridge_of, grouped
from libcni.diagnosis.ways import Routes, gateway_from
from libcni.kernel.echo import EchoRequest, most_at_once
from libcni.kernel.namespace import NamespaceId, call_in_thread, enter_namespace, open_known
from libcni.kernel.netlink import DROPS_PACKETS, Link, Network
from libcni.kernel.sockets import waiting_sockets
from libcni.store.attachments import Attachment

_NEIGHBOURS = "/proc/sys/net/ipv{}/neigh/default/gc_thresh3"
_FEWEST_NEIGHBOURS = 1024
"""The kernel's default for the size of its table of neighbours, which all namespaces of the machine share."""
_NEIGHBOUR_SECONDS = 5.0
"""The age in seconds from which the kernel may remove an entry of a full neighbour table."""
SILENT = {4: "/proc/sys/net/ipv4/icmp_echo_ignore_all", 6: "/proc/sys/net/ipv6/icmp/echo_ignore_all"}
_TO_MACHINES = frozenset({"tun", "macvtap", "ipvtap"})
_IPV6 = 6
_TRIED = 8
"""How many containers of a network are tried to find one that reaches another network."""
_QUIET_PORTS = (9, 1, 7)
"""Ports of TCP on which hardly ever something listens: discard, tcpmux and echo."""
_ALONE = {"private", "vepa", "passthru"}
"""The modes of macvlan in which containers of one node do not reach each other."""

Kind = Literal["router", "node", "gateway", "same", "other", "out", "tcp"]
"""In this order: from the node to the node's gateway; from the node to a container; from a container to its gateway, to
another container of its network, to a container of another network, to the node's gateway. Also a connection of TCP
from a container to another one."""
_FIRST = {"router", "node"}
"""Kinds that are sent first, because a container's own request teaches the node the container's hardware address."""


class End(NamedTuple):
    """An address of a living attachment.

    Attributes:
        attachment: the attachment.
        inside: its namespace's interfaces and routes.
        routes: these routes.
        link: its interface.
        path: a path of its namespace.
        identity: its namespace.
        address: the address.
        subnet: the address's network.
        gateway: the recorded gateway of its version of IP, or "".
        is_on_node: whether the gateway is the node.
    """

    attachment: Attachment
    inside: Network
    routes: Routes
    link: Link
    path: str
    identity: NamespaceId
    address: str
    subnet: str
    gateway: str
    is_on_node: bool

    @property
    def name(self) -> str:
        """The attachment, as ``ID:IFNAME``."""
        return id_of(self.attachment)

    @property
    def label(self) -> str:
        """The pod or the attachment, and the address."""
        return f"{self.attachment.pod or self.name} ({self.address})"

    @property
    def is_virtual(self) -> bool:
        """Whether the packets to this address go to a virtual machine."""
        return any(link.kind in _TO_MACHINES for link in self.inside.links.values())

    @property
    def version(self) -> int:
        """The IP version of the address: 4 or 6."""
        return 6 if ":" in self.address else 4

    def request(self, target: str) -> EchoRequest:
        """Return an echo request from this address to ``target``."""
        return EchoRequest(target, self.address, self.path, self.identity)


class Probe(NamedTuple):
    """An echo request and its two ends. ``source`` None: the node. ``target`` None: the node or a gateway."""

    kind: Kind
    request: EchoRequest
    source: End | None
    target: End | None
    next_hop: str

    @property
    def ends(self) -> list[End]:
        """The ends that are containers."""
        return [end for end in (self.source, self.target) if end is not None]


def ends_of(node: NodeState) -> Iterator[End]:
    """Yield the first IPv4 and IPv6 address of each living attachment whose interface is up and has the address."""
    host = node.host.links.values() if node.host is not None else ()
    on_node = {text.partition("/")[0] for link in host if link.is_up for text in link.addresses}
    for attachment, inside in node.live:
        space, identity = node.space_of(attachment), node.namespace_of(attachment)
        link = inside.links.get(attachment.ifname)
        if link is None or not link.is_up or link.name == "lo" or space is None or identity is None:
            continue
        if node.is_host(space):
            continue
        summary, routes = node.summary_of(attachment), Routes(inside)
        own = [cidr for name, cidr in summary.placed if name == link.name and cidr in link.addresses]
        for is_ipv6 in (False, True):
            for cidr in [cidr for cidr in own if (":" in cidr) is is_ipv6][:1]:
                interface = ipaddress.ip_interface(cidr)
                gateways = [one.partition("/")[0] for one in summary.gateways if (":" in one) is is_ipv6]
                gateway = gateways[0] if gateways else ""
                yield End(
                    attachment, inside, routes, link, space.path, identity, str(interface.ip), str(interface.network),
                    gateway, gateway in on_node and attachment.path not in node.elsewhere,
                )  # fmt: skip


def probes_of(node: NodeState, ends: list[End], doubtful: Collection[str]) -> Iterator[Probe]:
    """Yield the probes to send, the node's first. ``doubtful``: containers that send no requests to other machines."""
    assert node.host is not None
    of_node = Routes(node.host)
    with_gateway = [end for end in ends if end.gateway and _returns(end, end.gateway)]
    on_node = [end for end in with_gateway if end.is_on_node]
    to_router = list(_to_router(node, [end for end in on_node if end.name not in doubtful]))
    for router in dict.fromkeys(probe.request.target for probe in to_router):
        yield Probe("router", EchoRequest(router), None, None, router)
    for end in on_node:
        yield Probe("node", EchoRequest(end.address), None, end, of_node.next_hop(end.address))
    for end in with_gateway:
        if not (end.is_on_node and is_silent(end.version)):
            yield Probe("gateway", end.request(end.gateway), end, None, end.routes.next_hop(end.gateway))
    yield from _within_networks(node, ends)
    yield from _between_networks(node, on_node)
    yield from to_router


def _to_router(node: NodeState, ends: list[End]) -> Iterator[Probe]:
    """Yield requests from some containers of each masqueraded network to the node's gateway."""
    masked = [end for end in ends if any(one.get("ipMasq") is True for one in node.documents(end.attachment))]
    for version in (4, 6):
        networks = grouped((end.attachment.network, end) for end in masked if end.version == version)
        for alike in networks.values():
            router = _router(node, alike[0])
            if not router or router.startswith("fe80:"):
                continue
            able = [end for end in alike if _reaches(end, router)]
            # One alone may have a policy of its own.
            for end in {one.name: one for one in (*able[:1], *able[len(able) // 2 :][:1], *able[-1:])}.values():
                yield Probe("out", end.request(router), end, None, end.routes.next_hop(router))


def _router(node: NodeState, end: End) -> str:
    """Return the gateway for packets from a container to other networks, as the kernel chooses it, or ""."""
    with suppress(OSError):
        router = gateway_from(node, end.attachment, end.address)
        if router is not None:
            return router
    return node.way_out(end.version)[1]


def _within_networks(node: NodeState, ends: list[End]) -> Iterator[Probe]:
    """Yield a request from each container to the next one of its network: a ring."""
    for segment, alike in grouped((_segment(node, end), end) for end in ends).items():
        for source, target in zip(alike, [*alike[1:], alike[0]], strict=True) if segment else ():
            if _are_connected(source, target):
                yield _between("same", source, target)


def _between_networks(node: NodeState, ends: list[End]) -> Iterator[Probe]:
    """Yield a request from a container of each network to one of the next network."""
    open_ends = [end for end in ends if _policy(node, end.attachment) is None]
    for version in (4, 6):
        networks = grouped((end.attachment.network, end) for end in open_ends if end.version == version)
        for one, other in itertools.pairwise(networks.values()):
            pairs = (pair for pair in itertools.product(one[:_TRIED], other[:_TRIED]) if _are_connected(*pair))
            yield from (_between("other", *pair) for pair in itertools.islice(pairs, 1))


def _between(kind: Kind, source: End, target: End) -> Probe:
    return Probe(kind, source.request(target.address), source, target, source.routes.next_hop(target.address))


def _are_connected(source: End, target: End) -> bool:
    is_way = _reaches(source, target.address) and _reaches(target, source.address)
    return source.identity != target.identity and is_way


def _segment(node: NodeState, end: End) -> tuple[object, ...]:
    """Return what the containers have in common that should reach each other; () if they should not."""
    documents = node.documents(end.attachment)
    if keeps_apart(documents) or any(
        document.get("type") == "macvlan" and document.get("mode") in _ALONE for document in documents
    ):
        return ()
    return end.attachment.network, end.subnet, *map(_link_of, documents)


def _link_of(document: Mapping[str, Any]) -> tuple[str, ...]:
    device = bridge_of(document) if document.get("type") == "bridge" else document.get("master") or ""
    return str(document.get("type")), str(device), str(document.get("vlan") or document.get("vlanId") or "")


def _policy(node: NodeState, attachment: Attachment) -> str | None:
    """Return the policy of ``firewall`` for packets from other containers; None if it lets them in."""
    policies = [document.get("ingressPolicy") for document in node.documents(attachment)]
    return next((str(policy) for policy in policies if policy not in {None, "", "open"}), None)


def _reaches(end: End, address: str) -> bool:
    """Return whether an end's routes say that its packets to an address leave over its interface, or are dropped."""
    route = end.routes.to(address)
    return route is not None and route.ifindex in {end.link.index, DROPS_PACKETS}


def _returns(end: End, gateway: str) -> bool:
    """As ``_reaches``; also if no route leads to the gateway, to which one must."""
    return end.routes.to(gateway) is None or _reaches(end, gateway)


def is_silent(version: int, end: End | None = None) -> bool:
    """Return whether a setting of a container, or of the node, switches off answers to echo requests."""

    def read(namespace: int | None) -> bool:
        # The file shows the setting of the namespace of the thread that opens it.
        if namespace is not None:
            enter_namespace(namespace)
        with open(SILENT[version], encoding="ascii") as file:
            return file.read().strip() == "1"

    with suppress(OSError):
        if end is None:
            return read(None)
        with system.Closing(open_known(end.path, end.identity)) as namespace:
            return call_in_thread(lambda: read(namespace))
    return False


def calls_of(probes: Collection[Probe]) -> Iterator[Probe]:
    """Yield a connection of TCP between two containers of each network, and of two networks, that get echo requests.

    A closed port answers, too, and no program there sees anything.
    """
    pairs = grouped(
        ((probe.kind, *(end.attachment.network for end in probe.ends), probe.source.version), probe)
        for probe in probes if probe.kind in {"same", "other"} and probe.source is not None
    )  # fmt: skip
    for first, *_ in pairs.values():
        if first.target is not None and (port := _closed_port(first.target)):
            yield first._replace(kind="tcp", request=first.request._replace(port=port))


def _closed_port(end: End) -> int:
    """Return a port of TCP on which nothing listens in a container's namespace; 0 if none is known."""
    with suppress(OSError), system.Closing(open_known(end.path, end.identity)) as namespace:
        busy = {one.number for one in waiting_sockets("tcp", _QUIET_PORTS, namespace)}
        return next((port for port in _QUIET_PORTS if port not in busy), 0)
    return 0


def batches(probes: list[Probe]) -> Iterator[list[Probe]]:
    """Yield groups of probes, the node's first, each small enough for the kernel's tables of neighbours."""
    most, room = most_at_once(), min(map(_neighbours, (4, 6))) // 2
    batch: list[Probe] = []
    began, made = time.monotonic(), 0
    for probe in probes:
        # The entries for a container and its gateway are those of the node's own request.
        entries = 0 if probe.kind == "gateway" and probe.source is not None and probe.source.is_on_node else 2
        is_full = len(batch) >= most or made + entries > room
        if batch and (is_full or (probe.kind in _FIRST) is not (batch[-1].kind in _FIRST)):
            yield batch
            batch = []
        if made and made + entries > room:
            # In a full table the entries of others would find no place.
            time.sleep(max(0.0, began + _NEIGHBOUR_SECONDS - time.monotonic()))
            began, made = time.monotonic(), 0
        batch.append(probe)
        made += entries
    if batch:
        yield batch


def _neighbours(version: int) -> int:
    with suppress(OSError, ValueError), open(_NEIGHBOURS.format(version), encoding="ascii") as file:
        return int(file.read())
    return _FEWEST_NEIGHBOURS
