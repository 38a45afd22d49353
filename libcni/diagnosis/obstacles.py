"""Find out why an ADD would fail, without running a plugin."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain as joined
from typing import Any

from libcni._dataclass import replace
from libcni.client import CNIConfig
from libcni.config.delegates import SUBNET_FILE, delegated
from libcni.config.host_local import (
    Reservation,
    range_sets,
    reservation_at,
    reservation_directories,
    reservations_in,
)
from libcni.config.network import NetworkConfigList, plugin_documents
from libcni.config.port_mappings import ports_in
from libcni.diagnosis.needed_programs import missing_programs
from libcni.diagnosis.node_state import NodeState
from libcni.diagnosis.reading import bridge_of, grouped, is_gateway, plugin_names
from libcni.errors import CNIError, some
from libcni.kernel.netlink import Link, Network, links_named
from libcni.store.attachments import Attachment

__all__ = ["obstacles_to_reload"]

_FILES = {SUBNET_FILE, "kubeconfig", "server_socket"}
"""The keys of flannel; of Multus, Calico and others; and of Kube-OVN."""
_DHCP = "/run/cni/dhcp.sock"
"""The socket of the daemon of dhcp, without ``daemonSocketPath``."""


def obstacles_to_reload(cni: CNIConfig, attachments: Iterable[Attachment]) -> list[str]:
    """Return for each attachment why the ADD of a reload would fail after its DEL, and what to do; "" if no reason.

    A reload alone finds out only after its DEL that a program which a plugin needs is missing, that a plugin is
    damaged, that a daemon's file is missing, that the bridge has another network's address, or that no address is free.
    A missing plugin is left out, because the reload itself finds that before the DEL. An obstacle for one attachment is
    one for those that are reloaded with it. Reads only what this needs, not the whole node.

    Args:
        cni: the client that would reload them.
        attachments: the attachments.

    Raises:
        RecordError: the records cannot be read.

    Examples:
        >>> obstacles_to_reload(cni, cni.get_cached_attachments())
        ['']
    """
    attachments = tuple(attachments)
    containers = {attachment.container_id for attachment in attachments}
    every = cni.get_cached_attachments(*containers) if len(containers) == 1 else cni.get_cached_attachments()
    # A reload detaches what shares rules with an attachment, too.
    paths = {attachment.path for attachment in attachments}
    recorded = [one for one in every if one.path in paths or (one.container_id in containers and one.can_reload)]
    node = NodeState(cni, attachments=tuple(recorded))
    documents = [document for attachment in recorded for document in node.documents(attachment)]
    bridges = {bridge_of(document) for document in documents if document.get("type") == "bridge"}
    host = None
    with suppress(OSError):
        host = Network(links_named(bridges), ()) if bridges else None
    node = replace(node, host=host, reservations=dict(_reservations(node, recorded)))
    found = {attachment.path: _obstacle_now(node, attachment) for attachment in recorded}
    together = (
        [
            found.get(one.path, "")
            for one in node.attached("", attachment.container_id)
            if one.path == attachment.path or _share_rules(node, one, attachment)
        ]
        for attachment in attachments
    )
    return [next(filter(None, problems), "") for problems in together]


def _share_rules(node: NodeState, one: Attachment, other: Attachment) -> bool:
    """Return whether a reload of one attachment of a container reloads another one: see ``libcni.verbs.reload``."""
    types = [{document.get("type") for document in node.documents(attachment)} for attachment in (one, other)]
    return one.network == other.network or all("portmap" in kinds for kinds in types)


def _obstacle_now(node: NodeState, attachment: Attachment) -> str:
    net = node.recorded(attachment)
    with suppress(CNIError):
        for plugin in plugin_names(net) if net is not None else ():
            node.cni.find_plugin(plugin)
        return obstacle_to_reload(node, attachment)
    return ""  # the reload names the plugin before its DEL, as every verb does


def _reservations(
    node: NodeState, attachments: Iterable[Attachment]
) -> Iterator[tuple[tuple[str, str], list[Reservation]]]:
    """Yield the reservations of the attachments' addresses, and all of a directory if one is another container's."""
    users = grouped(
        (path, attachment) for attachment in attachments
        for path in reservation_directories(node.recorded(attachment))
    )  # fmt: skip
    for path, attached in users.items():
        with suppress(OSError):
            own = [
                found for attachment in attached for address in node.addresses_of(attachment)
                if (found := reservation_at(f"{path}/{address}")) is not None
                and found.container_id != attachment.container_id
            ]  # fmt: skip
            if own:
                yield (os.path.basename(path), path), reservations_in(path)


def obstacle_to_reload(node: NodeState, attachment: Attachment) -> str:
    """Return why the ADD of a reload would fail after its DEL, and what to do; "" if no obstacle is known."""
    net = node.recorded(attachment)
    if net is None:
        return "the recorded configuration cannot be read"
    return next(joined(filter(None, [node.unusable_plugin(attachment)]), _obstacles(node, net, attachment)), "")


def _obstacles(node: NodeState, net: NetworkConfigList, attachment: Attachment) -> Iterator[str]:
    for program, plugins in lacking_of(node, attachment).items():
        yield f"{some(plugins)} needs {program}, which is not in the plugins' PATH: install it"
    for path in missing_files(net):
        yield f"{path} does not exist: start the plugin's daemon, which writes it"
    for document in node.documents(attachment):
        link = node.host.links.get(bridge_of(document)) if node.host is not None else None
        if (
            document.get("type") == "bridge"
            and link is not None
            and (others := refused_gateway(net, document, link)[1])
        ):
            yield f"{link.name} has the address {some(others)}, so the plugin refuses this bridge"
    taken = [path for path in reservation_directories(net) if _is_taken_from(node, attachment, path)]
    if any(_is_full(node, net, path) for path in taken):
        yield "the container's address is reserved for another container, and no other address is free"


def lacking_of(node: NodeState, attachment: Attachment) -> dict[str, list[str]]:
    """Return the programs that an ADD of an attachment would not find, each with the plugins that need it."""
    has_ports = any(ports_in(attachment.capability_args))
    return missing_programs(node, node.documents(attachment), node.addresses_of(attachment), has_ports=has_ports)


def missing_files(net: NetworkConfigList) -> list[str]:
    """Return the files that a network's plugins read and their daemons write, but that do not exist."""
    ran = [one for document in plugin_documents(net) for _, one in delegated(net.name, document)]
    needed = dict.fromkeys(joined.from_iterable(map(_needed_files, (*plugin_documents(net), *ran))))
    return [path for path in needed if not os.path.lexists(path)]


def _needed_files(document: object) -> Iterator[str]:
    """Yield the files and sockets of a plugin's daemon that a plugin's configuration names."""
    if isinstance(document, dict):
        if document.get("type") == "dhcp":
            yield str(document.get("daemonSocketPath") or _DHCP)
        for key, value in document.items():
            if key in _FILES and isinstance(value, str) and value.startswith("/"):
                yield value
            else:
                yield from _needed_files(value)


def bridge_gateways(net: NetworkConfigList) -> list[str]:
    """Return the addresses with prefix length that an ADD of a network gives its bridge."""
    return [f"{span.gateway}/{span.prefix}" for spans in range_sets(net, net.name) for span in spans[:1]]


def refused_gateway(net: NetworkConfigList, document: Mapping[str, Any], link: Link) -> tuple[str, list[str]]:
    """Return (gateway's address that the plugin refuses to give a bridge, the bridge's addresses that cause this).

    The plugin (ensureAddr in bridge.go) stops at another IPv4 address, or at an IPv6 address of an overlapping subnet,
    if the kernel lists this address before the gateway's.
    """
    if is_gateway(document) and document.get("forceAddress") is not True:
        wanted = bridge_gateways(net)
        for gateway in wanted:
            others = [own for own in link.addresses if own not in wanted and _excludes(own, gateway)]
            before = link.addresses[: link.addresses.index(gateway)] if gateway in link.addresses else link.addresses
            if any(own in before for own in others):
                return gateway, others
    return "", []


def _excludes(own: str, gateway: str) -> bool:
    """Return whether the plugin gives a bridge only one of two addresses."""
    one, other = ipaddress.ip_interface(own), ipaddress.ip_interface(gateway)
    return one.version == other.version and (one.version == 4 or one.network.overlaps(other.network))  # noqa: PLR2004 - IPv4


def _is_taken_from(node: NodeState, attachment: Attachment, directory: str) -> bool:
    """Return whether another container has reserved an address of an attachment."""
    found = (node.reservation(directory, address) for address in node.addresses_of(attachment))
    return any(one is not None and one.container_id != attachment.container_id for one in found)


def _is_full(node: NodeState, net: NetworkConfigList, directory: str) -> bool:
    """Return whether a range set of a network has no free address."""
    reserved = [one for (_, path), all_of in node.reservations.items() if path == directory for one in all_of]
    return any(
        sum(one.is_in(ranges) for one in reserved) >= sum(span.size for span in ranges)
        for ranges in range_sets(net, os.path.basename(directory))
    )
