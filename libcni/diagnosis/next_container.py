"""Find out whether the next container could be attached: the default network, the bridges, and the way out."""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from libcni.config.delegates import delegated
from libcni.config.host_local import range_sets, reservation_directories
from libcni.config.network import NetworkConfigList, plugin_documents
from libcni.diagnosis.config_drift import renamed_network, was_attached_with
from libcni.diagnosis.lost_packets import ACCEPT, lost_on_way_out
from libcni.diagnosis.mends import Mend, id_of
from libcni.diagnosis.node_devices import WITH_MASTER, devices_of
from libcni.diagnosis.node_state import NodeState
from libcni.diagnosis.obstacles import refused_gateway
from libcni.diagnosis.reading import bridge_of, grouped, is_gateway
from libcni.diagnosis.refused_values import refused_values
from libcni.diagnosis.report import Checked, NodeFinding, NotChecked, Observations
from libcni.errors import counted, some
from libcni.kernel.netlink import Link, Network
from libcni.store.attachments import Attachment
from libcni.store.model import LIVING

_BELOW_MASTER = {"macvlan", "vlan"}
"""The plugins that refuse an MTU above that of the master."""


def check_next(node: NodeState) -> Observations:
    """Find out whether an ADD to each configured network would succeed. Other checks examine plugins and pools."""
    if not node.networks:
        return
    yield from _default_network(node)
    yield from _shared_pools(node)
    if node.host is None:
        yield NotChecked("next", "bridges", node.unread.get("this node", "the node's interfaces are unknown"))
        return
    used = {attachment.network for attachment, _ in node.live}
    yield from _devices(node, node.host)
    for net in node.networks:
        documents = plugin_documents(net)
        accepts = any(document.get("type") == "firewall" for document in documents)
        for document in documents:
            if document.get("type") == "bridge" and is_gateway(document):
                link = node.host.links.get(bridge_of(document))
                if link is not None:
                    yield from _bridge(node, net, document, link)
                if net.name not in used and not accepts:  # for its containers the check of the rules has said it
                    yield from _way_out(node, net, bridge_of(document))
    yield Checked("next", f"bridges of {some([net.name for net in node.networks])}")


def _default_network(node: NodeState) -> Observations:
    """Report the network of Kubernetes' next pod, and whether it is another one than before."""
    default = node.next_network
    yield from _two_files(node, default)
    what = f"the next pod is attached to {default.name} of {os.path.basename(default.file or '?')}"
    pods = grouped(
        (attachment.network, attachment)
        for attachment in node.attachments
        if attachment.pod and attachment.state in LIVING and not node.is_loopback(attachment)
    )
    # If the pods' network has lost its file, or has another name in it now, the check of the configurations says so.
    with_file = {name: net for name in sorted(pods) if (net := node.configured(name))}
    is_renamed = any(
        renamed_network(node, alike[0]) is default for name, alike in pods.items() if name not in with_file
    )
    if with_file and not is_renamed and not _was_in_use(node, default) and _is_newer(default, pods.values()):
        second = next(net for net in sorted(node.networks, key=_file_name) if net is not default)
        yield NodeFinding(
            "next", "warning", "default-changed", default.file or default.name,
            f"{what}, because its name sorts first; all pods of this node are on {some(sorted(pods))}",
            "pods of two networks may not reach each other, and two networks may want the same bridge",
            f"if that file is left over, move it away: then the next pod is attached to {second.name} of "
            f"{os.path.basename(second.file or '?')}",
            containers=tuple(id_of(attachment) for alike in pods.values() for attachment in alike),
        )  # fmt: skip
    # Else the check of the configurations has said what each runtime does, or that the plugin refuses the file.
    if not node.blocking_file and not any(refused_values(default, node.versions_of)):
        yield Checked("next", what)


def _file_name(net: NetworkConfigList) -> str:
    return os.path.basename(net.file or "")


def _two_files(node: NodeState, default: NetworkConfigList) -> Iterator[NodeFinding]:
    """Find a network with two files, if the next pod is attached with another one than the present pods."""
    other = node.configured(default.name)
    pods = [
        attachment for attachment, _ in node.live
        if attachment.pod and other is not None and other.file != default.file
        and was_attached_with(node, attachment, other) and not was_attached_with(node, attachment, default)
    ]  # fmt: skip
    if pods and other is not None:
        first = shlex.quote(default.file or "")
        yield NodeFinding(
            "next", "error", "default-changed", default.file or default.name,
            f"containerd and CRI-O take this file for the next pod, because its name sorts first, and "
            f"{counted(len(pods), 'attachment')} of the network {default.name} were made with {other.file}",
            "pods of two configurations may not reach each other, and two networks may want the same bridge",
            f"if it is left over: mv {first} {first}.off", (), tuple(map(id_of, pods)),
        )  # fmt: skip


def _was_in_use(node: NodeState, net: NetworkConfigList) -> bool:
    """Return whether pods are or were attached to a network: by record, by reservation, or by a bridge of its own.

    If its pods cannot be started now, all others are on other networks.
    """
    is_recorded = any(attachment.pod for attachment in node.attachments if attachment.network == net.name)
    directories = reservation_directories(net)
    is_reserved = any(reserved for (_, path), reserved in node.reservations.items() if path in directories)
    others = {bridge for network, bridges in node.bridges_of.items() if network != net.name for bridge in bridges}
    bridges = set(node.bridges_of.get(net.name, ())) - others
    links = node.host.links if node.host is not None else {}
    return is_recorded or is_reserved or not bridges.isdisjoint(links)


def _is_newer(net: NetworkConfigList, pods: Iterable[list[Attachment]]) -> bool:
    """Return whether a network's file came after all these pods. If not, their runtime does not choose by the name."""
    with suppress(OSError):
        changed = os.stat(net.file or "").st_ctime
        return all((attachment.record.created or 0) < changed for alike in pods for attachment in alike)
    return True


def _shared_pools(node: NodeState) -> Iterator[NodeFinding]:
    """Find addresses that two networks in use both give out, on one link or on two bridges of the node."""
    used = {attachment.network for attachment, _ in node.live} | {node.networks[0].name}
    directories = {directory for (_, directory), reserved in node.reservations.items() if reserved}
    nets = [net for net in node.networks if net.name in used or directories & reservation_directories(net)]
    for one, other in itertools.combinations(nets, 2):
        if reservation_directories(one) & reservation_directories(other) or not _links(one) & _links(other):
            continue
        for pool, same in itertools.product(*([*itertools.chain(*range_sets(net))] for net in (one, other))):
            if pool.start in same or same.start in pool:
                first, last = max(pool.start, same.start, key=int), min(pool.end, same.end, key=int)
                yield NodeFinding(
                    "next", "warning", "pools-overlap",
                    f"networks {one.name} of {one.file} and {other.name} of {other.file}",
                    f"both give containers the addresses from {first} to {last}",
                    "host-local keeps their reservations apart: a container may get the address of another one",
                    "give one of the two another subnet, or ranges of its own",
                )  # fmt: skip


def _links(net: NetworkConfigList) -> set[str]:
    """Return where the addresses of a network must be unique: its bridges and masters, and "" for the node's routes."""
    documents = [ran for document in plugin_documents(net) for _, ran in delegated(net.name, document)]
    bridges = [document for document in documents if document.get("type") == "bridge"]
    links = {bridge_of(document) for document in bridges}
    links |= {str(document["master"]) for document in documents if document.get("master")}
    return links | ({""} if any(map(is_gateway, bridges)) else set())


def _devices(node: NodeState, host: Network) -> Iterator[NodeFinding]:
    """Find devices of the node that a network needs and that its plugin refuses, or does not find."""
    pairs = (
        (net, ran) for net in node.networks for one in plugin_documents(net) for _, ran in delegated(net.name, one)
    )
    for net, document in pairs if not node.elsewhere else ():
        kind, mtu = str(document.get("type")), document.get("mtu")
        master = "" if document.get("linkInContainer") else str(document.get("master") or "")
        about = partial(NodeFinding, "next", "error", meaning=f"no container can be attached to {net.name}")
        bridge = host.links.get(bridge_of(document))
        if kind == "bridge" and bridge is not None and bridge.kind != "bridge":
            yield about(
                "unusable-file", net.file or net.name,
                f"bridge: {bridge.name} is an interface of the node, but no bridge",
                remedy="write the name of a bridge there; the plugin creates one that does not exist",
            )  # fmt: skip
        elif kind in WITH_MASTER and master and master not in host.links:
            if ("master", master) in devices_of(node):
                continue  # the check of the interfaces says it, with the containers
            yield about(
                "master-missing", f"master {master}", f"it does not exist; {net.name} of {net.file} needs it",
                remedy=f"create {master}, or write the name of another interface into the file",
            )  # fmt: skip
        elif (
            kind in _BELOW_MASTER and master in host.links and isinstance(mtu, int) and 0 < host.links[master].mtu < mtu
        ):
            yield about(
                "unusable-file", net.file or net.name,
                f"mtu: {mtu} is larger than the MTU of {master}, {host.links[master].mtu}, and {kind} refuses that",
                remedy=f"write a smaller number there, or run: ip link set {shlex.quote(master)} mtu {mtu}",
            )  # fmt: skip


def _bridge(node: NodeState, net: NetworkConfigList, document: Mapping[str, Any], link: Link) -> Iterator[NodeFinding]:
    """Find a bridge whose address the plugin refuses."""
    wanted, wrong = refused_gateway(net, document, link)
    if not wanted:
        return
    ports = [other for other in (node.host.links.values() if node.host else ()) if other.master == link.index]
    living = [
        id_of(attachment)
        for attachment in node.attachments
        if attachment.state in LIVING and any(end.master == link.index for end in node.host_ends(attachment))
    ]
    only_prefix = {one.partition("/")[0] for one in wrong} == {wanted.partition("/")[0]}
    # The gateway's own address with another prefix length is replaced in place.
    mends = () if ports and not only_prefix else tuple(
        Mend("remove-address", link.name, (address,), tuple(living), tuple(living)) for address in wrong
    )  # fmt: skip
    if mends and ports and wanted not in link.addresses:
        mends += (Mend("add-address", link.name, (wanted,), tuple(living), tuple(living)),)
    who = some(living or [port.name for port in ports]) if ports else "nobody"
    yield NodeFinding(
        "next", "error", "bridge-address", f"network {net.name} of {net.file}",
        f"the gateway is {wanted}, but the bridge {link.name} has another address, {some(wrong)}; on the bridge: {who}",
        f'no new container can be attached: "{link.name} already has an IP address different from {wanted}"',
        "" if mends else f"{_undo(node, net, wrong[0])}give this network another bridge; or move those containers "
        "away, then call repair again",
        mends, tuple(dict.fromkeys(living)),
    )  # fmt: skip


def _undo(node: NodeState, net: NetworkConfigList, address: str) -> str:
    """Return what to do if somebody has changed the file: the network's attachments have the bridge's gateway."""
    attached = (node.summary_of(attachment) for attachment in node.attachments if attachment.network == net.name)
    is_changed = any(address in summary.gateways for summary in attached)
    return f"if the file was changed by mistake, make its gateway {address} again; else " if is_changed else ""


def _way_out(node: NodeState, net: NetworkConfigList, bridge: str) -> Iterator[NodeFinding]:
    for first in (str(spans[0].start) for spans in range_sets(net, net.name)):
        for place, name, seen in lost_on_way_out(node, first, bridge):
            meaning = f"containers of network {net.name} could not reach other networks"
            yield NodeFinding("next", "warning", name, str(place), seen, meaning, ACCEPT)
