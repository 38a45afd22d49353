"""libcni diff: compare the recorded configurations with the files of today."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import libcni
import libcni.diagnosis
from libcni.cli.inputs import Selection
from libcni.cli.listing import find_attachments, identity_data, note_left_out, select
from libcni.cli.options import OPTIONAL_SELECTION
from libcni.cli.render import Table, plural
from libcni.cli.session import Session

ARGUMENTS = OPTIONAL_SELECTION


def diff(session: Session, selection: Selection) -> None:
    """Show how recorded configurations differ from today's files.

    Compares key by key. Containers of a network with the same differences are one row. The exit code is 1 if something
    differs.

    Example:
      libcni diff -n front
    """
    cni = session.client()
    networks = {net.name: net for net in cni.networks()}
    changed: list[dict[str, Any]] = []
    network, is_named = selection.network, selection.container is not None
    matching = select(cni, selection) if is_named else find_attachments(cni, selection, owner=session.owner)
    # A misspelt name must not look like a network without differences.
    if network and network not in networks and not matching:
        cni.network(network)
    for attachment in matching:
        changes = _changes(attachment, networks.get(attachment.network)) if attachment.network else []
        changed += [{**identity_data(attachment), **asdict(change)} for change in changes]
    alike: dict[tuple[str, ...], list[str]] = {}
    for change in changed:
        values = (_text(change["recorded"]), _text(change["current"]))
        alike.setdefault((change["network"], change["key"] or "(file)", *values), []).append(change["container_id"])
    rows = [[ids[0] if len(ids) == 1 else plural(len(ids), "container"), *row] for row, ids in alike.items()]
    session.show(changed, Table(("container", "network", "key", "recorded", "today"), rows, empty="no differences"))
    note_left_out(session, selection.container)
    if changed:
        raise SystemExit(1)


def _changes(
    attachment: libcni.Attachment, net: libcni.NetworkConfigList | None
) -> Sequence[libcni.diagnosis.ConfigChange]:
    # A file that no longer exists is a difference, too: the container works, but could not be attached again.
    if net is None:
        return [libcni.diagnosis.ConfigChange("", "a configuration", None)]
    try:
        return libcni.diagnosis.config_changes(attachment, net)
    except libcni.RecordError:  # the library logs why the record's configuration is unusable
        return [libcni.diagnosis.ConfigChange("", None, "a configuration")]


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
