"""Compare recorded configurations with the present files."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from libcni.config import jsontext
from libcni.config.network import NetworkConfigList
from libcni.config.port_mappings import PORT_MAPPINGS, ports_in
from libcni.diagnosis.mends import id_of
from libcni.diagnosis.node_state import NodeState
from libcni.diagnosis.reading import grouped
from libcni.diagnosis.refused_values import refused_values
from libcni.diagnosis.report import Checked, NodeFinding, NotChecked, Observations
from libcni.errors import counted, some
from libcni.store.attachments import Attachment
from libcni.store.model import Unreadable


def check_drift(node: NodeState) -> Observations:
    """Find attachments whose network has another configuration now, or no configuration."""
    # Runtimes attach ``lo`` to a network that they write themselves, for example containerd to ``cni-loopback``.
    known = [
        attachment for attachment in node.attachments
        if not isinstance(attachment.record, Unreadable) and not node.is_loopback(attachment)
    ]  # fmt: skip
    if not known:
        return
    # A directory that cannot be read must not look as if every network had lost its file.
    if node.directory is None:
        yield NotChecked("drift", node.cni.conf_dir, "the configurations cannot be read")
        return
    for network, attachments in grouped((attachment.network, attachment) for attachment in known).items():
        net = node.configured(network)
        yield from _without_file(node, network, attachments) if net is None else _changed(node, net, attachments)
    yield Checked("drift", f"recorded configurations of {counted(len(known), 'attachment')}")


def _without_file(node: NodeState, network: str, attachments: list[Attachment]) -> Observations:
    newest = max(attachments, key=lambda attachment: attachment.record.created or 0)
    dead = [attachment for attachment in attachments if node.life_of(attachment).is_dead]
    living = [attachment for attachment in attachments if attachment not in dead]
    renamed = renamed_network(node, newest)
    seen = f"it has no usable configuration file, and {counted(len(attachments), 'attachment')}: {_names(attachments)}"
    seen += f"; these have ended: {_names(dead)}" if dead and living else ""
    seen += "; all have ended" if not living else ""
    meanings = [_reserved(node, dead)] if dead else []
    if renamed is not None:
        reserves = "host-local reserves by the network's name: the next containers get addresses that are in use"
        meanings.append(f"{renamed.file} has the same plugins under the name {renamed.name}, and {reserves}")
    elif living:
        which = "the living ones" if dead else "these attachments"
        meanings.append(f"{which} work and can be detached; no further container can be attached to the network")
    if node.networks and any(attachment.pod for attachment in living):
        who = "CRI-O attaches the next pod to" if node.blocking_file else "the next pod will be attached to"
        none = f"; containerd attaches none, because of {node.blocking_file}" if node.blocking_file else ""
        meanings.append(f"{who} {node.next_network.name}{none}")
    problem = next(filter(None, map(node.unusable_plugin, dead)), "")
    remedies = []
    if problem:
        remedies = [f"to detach what has ended, install the plugins ({problem}), or remove its records: libcni forget"]
    if living or not problem:
        remedies.append(_restored(node, network, renamed, living, newest))
    yield NodeFinding(
        "drift", "warning", "no-file", f"network {network}", seen, "; ".join(meanings), "; ".join(remedies),
        containers=tuple(map(id_of, attachments)),
    )  # fmt: skip


def _reserved(node: NodeState, dead: list[Attachment]) -> str:
    """Return what is left of dead attachments, and who has their addresses now."""
    addresses = [address for attachment in dead for address in node.addresses_of(attachment)]
    users = dict.fromkeys(
        id_of(other) for address in addresses for other in node.recorded_addresses.get(address, ()) if other not in dead
    )
    text = f"their addresses are still reserved: {some(addresses)}" if addresses else "only their records are left"
    return text + (f"; {some(list(users))} has such an address now" if users else "")


def _restored(
    node: NodeState, network: str, renamed: NetworkConfigList | None, living: list[Attachment], newest: Attachment
) -> str:
    """Return what to do about a network without a file."""
    if renamed is None:
        # containerd misses a file that is moved or linked into its directory, and changes behind a link.
        restart = ", and if new pods still fail then, restart containerd" if newest.pod else ""
        return (
            f"if the network is still wanted, correct or restore its file{restart}; "
            f"to see its recorded configuration: {_show(newest)}"
        )
    if any(other.network == renamed.name for other, _ in node.live):
        # With the old name the containers of the new one would be those without a file.
        names = some([attachment.pod or attachment.container_id for attachment in living])
        if not names:
            return "no container with the old name lives: libcni repair --yes detaches what is left"
        return f"others already use the new name, so restart the containers that use the old one: {names}"
    return f"give the network its old name again in {renamed.file}: {network}"


def was_attached_with(node: NodeState, attachment: Attachment, net: NetworkConfigList) -> bool:
    """Return whether an attachment's recorded configuration has the same plugins as a network."""
    recorded = node.recorded(attachment)
    return recorded is not None and _plugins(recorded) == _plugins(net)


def _plugins(net: NetworkConfigList) -> list[dict[str, Any]]:
    """Return the plugins of a network, without the keys that a .conf file has in the plugin and a list has outside."""
    own = ("name", "cniVersion")
    return [{key: one[key] for key in one if key not in own} for one in _document(net)["plugins"]]


def renamed_network(node: NodeState, attachment: Attachment) -> NetworkConfigList | None:
    """Return the configured network that has another name, but the same plugins as an attachment's network; or None."""
    recorded = node.recorded(attachment)
    plugins = _document(recorded)["plugins"] if recorded is not None else None
    return next((net for net in node.networks if _document(net)["plugins"] == plugins), None)


def _changed(node: NodeState, net: NetworkConfigList, attachments: list[Attachment]) -> Observations:
    changed: list[Attachment] = []
    keys: dict[str, None] = {}
    # Most attachments of a network have the same configuration, so compare it once.
    by_config = grouped(
        ((attachment.config, attachment.record.plugins, attachment.made_by_go), attachment)
        for attachment in attachments
    )
    for (_, _, made_by_go), alike in by_config.items():
        recorded = node.recorded(alike[0])
        if recorded is None:
            reason = "the record has no usable configuration"
            yield from (NotChecked("drift", attachment.path, reason) for attachment in alike)
            continue
        # Go libcni records no drop-in plugins, so they are no difference.
        differences = dict.fromkeys(_differences("", _document(recorded), _document(net, without_drop_ins=made_by_go)))
        changed += alike if differences else ()
        keys |= differences
    if changed:
        wanted = "if the change is wanted, do nothing"
        if any(refused_values(net, node.versions_of)):
            wanted = "correct the file: a value in it is refused"
        meaning = "these attachments keep the old configuration until their containers are started again"
        if publishing := [one for one in changed if _loses_ports(node, net, one)]:
            meaning += f"; then nobody serves the published ports of {_names(publishing)}: no plugin has portMappings"
            wanted = "put portmap with its capability portMappings back into the file, or else publish no ports"
        yield NodeFinding(
            "drift", "warning", "changed-configuration", f"network {net.name}",
            f"{counted(len(changed), 'attachment')} with another configuration than {net.file}: {_names(changed)}; "
            f"changed keys: {some(list(keys))}",
            meaning,
            f"{wanted}; to see the recorded configuration: {_show(changed[0])}",
            containers=tuple(map(id_of, changed)),
        )  # fmt: skip


def _loses_ports(node: NodeState, net: NetworkConfigList, attachment: Attachment) -> bool:
    """Return whether an attachment publishes ports, and no plugin of the present file takes them from the runtime."""
    takes = [
        one is not None and any(PORT_MAPPINGS in plugin.capabilities for plugin in one.plugins)
        for one in (node.recorded(attachment), net)
    ]
    return takes == [True, False] and any(ports_in(attachment.capability_args))


def _document(net: NetworkConfigList, *, without_drop_ins: bool = False) -> dict[str, Any]:
    document: dict[str, Any] = jsontext.parse(net.raw.decode(errors="surrogatepass")) if net.raw else {}
    plugins = [plugin for plugin in net.plugins if not (without_drop_ins and plugin.source)]
    return {**document, "name": net.name, "plugins": [jsontext.parse(plugin.text) for plugin in plugins]}


def _differences(key: str, old: Any, new: Any) -> Iterator[str]:
    """Yield the paths of the keys with different values, such as ``plugins[0].ipam.subnet``."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*old, *new]):
            yield from _differences(f"{key}.{name}" if key else name, old.get(name), new.get(name))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, pair in enumerate(zip(old, new, strict=True)):
            yield from _differences(f"{key}[{index}]", *pair)
    elif old != new:
        yield key


def _show(attachment: Attachment) -> str:
    return shlex.join(["libcni", "show", id_of(attachment), "-n", attachment.network, "--config"])


def _names(attachments: list[Attachment]) -> str:
    return some([attachment.container_id for attachment in attachments])
