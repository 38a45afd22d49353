"""Read from a record what is needed to decide whether its container lives."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import libcni.kernel.system as system
from libcni.config import jsontext
from libcni.config.delegates import delegated
from libcni.kernel.life import Answer, Life, Subject
from libcni.protocol.result import Result
from libcni.store.model import STALE_BOOT, MadeByGo, Record, Unreadable
from libcni.store.recorded_interface import last_result

DEFAULT_BRIDGE = "cni0"


def life_of(record: Record, life: Life | None = None) -> Answer:
    """Return whether the container of a record lives; see ``Life.of``.

    ``life``: the view of the node, for questions about several records; None: a new one.
    """
    life = Life() if life is None else life
    if record.state != STALE_BOOT and life.by_path(record.netns, record.netns_id, record.netns_cookie or 0):
        # The usual case: do not decode the result.
        return Answer("alive", "path", "the path leads to the recorded namespace", record.netns, record.netns_id)
    return life.of(subject_of(record))


def has_ended(record: Record, life: Life) -> bool:
    """Return whether a record's namespace or interface has certainly ended. The processes are not searched."""
    # First by what the kernel knows: do not decode the result of a container that has ended.
    brief = Subject(record.netns, record.netns_id, record.netns_cookie or 0)
    return life.has_ended(brief) or life.has_ended(subject_of(record))


def is_held(record: Record, life: Life) -> bool:
    """Return whether something holds the namespace of a record although the recorded path does not lead to it."""
    return not has_ended(record, life) and life.is_held(subject_of(record))


def subject_of(record: Record) -> Subject:
    """Return the facts in a record from which ``Life`` decides whether the container lives."""
    if isinstance(record, Unreadable):
        return Subject()
    result = last_result(record)
    bridges = tuple(dict.fromkeys(bridges_in(_documents(record))))
    return Subject(
        path=record.netns,
        netns=record.netns_id,
        cookie=record.netns_cookie or 0,
        index=getattr(record.interface, "number", 0),
        host_ends=tuple(_host_ends(result, bridges)) if result is not None else (),
        addresses=tuple(_addresses(result)) if result is not None else (),
        macs=tuple(_macs(result)) if result is not None else (),
        bridges=bridges,
        pid_namespace=record.pid_namespace,
        age=age_of(record),
        has_rebooted=record.state == STALE_BOOT,
    )


def age_of(record: Record) -> float | None:
    """Return the seconds since an attachment's ADD, if possible by the boot clock, which cannot be set; or None."""
    if record.uptime is not None and record.state != STALE_BOOT:
        return max(0.0, system.uptime() - record.uptime)
    if record.created is not None:
        return max(0.0, system.time() - record.created)
    if isinstance(record, MadeByGo) and record.stamp is not None:
        # Go libcni records no time. It writes its file after the ADD.
        return max(0.0, system.time() - record.stamp[2] / 1e9)
    return None


def _host_ends(result: Result, bridges: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield (name, hardware address) of the interfaces of a result that are on the host, except bridges."""
    for interface in result.interfaces:
        if not interface.sandbox and interface.name and interface.name not in bridges:
            yield interface.name, (interface.mac or "").lower()


def _macs(result: Result) -> Iterator[str]:
    """Yield the hardware addresses of the interfaces of a result that are in the container."""
    yield from (interface.mac.lower() for interface in result.interfaces if interface.sandbox and interface.mac)


def _addresses(result: Result) -> Iterator[str]:
    """Yield the addresses of a result that only one container can have."""
    for ip in result.ips:
        text = ip.address.partition("/")[0]
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            continue
        if not (address.is_loopback or address.is_link_local):
            yield str(address)


def bridges_in(documents: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the bridges of plugin configurations, and those of the delegates of flannel and Multus."""
    for document in documents:
        for _, ran in delegated("", document):
            if ran.get("type") == "bridge":
                yield str(ran.get("bridge") or DEFAULT_BRIDGE)


def _documents(record: Record) -> list[Mapping[str, Any]]:
    try:
        if record.plugins:
            return [jsontext.parse(text) for text in record.plugins]
        decoded = jsontext.parse(record.config.decode(errors="replace"))
        plugins = decoded.get("plugins") if isinstance(decoded, dict) else None
        return [one for one in plugins if isinstance(one, dict)] if isinstance(plugins, list) else []
    except (ValueError, AttributeError):
        return []
