"""Find out who uses a host port already: a container, a program or a rule. Only one user gets the connections."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from libcni.config.network import NetworkConfigList
from libcni.config.port_mappings import PORT_MAPPINGS, HostPort, ports_in
from libcni.errors import AttachmentExistsError, Hint
from libcni.store.attachments import recorded_network
from libcni.store.model import Record
from libcni.verbs.verb_run import VerbRun

if TYPE_CHECKING:
    from libcni.kernel.life import Answer
    from libcni.verbs.port_rules import PortRules, Translation


def host_ports(net: NetworkConfigList, args: Mapping[str, Any] | None) -> tuple[HostPort, ...]:
    """Return the host ports that an attachment's plugins publish."""
    if not args:
        return ()
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


class PortUser(NamedTuple):
    """A container that publishes ports of the host; ``addresses`` is None before its ADD."""

    container_id: str
    ports: tuple[HostPort, ...]
    addresses: tuple[str, ...] | None = None


class Listener(NamedTuple):
    """A program of the host that listens on a host port of a container: the port, the program, the container."""

    port: HostPort
    who: str
    container_id: str

    def __str__(self) -> str:
        return f"{self.who} listens on host port {self.port}; clients of this program reach the container instead"


class PortRule(NamedTuple):
    """A rule that forwards a host port of a container to another address."""

    user: PortUser
    port: HostPort
    found: Translation

    def __str__(self) -> str:
        target, rule = self.found.target or "this host", " ".join(self.found.rule)
        return (
            f"host port {self.port} is already forwarded to {target} by the rule {rule}; only one of the two gets the "
            "connections"
        )


class PortHolders(NamedTuple):
    """The users of host ports that containers publish: attachments of other containers, programs, and rules."""

    container_id: str = ""
    owners: tuple[PortOwner, ...] = ()
    listeners: tuple[Listener, ...] = ()
    rules: tuple[PortRule, ...] = ()

    @property
    def dead(self) -> list[PortOwner]:
        """The attachments of this client whose containers are proved dead."""
        return [owner for owner in self.owners if owner.is_own and owner.life.is_dead]

    def check_owners(self, *, but: Collection[PortOwner] = ()) -> None:
        """Raise AttachmentExistsError if another container than those of ``but`` publishes a port."""
        for owner in self.owners:
            if owner not in but:
                raise _published(owner)

    def check(self, note: Callable[[str], None], *, strict: bool) -> None:
        """Raise AttachmentExistsError if a container or a rule uses a port; with ``strict`` also if a program does.

        Without ``strict``, ``note`` gets the texts about programs.
        """
        self.check_owners()
        wrong = [(str(rule), "remove that rule") for rule in self.rules]
        wrong += [(str(listener), "stop that program") for listener in self.listeners if strict]
        for text, cure in wrong:
            words = f"publish another port, or {cure}; or let the container take over the port ({{argument}})"
            hint = Hint(words, argument="on_existing", value="allow")
            raise AttachmentExistsError(text, container_id=self.container_id, hint=hint)
        for listener in self.listeners:
            note(str(listener))


def _published(owner: PortOwner) -> AttachmentExistsError:
    record, port, life, _ = owner
    text = f"host port {port} is already published by container {record.container_id} ({record.path})"
    hint = Hint(f"publish another port, or detach container {record.container_id}")
    if not life.is_alive:
        text += f"; it is dead: {life.reason}" if life.is_dead else f"; nobody knows whether it lives: {life.reason}"
        hint = Hint.about(record, "if its program no longer needs the container, detach it", "del")
    return AttachmentExistsError(
        text, container_id=record.container_id, ifname=record.ifname, network=record.network, hint=hint
    )


def port_holders(users: Iterable[PortUser], rules: PortRules, owners: Iterable[PortOwner] = ()) -> PortHolders:
    """Return the other users of the host ports of containers.

    ADD asks before it publishes ports, and the doctor at any time.

    Args:
        users: the containers; the answer's ``container_id`` is the ID of the first one.
        rules: the rules of the host.
        owners: the attachments that publish these ports by record.
    """
    users = list(users)
    published = [(port, user.container_id) for user in users for port in user.ports]
    return PortHolders(
        users[0].container_id if users else "",
        tuple(owners),
        tuple(_listeners(published)) if published else (),
        tuple(found for user in users for port in user.ports for found in _elsewhere(user, port, rules)),
    )


def _elsewhere(user: PortUser, port: HostPort, rules: PortRules) -> list[PortRule]:
    """Return the first rule for a port of each program, if it leads to another container or to none.

    Before the ADD, a rule of this container is for another network on which it publishes the port. After the ADD, a
    container without any rule of its own has another fault.
    """
    addresses = user.addresses
    if addresses is None:
        firsts = [ordered[0] for ordered in rules.of(port)]
        return [PortRule(user, port, one) for one in firsts if one.leads and not one.is_of(user.container_id)]
    matching = list(rules.of(port, {":" in address for address in addresses}))
    if not any(one.target in addresses for ordered in matching for one in ordered):
        return []
    return [PortRule(user, port, ordered[0]) for ordered in matching if ordered[0].target not in addresses]


def _listeners(published: Iterable[tuple[HostPort, str]]) -> Iterator[Listener]:
    """Yield the programs of the host that lose their clients to containers.

    Omit podman where it keeps a container's port for the container, so that no other program takes it: conmon, which
    has the container's ID as an argument, and before it runs the podman whose driver this program is.

    Args:
        published: the ports of containers, each with the container's ID.
    """
    from libcni.kernel.sockets import is_ancestor, processes_of  # few ADDs publish ports

    waiting = list(_waiting(published))
    processes = processes_of({inode for inode, _, _ in waiting})
    for inode, taken, containers in waiting:
        process, words = processes.get(inode, ("", ()))
        name = os.path.basename(words[0]) if words else ""
        if name == "podman" and is_ancestor(process):
            continue
        who = f"{name} (process {process})" if name else "a program of the host"
        yield from (Listener(taken, who, one) for one in sorted(containers.difference(words)))


def _waiting(published: Iterable[tuple[HostPort, str]]) -> Iterator[tuple[str, HostPort, set[str]]]:
    """Yield (inode, port, containers) of each socket of the host that listens on a container's port."""
    from libcni.kernel.sockets import waiting_sockets

    by_number: dict[tuple[str, int], list[tuple[HostPort, str]]] = {}
    for port, container_id in published:
        by_number.setdefault((port.protocol, int(port.number)), []).append((port, container_id))
    for protocol in sorted({protocol for protocol, _ in by_number}):
        for socket in waiting_sockets(protocol, {number for kind, number in by_number if kind == protocol}):
            taken = HostPort(socket.number, protocol, socket.address)
            if containers := {one for port, one in by_number[protocol, socket.number] if taken.collides(port)}:
                yield socket.inode, taken, containers


def _owners(run: VerbRun, container_id: str, ports: tuple[HostPort, ...]) -> Iterator[PortOwner]:
    from libcni.kernel.life import Life
    from libcni.store.life_of_record import life_of

    life = Life()
    for record in run.others.with_host_ports(port.number for port in ports):
        if record.container_id == container_id or not record.may_have_rules:
            continue
        net = recorded_network(record)
        published = host_ports(net, record.decoded_capability_args) if net is not None else ()
        # Thousands of ports with thousands of others would be millions of comparisons.
        by_number: dict[int, list[HostPort]] = {}
        for one in published:
            by_number.setdefault(one.number, []).append(one)
        port = next((port for port in ports if any(map(port.collides, by_number.get(port.number, ())))), None)
        if port is not None:
            is_own = record.is_by_this_library and record.owner == run.settings.owner
            yield PortOwner(record, port, life_of(record, life), is_own)


def _others(run: VerbRun, container_id: str, ports: tuple[HostPort, ...], *, with_rules: bool) -> PortHolders:
    """Return who has the ports of an ADD."""
    from libcni.verbs.port_rules import PortRules, port_rules_now  # few ADDs publish ports

    user = PortUser(container_id, ports)
    return port_holders(
        [user], port_rules_now(ports) if with_rules else PortRules({}), _owners(run, container_id, ports)
    )


@asynccontextmanager
async def locked_host_ports(
    run: VerbRun, container_id: str, ports: tuple[HostPort, ...], *, with_rules: bool
) -> AsyncIterator[PortHolders]:
    """Lock an ADD's host ports during the block, which writes its record; yield the other users of the ports.

    ``with_rules``: also read the rules. iptables-save takes 2 ms, and 120 ms if 2,000 containers publish ports.
    """
    locks = await run.lock_host_ports({port.number for port in ports})
    try:
        is_short = not with_rules and run.records.index.is_quick()
        look = partial(_others, run, container_id, ports, with_rules=with_rules)
        yield await run.on_disk(look, is_short=is_short)
    finally:
        locks.close()
