"""Search the records of all attachments of the node for an interface, an address or a host port.

The first search of a client reads every file. So a verb searches only if ``is_certain`` of the model and
``store.reservations`` give no answer.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from libcni._dataclass import replace
from libcni.config.port_mappings import ports_in
from libcni.errors import RecordError
from libcni.store.model import STALE_BOOT, Identity, Record, Unreadable
from libcni.store.place import Place, compare
from libcni.store.record_index import View
from libcni.store.recorded_interface import addresses_of, place_of
from libcni.store.records import RecordStore

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
        """Return whether both records name the same interface: meta-plugins may attach one to a second network."""
        return self.identity[1:] == (record.container_id, record.ifname)


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

    Each question looks at what has changed since the client's previous look, because an attachment may begin while a
    plugin runs. With ``once`` only the first one does.
    """

    def __init__(self, records: RecordStore, *, once: bool = False) -> None:
        self._records = records
        self._once = once
        self._view: View | None = None
        self._is_current = False

    def read(self) -> None:
        """Look now, so that the next question does not. Log a warning if the directory cannot be read."""
        try:
            self._view = self._records.index.look()
        except RecordError as error:
            logger.warning("the interfaces, addresses and ports of other attachments are unknown: %s", error)
        self._is_current = True

    def with_addresses(self, addresses: Iterable[str], but: Record | None) -> Iterator[OtherRecord]:
        """Yield the attachments except ``but`` that have one of these IP addresses, without prefix length."""
        wanted = frozenset(addresses)
        words = [address.encode(errors="surrogatepass") for address in wanted]
        for other in self._others(words, but):
            if not wanted.isdisjoint(other.addresses):
                yield other

    def with_host_ports(self, numbers: Iterable[object]) -> Iterator[Record]:
        """Yield the records of attachments that publish one of these ports of the host."""
        wanted = frozenset(numbers)
        whole = [int(number) for number in wanted if isinstance(number, int | float) and math.isfinite(number)]
        for record in self._that_mention([b"#%d" % number for number in whole]):
            if any(port.number in wanted for port in ports_in(record.decoded_capability_args)):
                yield record

    def with_interface(self, seen: Place, but: Record | None) -> Iterator[OtherRecord]:
        """Yield the attachments except ``but`` whose record has the interface ``seen``."""
        seen = replace(seen, found_as="")
        for other in self._others([b"%d" % seen.netns[1]] if seen.netns is not None else [], but):
            if other.place.is_identified and compare(other.place, seen) == "same":
                yield other

    def _others(self, words: Collection[bytes], but: Record | None) -> Iterator[OtherRecord]:
        for record in self._that_mention(words, "" if but is None else but.path.rpartition("/")[2]):
            if but is None or record.identity != but.identity:
                yield OtherRecord(record.identity, record.path, place_of(record), frozenset(addresses_of(record)))

    def _that_mention(self, words: Collection[bytes], but: str = "") -> Iterator[Record]:
        """Yield the records of the files, except ``but``, that mention one of these words."""
        # A look is good for one question, also for one about nothing: a plugin may run before the next one.
        is_current = self._is_current
        self._is_current = is_current and self._once
        if not words:
            return
        if not is_current:
            self.read()
            self._is_current = self._once
        for name in self._view.mentioning(words) if self._view is not None else ():
            if name != but and (record := _read(self._records, name)) is not None:
                yield record
