"""The settings of an interface that decide on its packets, as ``ip``, ``bridge``, ``tc`` and ``sysctl`` name them."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Mapping

_IFF_NOARP = 0x80
_QUEUE, _XDP, _XDP_ATTACHED = 6, 43, 2
_AF_SPEC, _AF_INET, _INET_CONF, _AF_INET6, _INET6_CONF = 26, 2, 1, 10, 2
_WORDS_OF_PORT = {
    (1, b"\0"): "state 0", (1, b"\4"): "state 4", (4, b"\1"): "hairpin on", (9, b"\0"): "flood off",
    (30, b"\0"): "bcast_flood off", (33, b"\1"): "isolated on", (39, b"\1"): "locked on",
}  # fmt: skip
"""The attributes of a port of a bridge: IFLA_BRPORT_* of the kernel's if_link.h."""
FILTERS_VLANS, RUNS_XDP = "vlan_filtering 1", "xdp on"
_WORDS_OF_BRIDGE = {(5, struct.pack("=I", 1)): "stp_state 1", (7, b"\1"): FILTERS_VLANS}
"""IFLA_BR_* of the kernel's if_link.h."""
_WORDS_OF_SYSCTL = {(1, 0): "forwarding 0", (8, 1): "rp_filter 1", (19, 8): "arp_ignore 8", (26, 1): "route_localnet 1"}
"""The numbers of net.ipv4.conf.*: IPV4_DEVCONF_* of the kernel's ip.h."""
WITHOUT_IPV6 = "disable_ipv6 1"
_WORDS_OF_SYSCTL_6 = {(27, 1): WITHOUT_IPV6}
"""The numbers of net.ipv6.conf.*, which begin with 1 here: DEVCONF_* of the kernel's ipv6.h."""
_KERNELS_OWN_QUEUES = {"", "cake", "fq", "fq_codel", "fq_pie", "mq", "noop", "noqueue", "pfifo", "pfifo_fast", "sfq"}
"""The queues that a kernel gives an interface by itself, or by net.core.default_qdisc. They lose and limit nothing."""

Attributes = Mapping[int, bytes]


def settings_of(
    flags: int, link: Attributes, bridge: Attributes, port: Attributes, decode: Callable[[bytes], Attributes]
) -> tuple[str, ...]:
    """Return the settings of an interface that differ from those of a new interface.

    ``forwarding 0`` and ``rp_filter 1`` are usual in some namespaces, and portmap sets ``route_localnet 1``.

    Args:
        flags: the flags of the interface.
        link: the attributes of the interface.
        bridge: the attributes of a bridge; empty for another interface.
        port: the attributes of a port of a bridge; empty for another interface.
        decode: a function that decodes an attribute with attributes in it.
    """
    families = decode(link.get(_AF_SPEC, b""))
    conf = decode(families.get(_AF_INET, b"")).get(_INET_CONF, b"")
    conf6 = decode(families.get(_AF_INET6, b"")).get(_INET6_CONF, b"")
    has_xdp = any(decode(link.get(_XDP, b"")).get(_XDP_ATTACHED, b""))
    words = ["arp off"] * bool(flags & _IFF_NOARP) + [RUNS_XDP] * has_xdp
    for attributes, known in ((bridge, _WORDS_OF_BRIDGE), (port, _WORDS_OF_PORT)):
        if attributes:
            words += [word for (kind, value), word in known.items() if attributes.get(kind) == value]
    for values, sysctls in ((conf, _WORDS_OF_SYSCTL), (conf6, _WORDS_OF_SYSCTL_6)):
        for (number, value), word in sysctls.items():
            if len(values) >= 4 * number and struct.unpack_from("=i", values, 4 * number - 4)[0] == value:
                words.append(word)
    queue = link.get(_QUEUE, b"").rstrip(b"\0").decode(errors="replace")
    words += [f"qdisc {queue}"] if queue not in _KERNELS_OWN_QUEUES else []
    return _shared(tuple(words))


@functools.lru_cache(256)
def _shared(settings: tuple[str, ...]) -> tuple[str, ...]:
    """Return an equal value: most interfaces have the same settings."""
    return settings
