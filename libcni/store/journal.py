"""Append events to an open record."""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import libcni.kernel.system as system
from libcni.errors import RecordError
from libcni.store.files import MAX_RECORD_BYTES, record_error, write_at
from libcni.store.model import Event, Record
from libcni.store.record_format import (
    MAX_RECORD_ELEMENTS,
    MOST_EVENTS,
    earlier_result,
    encode_event,
    index_of_result,
    weight,
)


class Journal:
    """A record whose file is open for events. It is a context manager that closes the file.

    Each event is one ``pwrite`` that replaces the closing brace. It is not synced: it must survive the end of this
    program, but not a power cut, after which the record counts as a record of an earlier boot.

    Args:
        record: the record. If its file has a result already, a journal without ``result_at`` cannot write another
            result.
        descriptor: the open file.
        size: the file's size.
        result_at: the index of the name of the key ``result``, or 0.

    Attributes:
        record: the record with all its events.
        is_anothers: whether another program has rewritten the file meanwhile. Nothing more is written then.
    """

    def __init__(self, record: Record, descriptor: int, *, size: int, result_at: int = 0) -> None:
        self.record: Record = record
        self._descriptor = descriptor
        # A killed writer may have left a partial member after the last whole member.
        self._is_torn = size > record.end + 1
        self._size: int | None = size
        self.is_anothers: bool = False
        self._result_at = result_at
        self._weight = weight(record.last_result or "") + sum(map(weight, record.plugins))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: TracebackType | None) -> None:
        try:
            self.close()
        except RecordError as problem:
            if error is None:
                raise
            error.add_note(f"when the record was closed: {problem}")

    def write(self, event: Event, **values: Any) -> None:
        """Write an event, with new values of the record's fields ``interface``, ``partial`` and ``result``.

        ``plugin`` is the index of the plugin that has ended.

        Raises:
            RecordError: it cannot be written, for example because the disk is full, or because another program has
                rewritten the file. The record is unchanged.
        """
        self._check_file()
        before = self.record
        if before.serial >= MOST_EVENTS:
            raise RecordError(f"{before.path}: the record can hold no more than {MOST_EVENTS} events", path=before.path)
        facts = {name: value for name, value in values.items() if name != "plugin"}
        result = facts.get("result", facts.get("partial"))
        # Most plugins after the first print the result that they received.
        values["result"] = new = result if result != before.last_result else None
        data = encode_event(before.serial, event, values)
        record = before.after(event, **facts, end=before.end + len(data) - 1, serial=before.serial + 1)
        self._weight += weight(new or "")
        if record.end > MAX_RECORD_BYTES or self._weight > MAX_RECORD_ELEMENTS:
            raise RecordError(f"{record.path}: the record would be too large to read back", path=record.path)
        try:
            if self._is_torn:
                # Otherwise the rest of the partial member would follow the new member, if that is shorter.
                system.ftruncate(self._descriptor, before.end)
            # If the write is interrupted, a reader ignores the partial member.
            self._is_torn, self._size = True, None
            if new is not None and self._result_at:
                # In place, before the next one: no key comes twice, and no earlier result is overwritten.
                write_at(self._descriptor, earlier_result(before.serial), self._result_at)
            write_at(self._descriptor, data, before.end)
        except OSError as error:
            with suppress(OSError):
                self._close_object()
            raise record_error("the record cannot be written", record.path, error) from error
        self._is_torn, self._size = False, record.end + 1
        self._result_at = index_of_result(new, record.end) or self._result_at
        self.record = record

    def _check_file(self) -> None:
        """Raise RecordError if the file has another size than after the last write.

        Go libcni truncates its file and writes it anew, if it attaches the same interface. An event at the old offset
        would follow a hole of zeros in Go's file.
        """
        path = self.record.path
        try:
            size = system.fstat(self._descriptor).st_size
        except OSError as error:
            raise record_error("the record cannot be written", path, error) from error
        # After a write that failed the size is not known.
        self.is_anothers = self.is_anothers or self._size not in {None, size}
        if self.is_anothers:
            problem = f"{path}: another program rewrote the record, as Go libcni does when it attaches the interface"
            raise RecordError(problem, path=path, hint="find out which other runtime attaches this container")

    def has_name(self) -> bool:
        """Return whether the file still has a name. Another program may have removed the whole directory meanwhile."""
        return system.fstat(self._descriptor).st_nlink > 0

    def _close_object(self) -> None:
        """Remove a partially written member. This library ignores it, but Go could not read the file."""
        # The brace first: in the other order, a kill in between or a full disk would leave the file without a brace.
        write_at(self._descriptor, b"}", self.record.end)
        system.ftruncate(self._descriptor, self.record.end + 1)
        self._is_torn, self._size = False, self.record.end + 1
        if self._result_at:
            write_at(self._descriptor, b"result", self._result_at)

    def close(self) -> None:
        """Close the file. The record stays.

        Raises:
            RecordError: a write failed earlier, which a network file system reports only now.
        """
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            try:
                system.close(descriptor)
            except OSError as error:
                raise record_error("the record cannot be written", self.record.path, error) from error
