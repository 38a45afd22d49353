"""Find out whether a container can be attached again, and make the mend for this."""

from __future__ import annotations

from collections.abc import Iterable

from libcni.diagnosis.mends import Mend, mend_of
from libcni.diagnosis.node_state import NodeState
from libcni.diagnosis.obstacles import obstacle_to_reload
from libcni.diagnosis.reading import bridge_of
from libcni.store.attachments import Attachment

HOOK = "oci-hook"
"""The owner of the attachments of ``libcni oci-hook``, which keeps the namespace of a container that has ended."""


def reloads(node: NodeState, attachment: Attachment, *, interrupts: bool = False) -> tuple[str, tuple[Mend, ...]]:
    """Return ("", the mend that attaches a container again), or (the remedy, ()) if that would not help."""
    if attachment.path in node.elsewhere:
        return "call repair in the network namespace in which the ADD ran", ()
    space = node.space_of(attachment)
    if attachment.owner == HOOK and not (space is not None and space.process):
        # The hook's pin holds the namespace of a container that has ended.
        return "the container has ended: libcni gc --runtime detaches it", ()
    if attachment.path in node.replaced:
        return "its pod runs in a newer sandbox: let the runtime remove this one (crictl stopp, then crictl rmp)", ()
    if renamed_bridge(node, attachment):
        return (
            "give the bridge its old name again first: a reload would create a second bridge with the same address",
            (),
        )
    if problem := obstacle_to_reload(node, attachment):
        return f"do not attach the container again yet, because the ADD would fail: {problem}", ()
    return "", (mend_of("reload", attachment, interrupts=interrupts),)


def reloads_of(node: NodeState, attachments: Iterable[Attachment]) -> tuple[str, tuple[Mend, ...]]:
    """Return (the remedy, the mends that attach these containers again)."""
    answers = [reloads(node, attachment) for attachment in attachments]
    remedies = dict.fromkeys(remedy for remedy, _ in answers if remedy)
    return "; ".join(remedies), tuple(mend for _, mends in answers for mend in mends)


def renamed_bridge(node: NodeState, attachment: Attachment) -> str:
    """Return the bridge that an attachment uses instead of the configured one, or "".

    Somebody has renamed the bridge. If a bridge with the configured name exists, a later ADD has created it.
    """
    names = [bridge_of(document) for document in node.documents(attachment) if document.get("type") == "bridge"]
    links = node.host.links if node.host is not None else {}
    for end in node.host_ends(attachment) if names else ():
        actual = node.host_links_by_index.get(end.master)
        if actual is not None and actual.name not in names:
            gateways = node.summary_of(attachment).gateways
            if names[0] not in links or not gateways or any(map(actual.has_address, gateways)):
                return actual.name
    return ""
