"""libcni forget: drop a record and run nothing."""

from __future__ import annotations

import libcni
from libcni.cli.containers import recorded_container
from libcni.cli.inputs import attachment_ids
from libcni.cli.options import AttachmentArgument, NetworkOption
from libcni.cli.session import Session

__all__ = ["forget"]


def forget(session: Session, attachment: AttachmentArgument, network: NetworkOption = "") -> None:
    """Drop the record of an attachment and run nothing.

    The last way out if no DEL can succeed. Whatever the plugins made, such as interfaces, addresses and rules, stays;
    the plugins are printed.
    """
    ((container, ifname),) = attachment_ids([attachment])
    cni = session.client()
    container = recorded_container(cni, container, detaches=True)
    found = [
        one
        for one in cni.get_cached_attachments(container)
        if one.container_id == container and ifname in {None, one.ifname} and network in {"", one.network}
    ]
    if not found:
        raise libcni.NotAttachedError(
            f"there is no record of {attachment}", container_id=container, ifname=ifname or "",
            hint="libcni attachments lists the recorded attachments",
        )  # fmt: skip
    for one in found:
        report = cni.forget_attachment(one)
        left = ", ".join(report.plugins) or "unknown plugins"
        text = f"dropped the record of {one.container_id} {one.ifname} on {one.network}; what {left} made may be left"
        data = {"path": report.path, "plugins": list(report.plugins)}
        session.show(data, text)
