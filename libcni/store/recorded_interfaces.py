"""The recorded interfaces and addresses of all attachments: a DEL must not remove those of another attachment."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import libcni.kernel.system as system
from libcni.config.port_mappings import ports_in
from libcni.errors import RecordError
from libcni.protocol.result import Result, ResultProblem, read_result
from libcni.store.model import (
    NOWHERE,
    STALE_BOOT,
    UNKNOWN,
    Identity,
    Known,
    MadeByGo,
    Place,
    Record,
    Stamp,
    Unreadable,
    compare,
)
from libcni.store.record_format import mentioned
from libcni.store.records import RecordStore, Version, settled_before

logger: logging.Logger = logging.getLogger("libcni")

_ALL_AGAIN_SECONDS = 1.0
"""Seconds after which a refresh examines all files again, even if the directory has not changed."""


class RecordedInterface(NamedTuple):
    """The recorded interface, addresses and host ports of one attachment.

    Attributes:
        identity: the attachment.
        path: its record.
        place: its interface. Records of Go have neither the namespace's identity nor the interface's index.
        addresses: its IP addresses without prefix length.
        host_ports: the numbers of the host ports that its capability arguments name.
    """

    identity: Identity
    path: str
    place: Place
    addresses: frozenset[str]
    host_ports: frozenset[object]

    def is_same_interface(self, record: Record) -> bool:
        """Whether both name the same interface of a container, as when a meta-plugin attaches it to another network."""
        return self.identity[1:] == (record.container_id, record.ifname)


class _File:
    """A record's file: the addresses and numbers in its text, and on demand the decoded record."""

    def __init__(self, store: RecordStore, name: str, stamp: Stamp, data: bytes, settled: int) -> None:
        self._store = store
        self.name = name
        self.mentioned, kind = mentioned(data)
        # A further change within a tick of the kernel's clock keeps the time, and may keep the size. Each event of a
        # journal changes the size.
        self.stamp: Version = stamp if kind != "other" or stamp[2] < settled else None
        self.is_final: bool = kind == "complete" and self.stamp is not None

    def may_have(self, wanted: frozenset[bytes]) -> bool:
        """Return whether the file's text has one of these addresses or numbers."""
        return self.mentioned is None or not wanted.isdisjoint(self.mentioned)

    @functools.cached_property
    def attachment(self) -> RecordedInterface | None:
        """The recorded interface, addresses and ports; None if none is recorded, or if the record cannot be read."""
        try:
            record = self._store.read(self.name)
        except RecordError as error:  # it must not hide the other records
            logger.warning("the interface and addresses of this attachment are unknown: %s", error)
            return None
        # Nothing of an earlier boot exists, and another container may have the address and the numbers now.
        if record is None or isinstance(record, Unreadable) or record.state == STALE_BOOT:
            return None
        addresses, ports = (
            frozenset(addresses_of(record)),
            frozenset(port.number for port in ports_in(record.decoded_capability_args)),
        )
        return RecordedInterface(record.identity, record.path, place_of(record), addresses, ports)


class _Look(NamedTuple):
    """The directory of records at the last refresh.

    Attributes:
        directory: the directory's version before its files were examined.
        at: the time when the last examination of all files ended.
        files: each file.
        changing: the files that can change while the directory stays the same.
    """

    directory: Version
    at: float
    files: Mapping[str, _File]
    changing: tuple[str, ...]


class RecordedInterfaces:
    """The interfaces, addresses and host ports of all recorded attachments.

    DEL queries them before each plugin. ``refresh`` examines only the files that may have changed since the last call,
    and reads only those that have changed.
    """

    def __init__(self, records: RecordStore) -> None:
        self._records = records
        # Replaced as a whole, because the DELs of a sweep run in several threads.
        self._last: _Look | None = None

    @property
    def is_read(self) -> bool:
        """Whether ``refresh`` was called. Its first call reads all records, which takes too long for an event loop."""
        return self._last is not None

    def refresh(self) -> None:
        """Read the files that have changed. Log a warning if the directory cannot be read."""
        try:
            self._last = self._look(self._last or _Look(None, -math.inf, {}, ()))
        except RecordError as error:
            logger.warning("the interfaces and addresses of other attachments are unknown: %s", error)

    def with_addresses(self, addresses: Iterable[str], but: Record | None) -> Iterator[RecordedInterface]:
        """Yield the attachments except ``but`` that have one of these IP addresses, without prefix length."""
        wanted = frozenset(addresses)
        for other in self._that_may_have([address.encode(errors="surrogatepass") for address in wanted], but):
            if not wanted.isdisjoint(other.addresses):
                yield other

    def with_host_ports(self, numbers: Iterable[object]) -> Iterator[RecordedInterface]:
        """Yield the attachments that publish one of these ports of the host."""
        wanted = frozenset(numbers)
        whole = [int(number) for number in wanted if isinstance(number, int | float) and math.isfinite(number)]
        for other in self._that_may_have([b"%d" % number for number in whole], None):
            if not wanted.isdisjoint(other.host_ports):
                yield other

    def with_interface(self, seen: Place, but: Record | None) -> Iterator[RecordedInterface]:
        """Yield the attachments except ``but`` whose record has the interface ``seen``."""
        seen = replace(seen, found_as="")
        for other in self._that_may_have([b"%d" % seen.netns[1]] if seen.netns is not None else [], but):
            if other.place.netns is not None and compare(other.place, seen) == "same":
                yield other

    def _that_may_have(self, wanted: Iterable[bytes], but: Record | None) -> Iterator[RecordedInterface]:
        # Few files mention the wanted values. Decoding all files would take 60 microseconds for each.
        marks = frozenset(wanted)
        for file in self._last.files.values() if self._last is not None and marks else ():
            if file.may_have(marks) and (but is None or file.name != but.path.rpartition("/")[2]):
                other = file.attachment
                if other is not None and (but is None or other.identity != but.identity):
                    yield other

    def _look(self, last: _Look) -> _Look:
        directory, age = self._records.directory_version(), system.monotonic() - last.at
        # A new file and a replaced file change the directory. Verbs write into the file of an attachment
        # until it is complete, and Go rewrites its files in place at any time. Complete ones of this library change in
        # place only if a runtime with Go libcni attaches the same interface, or in an editor: they are examined
        # again after _ALL_AGAIN_SECONDS.
        is_same = directory is not None and directory == last.directory and age < _ALL_AGAIN_SECONDS
        settled = settled_before()
        known = last.files
        stamps = self._records.stamps(last.changing if is_same else None)
        changed = [name for name, stamp in stamps.items() if name not in known or known[name].stamp != stamp]
        if is_same and not changed:
            return last
        files = dict(known) if is_same else {name: known[name] for name in stamps if name in known}
        for name, data in self._records.bytes_of(changed):
            files[name] = _File(self._records, name, stamps[name], data, settled)
        changing = tuple([name for name in (last.changing if is_same else files) if not files[name].is_final])
        return _Look(directory, last.at if is_same else system.monotonic(), files, changing)


def addresses_of(record: Record) -> tuple[str, ...]:
    """Return an attachment's recorded addresses without prefix length."""
    result = last_result(record)
    return tuple(ip.address.partition("/")[0] for ip in result.ips) if result is not None else ()


def last_result(record: Record) -> Result | None:
    """Return the result of an ADD, or of its last plugin that ended; None if there is no readable result."""
    if record.last_result is None:
        return None
    try:
        return read_result(record.last_result, record.version or "0.1.0", lenient=True)
    except ResultProblem:
        return None


def place_of(record: Record) -> Place:
    """Return the place that an ADD recorded. Go records neither the namespace's identity nor the interface's index."""
    if isinstance(record, MadeByGo):
        mac = _reported_mac(record)
        return Place(interface=Known(mac=mac) if mac else UNKNOWN)
    interface = record.interface
    # The result is from before the reload, which removed that interface. The new ADD creates another one.
    was_removed = record.is_reload and record.result is None and interface is UNKNOWN
    if not was_removed and (interface is UNKNOWN or (isinstance(interface, Known) and not interface.mac)):
        mac = _reported_mac(record)
        number = interface.number if isinstance(interface, Known) else 0
        interface = Known(number, mac) if number or mac else UNKNOWN
    return Place(record.netns_id or NOWHERE, record.netns_cookie or 0, interface)


def _reported_mac(record: Record) -> str:
    # A listing calls this for each record, and decoding a result takes as long as decoding the rest of the record.
    result = last_result(record) if '"mac"' in (record.last_result or "") else None
    macs = reported_macs(result, record.ifname) if result is not None else []
    return macs[0] if len(macs) == 1 else ""


def reported_macs(result: Result, ifname: str) -> list[str]:
    """Return the hardware addresses of a result's interfaces of this name in the container; "" is an unknown one."""
    return [
        (interface.mac or "").lower()
        for interface in result.interfaces
        if interface.name == ifname and interface.sandbox
    ]
