"""Compare the interfaces, addresses and routes in the namespaces and on the host with the records."""

from __future__ import annotations

import ipaddress
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from libcni._netlink import Link, Network
from libcni.config.network import plugin_documents
from libcni.config.runtime_conf import RuntimeConf
from libcni.diagnosis.reading import (
    Reading,
    finding_about,
    id_of,
    is_gateway,
    name_of,
    reload_command,
    reload_in_place,
    result_of,
)
from libcni.diagnosis.report import Checked, NodeFinding, NotChecked, Observations, counted, quoted
from libcni.errors import CNIError, NotAttachedError, PluginError, VersionError
from libcni.store.attachments import Attachment
from libcni.store.record import READY

_WITH_MASTER = {"macvlan", "ipvlan", "vlan"}

KNOWN_FAULTS = (
    ("portmap", "could not check ipv6 dnat", "portmap 1.1.1 looks for IPv4 rules in the table of IPv6, too"),
    ("bandwidth", "nil pointer dereference", "bandwidth 1.1.1 crashes in CHECK of a container without limits"),
    ("bandwidth", r"goroutine 1 \[", "bandwidth 1.1.1 crashes in CHECK of a container without limits"),
    ("bridge", "no plugin name provided", "bridge cannot check a network without IPAM"),
    ("bridge", r"gw:<nil>\} not found in routing table", "bridge 1.1.1 looks for the route without its gateway"),
    ("bridge", "failed to find gateway", "bridge looks for routes in the main table, and sbr has moved them"),
    (
        "bridge",
        r"^bridge interface \S+ mac doesn't match",
        "a bridge without an address changes its MAC with its ports",
    ),
)
"""Faults of plugins in CHECK: (plugin, a pattern in its message, what it means). The container may be in order.

Release 1.9.1 still has those without a version.
"""


def check_interfaces(node: Reading) -> Observations:
    """Find what cuts containers off: interfaces, addresses, routes, bridges and masters."""
    if node.host is None:
        yield NotChecked("interfaces", "this node", node.unread.get("this node", "its interfaces are unknown"))
        return
    for one in node.attachments:
        space = node.space_of(one)
        if one.state == READY and one.netns and (space is None or space.network is None):
            yield NotChecked("interfaces", name_of(one), f"{one.netns} cannot be entered")
    explained: set[str] = set()
    for (kind, name), users in _devices(node).items():
        for finding in _device(node, node.host, kind, name, users):
            explained.update(finding.containers)
            yield finding
    for one, inside in node.live:
        if id_of(one) not in explained and (found := _inside(node, one, inside)) is not None:
            yield found
        yield from _check_host_ends(node, one, node.host)
    if node.live:
        yield Checked(
            "interfaces", f"interfaces, addresses and routes of {counted(len(node.live), 'ready attachment')}"
        )


_Users = list[tuple[Attachment, Mapping[str, Any]]]
"""The attachments that are on a device of the host, each with its plugin's configuration."""


def _bridge_of(document: Mapping[str, Any]) -> str:
    return str(document.get("bridge") or "cni0")


def _devices(node: Reading) -> dict[tuple[str, str], _Users]:
    """Return the users of each (``bridge`` or ``master``, name)."""
    found: dict[tuple[str, str], _Users] = {}
    for one, _ in node.live:
        for document in plugin_documents(node.recorded(one)):
            # A master inside the container is not on the host.
            master = "" if document.get("linkInContainer") else str(document.get("master") or "")
            if document.get("type") == "bridge":
                found.setdefault(("bridge", _bridge_of(document)), []).append((one, document))
            elif document.get("type") in _WITH_MASTER and master:
                found.setdefault(("master", master), []).append((one, document))
    return found


def _device(node: Reading, host: Network, kind: str, name: str, users: _Users) -> Iterator[NodeFinding]:
    """Find a bridge or master that no longer exists, is down, or has lost the address that is a gateway."""
    attached = list({id_of(one): one for one, _ in users}.values())
    link = host.links.get(name)
    about = partial(NodeFinding, "interfaces", "error", f"{kind} {name}", containers=tuple(map(id_of, attached)))
    if link is None and kind == "master":
        remedy = f"bring {name} back; the doctor then prints the command that attaches its containers again"
        yield about("it does not exist", "its containers are cut off, and no more can be attached", remedy)
    elif link is None and (other := _other_bridge(host, attached)):
        # A reload would make a second bridge with the same address next to it, and cut off all of them.
        yield replace(
            about(
                f"it does not exist; its containers are on {other}, which works",
                "the next ADD makes a second bridge with the same address, and these containers are cut off",
                f"give {other} its name back, or drain the node and remove it, before anything is attached",
            ),
            severity="warning",
        )  # fmt: skip
    elif link is None:
        seen = f"it does not exist; {counted(len(attached), 'container')} of it lives"
        meaning = "they are cut off; the plugin makes the bridge anew"
        yield about(seen, meaning, *reload_in_place(node, attached))
    else:
        if not link.is_up:
            yield about("it is down", "its containers are cut off", commands=(f"ip link set dev {quoted(name)} up",))
        gateways = {
            f"{ip.gateway}/{ip.address.partition('/')[2]}"
            for one, document in users
            if kind == "bridge" and is_gateway(document)
            for ip in getattr(result_of(one), "ips", ())
            if ip.gateway
        }
        if missing := sorted(full for full in gateways if not link.has_address(full)):
            yield about(
                f"it does not have the address {', '.join(missing)}", "its containers cannot reach their gateway",
                commands=tuple(f"ip address add {quoted(full)} dev {quoted(name)}" for full in missing),
            )  # fmt: skip


def _other_bridge(host: Network, attachments: list[Attachment]) -> str:
    """Return the name of a bridge that has the host's ends of containers, or ""."""
    names = {link.index: link.name for link in host.links.values()}
    return next((names[end.master] for one in attachments for end in _host_ends(one, host) if end.master in names), "")


def _host_ends(one: Attachment, host: Network) -> list[Link]:
    result = result_of(one)
    names = [interface.name for interface in (result.interfaces if result else ()) if not interface.sandbox]
    return [host.links[name] for name in names if name.startswith("veth") and name in host.links]


def _check_host_ends(node: Reading, one: Attachment, host: Network) -> Observations:
    """Find a veth whose end on the host has left its bridge, or is down."""
    documents = plugin_documents(node.recorded(one))
    names = [_bridge_of(document) for document in documents if document.get("type") == "bridge"]
    bridges = [host.links[name] for name in names if name in host.links]
    for link in _host_ends(one, host):
        wrong = {}
        if bridges and link.master not in {bridge.index for bridge in bridges}:
            wrong[f"is not on bridge {bridges[0].name}"] = f"master {quoted(bridges[0].name)}"
        if not link.is_up:
            wrong["is down"] = "up"
        if wrong:
            seen = f"its host interface {link.name} {' and '.join(wrong)}"
            commands = tuple(f"ip link set dev {quoted(link.name)} {words}" for words in wrong.values())
            yield finding_about(one, "interfaces", "error", seen, "the container is cut off", commands=commands)


def _inside(node: Reading, one: Attachment, inside: Network) -> NodeFinding | None:
    """Return what is wrong inside a container, or None."""
    about = partial(finding_about, one, "interfaces", "error")
    again = reload_in_place(node, [one])
    result = result_of(one)
    link = inside.links.get(one.ifname)
    if link is None:
        return _without_interface(node, one)
    if not link.is_up and (result is None or result.ips):
        return about(f"{one.ifname} is down in {one.netns}", "the container is cut off", *again)
    for name, address in _placed_addresses(one):
        # A plugin may have renamed the interface, or moved the address, on purpose. Then only its CHECK can judge.
        if name in inside.links and not any(other.has_address(address) for other in inside.links.values()):
            seen = f"its address {address} is not on {name}"
            meaning = "the container cannot be reached at its recorded address"
            if _has_another(inside.links[name], address):  # somebody gave it another one, and it may be in use
                return about(seen, f"{meaning}; it has another one", disrupts=(reload_command(one),))
            return about(seen, meaning, *again)
    destinations = {route.destination for route in inside.routes}
    if missing := [text for text in _recorded_routes(one) if text not in destinations]:
        seen = f"its route to {', '.join(missing)} is not in {one.netns}"
        return about(seen, "the container cannot reach these addresses", *again)
    return None


def _without_interface(node: Reading, one: Attachment) -> NodeFinding:
    about = partial(finding_about, one, "interfaces", "error")
    result = result_of(one)
    macs = {interface.mac for interface in (result.interfaces if result else ()) if interface.name == one.ifname}
    for space in node.spaces.values():
        # A device of the host that went home has not been moved.
        if space.network is None or (node.host is not None and space.network.cookie == node.host.cookie):
            continue
        for link in space.network.links.values():
            # All ipvlan interfaces of a device have its hardware address.
            if link.mac and link.mac in macs and link.kind != "ipvlan":
                seen = f"{one.ifname} of {one.netns} is {link.name} in {space.path} now"
                return replace(
                    about(seen, "DEL is refused, or does not find it", "move and rename it back before it is detached"),
                    severity="warning",
                )
    seen = f"there is no interface {one.ifname} in {one.netns}"
    return about(seen, "the container has lost this network", *reload_in_place(node, [one]))


def _has_another(link: Link, address: str) -> bool:
    """Return whether an interface has an address of this family that is not one of the link."""
    found = [ipaddress.ip_address(text.partition("/")[0]) for text in link.addresses]
    return any(one.version == ipaddress.ip_address(address).version and not one.is_link_local for one in found)


def _recorded_routes(one: Attachment) -> Iterator[str]:
    """Yield the destinations of the recorded routes, and of those that the kernel makes for the addresses."""
    if (result := result_of(one)) is not None:
        # An address of one host has no route of its own.
        subnets = [ip.address for ip in result.ips if not ip.address.endswith(("/32", "/128"))]
        for text in dict.fromkeys([*(route.dst for route in result.routes), *subnets]):
            with suppress(ValueError):
                yield str(ipaddress.ip_network(text, strict=False))


def _placed_addresses(one: Attachment) -> Iterator[tuple[str, str]]:
    """Yield (interface, address) for the addresses that the result places in the container."""
    if (result := result_of(one)) is not None:
        for ip in result.ips:
            address = ip.address.partition("/")[0]
            if ip.interface is None:
                yield one.ifname, address
            elif 0 <= ip.interface < len(result.interfaces) and result.interfaces[ip.interface].sandbox:
                yield result.interfaces[ip.interface].name, address


def run_checks(node: Reading, explained: set[str], *, run_check: bool) -> Observations:
    """Run CHECK of the live attachments, if wanted; ``explained``: those that have a finding already."""
    attachments = [one for one in node.attachments if one.state == READY and os.path.exists(one.netns)]
    if not attachments:
        return
    if not run_check:
        yield NotChecked("interfaces", "the plugins' own checks", "CHECK was not run; libcni doctor --check runs it")
        return
    passed = known = 0
    faults: dict[tuple[str, str], list[str]] = {}
    for one in attachments:
        try:
            node.cni.check_network_list(one.network, RuntimeConf(one.container_id, None, one.ifname))
            passed += 1
        except VersionError as error:
            yield NotChecked("interfaces", name_of(one), f"CHECK: {error}")
        except CNIError as error:
            if fault := _known_fault(error):
                faults.setdefault(fault, []).append(id_of(one))
            elif id_of(one) in explained:
                known += 1
            else:
                yield _failed_check(one, error)
    also = f", {known} failed for what is reported above" if known else ""
    yield Checked("interfaces", f"CHECK of {counted(len(attachments), 'attachment')}, {passed} passed{also}")
    for (plugin, meaning), containers in faults.items():
        shown = f"CHECK failed for {counted(len(containers), 'attachment')} by a known fault of the plugin"
        newer = ". A newer plugin does not have the fault" if "1.1.1" in meaning else ""
        yield NodeFinding(
            "interfaces", "note", f"plugin {plugin}", shown, f"{meaning}; the containers may be in order",
            f"nothing; attaching them again does not help{newer}",
            containers=tuple(containers),
        )  # fmt: skip


def _known_fault(error: CNIError) -> tuple[str, str] | None:
    if not isinstance(error, PluginError):
        return None
    text = f"{error.msg} {error.details} {error.stderr}".lower()
    return next((fault[::2] for fault in KNOWN_FAULTS if fault[0] == error.plugin and re.search(fault[1], text)), None)


def _failed_check(one: Attachment, error: CNIError) -> NodeFinding:
    about = partial(finding_about, one, "interfaces")
    # A plugin that crashed or hung says nothing about the attachment.
    says_so = isinstance(error, PluginError) and error.code is not None and not error.retryable
    if says_so or isinstance(error, NotAttachedError):
        # Nothing else that the doctor looks at is wrong: the container may work.
        seen, meaning = f"CHECK failed: {error.text}", "a plugin finds the container's network damaged"
        return about("error", seen, meaning, disrupts=(reload_command(one),))
    command = shlex.join(["libcni", "check", one.network, one.netns, "-c", one.container_id, "-i", one.ifname])
    seen, meaning = f"CHECK gave no answer: {error.text}", "nobody knows whether the container's network is in order"
    return about("warning", seen, meaning, "find out why; then:", (command,))
