"""Requests to the kernel over a netlink socket, and its answers.

A container with CAP_NET_ADMIN in its own namespace can send messages to this program's sockets there, and can give its
namespace very many interfaces. So an answer counts only if the kernel sent it, and every answer has a deadline and a
largest size. An answer that breaks a rule is an OSError about that namespace.
"""

from __future__ import annotations

import _socket
import errno
import os
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TypeVar

import libcni.kernel.system as system

NLM_F_REQUEST, NLM_F_REQUEST_DUMP = 0x1, 0x301
NLM_F_DUMP_INTR = 0x10
NLMSG_NOOP, NLMSG_ERROR, NLMSG_DONE, NLMSG_OVERRUN = 1, 2, 3, 4
HEADER = struct.Struct("=LHHLL")
ATTRIBUTE = struct.Struct("=HH")
INT = struct.Struct("=i")
SECONDS = 5.0
"""How long a conversation with the kernel about one namespace may take; the kernel usually answers at once."""
MOST_BYTES = 1 << 24
"""The largest size of all answers about a foreign namespace: 20,000 interfaces, or 200,000 routes."""
TRIES = 8
"""How often a list is read again if it changes during the read."""
_AT_ONCE = 32
"""The number of questions in one message: their answers fit into the socket's buffer."""
_MOST_AT_ONCE = 1 << 20
"""The largest size of one datagram. Those of a list have 32 KiB, unless an interface has many virtual functions."""
_buffers: list[bytearray] = []
_ATTRIBUTE_SIZE = ATTRIBUTE.size
_WRONG_LENGTH = "the length of an attribute is wrong"
_WITHOUT_FLAGS = 0x3FFF  # newer lists have NLA_F_NESTED in the kind
_TOO_SLOW = "the kernel's answers about the namespace take too long"
_MOST_ERRNO = 4095

_T = TypeVar("_T")


def _received(connection: _socket.socket) -> tuple[bytes, tuple[int, int]]:
    """Receive once; return the data and the sender."""
    # A new buffer of this size for each datagram would take as long as all the rest. Threads may receive at once.
    try:
        buffer = _buffers.pop()
    except IndexError:
        buffer = bytearray(_MOST_AT_ONCE)
    try:
        size, sender = connection.recvfrom_into(buffer)
        return bytes(memoryview(buffer)[:size]), sender
    finally:
        _buffers.append(buffer)


class Exchange:
    """Requests to the kernel over one netlink socket.

    All requests together have one deadline, and their answers one largest size.

    Args:
        connection: the socket.
        seconds: the time for all requests.
        is_own: whether it is in the namespace of this program, of which only root can change the contents. Then its
            lists may have any size, and a list that changes during every read is accepted in the end.
        most_bytes: the largest size of all answers about another namespace.
    """

    def __init__(
        self,
        connection: _socket.socket,
        *,
        seconds: float = SECONDS,
        is_own: bool = False,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self.socket = connection
        self._until = system.monotonic() + seconds
        self._most_bytes = most_bytes
        self._bytes_left: float = float("inf") if is_own else most_bytes
        self.is_own = is_own
        with suppress(OSError):
            # From here on the kernel refuses messages to this socket from everybody but itself. Those that came
            # earlier are recognised by their sender.
            connection.connect((0, 0))

    def dump(self, request: int, wanted: int, body: bytes, parse: Callable[[bytes], _T | None]) -> list[_T]:
        """Request a list; return ``parse`` of each message of the kind ``wanted``, without None. Raises OSError."""
        for _ in range(TRIES):
            serial = self._send(request, NLM_F_REQUEST_DUMP, body)
            found, is_consistent = self._list(serial, wanted, parse)
            if is_consistent:
                return found
        if self.is_own:
            return found
        raise OSError(errno.EAGAIN, "the namespace's interfaces, addresses or routes change while they are read")

    def _list(self, serial: int, wanted: int, parse: Callable[[bytes], _T | None]) -> tuple[list[_T], bool]:
        found: list[_T] = []
        is_consistent = True
        while True:
            # Read to the end also if the list has changed: the next list would begin with the unread rest.
            for kind, flags, message in self._receive(serial):
                is_consistent = is_consistent and not flags & NLM_F_DUMP_INTR
                if kind == NLMSG_DONE:
                    if message and (number := error_in(message)):  # that of an old kernel has none
                        raise OSError(number, os.strerror(number))
                    return found, is_consistent
                if kind == wanted and (one := parsed(parse, message)) is not None:
                    found.append(one)

    def ask(self, request: int, flags: int, body: bytes) -> tuple[int, bytes]:
        """Send a request that has one answer; return the answer's kind and body, or raise its error as OSError."""
        serial = self._send(request, flags, body)
        while True:
            for kind, _, message in self._receive(serial):
                return kind, message

    def ask_all(self, request: int, bodies: Sequence[bytes]) -> list[tuple[int, bytes]]:
        """Send requests that have one answer each, many at once; return each answer's kind and body.

        An error of the kernel is an answer, too. Raises OSError if an answer does not come.
        """
        found: list[tuple[int, bytes]] = []
        for start in range(0, len(bodies), _AT_ONCE):
            messages = [_message(request, NLM_F_REQUEST, body) for body in bodies[start : start + _AT_ONCE]]
            self.socket.send(b"".join(message for _, message in messages))
            answers: dict[int, tuple[int, bytes]] = {}
            while not all(serial in answers for serial, _ in messages):
                answers |= {serial: (kind, message) for kind, _, serial, message in self._datagram()}
            found += [answers[serial] for serial, _ in messages]
        return found

    def _send(self, request: int, flags: int, body: bytes) -> int:
        serial, message = _message(request, flags, body)
        self.socket.send(message)
        return serial

    def _receive(self, serial: int) -> Iterator[tuple[int, int, bytes]]:
        """Receive once, and yield (kind, flags, body) of the kernel's messages with this number."""
        for kind, flags, its_serial, message in self._datagram():
            if its_serial == serial:
                if kind == NLMSG_ERROR and (number := error_in(message)):  # in a list, too: no DONE comes then
                    raise OSError(number, os.strerror(number))
                yield kind, flags, message

    def _datagram(self) -> Iterator[tuple[int, int, int, bytes]]:
        """Receive once, and yield (kind, flags, number, body) of the kernel's messages."""
        # Past the deadline, what the kernel has answered already still counts: it may have worked that long, because
        # it changes the interfaces of all namespaces one after another.
        left = max(0.0, self._until - system.monotonic())
        self.socket.settimeout(left)
        try:
            data, sender = _received(self.socket)
        except (TimeoutError, BlockingIOError):
            raise TimeoutError(errno.ETIMEDOUT, _TOO_SLOW) from None
        if sender[0] != 0:  # another program's message
            if not left:
                raise TimeoutError(errno.ETIMEDOUT, _TOO_SLOW)
            return
        self._bytes_left -= len(data)
        if self._bytes_left < 0:
            raise OSError(
                errno.E2BIG, f"the kernel's answers about the namespace have more than {self._most_bytes >> 20} MiB"
            )
        for kind, flags, serial, message in _messages(data):
            if kind == NLMSG_OVERRUN:
                raise OSError(errno.ENOBUFS, "the kernel lost a part of its answer")
            if kind != NLMSG_NOOP:
                yield kind, flags, serial, message


def _message(request: int, flags: int, body: bytes) -> tuple[int, bytes]:
    """Return a request's number and its bytes."""
    # Not a counter: the sender of a forged answer would know the next number.
    serial = int.from_bytes(system.urandom(4), sys.byteorder)
    return serial, HEADER.pack(HEADER.size + len(body), request, flags, serial, 0) + body


def _messages(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield (kind, flags, number, body) of the messages in a datagram."""
    at = 0
    while at < len(data) or not data:
        length, kind, flags, serial, _ = HEADER.unpack_from(data, at) if len(data) - at >= HEADER.size else (0,) * 5
        if not HEADER.size <= length <= len(data) - at:  # a length of 0 would loop for ever
            raise _malformed(data)
        yield kind, flags, serial, data[at + HEADER.size : at + length]
        at += (length + 3) & ~3  # messages are aligned to four bytes


def _malformed(data: bytes) -> OSError:
    return OSError(errno.EBADMSG, f"a malformed netlink answer of {len(data)} bytes: {data[:32].hex()}")


def parsed(parse: Callable[[bytes], _T], message: bytes) -> _T:
    """Return the value that ``parse`` reads from an answer. Raises OSError if the answer is malformed."""
    try:
        return parse(message)
    except (struct.error, ValueError) as error:  # too short, or no address
        raise _malformed(message) from error


def error_in(answer: bytes) -> int:
    """Return the errno in an ERROR message; 0: success."""
    number = -INT.unpack_from(answer)[0] if len(answer) >= INT.size else -1
    if not 0 <= number <= _MOST_ERRNO:
        raise _malformed(answer)
    return number


def attribute(kind: int, value: bytes) -> bytes:
    """Return the bytes of an attribute with this kind and value."""
    return (ATTRIBUTE.pack(ATTRIBUTE.size + len(value), kind) + value).ljust(
        (ATTRIBUTE.size + len(value) + 3) & ~3, b"\0"
    )


def text_in(value: bytes) -> str:
    """Return the text of an attribute."""
    return value.rstrip(b"\0").decode(errors="replace")


def attributes_in(data: bytes) -> dict[int, bytes]:
    """Return the attributes in a part of a message, by their kind; of several of one kind, the last.

    Raises ValueError if a length is wrong.
    """
    # Not dict(each_attribute(data)), which takes twice the time: the doctor reads 600 attributes for each container.
    found: dict[int, bytes] = {}
    at, end, unpack = 0, len(data), ATTRIBUTE.unpack_from
    while end - at >= _ATTRIBUTE_SIZE:
        length, kind = unpack(data, at)
        if not _ATTRIBUTE_SIZE <= length <= end - at:
            raise ValueError(_WRONG_LENGTH)
        found[kind & _WITHOUT_FLAGS] = data[at + _ATTRIBUTE_SIZE : at + length]
        at += (length + 3) & ~3
    return found


def each_attribute(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (kind, value) of the attributes in a part of a message. Raises ValueError if a length is wrong."""
    at = 0
    while len(data) - at >= _ATTRIBUTE_SIZE:
        length, kind = ATTRIBUTE.unpack_from(data, at)
        if not _ATTRIBUTE_SIZE <= length <= len(data) - at:  # a length of 0 would loop for ever
            raise ValueError(_WRONG_LENGTH)
        yield kind & _WITHOUT_FLAGS, data[at + _ATTRIBUTE_SIZE : at + length]
        at += (length + 3) & ~3
