"""Send echo requests (ICMP and ICMPv6), and try connections of TCP, in network namespaces, many at once.

Anybody in a namespace can send packets to a socket in it. So an answer counts only if it has the random token of its
request, only a few bytes of each packet are read, and the wait ends after two seconds.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import NamedTuple

import libcni.kernel.system as system
from libcni._dataclass import dataclass
from libcni.kernel.namespace import NamespaceId, open_known, socket_in

_PAUSES = (0.3, 0.7, 1.0)
"""Seconds to wait for an answer after each request."""

_ECHO = struct.Struct("!BBHHH")
_TOKEN = 16
_MOST_BYTES, _MOST_PACKETS = 256, 16
"""The bytes that are read of a packet, and the packets that are read of one socket before the other sockets."""
_SOL_RAW, _ICMP_FILTER, _ICMP6_FILTER = 255, 1, 1
_IP_RECVERR, _IPV6_RECVERR, _MSG_ERRQUEUE = 11, 25, 0x2000
_EXTENDED_ERROR = struct.Struct("=IBBBxII")
_FROM_NETWORK = {2, 3}  # the origins ICMP and ICMPv6 of an error


class _Family(NamedTuple):
    number: int
    protocol: int
    request: int
    reply: int
    filter: tuple[int, int, bytes]
    errors: tuple[int, int]


# A filter has a bit for each type of message that the socket does not get: all but the reply's.
_IPV4 = _Family(
    socket.AF_INET, socket.IPPROTO_ICMP, 8, 0,
    (_SOL_RAW, _ICMP_FILTER, struct.pack("=I", ~1 & 0xFFFFFFFF)), (socket.IPPROTO_IP, _IP_RECVERR),
)  # fmt: skip
_IPV6 = _Family(
    socket.AF_INET6, socket.IPPROTO_ICMPV6, 128, 129,
    (socket.IPPROTO_ICMPV6, _ICMP6_FILTER, struct.pack("=8I", *[0xFFFFFFFF] * 4, ~2 & 0xFFFFFFFF, *[0xFFFFFFFF] * 3)),
    (socket.IPPROTO_IPV6, _IPV6_RECVERR),
)  # fmt: skip


class EchoRequest(NamedTuple):
    """An echo request to one address.

    Attributes:
        target: the IP address that it is sent to.
        source: the IP address that it is sent from; "": the kernel chooses.
        netns: a path of the namespace that it is sent in; "": this thread's.
        identity: the namespace that is expected at the path.
        port: the port of TCP to which a connection is tried, in place of an echo request; 0: none.
    """

    target: str
    source: str = ""
    netns: str = ""
    identity: NamespaceId | None = None
    port: int = 0


@dataclass(slots=True)
class Echo:
    """The outcome of an echo request.

    Attributes:
        sent: the number of packets that were sent.
        is_answered: whether an answer came.
        error: the last errno, 0 for none: what the sender's kernel says after a route, a rule or the network stopped
            the request.
        reporter: the IP address of the node that reported the error in a packet; "" if the sender's kernel did.
        problem: why no request could be sent, so that nothing is known; else "".
    """

    sent: int = 0
    is_answered: bool = False
    error: int = 0
    reporter: str = ""
    problem: str = ""


def send_echoes(requests: Sequence[EchoRequest]) -> list[Echo]:
    """Send requests, each up to three times, and return their outcomes in their order.

    All requests together take two seconds if one of them is not answered. Each request needs a descriptor for this
    time.
    """
    echoes = [Echo() for _ in requests]
    with ExitStack() as stack:
        poll = select.poll()
        waiting: dict[int, _Talk] = {}
        for request, echo in zip(requests, echoes, strict=True):
            try:
                kind = _Call if request.port else _Talk
                talk = kind(stack.enter_context(_socket_for(request)), request, echo)
            except OSError as error:
                no_right = "no raw socket can be made in the namespace; this needs CAP_NET_RAW there"
                echo.problem = no_right if isinstance(error, PermissionError) else error.strerror or str(error)
                continue
            if not echo.error and not echo.problem:
                waiting[talk.socket.fileno()] = talk
                poll.register(talk.socket, talk.events)
        for pause in _PAUSES:
            for talk in waiting.values():
                talk.send()
            until = system.monotonic() + pause
            while waiting and (left := until - system.monotonic()) > 0:
                for number, _ in poll.poll(left * 1000):
                    waiting[number].receive()
                    if waiting[number].echo.is_answered or waiting[number].is_over:
                        poll.unregister(number)
                        del waiting[number]
    return echoes


def _socket_for(request: EchoRequest) -> socket.socket:
    """Return a raw socket in a namespace that does not block. Raises OSError."""
    family = _family_of(request)
    kind, protocol = (socket.SOCK_STREAM, 0) if request.port else (socket.SOCK_RAW, family.protocol)
    if not request.netns:
        made = socket.socket(family.number, kind | socket.SOCK_CLOEXEC, protocol)
    else:
        assert request.identity is not None
        with system.Closing(open_known(request.netns, request.identity)) as namespace:
            descriptor = socket_in(namespace, family.number, kind, protocol)
        if descriptor < 0:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        made = socket.socket(family.number, kind, protocol, descriptor)
    made.setblocking(False)
    return made


def _family_of(request: EchoRequest) -> _Family:
    return _IPV6 if ":" in request.target else _IPV4


class _Talk:
    """A request and its socket. An error of a socket's set-up is in ``echo``, and nothing is sent."""

    events = select.POLLIN | select.POLLERR
    is_over = False

    def __init__(self, connection: socket.socket, request: EchoRequest, echo: Echo) -> None:
        self.socket, self.echo, self._family, self._request = connection, echo, _family_of(request), request
        self._number, self._token = int.from_bytes(system.urandom(2), "big"), system.urandom(_TOKEN)
        connection.setsockopt(*self._family.errors, 1)
        try:
            if request.source:
                connection.bind((request.source, 0))
        except OSError as error:
            echo.problem = f"{request.source} cannot be used: {error.strerror}"
            return
        self._open()

    def _open(self) -> None:
        request, echo, connection = self._request, self.echo, self.socket
        connection.setsockopt(*self._family.filter)
        try:
            # From here on the kernel accepts packets of the target alone, and reports errors about it.
            connection.connect((request.target, 0))
        except OSError as error:  # the answer of the sender's routes
            echo.error = error.errno or errno.EIO

    def send(self) -> None:
        """Send a request."""
        self._read_errors()
        try:
            self.socket.send(self._packet())
        except OSError as error:
            self._note(error)
        self.echo.sent += 1

    def receive(self) -> None:
        """Read the packets that have come, and the errors."""
        self._read_errors()
        for _ in range(_MOST_PACKETS):
            try:
                packet = self.socket.recv(_MOST_BYTES)
            except OSError as error:
                if error.errno != errno.EAGAIN:
                    self._note(error)
                return
            if self._is_answer(packet):
                self.echo.is_answered = True
                return

    def _note(self, error: OSError) -> None:
        if not self.echo.reporter or self.echo.error != error.errno:
            self.echo.error, self.echo.reporter = error.errno or errno.EIO, ""

    def _read_errors(self) -> None:
        for _ in range(_MOST_PACKETS):
            try:
                _, ancillary, _, _ = self.socket.recvmsg(_MOST_BYTES, _MOST_BYTES, _MSG_ERRQUEUE)
            except OSError:
                return
            for level, kind, data in ancillary:
                if (level, kind) == self._family.errors and len(data) >= _EXTENDED_ERROR.size:
                    number, origin, *_ = _EXTENDED_ERROR.unpack_from(data)
                    self.echo.error = number or errno.EIO
                    self.echo.reporter = self._reporter(data[_EXTENDED_ERROR.size :]) if origin in _FROM_NETWORK else ""

    def _reporter(self, address: bytes) -> str:
        start, end = (8, 24) if self._family is _IPV6 else (4, 8)
        with suppress(ValueError):
            return socket.inet_ntop(self._family.number, address[start:end])
        return ""

    def _packet(self) -> bytes:
        def packed(checksum: int) -> bytes:
            return _ECHO.pack(self._family.request, 0, checksum, self._number, self.echo.sent) + self._token

        # The kernel makes the checksum of ICMPv6.
        return packed(0 if self._family is _IPV6 else _checksum(packed(0)))

    def _is_answer(self, packet: bytes) -> bool:
        if self._family is _IPV4 and packet:  # with the header of IP
            packet = packet[(packet[0] & 0xF) * 4 :]
        if len(packet) < _ECHO.size:
            return False
        kind, _, _, number, _ = _ECHO.unpack_from(packet)
        return (kind, number, packet[_ECHO.size :]) == (self._family.reply, self._number, self._token)


class _Call(_Talk):
    """A connection of TCP that is tried. It is answered if the other end accepts it, or refuses it (RST)."""

    events = select.POLLOUT | select.POLLERR

    def _open(self) -> None:
        # Nothing waits for the end of an accepted connection.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def send(self) -> None:
        """Begin the connection. The kernel sends the request again after a second."""
        if self.echo.sent == 0:
            self.echo.sent = 1
            self._conclude(self.socket.connect_ex((self._request.target, self._request.port)))

    def receive(self) -> None:
        """Read the outcome."""
        if self.is_over:  # the kernel refused it at once, and forgets the error
            return
        self._read_errors()
        self._conclude(self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))

    def _conclude(self, error: int) -> None:
        if error == errno.EINPROGRESS:
            return
        # A router or a rule (REJECT) refuses with a packet of ICMP, the other end with one of TCP.
        self.echo.is_answered = error == 0 or (error == errno.ECONNREFUSED and not self.echo.reporter)
        self.is_over = True
        if not self.echo.is_answered and not self.echo.error:
            self.echo.error = error


def _checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def most_at_once() -> int:
    """Return the number of requests that may be sent at once: half of the descriptors that this process may have."""
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else max(1, soft // 2 - len(os.listdir("/proc/self/fd")))
