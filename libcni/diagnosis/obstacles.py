"""Find out why an ADD would fail, without running a plugin."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterator, Mapping
from itertools import chain as joined
from typing import Any

from libcni.config.delegates import SUBNET_FILE, delegated
from libcni.config.host_local import range_sets, reservation_directories
from libcni.config.network import NetworkConfigList, plugin_documents
from libcni.config.port_mappings import ports_in
from libcni.diagnosis.needed_programs import missing_programs
from libcni.diagnosis.node_state import NodeState
from libcni.diagnosis.reading import bridge_of, is_gateway
from libcni.errors import some
from libcni.kernel.netlink import Link
from libcni.store.attachments import Attachment

_FILES = {SUBNET_FILE, "kubeconfig", "server_socket"}
"""The keys of flannel; of Multus, Calico and others; and of Kube-OVN."""
_DHCP = "/run/cni/dhcp.sock"
"""The socket of the daemon of dhcp, without ``daemonSocketPath``."""


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
    """Return the missing files that the network's plugins read, and that a daemon of the plugins writes."""
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
    """Return a gateway's address that the plugin refuses to give a bridge, and the bridge's addresses that cause this.

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
