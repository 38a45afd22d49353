"""Find mounts that hide the records or the reservations of living containers."""

from __future__ import annotations

import ipaddress
import os
import shlex
from collections.abc import Iterator
from contextlib import suppress

import libcni.kernel.system as system
from libcni.config.host_local import range_sets, reservations_in
from libcni.diagnosis.mends import id_of
from libcni.diagnosis.mounts import Mount, mount_of, read_mounts
from libcni.diagnosis.node_state import NodeState
from libcni.diagnosis.report import NodeFinding
from libcni.errors import CNIError, some
from libcni.store.attachments import attachments_of
from libcni.store.records import RecordStore


def hidden_records(node: NodeState) -> Iterator[NodeFinding]:
    """Find mounts that hide records or reservations of living containers, not those that hide only other files."""
    top = node.cni.cache_dir
    reserving = [path for _, path in node.reservations]
    mounts = list(read_mounts())
    for path in sorted({top, f"{top}/results", *reserving, *map(os.path.dirname, reserving)}):
        mount = mount_of(path, mounts)
        if mount.point == os.path.realpath(path) != "/":
            if sum(one.point == mount.point for one in mounts) > 1:  # what is below the upper one cannot be read
                yield from _above(node, path, mount)
                continue
            # A user namespace may not look below a mount.
            with suppress(OSError, CNIError):
                yield from _below(node, path, mount, reserving)


def _above(node: NodeState, path: str, mount: Mount) -> Iterator[NodeFinding]:
    ranges = [span for net in node.networks for spans in range_sets(net) for span in spans]
    unknown = [
        address for address, holders in node.holders.items()
        if not any(holder.recorded or node.is_host(holder.space) for holder in holders)
        and any(ipaddress.ip_address(address) in span for span in ranges)
    ]  # fmt: skip
    # A few strangers are no reason to unmount the records of all others.
    if len(unknown) > len(node.live):
        hidden = f"another mount, which may have the records of the unrecorded addresses {some(unknown)}"
        yield _finding(path, mount, hidden)


def _below(node: NodeState, path: str, mount: Mount, reserving: list[str]) -> Iterator[NodeFinding]:
    with system.Closing(system.open_without_mounts(os.path.dirname(mount.point))) as descriptor:
        hidden = f"/proc/self/fd/{descriptor}/{os.path.basename(mount.point)}"
        stores = {node.cni.cache_dir: hidden, f"{node.cni.cache_dir}/results": os.path.dirname(hidden)}
        names = _living(node, stores[path]) if path in stores else []
        addresses = [
            reservation.address
            for directory in reserving if os.path.commonpath([path, directory]) == path
            for reservation in reservations_in(os.path.normpath(f"{hidden}/{os.path.relpath(directory, path)}"))
            if reservation.address in node.holders and node.reservation(directory, reservation.address) is None
        ]  # fmt: skip
    things = [f"{what} of {some(found)}" for what, found in (("records", names), ("reservations", addresses)) if found]
    if things:
        yield _finding(path, mount, f"{' and '.join(things)}, which are in use")


def _finding(path: str, mount: Mount, hidden: str) -> NodeFinding:
    return NodeFinding(
        "disk", "error", "hidden-records", path,
        f"{mount.source} ({mount.kind}) is mounted over it, and hides {hidden}",
        "a DEL of these containers does nothing, and the next ADD can give their addresses to others",
        f"restart the containers that were attached since the mount, after: umount {shlex.quote(path)}",
    )  # fmt: skip


def _living(node: NodeState, cache_dir: str) -> list[str]:
    """Return the attachments whose only record is hidden, and whose addresses are in use."""
    visible = {attachment.record.identity for attachment in node.attachments}
    store = RecordStore(cache_dir)
    return [
        id_of(attachment) for attachment in attachments_of(store.records(), store)
        if attachment.record.identity not in visible
        and any(address in node.holders for address in node.addresses_of(attachment))
    ]  # fmt: skip
