"""Host ports: two containers cannot publish the same port, because only one container would receive its connections."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from libcni.config.network import NetworkConfigList
from libcni.errors import AttachmentExistsError, Hint
from libcni.store.attachments import namespace_has_gone, recorded_network
from libcni.store.model import REFUSED, STALE_BOOT
from libcni.verbs.node import Node

logger: logging.Logger = logging.getLogger("libcni")

_CAPABILITY = "portMappings"


class HostPort(NamedTuple):
    """A port of the host that an attachment publishes; ``address`` is "" for all addresses of the host."""

    number: int
    protocol: str
    address: str

    def collides(self, other: HostPort) -> bool:
        """Return whether a connection to the host could match both ports."""
        if (self.number, self.protocol) != (other.number, other.protocol):
            return False
        addresses = {_canonical(self.address), _canonical(other.address)}
        if "" in addresses or len(addresses) == 1:
            return True
        # 0.0.0.0 and :: stand for all addresses of their family.
        is_one_family = len({":" in address for address in addresses}) == 1
        return is_one_family and not addresses.isdisjoint({"0.0.0.0", "::"})  # noqa: S104 - nothing is bound

    def __str__(self) -> str:
        """Return the port in the form ``127.0.0.1:8080/tcp``."""
        return f"{self.address}{':' if self.address else ''}{self.number}/{self.protocol}"


def host_ports(net: NetworkConfigList, args: Mapping[str, Any] | None) -> tuple[HostPort, ...]:
    """Return the host ports that an attachment's plugins publish."""
    mappings = (args or {}).get(_CAPABILITY)
    if not isinstance(mappings, list | tuple) or net.unused_capabilities({_CAPABILITY: mappings}):
        return ()
    # A record may hold anything. portmap ignores a mapping without a port of the host.
    published = [mapping for mapping in mappings if isinstance(mapping, Mapping) and mapping.get("hostPort")]
    return tuple(
        HostPort(mapping["hostPort"], str(mapping.get("protocol") or "tcp").lower(), str(mapping.get("hostIP") or ""))
        for mapping in published
    )


def check_host_ports(node: Node, container_id: str, ports: tuple[HostPort, ...]) -> None:
    """Raise AttachmentExistsError if the record of another living container publishes one of these ports."""
    node.recorded_interfaces.refresh()
    for other in node.recorded_interfaces.with_host_ports(port.number for port in ports):
        record = node.records.find(other.identity) if other.identity[1] != container_id else None
        if record is None or record.state in {REFUSED, STALE_BOOT}:  # then it has no rules
            continue
        net = recorded_network(record)
        published = host_ports(net, record.decoded_capability_args) if net is not None else ()
        port = next((port for port in ports if any(map(port.collides, published))), None)
        if port is None:
            continue
        text = f"host port {port} is already published by container {record.container_id} ({record.path})"
        if namespace_has_gone(record):
            # A runtime may start a new container before the DEL or GC of a lost container.
            more = "whose namespace is gone: until it is detached, its rules may get the connections"
            logger.warning("%s, %s", text, more)
            continue
        raise AttachmentExistsError(
            text,
            container_id=record.container_id,
            ifname=record.ifname,
            network=record.network,
            hint=Hint("publish another port, or share this port ({argument})", argument="on_existing", value="allow"),
        )


@asynccontextmanager
async def reserved_host_ports(node: Node, container_id: str, ports: tuple[HostPort, ...]) -> AsyncIterator[None]:
    """Lock and check host ports during a block that writes the record of their ADD.

    The locks are needed because two ADDs at the same time would not find each other's record.

    Raises:
        AttachmentExistsError: as ``check_host_ports``.
    """
    if not ports:
        yield
        return
    await node.read_records()
    locks = await node.lock_host_ports({port.number for port in ports})
    try:
        check_host_ports(node, container_id, ports)
        yield
    finally:
        locks.close()


def _canonical(address: str) -> str:
    """Return the usual text of an IPv6 address, which has many; any other text as it is."""
    if ":" not in address:
        return address
    from ipaddress import ip_address  # few ADDs compare IPv6 addresses of the host

    try:
        return str(ip_address(address))
    except ValueError:
        return address
