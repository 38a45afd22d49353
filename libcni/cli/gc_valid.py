"""Match the arguments of ``libcni gc`` with the recorded attachments, and find arguments that match none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

from libcni import Attachment
from libcni.cli.parser import closest


def meant(recorded: Sequence[Attachment], name: str) -> list[Attachment]:
    """Return the attachments of the containers that ``name`` names: by an ID, its start, or a pod.

    If a container has this ID, return its attachments; else those of all containers of a pod (``NAMESPACE/NAME`` or
    ``NAME``), and all whose ID begins with the name. GC must keep too many attachments rather than too few.
    """
    same = [attachment for attachment in recorded if attachment.container_id == name]
    return same or [one for one in recorded if name and (_is_pod(one.pod, name) or one.container_id.startswith(name))]


def _is_pod(pod: str, name: str) -> bool:
    return name in {pod, pod.rpartition("/")[2]}


def pairs_of(recorded: Sequence[Attachment], wanted: Iterable[str]) -> list[tuple[str, str]]:
    """Return (container, interface) pairs. A name alone means all its recorded interfaces."""
    pairs: list[tuple[str, str]] = []
    for text in wanted:
        container, _, ifname = text.partition(":")
        found = meant(recorded, container)
        pairs += [(attachment.container_id, ifname or attachment.ifname) for attachment in found]
        # Its container may not be recorded yet. A slash stands in no ID: this is a pod.
        if "/" not in container and container not in {attachment.container_id for attachment in found}:
            pairs.append((container, ifname or "eth0"))
    return list(dict.fromkeys(pairs))


def unknown(recorded: Sequence[Attachment], wanted: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield (word, the most similar name or "") for each word that matches no recorded attachment: GC keeps none."""
    for text in wanted:
        name, _, ifname = text.partition(":")
        if not any(ifname in {"", attachment.ifname} for attachment in meant(recorded, name)):
            known = {f"{item.container_id}:{item.ifname}" if ifname else item.container_id for item in recorded}
            known |= {f"{item.pod}:{item.ifname}" if ifname else item.pod for item in recorded if item.pod}
            yield text, closest(text, sorted(known))


def others(
    recorded: Iterable[Attachment], network: str, valid: Collection[tuple[str, str]], owner: str
) -> dict[str, int]:
    """Return, by owner, the number of stale attachments of other owners than ``owner``."""
    stale = (one for one in recorded if one.network == network and (one.container_id, one.ifname) not in valid)
    return dict(Counter(one.owner for one in stale if one.owner != owner))
