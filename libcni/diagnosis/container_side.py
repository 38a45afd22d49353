"""Compare the interfaces, addresses and routes in containers' namespaces with the records."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from typing import Any

from libcni._dataclass import replace
from libcni.config.host_local import reservation_directories
from libcni.diagnosis.mends import Mend, MendKind, id_of, link_mend
from libcni.diagnosis.node_state import NodeState, is_default
from libcni.diagnosis.reading import grouped
from libcni.diagnosis.reload_mend import reloads
from libcni.diagnosis.report import NodeFinding, finding_about
from libcni.diagnosis.stopped_links import (
    command_in,
    let_take,
    takes,
)
from libcni.errors import counted, some
from libcni.kernel.foreign import Space
from libcni.kernel.netlink import DROPS_PACKETS, Link, Network
from libcni.store.attachments import Attachment
from libcni.store.place import Known, Place, is_same_index
from libcni.store.recorded_interface import place_of

_error = partial(finding_about, "interfaces", "error")
CUT_OFF = "the container is cut off"
_FOLLOW_IPAM = {"bridge", "ptp", "macvlan", "ipvlan", "vlan", "host-device"}
_LIKE_ENDS = {"bridge", "ptp", "portmap", "firewall", "bandwidth", "sbr", "tuning"}
"""The plugins that set the same MTU at both ends of a veth, or set no MTU."""
_ONE_HOST = ("/32", "/128")


def without_default_route(node: NodeState) -> Iterator[NodeFinding]:
    """Find containers that were attached without the default route which others of their network got."""
    alike = grouped(((one.network, one.ifname), (one, inside)) for one, inside in node.live)
    for ((network, _), pairs), is_6 in product(alike.items(), (False, True)):
        given = {
            one.path for one, _ in pairs
            if any(is_default(place) and (":" in place) == is_6 for place, _ in node.summary_of(one).routes)
        }  # fmt: skip
        lacking = [
            one for one, inside in (pairs if given else ())
            if one.path not in given and any((":" in address) == is_6 for address in node.addresses_of(one))
            and not any(is_default(way.destination) and (":" in way.destination) == is_6 for way in inside.routes)
        ]  # fmt: skip
        if lacking:
            gateways = [
                (one, cidr) for one in lacking for cidr in node.summary_of(one).gateways if (":" in cidr) == is_6
            ]
            commands = [
                command_in(one.netns, f"ip{' -6' * is_6} route add default via {cidr.partition('/')[0]}")
                for one, cidr in gateways
            ]
            names = tuple(map(id_of, lacking))
            others = f"{counted(len(given), 'other attachment')} of the network got one"
            remedy = "if that is a mistake, add the routes to the network's file, and start the container again"
            yield NodeFinding(
                "interfaces", "warning", "route-missing", f"network {network}",
                f"{some(names)}: attached without a default route of {'IPv6' if is_6 else 'IPv4'}; {others}",
                "without it a container reaches its own network only",
                f"{remedy}; until then: {some(commands, '; ')}" if commands else remedy, (), names,
            )  # fmt: skip


def faults_inside(node: NodeState, attachment: Attachment, inside: Network) -> Iterator[NodeFinding]:
    """Find faults inside a container's namespace."""
    link, netns = inside.links.get(attachment.ifname), attachment.netns
    if link is None:
        yield _without_interface(node, attachment)
        return
    if not link.is_up and node.summary_of(attachment).has_addresses:
        mends: tuple[Mend, ...] = (link_mend("set-up", attachment, link, netns=netns),)
        yield _error(attachment, "interface-down", f"{attachment.ifname} is down in {netns}", CUT_OFF, mends=mends)
        return
    yield from _addresses(node, attachment, inside)
    prefixes = list(_prefixes(node, attachment, inside))
    yield from prefixes
    mtu = _expected_mtu(node, attachment)
    if mtu and link.mtu and link.mtu != mtu:
        seen = f"the MTU of {link.name} is {link.mtu}, but the plugin has set {mtu}"
        yield finding_about(
            "interfaces", "warning", attachment, "mtu-changed", seen,
            "large packets may be lost", command_in(netns, f"ip link set {link.name} mtu {mtu}"),
        )  # fmt: skip
    else:
        yield from _unlike_ends(node, attachment, link)
    # The kernel removes the routes with the address.
    if not prefixes and not lost_addresses(node, attachment, inside):
        yield from _routes(node, attachment, inside, link)
        yield from _subnets_of_ptp(node, attachment, inside, link)


def _unlike_ends(node: NodeState, attachment: Attachment, link: Link) -> Iterator[NodeFinding]:
    """Find a veth whose ends have different MTUs: these plugins give both the same."""
    documents = node.documents(attachment)
    if not {str(document.get("type")) for document in documents} <= _LIKE_ENDS or any(map(_has_mtu, documents)):
        return
    for end in node.host_ends(attachment):
        if end.mtu and link.mtu and end.mtu != link.mtu:
            larger = f"mtu {max(end.mtu, link.mtu)}"
            command = command_in(attachment.netns, f"ip link set {link.name} {larger}")
            command = f"ip link set {end.name} {larger}" if end.mtu < link.mtu else command
            yield finding_about(
                "interfaces", "warning", attachment, "mtu-changed",
                f"the MTU of {link.name} is {link.mtu}, but the MTU of its other end, {end.name}, is {end.mtu}",
                "large packets may be lost",
                "if the smaller MTU is right, write it into the network's file (mtu), and start the container again; "
                f"if the larger one is: {command}",
            )  # fmt: skip


def _has_mtu(document: Mapping[str, Any]) -> bool:
    return document.get("type") == "tuning" and bool(document.get("mtu"))


def _expected_mtu(node: NodeState, attachment: Attachment) -> int:
    """Return the MTU that the last plugin with such a key has set, or 0."""
    documents = node.documents(attachment)
    set_to = [one["mtu"] for one in documents if one.get("mtu") and one.get("type") in {*_FOLLOW_IPAM, "tuning"}]
    return set_to[-1] if set_to and isinstance(set_to[-1], int) else 0


def lost_addresses(node: NodeState, attachment: Attachment, inside: Network) -> list[tuple[str, str]]:
    """Return (interface, address with prefix length) of the recorded addresses that no interface has any longer."""
    # These plugins leave an address where they have reported it.
    is_known = {str(document.get("type")) for document in node.documents(attachment)} <= {*_FOLLOW_IPAM, *_LIKE_ENDS}
    return [
        (name, cidr) for name, cidr in node.summary_of(attachment).placed
        # A plugin may have renamed the interface, or moved the address, on purpose. Then only its CHECK can judge.
        if name in inside.links
        and not any(
            other.has_address(cidr) for other in inside.links.values()
            if other.name != "lo" or name == "lo" or not is_known
        )
    ]  # fmt: skip


def _prefixes(node: NodeState, attachment: Attachment, inside: Network) -> Iterator[NodeFinding]:
    """Find addresses with another prefix length than the recorded one; other plugins than these may change it."""
    if not any(document.get("type") in _FOLLOW_IPAM for document in node.documents(attachment)):
        return
    for name, cidr in node.summary_of(attachment).placed:
        link = inside.links.get(name)
        if link is not None and link.has_address(cidr) and cidr not in link.addresses:
            others = [text for text in link.addresses if text.partition("/")[0] == cidr.partition("/")[0]]
            change: list[tuple[MendKind, str]] = [
                *(("remove-address", text) for text in others),
                ("add-address", _as_placed(node, attachment, cidr)),
            ]
            mends = (link_mend(kind, attachment, link, text, netns=attachment.netns) for kind, text in change)
            yield _error(
                attachment, "prefix-changed", f"the address on {name} is {some(others)}, but {cidr} is recorded",
                "the container's routes to its gateway and neighbours are wrong",
                mends=tuple(replace(mend, interrupts=mend.containers) for mend in mends),
            )  # fmt: skip


def _gateway_of(node: NodeState, attachment: Attachment, cidr: str) -> str:
    """Return the gateway behind which ptp places the network of an address; "" for other plugins and single hosts."""
    is_ptp = any(document.get("type") == "ptp" for document in node.documents(attachment))
    gateways = [gateway.partition("/")[0] for gateway in node.summary_of(attachment).gateways]
    same = [gateway for gateway in gateways if (":" in gateway) == (":" in cidr)]
    return same[0] if same and is_ptp and not cidr.endswith(_ONE_HOST) else ""


def _as_placed(node: NodeState, attachment: Attachment, cidr: str) -> str:
    """Return the detail of the mend that adds an address as its plugin did."""
    gateway = _gateway_of(node, attachment, cidr)
    return f"{cidr} via {gateway}" if gateway else cidr


def _subnets_of_ptp(node: NodeState, attachment: Attachment, inside: Network, link: Link) -> Iterator[NodeFinding]:
    """Find the kernel's route to the network of a ptp address, which comes when somebody adds the address by hand."""
    for name, cidr in node.summary_of(attachment).placed:
        gateway, subnet = _gateway_of(node, attachment, cidr), str(ipaddress.ip_interface(cidr).network)
        ways = [route for route in inside.routes if (route.destination, route.ifindex) == (subnet, link.index)]
        first = min(ways, key=lambda route: route.metric, default=None)
        if gateway and name == link.name and first is not None and not first.gateway:
            commands = (
                f"route replace {ipaddress.ip_network(gateway)} dev {name}", f"route del {subnet} dev {name}",
                f"route replace {subnet} via {gateway} dev {name}",
            )  # fmt: skip
            yield _error(
                attachment, "route-changed", f"the route to {subnet} has no gateway; that of ptp has {gateway}",
                "the container cannot reach the other containers of its network",
                "; ".join(command_in(attachment.netns, f"ip {command}") for command in commands),
            )  # fmt: skip


def _others(node: NodeState, link: Link, address: str) -> list[str]:
    """Return the addresses of an interface that somebody gave it instead of ``address``: no record knows them."""
    return [
        text for text in link.addresses
        if (":" in text) == (":" in address) and not text.startswith("fe80:")
        and text.partition("/")[0] not in node.recorded_addresses
    ]  # fmt: skip


def replacing_addresses(node: NodeState) -> set[str]:
    """Return the addresses that somebody gave to containers instead of the recorded ones, without prefix lengths."""
    return {
        text.partition("/")[0]
        for attachment, inside in node.live
        # Most containers have their addresses: do not decode their results again.
        if not all(
            any(holder.space.network is inside for holder in node.holders.get(address, ()))
            for address in node.addresses_of(attachment)
        )
        for name, cidr in lost_addresses(node, attachment, inside)
        for text in _others(node, inside.links[name], cidr)
    }


def _addresses(node: NodeState, attachment: Attachment, inside: Network) -> Iterator[NodeFinding]:
    netns = attachment.netns
    directories = reservation_directories(node.recorded(attachment))
    for name, cidr in lost_addresses(node, attachment, inside):
        address = cidr.partition("/")[0]
        others = _others(node, inside.links[name], address)
        instead = f", which has {some(others)} instead" if others else ""
        about = partial(_error, attachment, "address-lost", f"the address {address} is not on {name}{instead}")
        meaning = "the container cannot be reached at its recorded address"
        if not takes(inside.links[name], address):
            mtu = _expected_mtu(node, attachment) or max((end.mtu for end in node.host_ends(attachment)), default=0)
            command = command_in(netns, let_take(inside.links[name], mtu))
            yield about(meaning, f"call repair again after: {command}")
        elif held := node.holders.get(address):  # two interfaces with one address are worse than no interface with it
            owner = f"find the owner of that interface in {held[0].space.path}"
            yield about(f"{meaning}, and another interface has the address", owner)
        elif any(
            reservation.container_id != attachment.container_id and os.path.dirname(reservation.path) in directories
            for reservation in node.reservations_of.get(address, ())
        ):  # a later container may use the address at any moment
            yield about(
                f"{meaning}, which is reserved for another container now", *reloads(node, attachment, interrupts=True)
            )
        else:
            link = inside.links[name]
            mends = (
                *(link_mend("remove-address", attachment, link, other, netns=netns) for other in others),
                link_mend("add-address", attachment, link, _as_placed(node, attachment, cidr), netns=netns),
            )
            # Both or none: beside the other address the container would still send from that one.
            yield about(
                meaning, mends=tuple(replace(one, interrupts=one.containers) for one in mends) if others else mends
            )


def _routes(node: NodeState, attachment: Attachment, inside: Network, link: Link) -> Iterator[NodeFinding]:
    """Find the reported routes that are missing, or that lead to another gateway than was reported."""
    netns = attachment.netns
    present = grouped((route.destination, route) for route in inside.routes if route.ifindex != DROPS_PACKETS)
    routes = _reported_routes(node, attachment)
    reported = grouped((destination, gateway) for destination, gateway, _ in routes)
    missing = [(place, gateway) for place, gateways in reported.items() if place not in present for gateway in gateways]
    if missing:
        mends = tuple(link_mend("add-route", attachment, link, *filter(None, route), netns=netns) for route in missing)
        seen = f"the route to {some([destination for destination, _ in missing])} is not in {netns}"
        yield _error(attachment, "route-missing", seen, "the container cannot reach these addresses", mends=mends)
    for destination in dict.fromkeys(place for place, _, is_sure in routes if is_sure):
        ways = present.get(destination, ())
        metrics = [way.metric for way in ways]
        actual = {route.gateway for route in ways if route.metric == min(metrics)}
        if actual and actual.isdisjoint(reported[destination]):
            seen = f"the route to {destination} leads to {some(sorted(actual)) or 'no gateway'}"
            [right, *_] = reported[destination]
            command = f"ip route replace {destination} via {right} dev {link.name}"
            if any(way.gateway == right for way in ways):  # behind the other one, which has a lower metric
                [wrong, *_] = sorted(actual)
                command = f"ip route del {destination}{f' via {wrong}' * bool(wrong)} metric {min(metrics)}"
            yield _error(
                attachment, "route-changed", f"{seen}; the plugins reported {some(reported[destination])}",
                "packets to this destination leave the container by another way",
                f"find out who changed the route; then: {command_in(netns, command)}",
            )  # fmt: skip


def _without_interface(node: NodeState, attachment: Attachment) -> NodeFinding:
    recorded, own = place_of(attachment.record), node.space_of(attachment)
    for space in node.spaces.values():
        # The device of host-device returns to the host's namespace by itself: nobody has moved it.
        if space.network is None or node.is_host(space):
            continue
        for link in space.network.links.values():
            if _is_recorded(recorded, space, link, is_own=space is own):
                seen = f"{attachment.ifname} of {attachment.netns} is {link.name} in {space.path} now"
                remedy = "move the interface back, or rename it back, before you detach the container"
                return _error(
                    attachment, "interface-moved", seen, "DEL is refused, or does not find the interface", remedy
                )
    seen, meaning = (
        f"there is no interface {attachment.ifname} in {attachment.netns}",
        "the container has lost this network",
    )
    return _error(attachment, "interface-missing", seen, meaning, *reloads(node, attachment))


def _is_recorded(recorded: Place, space: Space, link: Link, *, is_own: bool) -> bool:
    """Return whether an interface is a recorded one; ``is_own``: whether it is in the recorded namespace."""
    cookie = space.network.cookie if space.network is not None else 0
    if is_same_index(recorded, Place(cookie=cookie, interface=Known(link.index))):
        return True
    # Users choose hardware addresses, and all ipvlan interfaces of a device have its address. An interface that was
    # moved keeps its index if it is free there.
    is_same = link.mac == recorded.mac and recorded.number in {0, link.index} and link.kind != "ipvlan"
    return bool(link.mac) and is_same and (is_own or space.is_evidence(link))


def _reported_routes(node: NodeState, attachment: Attachment) -> list[tuple[str, str, bool]]:
    """Return (destination, gateway, whether the gateway is certain) of the routes that the plugins reported.

    The kernel's own route to the subnet is not among them: some plugins replace it.
    """
    summary = node.summary_of(attachment)
    gateways = {":" in gateway: gateway.partition("/")[0] for gateway in reversed(summary.gateways)}
    # For a route without a gateway these plugins use that of the address; others may do as they like.
    follows = any(document.get("type") in _FOLLOW_IPAM for document in node.documents(attachment))
    found = [(place, own or gateways.get(":" in place, ""), bool(own)) for place, own in summary.routes]
    return [(place, gateway, bool(gateway and (is_own or follows))) for place, gateway, is_own in found]
