"""Typed access to the capabilities in ``runtimeConfig`` (CONVENTIONS.md, well-known capabilities)."""

from __future__ import annotations

from typing import NamedTuple

from libcni.plugin.typed_config import find_key, load

__all__ = ["AddressRange", "BandwidthLimits", "DNSSettings", "PortMappingEntry", "RuntimeConfig"]


class PortMappingEntry(NamedTuple):
    """A port of the host that is forwarded to a port of the container.

    Examples:
        >>> PortMappingEntry(8080, 80)
        PortMappingEntry(host_port=8080, container_port=80, protocol='tcp', host_ip='')
    """

    host_port: int
    container_port: int
    protocol: str = "tcp"
    host_ip: str = ""


class BandwidthLimits(NamedTuple):
    """The limits of an interface: rates in bits per second, bursts in bits, 0 for no limit.

    Examples:
        >>> BandwidthLimits(ingress_rate=1000).egress_rate
        0
    """

    ingress_rate: int = 0
    ingress_burst: int = 0
    egress_rate: int = 0
    egress_burst: int = 0


class DNSSettings(NamedTuple):
    """The name resolution that the runtime asks for.

    Examples:
        >>> DNSSettings(("10.1.0.1",)).servers
        ('10.1.0.1',)
    """

    servers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


class AddressRange(NamedTuple):
    """A range of addresses; "" for a part that the plugin may choose.

    Examples:
        >>> AddressRange("10.1.0.0/16").gateway
        ''
    """

    subnet: str
    range_start: str = ""
    range_end: str = ""
    gateway: str = ""


class RuntimeConfig(NamedTuple):
    """The well-known capabilities; None or empty for one that the runtime did not send.

    Upper and lower case of keys do not matter: containerd sends ``HostPort`` for ``hostPort``.

    Attributes:
        port_mappings: the ports to forward, ``portMappings``.
        bandwidth: the limits of the interface, ``bandwidth``.
        dns: the resolver's settings, ``dns``.
        ip_ranges: for each requested address, the ranges that it may come from, ``ipRanges``.
        ips: the requested addresses, with or without a prefix length, ``ips``.
        mac: the requested hardware address, ``mac``.
        infiniband_guid: the requested InfiniBand GUID, ``infinibandGUID``.
        device_id: the device to use, such as a PCI address, ``deviceID``.
        aliases: the container's names on this network, ``aliases``.
        cgroup_path: the container's cgroup, ``cgroupPath``.

    Examples:
        >>> config = {"name": "net", "runtimeConfig": {"portMappings": [{"HostPort": 80, "ContainerPort": 8080}]}}
        >>> Request("ADD", {}, config, b"").runtime_config.port_mappings[0].container_port
        8080
    """

    port_mappings: tuple[PortMappingEntry, ...] = ()
    bandwidth: BandwidthLimits | None = None
    dns: DNSSettings | None = None
    ip_ranges: tuple[tuple[AddressRange, ...], ...] = ()
    ips: tuple[str, ...] = ()
    mac: str | None = None
    infiniband_guid: str | None = None
    device_id: str | None = None
    aliases: tuple[str, ...] = ()
    cgroup_path: str | None = None


def read_runtime_config(document: object, network: str) -> RuntimeConfig:
    """Return the capabilities in ``document``, the value of ``runtimeConfig``, for the network of that name."""
    capabilities = load({} if document is None else document, dict, "runtimeConfig")
    key = find_key(capabilities, "aliases")
    if isinstance(capabilities.get(key), dict):  # podman sends an object from network names to lists
        capabilities = {**capabilities, key: capabilities[key].get(network)}
    loaded: RuntimeConfig = load(capabilities, RuntimeConfig, "runtimeConfig")
    return loaded
