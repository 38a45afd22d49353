"""Typed access to the capabilities in ``runtimeConfig`` (CONVENTIONS.md, well-known capabilities)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, get_origin, get_type_hints

from libcni.plugin.loader import find_key, load


class PortMappingEntry(NamedTuple):
    """A port of the host that is forwarded to a port of the container."""

    host_port: int
    container_port: int
    protocol: str = "tcp"
    host_ip: str = ""


class BandwidthLimits(NamedTuple):
    """The limits of an interface: rates in bits per second, bursts in bits, 0 for no limit."""

    ingress_rate: int = 0
    ingress_burst: int = 0
    egress_rate: int = 0
    egress_burst: int = 0


class DNSSettings(NamedTuple):
    """The name resolution that the runtime asks for."""

    servers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


class AddressRange(NamedTuple):
    """A range of addresses; "" for a part that the plugin may choose."""

    subnet: str
    range_start: str = ""
    range_end: str = ""
    gateway: str = ""


class RuntimeConfig:
    """The capabilities of ``runtimeConfig``; None or empty for one that the runtime did not send.

    Each attribute is decoded on access, and raises VerbError (code 7) if its value does not follow the conventions. So
    a malformed capability does not disturb a plugin that does not use it. Upper and lower case of keys do not matter:
    containerd sends ``HostPort`` for ``hostPort``.

    Attributes:
        port_mappings: ``portMappings``.
        bandwidth: ``bandwidth``.
        dns: ``dns``.
        ip_ranges: ``ipRanges``: for each requested address, the ranges that it may come from.
        ips: ``ips``: the requested addresses, with or without a prefix length.
        mac: ``mac``.
        infiniband_guid: ``infinibandGUID``.
        device_id: ``deviceID``, such as a PCI address.
        aliases: ``aliases``: the container's names on this network; podman sends an object from network names to lists.
        cgroup_path: ``cgroupPath``.
        document (Mapping[str, Any]): the whole object, unknown capabilities included.
        network (str): the network's name.
    """

    port_mappings: tuple[PortMappingEntry, ...]
    bandwidth: BandwidthLimits | None
    dns: DNSSettings | None
    ip_ranges: tuple[tuple[AddressRange, ...], ...]
    ips: tuple[str, ...]
    mac: str | None
    infiniband_guid: str | None
    device_id: str | None
    aliases: tuple[str, ...]
    cgroup_path: str | None

    def __init__(self, document: object, network: str = "") -> None:
        self.network = network
        self.document: Mapping[str, Any] = {} if document is None else load(document, dict, "runtimeConfig")

    def __getattr__(self, name: str) -> Any:
        kind = get_type_hints(type(self)).get(name)
        if kind is None:
            raise AttributeError(name)
        key = find_key(self.document, name)
        value = self.document.get(key)
        if name == "aliases" and isinstance(value, dict):
            value = value.get(self.network)
        if value is None:
            return () if get_origin(kind) is tuple else None
        return load(value, kind, f"runtimeConfig.{key}")
