"""Search the records of all attachments of the node for an interface, an address or a host port.

The search examines every file. So a verb searches only if ``is_certain`` of the model and ``store.reservations`` give
no answer.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import libcni.kernel.system as system
from libcni._dataclass import replace
from libcni.config.port_mappings import ports_in
from libcni.errors import RecordError
from libcni.store.model import STALE_BOOT, Identity, Record, Stamp, Unreadable
from libcni.store.place import Place, compare
from libcni.store.record_format import Gist
from libcni.store.recorded_interface import addresses_of, place_of
from libcni.store.records import RecordStore

logger: logging.Logger = logging.getLogger("libcni")


_MANY = 2000
"""The number of records whose files are examined in 6 milliseconds, more than a tick of the kernel's clock takes."""

_SHORT_SECONDS, _SHORT_SLEEPS = 0.001, 10


Look = Mapping[str, Gist]
"""What each file mentioned when it was last examined."""


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

    The first question looks at all files, and reads those that have changed since the client's previous look. Each
    further question looks again, because an attachment may begin while a plugin runs. If a file has come or gone since,
    it looks at all files, else only at the files of unfinished ADDs and of Go. With ``once`` the answers stay as they
    were at the first question.
    """

    def __init__(self, records: RecordStore, *, once: bool = False) -> None:
        self._records = records
        self._once = once
        self._gists: Look | None = None
        self._stamp: Stamp | None = None

    def read(self, *, asks_again: bool = False) -> Look:
        """Return what each record's file mentions now. Log a warning if the directory cannot be read.

        ``asks_again``: whether the verb will probably look again.
        """
        last = self._gists
        if last is not None and self._once:
            return last
        try:
            stamp = self._directory(asks_again=asks_again)
            if last is not None and stamp is not None and stamp == self._stamp:
                found = self._records.look([name for name, gist in last.items() if gist.may_grow])
                gists = {**last, **found} if found else last
            else:
                gists = self._records.look()
            self._gists, self._stamp, self._records.gists = gists, stamp, gists
        except RecordError as error:
            logger.warning("the interfaces, addresses and ports of other attachments are unknown: %s", error)
        return self._gists or {}

    def _directory(self, *, asks_again: bool) -> Stamp | None:
        """Return the stamp of the directory. Without one a further look is at all files, as this one is.

        A verb that ended just now has changed the directory. If there are many files, wait until there is a stamp.
        """
        stamp = self._records.stamp_of_names()
        for _ in range(_SHORT_SLEEPS if asks_again and len(self._records.gists) > _MANY else 0):
            if stamp is not None:
                break
            system.sleep(_SHORT_SECONDS)
            stamp = self._records.stamp_of_names()
        return stamp

    def with_addresses(
        self, addresses: Iterable[str], but: Record | None, look: Look | None = None
    ) -> Iterator[OtherRecord]:
        """Yield the attachments except ``but`` that have one of these IP addresses, without prefix length.

        ``look``: what ``read`` has just returned.
        """
        wanted = frozenset(addresses)
        words = [address.encode(errors="surrogatepass") for address in wanted]
        for other in self._others(words, but, look):
            if not wanted.isdisjoint(other.addresses):
                yield other

    def with_host_ports(self, numbers: Iterable[object]) -> Iterator[Record]:
        """Yield the records of attachments that publish one of these ports of the host."""
        wanted = frozenset(numbers)
        whole = [int(number) for number in wanted if isinstance(number, int | float) and math.isfinite(number)]
        for record in self._that_mention(b"#%d" % number for number in whole):
            if any(port.number in wanted for port in ports_in(record.decoded_capability_args)):
                yield record

    def with_interface(self, seen: Place, but: Record | None) -> Iterator[OtherRecord]:
        """Yield the attachments except ``but`` whose record has the interface ``seen``."""
        seen = replace(seen, found_as="")
        for other in self._others([b"%d" % seen.netns[1]] if seen.netns is not None else [], but):
            if other.place.is_identified and compare(other.place, seen) == "same":
                yield other

    def _others(self, words: Iterable[bytes], but: Record | None, look: Look | None = None) -> Iterator[OtherRecord]:
        for record in self._that_mention(words, "" if but is None else but.path.rpartition("/")[2], look):
            if but is None or record.identity != but.identity:
                yield OtherRecord(record.identity, record.path, place_of(record), frozenset(addresses_of(record)))

    def _that_mention(self, words: Iterable[bytes], but: str = "", look: Look | None = None) -> Iterator[Record]:
        """Yield the records of the files, except ``but``, that mention one of these words."""
        # Few files do. Decoding all files would take 60 microseconds for each.
        wanted = frozenset(words)
        if not wanted:
            return
        for name, gist in (self.read() if look is None else look).items():
            if name != but and gist.mentions(wanted) and (record := _read(self._records, name)) is not None:
                yield record
