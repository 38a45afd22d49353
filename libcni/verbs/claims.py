"""What attachments have by their records: interfaces and addresses, which the DEL of another one must leave alone."""

from __future__ import annotations

import logging
from typing import NamedTuple

from libcni.errors import RecordError
from libcni.protocol.result import Result
from libcni.store.attachments import recorded_result
from libcni.store.place import NOT_OURS, NOWHERE, Place
from libcni.store.record import Identity, Record
from libcni.store.records import RecordStore, Version

logger: logging.Logger = logging.getLogger("libcni")


class Claim(NamedTuple):
    """What one attachment has by its record.

    Attributes:
        identity: the attachment.
        place: its interface; None in a record of Go, which has no number of it.
        addresses: its IP addresses without prefix length.
    """

    identity: Identity
    place: Place | None
    addresses: frozenset[str]


class Claims:
    """The claims of all attachments on record.

    A sweep asks once for each half-done attachment. So only the files that have changed since the last question are
    read.
    """

    def __init__(self, records: RecordStore) -> None:
        self._records = records
        # Replaced as a whole, because the DELs of a sweep run in several threads.
        self._known: dict[str, tuple[Version, Claim | None]] = {}

    def of_others(self, but: Record | None) -> list[Claim]:
        """Return what all attachments but one have on record now. Log a warning if that cannot be read."""
        own = but.identity if but is not None else None
        earlier, known = self._known, dict[str, tuple[Version, Claim | None]]()
        found = []
        try:
            for name, version in self._records.iter_versions():
                there = earlier.get(name)
                try:
                    claim = there[1] if there is not None and there[0] == version else self._read(name)
                except RecordError as error:  # it must not hide the others
                    logger.warning("going on without knowing what this attachment has: %s", error)
                    continue
                if claim is not None and claim.identity != own:
                    found.append(claim)
                if version is not None:
                    known[name] = version, claim
        except RecordError as error:
            logger.warning("going on without knowing who else has interfaces and addresses: %s", error)
        self._known = known
        return found

    def _read(self, name: str) -> Claim | None:
        record = self._records.read(name)
        if record is not None and record.result is None:
            record = self._records.with_partial(record)
            if record.result is None:  # its ADD may have ended between the two reads
                record = self._records.read(name)
        if record is None or not record.container_id:
            return None
        place = place_of(record) if record.version else None
        return Claim(record.identity, place, frozenset(_addresses(record)))


def _addresses(record: Record) -> list[str]:
    try:
        return [ip.address.partition("/")[0] for ip in recorded_result(record).ips]
    except RecordError:
        return []


def place_of(record: Record) -> Place:
    """Return the place that an ADD recorded. Go records neither the namespace nor the number of the interface."""
    if not record.version:
        return Place(mac=_reported_mac(record))
    mac = record.mac or ("" if record.ifindex in {0, NOT_OURS} else _reported_mac(record))
    return Place(record.netns_id or NOWHERE, record.netns_cookie or 0, record.ifindex, mac)


def _reported_mac(record: Record) -> str:
    """Return the hardware address in the recorded result. Records of 0.2.0, and Go's, have it only there."""
    if record.result is None:
        return ""
    try:
        macs = reported_macs(recorded_result(record), record.ifname)
    except RecordError:
        return ""
    return macs[0] if len(macs) == 1 else ""


def reported_macs(result: Result, ifname: str) -> list[str]:
    """Return the hardware addresses that a result has for an interface in the container; "" for one without."""
    return [(one.mac or "").lower() for one in result.interfaces if one.name == ifname and one.sandbox]
