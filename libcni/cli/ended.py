"""What the doctor says of containers that have ended without the ``poststop`` hook of ``libcni oci-hook``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from libcni.oci import find_ended

if TYPE_CHECKING:
    from libcni import CNIConfig

__all__ = ["COMMAND", "describe_ended"]

COMMAND = "libcni gc --runtime runc --runtime crun"


def describe_ended(cni: CNIConfig) -> Iterator[tuple[str, str]]:
    """Yield (subject, problem) of each attachment and pinned namespace that an ended container has left.

    Args:
        cni: a client of the node's records.

    Raises:
        CNIError: the records, the pins or the runtimes' state directories cannot be listed.
    """
    ended = find_ended(cni)
    for one in ended.attachments:
        subject = f"container {one.container_id}, {one.network}, {one.ifname}"
        yield subject, "left over: the container has ended, and its runtime did not run the poststop hook"
    recorded = {one.netns for one in ended.attachments}
    for pin in ended.pins:
        if pin.path not in recorded:
            yield pin.path, f"the pinned network namespace of container {pin.container_id}, which has ended"
