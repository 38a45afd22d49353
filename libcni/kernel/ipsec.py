"""Read the policies of IPsec (xfrm) of this network namespace: which packets they block."""

from __future__ import annotations

import errno
import socket
import struct
from typing import NamedTuple

from libcni.kernel.netlink_messages import Exchange

_NETLINK_XFRM = 6
_XFRM_MSG_NEWPOLICY, _XFRM_MSG_GETPOLICY = 0x13, 0x15
_SELECTOR = struct.Struct("=16s16sHHHHHBBB3xiI")
_POLICY = struct.Struct("=56s64s32sIIBBBB4x")
_ID_BYTES = 64
_DIRECTIONS = ("in", "out", "fwd")
_BLOCK = 1


class IPsecPolicy(NamedTuple):
    """A policy of the kernel for packets.

    Attributes:
        source: the network of the packets' source.
        destination: the network of their destination.
        direction: ``in``, ``out`` or ``fwd``.
        blocks: whether it drops the packets. Otherwise it lets them pass, or wants them encrypted.
        is_whole: whether it is for all packets between the two networks, not only for a protocol or an interface.
    """

    source: str
    destination: str
    direction: str
    blocks: bool
    is_whole: bool


def ipsec_policies() -> tuple[IPsecPolicy, ...]:
    """Return the policies, except those of single sockets. Raises OSError, for example without CAP_NET_ADMIN."""
    try:
        connection = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_XFRM)
    except OSError as error:
        if error.errno == errno.EPROTONOSUPPORT:  # the kernel has no IPsec
            return ()
        raise
    with connection:
        kernel = Exchange(connection, is_own=True)
        return tuple(kernel.dump(_XFRM_MSG_GETPOLICY, _XFRM_MSG_NEWPOLICY, bytes(_ID_BYTES), _policy))


def _policy(body: bytes) -> IPsecPolicy | None:
    chosen, _, _, _, _, direction, action, _, _ = _POLICY.unpack_from(body)
    destination, source, *ports, family, to_bits, from_bits, protocol, ifindex, _ = _SELECTOR.unpack(chosen)
    if direction >= len(_DIRECTIONS) or family not in {socket.AF_INET, socket.AF_INET6}:
        return None
    size = 16 if family == socket.AF_INET6 else 4
    ends = (
        f"{socket.inet_ntop(family, address[:size])}/{bits}"
        for address, bits in ((source, from_bits), (destination, to_bits))
    )
    is_whole = not any((*ports, protocol, ifindex))
    return IPsecPolicy(next(ends), next(ends), _DIRECTIONS[direction], action == _BLOCK, is_whole)
