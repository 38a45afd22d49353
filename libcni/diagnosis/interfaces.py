"""Compare the interfaces and addresses in the namespaces with the records."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from libcni._netlink import Link, links
from libcni.config.runtime_conf import RuntimeConf
from libcni.diagnosis.namespaces import masquerade_commands
from libcni.diagnosis.node_view import NodeView, detach_command, name_of, plugin_documents, result_of
from libcni.diagnosis.report import Checked, NodeFinding, NotChecked, Observations, counted, quoted
from libcni.errors import CNIError, NotAttachedError, PluginError, VersionError
from libcni.store.attachments import Attachment

_error = partial(NodeFinding, "interfaces", "error")

_DEFAULT_BRIDGE = "cni0"
_WITH_MASTER = {"macvlan", "ipvlan", "vlan"}


def check_interfaces(node: NodeView) -> Observations:
    """Find interfaces, addresses, bridges and masters that have gone. Runs CHECK if the caller wants it."""
    try:
        # The namespace of this process is the node's, as for the plugins that it would run.
        host = links()
    except OSError as error:
        yield NotChecked("interfaces", "this node", f"its interfaces cannot be listed: {error.strerror}")
        return
    count = 0
    reported: set[str] = set()
    for one in node.live():
        for problem in _host_problems(node, one, host):
            if problem.subject not in reported:  # one finding for a bridge, however many containers it connects
                reported.add(problem.subject)
                yield problem
        try:
            inside = links(one.netns)
        except OSError as error:
            yield NotChecked("interfaces", name_of(one), f"{one.netns} cannot be entered: {error.strerror}")
            continue
        count += 1
        yield from _inside_problems(node, one, inside)
    if count:
        yield Checked("interfaces", f"interfaces and addresses of {counted(count, 'ready attachment')}")
    yield from _run_check(node)


def _inside_problems(node: NodeView, one: Attachment, inside: Mapping[str, Link]) -> Observations:
    again = "attach it again:"
    if node.configured(one.network) is None:
        again = (
            f"network {one.network} has no configuration any more; put its file back and attach again, or detach it:"
        )
    link = inside.get(one.ifname)
    if link is None:
        yield _error(
            name_of(one), f"there is no interface {one.ifname} in {one.netns}", "the container has lost this network",
            again, _attach_again(node, one),
        )  # fmt: skip
        return
    for name, address in _addresses_inside(one):
        # A plugin may have renamed or moved the interface on purpose. Then only its CHECK can judge.
        there = inside.get(name)
        if there is not None and not there.has_address(address):
            yield _error(
                name_of(one), f"its address {address} is not on {name}",
                "the container cannot be reached at its recorded address", again, _attach_again(node, one),
            )  # fmt: skip


def _attach_again(node: NodeView, one: Attachment) -> tuple[str, ...]:
    """Return the commands to attach a container again that has lost its interface or an address."""
    again, rules = node.attach_again(one), masquerade_commands(one)
    if not rules:
        return again
    # The plugins remove the rules only of addresses that the interface still has. With a rule left, the chain could not
    # be removed, and every later DEL would fail.
    detach = detach_command(one.container_id, one.ifname)
    return (detach, *rules, *(command for command in again if command != detach))


def _addresses_inside(one: Attachment) -> Iterator[tuple[str, str]]:
    """Yield (interface, address) for the addresses that the result places in the container."""
    result = result_of(one)
    if result is None:
        return
    for ip in result.ips:
        if ip.interface is None:
            yield one.ifname, ip.address.partition("/")[0]
        elif 0 <= ip.interface < len(result.interfaces) and result.interfaces[ip.interface].sandbox:
            yield result.interfaces[ip.interface].name, ip.address.partition("/")[0]


def _host_problems(node: NodeView, one: Attachment, host: Mapping[str, Link]) -> Iterator[NodeFinding]:
    again = "attach the containers again; the plugin makes the bridge anew:"
    for document in plugin_documents(node.recorded(one)):
        if bridge := _bridge_of(document):
            if bridge not in host:
                commands = tuple(
                    command
                    for other in node.live()
                    for configured in plugin_documents(node.recorded(other))
                    if _bridge_of(configured) == bridge
                    for command in node.attach_again(other)
                )
                yield _error(
                    f"bridge {bridge}", f"it has gone; container {one.container_id} needs it",
                    "its containers are cut off", again, commands,
                )  # fmt: skip
            else:
                yield from _detached_ends(one, host, host[bridge])
            continue
        # A master inside the container is not on the host.
        master = "" if document.get("linkInContainer") else str(document.get("master") or "")
        if document.get("type") in _WITH_MASTER and master and master not in host:
            yield _error(
                f"master {master}", f"it has gone; container {one.container_id} needs it",
                "its containers are cut off, and no more can be attached",
                f"bring {master} back, or name another master in the network's file; then attach again:",
                node.attach_again(one),
            )  # fmt: skip


def _bridge_of(document: Mapping[str, Any]) -> str | None:
    """Return the bridge that a plugin's configuration names, or None if the plugin has none."""
    return str(document.get("bridge") or _DEFAULT_BRIDGE) if document.get("type") == "bridge" else None


def _detached_ends(one: Attachment, host: Mapping[str, Link], bridge: Link) -> Iterator[NodeFinding]:
    """Find a veth whose end on the host has left the bridge."""
    result = result_of(one)
    for interface in result.interfaces if result else ():
        link = host.get(interface.name)
        is_end = not interface.sandbox and interface.name.startswith("veth")
        if is_end and link is not None and link.master != bridge.index:
            yield _error(
                name_of(one), f"its host interface {link.name} is not on bridge {bridge.name}",
                "the container is cut off", commands=(f"ip link set {quoted(link.name)} master {quoted(bridge.name)}",),
            )  # fmt: skip


def _run_check(node: NodeView) -> Observations:
    attachments = list(node.live())
    if not attachments:
        return
    if not node.run_check:
        yield NotChecked("interfaces", "the plugins' own checks", "CHECK was not run; libcni doctor --check runs it")
        return
    count = 0
    for one in attachments:
        try:
            node.cni.check_network_list(one.network, RuntimeConf(one.container_id, None, one.ifname))
            count += 1
        except VersionError as error:
            yield NotChecked("interfaces", name_of(one), f"CHECK: {error}")
        except CNIError as error:
            if _is_damage(error):
                yield _error(
                    name_of(one), f"CHECK failed: {error}", "the container's network is damaged", "attach it again:",
                    node.attach_again(one),
                )  # fmt: skip
            else:
                # To attach again would interrupt a container that may be in order.
                yield NodeFinding(
                    "interfaces", "warning", name_of(one), f"CHECK gave no answer: {error}",
                    "nobody knows whether the container's network is in order", "find out why; then:",
                    (shlex.join(["libcni", "check", "-c", one.container_id, "-i", one.ifname]),),
                )  # fmt: skip
    yield Checked("interfaces", f"CHECK of {counted(len(attachments), 'attachment')}, {count} passed")


def _is_damage(error: CNIError) -> bool:
    """Return whether CHECK says that the attachment is wrong. A plugin that crashed or hung says nothing."""
    if isinstance(error, NotAttachedError):
        return True
    return isinstance(error, PluginError) and error.code is not None and not error.retryable
