"""libcni forget: remove a record, and run no plugin."""

from __future__ import annotations

import libcni
from libcni.cli.inputs import Selection
from libcni.cli.listing import decoded, identity_data, identity_row, listed_addresses, select
from libcni.cli.options import SELECTION, Argument
from libcni.cli.render import Table
from libcni.cli.session import Session

ARGUMENTS = (
    *SELECTION,
    Argument("--yes", "-y", action="store_true", help="Remove the records. Without --yes, only print them."),
)


def forget(session: Session, selection: Selection, yes: bool) -> None:
    """Remove the records of a container, and run no plugin.

    Use it only if no DEL can succeed. Prints the records; --yes removes them. Interfaces, addresses and rules
    that the plugins created stay.

    Example:
      libcni forget web -i eth0 --yes
    """
    cni = session.client()
    attachments = select(cni, selection)
    rows, data = [], []
    for attachment in attachments:
        plugins = cni.forget_attachment(attachment).plugins if yes else _plugins(attachment)
        resources = ", ".join([*plugins, *listed_addresses(attachment)])
        rows.append([*identity_row(attachment), attachment.state, resources])
        data.append({**identity_data(attachment), "path": attachment.path, "plugins": plugins, "dropped": yes})
    title = (
        "removed; interfaces, addresses or rules of these plugins may remain:"
        if yes
        else "would be removed; interfaces, addresses and rules of these plugins remain:"
    )
    session.show(data, Table(("container", "network", "interface", "state", "created"), rows, title))
    if not yes:
        # "web:eth0" must not become a command for all interfaces of web.
        ifname = selection.ifname or (selection.container or "").partition(":")[2]
        hint = libcni.Hint(
            "", "forget", container_id=attachments[0].container_id, ifname=ifname, network=selection.network,
            options=("--yes",),
        )  # fmt: skip
        session.show_text(f"\nnothing was changed; to do it: {session.hint_command(hint)}")


def _plugins(attachment: libcni.Attachment) -> tuple[str, ...]:
    document = decoded(attachment.config)
    plugins = document.get("plugins", [document]) if isinstance(document, dict) else []
    return tuple(str(plugin.get("type")) for plugin in plugins if isinstance(plugin, dict))
