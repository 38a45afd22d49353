"""The state of a node as several checks need it. What only one check needs is in the module of that check."""

from __future__ import annotations

import functools
import ipaddress
import os
from contextlib import suppress
from typing import NamedTuple

from libcni._dataclass import dataclass
from libcni.client import CNIConfig
from libcni.config.host_local import Reservation
from libcni.config.network import NetworkConfigList, read_network
from libcni.diagnosis.reading import PENDING_AFTER, NodeReading, bridge_of, grouped, is_gateway
from libcni.errors import ConfigError
from libcni.kernel.foreign import Space
from libcni.kernel.namespace import NamespaceId
from libcni.kernel.netlink import MAIN_TABLE, Link, Network
from libcni.store.attachments import Attachment
from libcni.store.life_of_record import age_of
from libcni.store.model import CORRUPT, LIVING
from libcni.store.records import without_hash


class Holder(NamedTuple):
    """An interface that has an IP address now.

    Attributes:
        space: its namespace.
        link: the interface.
        recorded: the attachments to whose namespace a record gives the address.
    """

    space: Space
    link: Link
    recorded: list[Attachment]


@dataclass(frozen=True)
class NodeState(NodeReading):
    """The state of a node at one moment, with the views that several checks use."""

    @functools.cached_property
    def _ready(self) -> list[tuple[Attachment, Space]]:
        spaces = (
            (attachment, self.space_of(attachment)) for attachment in self.attachments if attachment.state in LIVING
        )
        return [(attachment, space) for attachment, space in spaces if space is not None]

    @functools.cached_property
    def doubled(self) -> list[list[Attachment]]:
        """Groups of ready attachments whose records name the same interface: only one of each group can be right."""
        groups = grouped(
            ((space.path, attachment.ifname), attachment)
            for attachment, space in self._ready if attachment.ifname != "lo"
        ).values()  # fmt: skip
        return [alike for alike in groups if len({attachment.container_id for attachment in alike}) > 1]

    @functools.cached_property
    def next_network(self) -> NetworkConfigList:
        """The network of the next pod: containerd and CRI-O take the file whose name sorts first, whatever its kind."""
        found = list(self.networks)
        for problem in self.directory.problems if self.directory is not None else ():
            # libcni uses the .conflist file if two have one network name.
            if problem.location == "name" and problem.file:
                with suppress(ConfigError):
                    found.append(read_network(problem.file))
        return min(found, key=lambda net: os.path.basename(net.file or ""))

    @functools.cached_property
    def blocking_file(self) -> str:
        """The unusable file that sorts before all usable ones, or "": containerd reads only it, and CRI-O skips it."""
        problems = self.directory.problems if self.directory is not None else ()
        broken = [problem.file for problem in problems if problem.location != "name" and problem.file]
        first = min(broken, key=os.path.basename, default="")
        usable = self.next_network.file if self.networks else None
        return first if not usable or os.path.basename(first) < os.path.basename(usable) else ""

    @functools.cached_property
    def replaced(self) -> dict[str, Attachment]:
        """Newer attachments of the same pods, keyed by the record paths of old ones in which no process runs.

        A runtime starts the process of a sandbox after its ADD, so the newer one must have a process.
        """
        alike = grouped(
            ((attachment.pod, attachment.ifname), (attachment, space))
            for attachment, space in self._ready if attachment.pod and attachment.ifname != "lo"
        ).values()  # fmt: skip
        found: dict[str, Attachment] = {}
        for pairs in (pairs for pairs in alike if len(pairs) > 1):
            ages = [(age_of(attachment.record), attachment) for attachment, space in pairs if space.process]
            for old, space in pairs:
                age = age_of(old.record)
                newer = [new for known, new in ages if known is not None and age is not None and known < age]
                if newer and not space.process and not self.life.why_blind(old.record.pid_namespace):
                    found[old.path] = newer[0]
        return found

    @functools.cached_property
    def live(self) -> tuple[tuple[Attachment, Network], ...]:
        """The ready attachments whose namespace can be read, each with its interfaces and routes.

        The attachments in ``doubled`` are left out: nobody knows whose the interface is.
        """
        doubled = {attachment.path for alike in self.doubled for attachment in alike}
        return tuple(
            (attachment, space.network)
            for attachment, space in self._ready
            if space.network is not None and attachment.path not in doubled
        )

    @functools.cached_property
    def elsewhere(self) -> frozenset[str]:
        """The paths of the records whose bridge or master is in another network namespace than this program.

        That is so for rootless containers, or if this program runs in a pod without the host's network. Then a bridge,
        a host end or a rule that is missing here is no fault. The kernel shows it by the other end of a living
        interface. If one attachment of the network has its host end here, this is the right namespace, and the end of
        another attachment was moved.
        """
        ends: dict[str, set[bool]] = {}
        for attachment, inside in self.live:
            link = inside.links.get(attachment.ifname)
            if link is not None and link.peer_namespace is not None:
                ends.setdefault(attachment.network, set()).add(link.peer_namespace == inside.reader)
        # For a network without a living interface, the interfaces of the other networks decide.
        everywhere = {is_here for here in ends.values() for is_here in here}
        return frozenset(
            attachment.path for attachment in self.attachments if ends.get(attachment.network, everywhere) == {False}
        )

    @functools.cached_property
    def reservations_of(self) -> dict[str, list[Reservation]]:
        """The reservations of host-local by address, on all networks."""
        return grouped(
            (reservation.address, reservation)
            for reservations in self.reservations.values()
            for reservation in reservations
        )

    def reservation(self, directory: str, address: str) -> Reservation | None:
        """Return the reservation of an address in a directory of host-local, or None."""
        path = f"{directory}/{address}"
        return next((one for one in self.reservations_of.get(address, ()) if one.path == path), None)

    @functools.cached_property
    def holders(self) -> dict[str, list[Holder]]:
        """The interfaces that have an IP address now, by address, except interfaces that any user can have created.

        The interface of a recorded attachment counts in any case: pods may have user namespaces of their own. So do
        the addresses of services that keepalived, LVS or kube-vip put on ``lo`` of the node.
        """
        return grouped(
            (address, Holder(space, link, owners))
            for namespace, space in self.spaces.items()
            for link in (space.network.links.values() if space.network is not None else ())
            for address in (text.partition("/")[0] for text in link.addresses)
            for owners in [[one for one in self.by_namespace.get(namespace, ()) if address in self.addresses_of(one)]]
            if space.is_evidence(link) or (owners if link.name != "lo" else self._is_of_service(space, address))
        )

    def _is_of_service(self, space: Space, address: str) -> bool:
        """Return whether an address on ``lo`` takes packets for it from containers: it is on the node itself."""
        return self.is_host(space) and not ipaddress.ip_address(address).is_loopback

    def strangers(self, address: str) -> list[Holder]:
        """Return the interfaces that have an IP address now although no record assigns it to them."""
        return [holder for holder in self.holders.get(address, ()) if not holder.recorded]

    def host_ends(self, attachment: Attachment) -> list[Link]:
        """Return the host ends of an attachment's veths."""
        links = self.host.links if self.host is not None else {}
        return [links[name] for name in self.summary_of(attachment).veths if name in links]

    def gateway_interfaces(self, attachment: Attachment) -> list[str]:
        """Return the node's interfaces that receive an attachment's packets as its gateway, for bridge and ptp.

        For a VLAN this is an interface on the bridge: the plugin's own, or one that somebody has made.
        """
        found: list[str] = []
        for document in self.documents(attachment):
            if document.get("type") == "bridge" and is_gateway(document):
                bridge = bridge_of(document)
                found += (self._interfaces_of_vlan(bridge, document["vlan"]) if document.get("vlan") else []) or [
                    bridge
                ]
            elif document.get("type") == "ptp":
                found += [link.name for link in self.host_ends(attachment)]
        return found

    def _interfaces_of_vlan(self, bridge: str, vlan: object) -> list[str]:
        links = self.host.links if self.host is not None else {}
        own = f"{bridge}.{vlan}"  # as the plugin bridge names it
        return [own] if own in links else self._vlans_on.get(links[bridge].index, []) if bridge in links else []

    @functools.cached_property
    def _vlans_on(self) -> dict[int, list[str]]:
        """The names of the node's VLANs, by the index of the interface that they are on."""
        links = self.host_links_by_index.values()
        return grouped((link.peer, link.name) for link in links if link.kind == "vlan")

    def is_host(self, space: Space) -> bool:
        """Return whether a namespace is the node's own."""
        cookie = self.host.cookie if self.host is not None else 0
        return space.network is not None and bool(cookie) and space.network.cookie == cookie

    @functools.cached_property
    def inner_bridges(self) -> frozenset[str]:
        """The node's bridges without a default route: packets to other networks leave over other interfaces."""
        links = self.host_links_by_index.values()
        return frozenset(link.name for link in links if link.kind == "bridge" and link not in self.uplinks)

    @functools.cached_property
    def uplinks(self) -> tuple[Link, ...]:
        """The node's interfaces with a default route, over which packets to other networks leave."""
        ways = [route.ifindex for route in (self.host.routes if self.host else ()) if is_default(route.destination)]
        return tuple(
            self.host_links_by_index[index] for index in dict.fromkeys(ways) if index in self.host_links_by_index
        )

    def way_out(self, version: int) -> tuple[Link | None, str]:
        """Return (interface, gateway) of the main table's default route of an IP version; (None, "") if it has none."""
        return self._ways_out.get(version, (None, ""))

    @functools.cached_property
    def _ways_out(self) -> dict[int, tuple[Link, str]]:
        # The host has several routes for each container, and a check asks for each container.
        found: dict[int, tuple[Link, str]] = {}
        for route in self.host.routes if self.host is not None else ():
            link = self.host_links_by_index.get(route.ifindex)
            if link is not None and route.table == MAIN_TABLE and route.destination.endswith("/0"):
                found.setdefault(6 if ":" in route.destination else 4, (link, route.gateway))
        return found

    @functools.cached_property
    def host_links_by_index(self) -> dict[int, Link]:
        """The node's links by their index."""
        return {link.index: link for link in (self.host.links.values() if self.host is not None else ())}

    def reserved_for(self, network: str, container_id: str) -> list[Reservation]:
        """Return the reservations for a container on a network; ``network`` "": on all networks."""
        return [other for name, other in self._reserved.get(container_id, ()) if network in {"", name}]

    @functools.cached_property
    def _reserved(self) -> dict[str, list[tuple[str, Reservation]]]:
        pairs = ((network, other) for (network, _), reservations in self.reservations.items() for other in reservations)
        return grouped((pair[1].container_id, pair) for pair in pairs)

    def attached(self, network: str, container_id: str) -> list[Attachment]:
        """Return the attachments of a container to a network; ``network`` "": to all networks."""
        return [other for other in self._attached.get(container_id, ()) if network in {"", other.network}]

    def recorded_in(self, space: Space) -> list[Attachment]:
        """Return the attachments in a namespace."""
        return self._recorded_in.get(id(space), [])

    @functools.cached_property
    def _recorded_in(self) -> dict[int, list[Attachment]]:
        return {id(space): self.by_namespace.get(identity, []) for identity, space in self.spaces.items()}

    @functools.cached_property
    def by_namespace(self) -> dict[NamespaceId, list[Attachment]]:
        """The attachments by the namespace that they are in now."""
        return grouped(
            (namespace, attachment) for attachment in self.attachments
            if (namespace := self.namespace_of(attachment)) is not None
        )  # fmt: skip

    @functools.cached_property
    def _attached(self) -> dict[str, list[Attachment]]:
        return grouped((attachment.container_id, attachment) for attachment in self.attachments)

    @functools.cached_property
    def by_path(self) -> dict[str, Attachment]:
        """The attachments by the paths of their records."""
        return {attachment.path: attachment for attachment in self.attachments}

    @functools.cached_property
    def recorded_addresses(self) -> dict[str, list[Attachment]]:
        """The attachments, by each address in their records."""
        return grouped(
            (address, attachment) for attachment in self.attachments for address in self.addresses_of(attachment)
        )

    def is_known(self, network: str, container_id: str, ifname: str = "") -> bool:
        """Return whether a record, perhaps corrupt or moved to ``corrupt``, may belong to this attachment."""
        recorded = self.attached(network, container_id)
        return any(ifname in {"", attachment.ifname} for attachment in recorded) or self.is_unreadable(
            network, container_id, ifname
        )

    def is_unreadable(self, network: str, container_id: str, ifname: str = "") -> bool:
        """Return whether a record that is corrupt, or was moved to ``corrupt``, may belong to this attachment."""
        return any(name.startswith(network) and f"-{container_id}-{ifname}" in name for name in self._unreadable_names)

    @functools.cached_property
    def _unreadable_names(self) -> tuple[str, ...]:
        corrupt = [os.path.basename(attachment.path) for attachment in self.attachments if attachment.state == CORRUPT]
        # The name of a record that was set aside ends with the time.
        return tuple(map(without_hash, (*corrupt, *(name.rpartition(".")[0] for name in self.set_aside))))

    @functools.cached_property
    def known_networks(self) -> frozenset[str]:
        """The networks that have a configuration or a record here."""
        return frozenset(
            {net.name for net in self.networks}
            | {attachment.network for attachment in self.attachments if attachment.network}
        )


def is_default(destination: str) -> bool:
    """Return whether a route is the default route, or one of the two halves that VPNs make instead of it."""
    return destination.endswith(("/0", "/1"))


def read_node(cni: CNIConfig, *, pending_after: float = PENDING_AFTER) -> NodeState:
    """Read the state of a node. Objects that cannot be read are in ``unread``."""
    return NodeState.read(cni, pending_after=pending_after)
