"""Host ports: two containers cannot publish the same port, because only one container would receive its connections."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from libcni.config.network import NetworkConfigList
from libcni.config.port_mappings import PORT_MAPPINGS, HostPort, ports_in
from libcni.errors import AttachmentExistsError, Hint
from libcni.store.attachments import recorded_network
from libcni.store.model import Record
from libcni.verbs.node import Node

if TYPE_CHECKING:
    from libcni.kernel.life import Answer


def host_ports(net: NetworkConfigList, args: Mapping[str, Any] | None) -> tuple[HostPort, ...]:
    """Return the host ports that an attachment's plugins publish."""
    ports = tuple(ports_in(args))
    return () if net.unused_capabilities({PORT_MAPPINGS: ports}) else ports


class PortOwner(NamedTuple):
    """The attachment of another container that publishes a port.

    Attributes:
        record: its record.
        port: the port that both publish.
        life: whether its container lives.
        is_own: whether it belongs to this client: the attachments of other programs are not detached for an ADD.
    """

    record: Record
    port: HostPort
    life: Answer
    is_own: bool


def port_owners(node: Node, container_id: str, ports: tuple[HostPort, ...]) -> Iterator[PortOwner]:
    """Yield the recorded attachments of other containers that publish one of these ports."""
    from libcni.kernel.life import Life  # few ADDs meet the port of another container
    from libcni.store.life import life_of

    life = Life()
    for other in node.others.with_host_ports(port.number for port in ports):
        record = node.records.find(other.identity) if other.identity[1] != container_id else None
        if record is None or not record.may_have_rules:
            continue
        net = recorded_network(record)
        published = host_ports(net, record.decoded_capability_args) if net is not None else ()
        port = next((port for port in ports if any(map(port.collides, published))), None)
        if port is not None:
            is_own = record.is_by_this_library and record.owner == node.settings.owner
            yield PortOwner(record, port, life_of(record, life), is_own)


def check_host_ports(node: Node, container_id: str, ports: tuple[HostPort, ...]) -> None:
    """Raise AttachmentExistsError if the record of another container publishes one of these ports."""
    for record, port, life, _ in port_owners(node, container_id, ports):
        text = f"host port {port} is already published by container {record.container_id} ({record.path})"
        hint = Hint("publish another port, or share this port ({argument})", argument="on_existing", value="allow")
        if not life.is_alive:
            text += (
                f"; it is dead: {life.reason}" if life.is_dead else f"; nobody knows whether it lives: {life.reason}"
            )
            hint = Hint.about(record, "if its program no longer needs it, detach it", "del")
        raise AttachmentExistsError(
            text, container_id=record.container_id, ifname=record.ifname, network=record.network, hint=hint
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
    await node.on_disk(node.others.read)
    locks = await node.lock_host_ports({port.number for port in ports})
    try:
        check_host_ports(node, container_id, ports)
        yield
    finally:
        locks.close()
