"""The hint of an ADD that got no free address: how many addresses are reserved, and by which containers."""

from __future__ import annotations

import logging
import os

from libcni.config.host_local import range_sets, reservation_directories, reservations_in
from libcni.config.network import parse_recorded
from libcni.errors import Hint, PluginError
from libcni.store.attachments import namespace_has_gone
from libcni.store.model import Unreadable
from libcni.store.records import RecordStore

logger: logging.Logger = logging.getLogger("libcni")

_MOST = 2000
"""The limit of records to read, because the caller of the failed ADD waits."""


def full_pool_hint(error: PluginError, stdin: bytes, records: RecordStore) -> Hint | None:
    """Return the hint of an ADD that may have failed because host-local has no free address, or None.

    Args:
        error: the error of the plugin, which may have delegated.
        stdin: the plugin's configuration.
        records: the attachments. Their namespaces show which containers exist; the doctor examines more.
    """
    try:
        net = parse_recorded(stdin)
        for directory in sorted(reservation_directories(net)):
            network = os.path.basename(directory)
            reservations = reservations_in(directory)
            for ranges in range_sets(net, network):
                reserved = [reservation for reservation in reservations if reservation.is_in(ranges)]
                size = sum(pool.size for pool in ranges)
                if len(reserved) >= size:
                    owners = _owners(
                        error.network,
                        [(reservation.container_id, reservation.ifname) for reservation in reserved],
                        records,
                    )
                    text = f"network {network} has no free address: {len(reserved)} of {size} are reserved{owners}"
                    return Hint(f"{text}; see which can be freed", "doctor")
    except Exception:  # the configuration may hold anything, and the caller must get the error of the ADD
        logger.debug("the addresses of network %s cannot be counted", error.network, exc_info=True)
    return None if error.retryable else Hint("see who has the addresses", "doctor")


def _owners(network: str, reserved: list[tuple[str, str]], records: RecordStore) -> str:
    if len(reserved) > _MOST:
        return ""
    counts = {"of living containers": 0, "of containers that no longer exist": 0, "without a record": 0}
    living, dead, unknown = counts
    for container_id, ifname in reserved:
        record = records.find((network, container_id, ifname))
        if record is None or isinstance(record, Unreadable) or not record.netns:
            counts[unknown] += 1
        else:
            counts[dead if namespace_has_gone(record) else living] += 1
    return "".join(f", {count} {words}" for words, count in counts.items() if count)
