"""Compare the interfaces, addresses and routes in the namespaces and on the host with the records."""

from __future__ import annotations

import ipaddress
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from libcni._netlink import Link, Network
from libcni.config.host_local import plugin_documents
from libcni.config.runtime_conf import RuntimeConf
from libcni.diagnosis.reading import (
    Reading,
    attach_command,
    drop_command,
    id_of,
    name_of,
    reload_command,
    reload_in_place,
    result_of,
)
from libcni.diagnosis.report import Checked, Disruption, NodeFinding, NotChecked, Observations, counted, quoted
from libcni.errors import CNIError, NotAttachedError, PluginError, VersionError
from libcni.store.attachments import Attachment
from libcni.store.record import READY

_error = partial(NodeFinding, "interfaces", "error")

_DEFAULT_BRIDGE = "cni0"
_WITH_MASTER = {"macvlan", "ipvlan", "vlan"}

KNOWN_FAULTS = (
    ("portmap", "could not check ipv6 dnat", "portmap 1.1.1 looks for IPv4 rules in the table of IPv6, too"),
    ("bandwidth", "nil pointer dereference", "bandwidth 1.1.1 crashes in CHECK of a container without limits"),
    ("bandwidth", "goroutine 1 [", "bandwidth 1.1.1 crashes in CHECK of a container without limits"),
    ("bridge", "no plugin name provided", "bridge 1.1.1 cannot check a network without IPAM"),
    ("bridge", "gw:<nil>} not found in routing table", "bridge 1.1.1 looks for the route without its gateway"),
    ("bridge", "failed to find gateway", "bridge 1.1.1 looks for routes in the main table, and sbr has moved them"),
)
"""Faults of plugins in CHECK: (plugin, a part of its message, what it means). The container may be in order."""


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
    for finding in (*_bridges(node, node.host), *_masters(node, node.host)):
        explained.update(finding.containers)
        yield finding
    count = 0
    for one, inside in node.live:
        count += 1
        if id_of(one) not in explained:
            yield from _inside(node, one, inside)
        yield from _check_host_ends(node, one, node.host)
    if count:
        yield Checked("interfaces", f"interfaces, addresses and routes of {counted(count, 'ready attachment')}")


def _inside(node: Reading, one: Attachment, inside: Network) -> Observations:
    about = partial(_error, name_of(one), containers=(id_of(one),))
    again = reload_in_place(node, [one])
    result = result_of(one)
    link = inside.links.get(one.ifname)
    if link is None:
        macs = {interface.mac for interface in (result.interfaces if result else ()) if interface.name == one.ifname}
        renamed = [other.name for other in inside.links.values() if other.mac and other.mac in macs]
        if renamed:
            seen = f"{one.ifname} is called {renamed[0]} in {one.netns} now"
            remedy = "rename it back inside the container before it is detached"
            yield replace(about(seen, "DEL does not find it by that name", remedy), severity="warning")
            return
        if moved := _moved(node, macs):
            seen = f"{one.ifname} is {moved} now, and no longer in {one.netns}"
            yield about(seen, "DEL is refused as long as it is there", "move it back before it is detached")
            return
        seen = f"there is no interface {one.ifname} in {one.netns}"
        if stuck := node.stuck_plugin(one):
            meaning = f"the container has lost this network, and DEL of {stuck} fails without the interface"
            commands = (drop_command(one), attach_command(node, one))
            yield about(seen, meaning, "drop the record, and attach with the same parameters:", commands)
            return
        yield about(seen, "the container has lost this network", *again)
        return
    if not link.is_up and (result is None or result.ips):
        yield about(f"{one.ifname} is down in {one.netns}", "the container is cut off", *again)
        return
    lost = [
        (name, address)
        for name, address in _placed_addresses(one)
        # A plugin may have renamed the interface, or moved the address, on purpose. Then only its CHECK can judge.
        if name in inside.links and not any(other.has_address(address) for other in inside.links.values())
    ]
    if lost:
        seen = f"its address {lost[0][1]} is not on {lost[0][0]}"
        has_another = any(
            ipaddress.ip_address(address.partition("/")[0]).version == ipaddress.ip_address(lost[0][1]).version
            and not ipaddress.ip_address(address.partition("/")[0]).is_link_local
            for address in inside.links[lost[0][0]].addresses
        )
        meaning = "the container cannot be reached at its recorded address"
        if has_another:  # somebody gave it another one, and it may be in use
            disrupts = (Disruption(reload_command(one), (id_of(one),)),)
            yield about(seen, f"{meaning}; it has another one", disrupts=disrupts)
        else:
            yield about(seen, meaning, *again)
        return
    destinations = {route.destination for route in inside.routes}
    missing = [text for text in _recorded_routes(one) if text not in destinations]
    if missing:
        seen = f"its route to {', '.join(missing)} is not in {one.netns}"
        yield about(seen, "the container cannot reach these addresses", *again)


def _moved(node: Reading, macs: set[str | None]) -> str:
    """Return where an interface that was moved to another namespace is, or ""; a device that went home is not moved."""
    for space in node.spaces.values():
        if space.network is None or (node.host is not None and space.network.cookie == node.host.cookie):
            continue
        for link in space.network.links.values():
            # All ipvlan interfaces of a device have its hardware address.
            if link.mac and link.mac in macs and link.kind != "ipvlan":
                return f"{link.name} in {space.path}"
    return ""


def _recorded_routes(one: Attachment) -> Iterator[str]:
    """Yield the destinations of the recorded routes, and of those that the kernel makes for the addresses."""
    result = result_of(one)
    destinations = [route.dst for route in result.routes] if result is not None else []
    # An address of one host has no route of its own.
    subnets = (
        [ip.address for ip in result.ips if not ip.address.endswith(("/32", "/128"))] if result is not None else []
    )
    for text in dict.fromkeys([*destinations, *subnets]):
        with suppress(ValueError):
            yield str(ipaddress.ip_network(text, strict=False))


def _placed_addresses(one: Attachment) -> Iterator[tuple[str, str]]:
    """Yield (interface, address) for the addresses that the result places in the container."""
    result = result_of(one)
    if result is None:
        return
    for ip in result.ips:
        address = ip.address.partition("/")[0]
        if ip.interface is None:
            yield one.ifname, address
        elif 0 <= ip.interface < len(result.interfaces) and result.interfaces[ip.interface].sandbox:
            yield result.interfaces[ip.interface].name, address


def _bridges(node: Reading, host: Network) -> Iterator[NodeFinding]:
    """Find bridges that no longer exist, are down, or have lost the address that is the containers' gateway."""
    users: dict[str, list[tuple[Attachment, Mapping[str, Any]]]] = {}
    for one, _ in node.live:
        for document in plugin_documents(node.recorded(one)):
            if document.get("type") == "bridge":
                users.setdefault(str(document.get("bridge") or _DEFAULT_BRIDGE), []).append((one, document))
    for name, attached in users.items():
        containers = tuple(dict.fromkeys(id_of(one) for one, _ in attached))
        link = host.links.get(name)
        about = partial(_error, f"bridge {name}", containers=containers)
        if link is None and (other := _other_bridge(host, [one for one, _ in attached])):
            # A reload would make a second bridge with the same address next to it, and cut off all of them.
            yield replace(
                about(
                    f"it does not exist; its containers are on {other}, which works",
                    "the next ADD makes a second bridge with the same address, and these containers are cut off",
                    f"give {other} its name back, or drain the node and remove it, before anything is attached",
                ),
                severity="warning",
            )  # fmt: skip
            continue
        if link is None:
            seen = f"it does not exist; {counted(len(containers), 'container')} of it lives"
            meaning = "they are cut off; the plugin makes the bridge anew"
            yield about(seen, meaning, *reload_in_place(node, [one for one, _ in attached]))
            continue
        if not link.is_up:
            yield about("it is down", "its containers are cut off", commands=(f"ip link set dev {quoted(name)} up",))
        gateways = {
            f"{ip.gateway}/{ip.address.partition('/')[2]}": ip.gateway
            for one, document in attached
            if document.get("isGateway") is True or document.get("isDefaultGateway") is True
            for ip in getattr(result_of(one), "ips", ())
            if ip.gateway
        }
        missing = [full for full, address in gateways.items() if not link.has_address(address)]
        if missing:
            yield about(
                f"it does not have the address {', '.join(missing)}", "its containers cannot reach their gateway",
                commands=tuple(f"ip address add {quoted(full)} dev {quoted(name)}" for full in missing),
            )  # fmt: skip


def _masters(node: Reading, host: Network) -> Iterator[NodeFinding]:
    users: dict[str, list[Attachment]] = {}
    for one, _ in node.live:
        for document in plugin_documents(node.recorded(one)):
            # A master inside the container is not on the host.
            master = "" if document.get("linkInContainer") else str(document.get("master") or "")
            if document.get("type") in _WITH_MASTER and master:
                users.setdefault(master, []).append(one)
    for master, attached in users.items():
        about = partial(_error, f"master {master}", containers=tuple(map(id_of, attached)))
        link = host.links.get(master)
        if link is None:
            remedy = f"bring {master} back; the doctor then prints the command that attaches its containers again"
            yield about("it does not exist", "its containers are cut off, and no more can be attached", remedy)
        elif not link.is_up:
            yield about("it is down", "its containers are cut off", commands=(f"ip link set dev {quoted(master)} up",))


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
    names = [
        str(doc.get("bridge") or _DEFAULT_BRIDGE)
        for doc in plugin_documents(node.recorded(one))
        if doc.get("type") == "bridge"
    ]
    bridges = [host.links[name] for name in names if name in host.links]
    for link in _host_ends(one, host):
        commands = []
        seen = []
        if bridges and link.master not in {bridge.index for bridge in bridges}:
            seen.append(f"is not on bridge {bridges[0].name}")
            commands.append(f"ip link set dev {quoted(link.name)} master {quoted(bridges[0].name)}")
        if not link.is_up:
            seen.append("is down")
            commands.append(f"ip link set dev {quoted(link.name)} up")
        if commands:
            yield _error(
                name_of(one), f"its host interface {link.name} {' and '.join(seen)}", "the container is cut off",
                commands=tuple(commands), containers=(id_of(one),),
            )  # fmt: skip


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
        if lacking := node.lacking(one):
            yield NotChecked("interfaces", name_of(one), f"CHECK: there is no plugin {', '.join(lacking)}")
            continue
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
        yield NodeFinding(
            "interfaces", "note", f"plugin {plugin}", shown, f"{meaning}; the containers may be in order",
            "nothing; attaching them again does not help. A newer plugin does not have the fault",
            containers=tuple(containers),
        )  # fmt: skip


def _known_fault(error: CNIError) -> tuple[str, str] | None:
    if not isinstance(error, PluginError):
        return None
    text = f"{error.msg} {error.details} {error.stderr}".lower()
    return next(
        ((plugin, meaning) for plugin, part, meaning in KNOWN_FAULTS if plugin == error.plugin and part in text), None
    )


def _failed_check(one: Attachment, error: CNIError) -> NodeFinding:
    if _is_damage(error):
        # Nothing else that the doctor looks at is wrong: the container may work.
        disrupts = (Disruption(reload_command(one), (id_of(one),)),)
        return NodeFinding(
            "interfaces", "error", name_of(one), f"CHECK failed: {error.text}",
            "a plugin finds the container's network damaged", "", (), disrupts, (id_of(one),),
        )  # fmt: skip
    return NodeFinding(
        "interfaces", "warning", name_of(one), f"CHECK gave no answer: {error.text}",
        "nobody knows whether the container's network is in order", "find out why; then:",
        (shlex.join(["libcni", "check", one.network, one.netns, "-c", one.container_id, "-i", one.ifname]),),
        containers=(id_of(one),),
    )  # fmt: skip


def _is_damage(error: CNIError) -> bool:
    """Return whether CHECK says that the attachment is wrong. A plugin that crashed or hung says nothing."""
    if isinstance(error, NotAttachedError):
        return True
    return isinstance(error, PluginError) and error.code is not None and not error.retryable
