"""The records of all attachments of the node, asked who has an interface, an address or a host port.

The answer takes a look at each file, so a verb asks only if nobody else knows: see ``is_certain`` of the model and
``store.reservations``.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from libcni._dataclass import replace
from libcni.config.port_mappings import ports_in
from libcni.errors import RecordError
from libcni.kernel.cached import cached_property
from libcni.store.model import STALE_BOOT, Identity, Place, Record, Stamp, Unreadable, compare
from libcni.store.record_format import mentioned, published_numbers
from libcni.store.recorded_interface import addresses_of, place_of
from libcni.store.records import Published, RecordStore, settled_before

logger: logging.Logger = logging.getLogger("libcni")


class OtherRecord(NamedTuple):
    """The recorded interface, addresses and host ports of one attachment.

    Attributes:
        identity: the attachment.
        path: its record.
        place: its interface. Records of Go have neither the namespace's identity nor the interface's index.
        addresses: its IP addresses without prefix length.
    """

    identity: Identity
    path: str
    place: Place
    addresses: frozenset[str]

    def is_same_interface(self, record: Record) -> bool:
        """Whether both name the same interface of a container, as when a meta-plugin attaches it to another network."""
        return self.identity[1:] == (record.container_id, record.ifname)


class _File:
    """A record's file: the addresses and numbers in its text, and on demand the decoded record."""

    def __init__(self, store: RecordStore, name: str, stamp: Stamp, data: bytes, settled: int) -> None:
        self._store = store
        self.name = name
        self.mentioned, is_journal = mentioned(data)
        # A further change within a tick of the kernel's clock keeps the time, and may keep the size. Each event of a
        # journal changes the size.
        self.stamp: Stamp | None = stamp if is_journal or stamp[2] < settled else None

    def may_have(self, wanted: frozenset[bytes]) -> bool:
        """Return whether the file's text has one of these addresses or numbers."""
        return self.mentioned is None or not wanted.isdisjoint(self.mentioned)

    @cached_property
    def attachment(self) -> OtherRecord | None:
        """The recorded interface and addresses; None if none is recorded, or if the record cannot be read."""
        record = _read(self._store, self.name)
        if record is None:
            return None
        return OtherRecord(record.identity, record.path, place_of(record), frozenset(addresses_of(record)))


def _read(store: RecordStore, name: str) -> Record | None:
    """Return the record in a file of this boot; None if it cannot be read: it must not hide the other records."""
    try:
        record = store.read(name)
    except RecordError as error:
        logger.warning("the interface, addresses and ports of this attachment are unknown: %s", error)
        return None
    # Nothing of an earlier boot exists, and another container may have the address and the numbers now.
    return None if isinstance(record, Unreadable) or (record and record.state == STALE_BOOT) else record


class OtherRecords:
    """The interfaces, addresses and host ports of all recorded attachments, for one verb or one listing.

    The first question reads all files, and each further question the files that have changed since. With ``once`` the
    answers stay as they were at the first question.
    """

    def __init__(self, records: RecordStore, *, once: bool = False) -> None:
        self._records = records
        self._once = once
        # Replaced as a whole, because the DELs of a sweep run in several threads.
        self._files: Mapping[str, _File] | None = None

    def read(self) -> None:
        """Read the files that have changed. Log a warning if the directory cannot be read."""
        known = self._files or {}
        try:
            settled, stamps = settled_before(), self._records.stamps()
            changed = [name for name, stamp in stamps.items() if name not in known or known[name].stamp != stamp]
            files = {name: known[name] for name in stamps if name in known}
            for name, data in self._records.bytes_of(changed):
                files[name] = _File(self._records, name, stamps[name], data, settled)
            self._files = files
        except RecordError as error:
            logger.warning("the interfaces and addresses of other attachments are unknown: %s", error)

    def with_addresses(self, addresses: Iterable[str], but: Record | None) -> Iterator[OtherRecord]:
        """Yield the attachments except ``but`` that have one of these IP addresses, without prefix length."""
        wanted = frozenset(addresses)
        for other in self._that_may_have([address.encode(errors="surrogatepass") for address in wanted], but):
            if not wanted.isdisjoint(other.addresses):
                yield other

    def with_host_ports(self, numbers: Iterable[object]) -> Iterator[Record]:
        """Yield the records of attachments that publish one of these ports of the host.

        Only an ADD asks, once, under the locks of the ports. The client remembers the ports of each file until the file
        changes, so this reads few files, and decodes fewer.
        """
        wanted = frozenset(numbers)
        whole = [int(number) for number in wanted if isinstance(number, int | float) and math.isfinite(number)]
        for name in self._that_may_publish(frozenset(b"%d" % number for number in whole)):
            record = _read(self._records, name)
            if record is not None and any(port.number in wanted for port in ports_in(record.decoded_capability_args)):
                yield record

    def _that_may_publish(self, marks: frozenset[bytes]) -> list[str]:
        try:
            files = self._published() if marks else {}
        except RecordError as error:
            logger.warning("the host ports of other attachments are unknown: %s", error)
            return []
        return [name for name, (_, found) in files.items() if found is None or (found and not marks.isdisjoint(found))]

    def _published(self) -> Mapping[str, Published]:
        """Return the host ports in the text of each file. Raises RecordError."""
        known, settled, stamps = self._records.published, settled_before(), self._records.stamps()
        files = {name: known[name] for name, stamp in stamps.items() if name in known and known[name][0] == stamp}
        for name, data in self._records.bytes_of([name for name in stamps if name not in files]):
            found, is_journal = published_numbers(data)
            is_settled = is_journal or (data and stamps[name][2] < settled)  # not if the file cannot be read
            files[name] = stamps[name] if is_settled else None, found
        self._records.published = files
        return files

    def with_interface(self, seen: Place, but: Record | None) -> Iterator[OtherRecord]:
        """Yield the attachments except ``but`` whose record has the interface ``seen``."""
        seen = replace(seen, found_as="")
        for other in self._that_may_have([b"%d" % seen.netns[1]] if seen.netns is not None else [], but):
            if other.place.is_identified and compare(other.place, seen) == "same":
                yield other

    def _that_may_have(self, wanted: Iterable[bytes], but: Record | None) -> Iterator[OtherRecord]:
        # Few files mention the wanted values. Decoding all files would take 60 microseconds for each.
        marks = frozenset(wanted)
        if not marks:
            return
        if self._files is None or not self._once:
            self.read()
        for file in (self._files or {}).values():
            if file.may_have(marks) and (but is None or file.name != but.path.rpartition("/")[2]):
                other = file.attachment
                if other is not None and (but is None or other.identity != but.identity):
                    yield other
