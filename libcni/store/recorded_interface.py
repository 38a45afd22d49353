"""The interface and the addresses that an attachment's record names."""

from __future__ import annotations

from libcni.protocol.result import Result, ResultProblem, read_result
from libcni.store.model import MadeByGo, Record
from libcni.store.place import ANY, NOWHERE, UNKNOWN, Interface, Known, Place


def addresses_of(record: Record) -> tuple[str, ...]:
    """Return an attachment's recorded addresses without prefix length."""
    result = last_result(record)
    return tuple(ip.address.partition("/")[0] for ip in result.ips) if result is not None else ()


def own_addresses(record: Record) -> tuple[str, ...]:
    """Return the recorded addresses of the attachment's own interface, without those of other interfaces."""
    result = last_result(record)
    if result is None:
        return ()
    # By the specification "interface" is an index in "interfaces". Plugins may omit it, or print another number.
    names = dict(enumerate(interface.name for interface in result.interfaces))
    own = [ip for ip in result.ips if ip.interface is None or names.get(ip.interface, record.ifname) == record.ifname]
    return tuple(ip.address.partition("/")[0] for ip in own)


def last_result(record: Record) -> Result | None:
    """Return the result of an ADD, or of its last plugin that ended; None if there is no readable result."""
    if record.last_result is None:
        return None
    try:
        return read_result(record.last_result, record.version or "0.1.0", lenient=True)
    except ResultProblem:
        return None


def place_of(record: Record) -> Place:
    """Return the namespace and interface that an ADD recorded. Go libcni records neither identity nor index."""
    if isinstance(record, MadeByGo):
        # Plugins may give a meaning to a text that is no path.
        return Place(ANY if record.netns.startswith("/") else None, 0, _reported(record, UNKNOWN))
    return Place(record.netns_id or NOWHERE, record.netns_cookie or 0, _interface_of(record))


def _interface_of(record: Record) -> Interface:
    interface = record.interface
    if interface is UNKNOWN:
        # The result is from before the reload, which removed that interface. The new ADD creates another one.
        was_removed = record.is_reload and record.result is None
        return UNKNOWN if was_removed else _reported(record, interface)
    return _reported(record, interface) if isinstance(interface, Known) and not interface.mac else interface


def _reported(record: Record, interface: Interface) -> Interface:
    """Return an interface with the hardware address that the plugins reported."""
    mac = _reported_mac(record)
    number = interface.number if isinstance(interface, Known) else 0
    return Known(number, mac) if number or mac else UNKNOWN


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
