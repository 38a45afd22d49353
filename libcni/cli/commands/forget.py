"""libcni forget: drop a record and run nothing."""

from __future__ import annotations

from libcni.cli.listing import named_attachments, title_of
from libcni.cli.options import ONLY_NETWORK, WHOLE_ATTACHMENT
from libcni.cli.session import Session

ARGUMENTS = (WHOLE_ATTACHMENT, ONLY_NETWORK)


def forget(session: Session, attachment: str, network: str) -> None:
    """Drop the record of an attachment and run nothing.

    The last way out if no DEL can succeed. Whatever the plugins made, such as interfaces, addresses and rules, stays;
    the plugins are printed.

    Example:
      libcni forget web:eth0
    """
    cni = session.client()
    for one in named_attachments(cni, attachment, network, whole=True):
        report = cni.forget_attachment(one)
        left = ", ".join(report.plugins) or "unknown plugins"
        text = f"dropped the record of {title_of(one)}; what {left} made may be left"
        session.show({"path": report.path, "plugins": list(report.plugins)}, text)
