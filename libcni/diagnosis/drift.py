"""Compare recorded configurations with the present files."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from libcni.config import jsontext
from libcni.config.network import NetworkConfigList
from libcni.diagnosis.node_state import NodeState, grouped, id_of
from libcni.diagnosis.report import Checked, NodeFinding, NotChecked, Observations, counted, some
from libcni.errors import RecordError
from libcni.store.attachments import Attachment, recorded_network
from libcni.store.model import MadeByGo, Unreadable

__all__ = ["ConfigChange", "config_changes"]


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A value that differs between two configurations.

    Attributes:
        key: the path of the key, such as ``plugins[0].ipam.subnet``.
        recorded: the value that ADD used; None if the key was missing.
        current: the present value; None if the key is missing.

    Examples:
        >>> ConfigChange("mtu", recorded=1500, current=9000).key
        'mtu'
    """

    key: str
    recorded: Any
    current: Any


def config_changes(attachment: Attachment, net: NetworkConfigList) -> tuple[ConfigChange, ...]:
    """Return the differences between an attachment's recorded configuration and a network, key by key.

    Raises:
        RecordError: the record has no usable configuration.
    """
    recorded = recorded_network(attachment.record)
    if recorded is None:
        hint = "DEL with a configuration of yours works: use_given=True"
        raise RecordError(f"{attachment.path}: the record has no usable configuration", path=attachment.path, hint=hint)
    # Go libcni records no drop-in plugins, so they are no difference.
    made_by_go = isinstance(attachment.record, MadeByGo)
    return tuple(_differences("", _document(recorded), _document(net, without_drop_ins=made_by_go)))


def _document(net: NetworkConfigList, *, without_drop_ins: bool = False) -> dict[str, Any]:
    document: dict[str, Any] = jsontext.parse(net.raw.decode(errors="surrogatepass")) if net.raw else {}
    plugins = [plugin for plugin in net.plugins if not (without_drop_ins and plugin.source)]
    return {**document, "name": net.name, "plugins": [jsontext.parse(plugin.text) for plugin in plugins]}


def _differences(key: str, old: Any, new: Any) -> Iterator[ConfigChange]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*old, *new]):
            yield from _differences(f"{key}.{name}" if key else name, old.get(name), new.get(name))
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            pair = [values[index] if index < len(values) else None for values in (old, new)]
            yield from _differences(f"{key}[{index}]", *pair)
    elif old != new:
        yield ConfigChange(key, old, new)


def check_drift(node: NodeState) -> Observations:
    """Find attachments whose network has another configuration today, or none."""
    known = [attachment for attachment in node.attachments if not isinstance(attachment.record, Unreadable)]
    if not known:
        return
    # A directory that cannot be read must not look as if every network had lost its file.
    if node.directory is None:
        yield NotChecked("drift", node.cni.conf_dir, "the configurations cannot be read")
        return
    for network, attachments in grouped((attachment.network, attachment) for attachment in known).items():
        net = node.configured(network)
        yield from (_without_file(network, attachments),) if net is None else _changed(net, attachments)
    yield Checked("drift", f"recorded configurations of {counted(len(known), 'attachment')}")


def _without_file(network: str, attachments: list[Attachment]) -> NodeFinding:
    newest = max(attachments, key=lambda attachment: attachment.record.created or 0)
    show = shlex.join(["libcni", "show", id_of(newest), "-n", network, "--config"])
    return NodeFinding(
        "drift", "warning", "no-file", f"network {network}",
        f"it has no usable configuration file, and {counted(len(attachments), 'attachment')}: {_names(attachments)}",
        "these work and can be detached from their records; no more can be attached",
        f"if the network is still wanted, correct or restore its file; its recorded configuration: {show}",
        containers=tuple(map(id_of, attachments)),
    )  # fmt: skip


def _changed(net: NetworkConfigList, attachments: list[Attachment]) -> Observations:
    changed: list[Attachment] = []
    keys: dict[str, None] = {}
    # Most attachments of a network have the same configuration, so compare it once.
    by_config = grouped(((one.config, one.record.plugins, one.record.version), one) for one in attachments)
    for alike in by_config.values():
        try:
            changes = config_changes(alike[0], net)
        except (RecordError, ValueError) as error:
            yield from (NotChecked("drift", attachment.path, str(error)) for attachment in alike)
            continue
        changed += alike if changes else ()
        keys |= dict.fromkeys(change.key for change in changes)
    if changed:
        yield NodeFinding(
            "drift", "warning", "changed-configuration", f"network {net.name}",
            f"{counted(len(changed), 'attachment')} with another configuration than {net.file}: {_names(changed)}; "
            f"changed keys: {some(list(keys))}",
            "they keep the old configuration until their containers are started again",
            f"nothing, if that is wanted; the recorded one: "
            f"{shlex.join(['libcni', 'show', id_of(changed[0]), '-n', net.name, '--config'])}",
            containers=tuple(map(id_of, changed)),
        )  # fmt: skip


def _names(attachments: list[Attachment]) -> str:
    return some([attachment.container_id for attachment in attachments])
