"""The state of a node at one moment: configurations, records, namespaces, interfaces, rules and reservations."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from libcni.client import CNIConfig
from libcni.config.delegates import delegated
from libcni.config.directory import ConfigDirectory, read_config_directory
from libcni.config.host_local import Reservation, reservation_directories, reservations_in
from libcni.config.network import NetworkConfigList, plugin_documents
from libcni.diagnosis.executable import plugin_problem
from libcni.diagnosis.mends import Mend, MendKind
from libcni.diagnosis.report import FindingName, NodeCheck, NodeFinding, Severity
from libcni.errors import CNIError, ConfigError, RecordError
from libcni.kernel.foreign import Space
from libcni.kernel.life import Answer, Life, Subject
from libcni.kernel.namespace import NamespaceId, namespace_identity
from libcni.kernel.netlink import Link, Network, read_network
from libcni.kernel.rules import Table, programs, saved_rules
from libcni.protocol.result import Result
from libcni.store.attachments import Attachment, is_valid_pair, recorded_network
from libcni.store.life import bridges_in, life_of, subject_of
from libcni.store.model import CORRUPT, LIVING, LOST_PATH
from libcni.store.records import RecordStore, names_of, without_hash

FORWARDING = {4: "/proc/sys/net/ipv4/conf/all/forwarding", 6: "/proc/sys/net/ipv6/conf/all/forwarding"}
PENDING_AFTER = 300.0
"""Seconds after which an unfinished ADD, and a reservation without a record, are treated as abandoned."""

_SEEN = LIVING - {"unknown", LOST_PATH}
"""The states of attachments of which the listing has seen the namespace at the recorded path."""

HOOK = "oci-hook"
"""The owner of the attachments of ``libcni oci-hook``, which keeps the namespace of a container that has ended."""

K = TypeVar("K")
T = TypeVar("T")


class ResultSummary(NamedTuple):
    """The part of an attachment's recorded result that many checks need.

    Attributes:
        addresses: its IP addresses without prefix lengths, except those of ``lo``: every container has these.
        gateways: the gateways of these addresses, with prefix length.
        veths: the names of its veths on the host.
    """

    addresses: tuple[str, ...] = ()
    gateways: tuple[str, ...] = ()
    veths: tuple[str, ...] = ()


class Holder(NamedTuple):
    """An interface that has an IP address now.

    Attributes:
        space: its namespace.
        link: the interface.
        recorded: the attachments to whose namespace a record gives the address.
    """

    space: Space
    link: Link
    recorded: list[Attachment]


@dataclass(frozen=True)
class NodeState:
    """The state of a node at one moment.

    Attributes:
        cni: the client whose directories are read.
        directory: the configurations, or None if they cannot be read.
        attachments: the attachments of all records of all owners, except the misplaced records.
        misplaced: the records whose file has the name of another attachment: somebody copied them.
        set_aside: the file names of corrupt records that repair has moved to ``corrupt``.
        record_error: why the records cannot be listed, or None.
        host: the interfaces and routes of this namespace, which the plugins use.
        life: the look at the node that proves life and death.
        spaces: all network namespaces that something holds.
        reservations: the reservations of host-local, by network and directory.
        rules: the rules by program and table; a program whose rules cannot be listed is missing.
        forwards: whether the kernel forwards packets, by its setting's file.
        unread: the objects that could not be read, with the reason.
        pending_after: seconds after which an unfinished ADD is treated as abandoned.
        started: when the state was read, in seconds since 1970.
    """

    cni: CNIConfig
    directory: ConfigDirectory | None = None
    attachments: tuple[Attachment, ...] = ()
    misplaced: tuple[Attachment, ...] = ()
    set_aside: tuple[str, ...] = ()
    record_error: RecordError | None = None
    host: Network | None = None
    life: Life = field(default_factory=Life)
    spaces: dict[NamespaceId, Space] = field(default_factory=dict)
    reservations: dict[tuple[str, str], list[Reservation]] = field(default_factory=dict)
    rules: dict[str, dict[str, Table]] = field(default_factory=dict)
    forwards: dict[str, bool] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    pending_after: float = PENDING_AFTER
    started: float = 0.0
    _configurations: dict[object, tuple[NetworkConfigList | None, list[Mapping[str, Any]]]] = field(
        default_factory=dict
    )
    _summaries: dict[int, ResultSummary] = field(default_factory=dict)
    _answers: dict[int, Answer] = field(default_factory=dict)

    @property
    def networks(self) -> tuple[NetworkConfigList, ...]:
        """The usable configurations, in load order."""
        return self.directory.networks if self.directory else ()

    def configured(self, network: str) -> NetworkConfigList | None:
        """Return the present configuration of a network, or None."""
        return next((net for net in self.networks if net.name == network), None)

    def recorded(self, attachment: Attachment) -> NetworkConfigList | None:
        """Return the configuration that an attachment's ADD used, or None if it cannot be read."""
        return self._configuration(attachment)[0]

    def documents(self, attachment: Attachment) -> list[Mapping[str, Any]]:
        """Return the plugin configurations that an attachment's ADD used; [] if they cannot be read.

        A delegate has the place of flannel. Those of Multus have networks of their own.
        """
        return self._configuration(attachment)[1]

    def is_loopback(self, attachment: Attachment) -> bool:
        """Return whether an attachment's only plugin is ``loopback``."""
        return [document.get("type") for document in self.documents(attachment)] == ["loopback"]

    def _configuration(self, attachment: Attachment) -> tuple[NetworkConfigList | None, list[Mapping[str, Any]]]:
        record = attachment.record
        # Most attachments of a network have the same configuration, so decode it once.
        key = (record.network, record.config, record.plugins, record.version, record.state == CORRUPT)
        if key not in self._configurations:
            net = recorded_network(record)
            ran = [one for document in plugin_documents(net) for one in delegated(record.network, document)]
            self._configurations[key] = net, [document for network, document in ran if network == record.network]
        return self._configurations[key]

    def summary_of(self, attachment: Attachment) -> ResultSummary:
        """Return the part of an attachment's recorded result that many checks need."""
        # Keep this part, because decoding a result takes as long as all other checks, and no more: 10,000 results
        # need 40 MB.
        if id(attachment) not in self._summaries:
            result = result_of(attachment)
            self._summaries[id(attachment)] = _summary(result) if result is not None else ResultSummary()
        return self._summaries[id(attachment)]

    def addresses_of(self, attachment: Attachment) -> tuple[str, ...]:
        """Return an attachment's recorded IP addresses without prefix lengths."""
        return self.summary_of(attachment).addresses

    def life_of(self, attachment: Attachment) -> Answer:
        """Return whether an attachment's container lives, with the sign that decided."""
        if id(attachment) not in self._answers:
            record = attachment.record
            answer = None
            if attachment.state in _SEEN:
                # The listing has compared the namespace at the path with the recorded one.
                answer = Answer("alive", "path", "its path leads to its namespace", record.netns, record.netns_id)
            elif attachment.made_by_go and attachment.netns:
                # The path alone, before the result is decoded for more signs: Go records nothing else.
                answer = self.life.of(Subject(path=attachment.netns), walk=False)
            if answer is not None and attachment.made_by_go and self._is_elsewhere(attachment):
                answer = self._with_place(self.life.of(replace(subject_of(record), path="")), attachment)
            elif answer is None or not answer.is_alive:
                answer = self._with_place(life_of(record, self.life), attachment)
            self._answers[id(attachment)] = answer
        return self._answers[id(attachment)]

    def _is_elsewhere(self, attachment: Attachment) -> bool:
        """Return whether the interface of a container of Go's is in another namespace than the one at its path.

        Go records no identity of a namespace. Its addresses and hardware address together show where it is.
        """
        places = [self.life.addresses.get(address, []) for address in self.addresses_of(attachment)]
        here = namespace_identity(attachment.netns)
        if not all(places) or any(place in {here, None} for found in places for place, _ in found):
            return False
        result = result_of(attachment)
        macs = {interface.mac for interface in (result.interfaces if result else ()) if interface.sandbox}
        return any(link.mac and link.mac in macs for found in places for _, link in found)

    def _with_place(self, answer: Answer, attachment: Attachment) -> Answer:
        """Return the answer with the namespace that alone has the addresses of a living container of Go's."""
        places = self.life.addresses
        found = {place for address in self.addresses_of(attachment) for place, _ in places.get(address, ())}
        if not answer.is_alive or answer.netns is not None or len(found) != 1:
            return answer
        [namespace] = found
        return answer._replace(netns=namespace, path=self.spaces[namespace].path)

    def reservation_life(self, network: str, reservations: Iterable[Reservation]) -> Answer:
        """Return whether the container of reservations without a record lives: by their addresses alone."""
        addresses = tuple(one.address for one in reservations)
        age = min(self.started - one.changed for one in reservations)
        return self.life.of(Subject(addresses=addresses, bridges=self.bridges_of.get(network, ()), age=age))

    @functools.cached_property
    def different_networks(self) -> tuple[NetworkConfigList, ...]:
        """The recorded configurations, each once, and the present ones."""
        recorded = {id(net): net for net in map(self.recorded, self.attachments) if net is not None}
        return (*recorded.values(), *self.networks)

    @functools.cached_property
    def bridges_of(self) -> dict[str, tuple[str, ...]]:
        """The bridges of each network and delegate, as its file says, or else as the records of its attachments say."""
        found: dict[str, tuple[str, ...]] = {}
        present = set(map(id, self.networks))
        for net in self.different_networks:
            ran = grouped(pair for document in plugin_documents(net) for pair in delegated(net.name, document))
            for network, documents in ran.items():
                bridges = () if id(net) in present else found.get(network, ())
                found[network] = tuple(dict.fromkeys((*bridges, *bridges_in(documents))))
        return found

    def namespace_of(self, attachment: Attachment) -> NamespaceId | None:
        """Return the namespace of an attachment; None if it has ended, or was replaced by another one at its path."""
        answer = self.life_of(attachment)
        return (answer.netns or namespace_identity(attachment.netns)) if answer.is_alive else None

    def space_of(self, attachment: Attachment) -> Space | None:
        """Return the namespace of an attachment with its interfaces, or None."""
        identity = self.namespace_of(attachment)
        return self.spaces.get(identity) if identity is not None else None

    @functools.cached_property
    def _ready(self) -> list[tuple[Attachment, Space]]:
        spaces = (
            (attachment, self.space_of(attachment)) for attachment in self.attachments if attachment.state in LIVING
        )
        return [(attachment, space) for attachment, space in spaces if space is not None]

    @functools.cached_property
    def doubled(self) -> list[list[Attachment]]:
        """The ready attachments of several containers that have one interface: all but one of them are copies."""
        groups = grouped(
            ((space.path, attachment.ifname), attachment)
            for attachment, space in self._ready if attachment.ifname != "lo"
        ).values()  # fmt: skip
        return [alike for alike in groups if len({attachment.container_id for attachment in alike}) > 1]

    @functools.cached_property
    def live(self) -> tuple[tuple[Attachment, Network], ...]:
        """The ready attachments whose namespace can be read, each with its interfaces and routes.

        The attachments in ``doubled`` are left out: nobody knows whose the interface is.
        """
        doubled = {attachment.path for alike in self.doubled for attachment in alike}
        return tuple(
            (attachment, space.network)
            for attachment, space in self._ready
            if space.network is not None and attachment.path not in doubled
        )

    @functools.cached_property
    def working(self) -> frozenset[str]:
        """The paths of the records whose interface exists: a DEL would take it from a container.

        An unfinished attachment counts only if a process lives in the namespace. Otherwise the interface is left of a
        killed ADD.
        """
        spaces = ((attachment, self.space_of(attachment)) for attachment in self.attachments)
        return frozenset(
            attachment.path for attachment, space in spaces
            if space is not None and space.network is not None and attachment.ifname in space.network.links
            and (attachment.state in LIVING or attachment.state == "gone" or space.process)
        )  # fmt: skip

    @functools.cached_property
    def elsewhere(self) -> frozenset[str]:
        """The paths of the records whose bridge or master is in another network namespace than this program.

        That is so for rootless containers, or if this program runs in a pod without the host's network. Then a bridge,
        a host end or a rule that is missing here is no fault. The kernel shows it by the other end of a living
        interface. If one attachment of the network has its host end here, this is the right namespace, and the end of
        another attachment was moved.
        """
        ends: dict[str, set[bool]] = {}
        for attachment, inside in self.live:
            link = inside.links.get(attachment.ifname)
            if link is not None and link.peer_namespace is not None:
                ends.setdefault(attachment.network, set()).add(link.peer_namespace == inside.reader)
        # For a network without a living interface, the interfaces of the other networks decide.
        everywhere = {is_here for here in ends.values() for is_here in here}
        return frozenset(
            attachment.path for attachment in self.attachments if ends.get(attachment.network, everywhere) == {False}
        )

    @functools.cached_property
    def reservations_of(self) -> dict[str, list[Reservation]]:
        """The reservations of host-local by address, on all networks."""
        return grouped(
            (reservation.address, reservation)
            for reservations in self.reservations.values()
            for reservation in reservations
        )

    @functools.cached_property
    def holders(self) -> dict[str, list[Holder]]:
        """The interfaces that have an IP address now, by address; except those that a user can have made by himself.

        The interface of a recorded attachment counts in any case: pods may have user namespaces of their own.
        """
        recorded = grouped(
            ((namespace, address), attachment)
            for attachment in self.attachments
            if (namespace := self.namespace_of(attachment)) is not None
            for address in self.addresses_of(attachment)
        )
        return grouped(
            (address, Holder(space, link, owners))
            for namespace, space in self.spaces.items()
            for link in (space.network.links.values() if space.network is not None else ())
            for address in (text.partition("/")[0] for text in link.addresses)
            for owners in [recorded.get((namespace, address), [])]
            if space.is_evidence(link) or (owners and link.name != "lo")
        )

    @functools.cached_property
    def ignored_addresses(self) -> dict[str, str]:
        """The addresses that count for nothing, each with the path of a namespace that a user can have made."""
        return {
            text.partition("/")[0]: space.path
            for space in self.spaces.values() if space.network is not None and not space.is_trusted
            for link in space.network.links.values() if not space.is_evidence(link)
            for text in link.addresses
        }  # fmt: skip

    def strangers(self, address: str) -> list[Holder]:
        """Return the interfaces that have an IP address without a record of it."""
        return [holder for holder in self.holders.get(address, ()) if not holder.recorded]

    def host_ends(self, attachment: Attachment) -> list[Link]:
        """Return the host ends of an attachment's veths."""
        links = self.host.links if self.host is not None else {}
        return [links[name] for name in self.summary_of(attachment).veths if name in links]

    @functools.cached_property
    def host_routes(self) -> dict[int, list[str]]:
        """The destinations of the node's routes by the number of the interface."""
        return grouped((route.ifindex, route.destination) for route in (self.host.routes if self.host else ()))

    @functools.cached_property
    def uplinks(self) -> frozenset[str]:
        """The interfaces of the node with a default route."""
        indexes = {route.ifindex for route in (self.host.routes if self.host else ()) if route.destination[-2:] == "/0"}
        return frozenset(self.host_links_by_index[index].name for index in indexes & self.host_links_by_index.keys())

    @functools.cached_property
    def host_links_by_index(self) -> dict[int, Link]:
        """The node's links by their number."""
        return {link.index: link for link in (self.host.links.values() if self.host is not None else ())}

    def reloads(self, attachment: Attachment, *, interrupts: bool = False) -> tuple[str, tuple[Mend, ...]]:
        """Return ("", the mend that attaches a container again), or (the remedy, ()) if that would not help."""
        if attachment.path in self.elsewhere:
            return "call repair in the network namespace of the ADD", ()
        space = self.space_of(attachment)
        if attachment.owner == HOOK and not (space is not None and space.process):
            # The hook's pin holds the namespace of a container that has ended.
            return "its container has ended: libcni gc --runtime detaches it", ()
        if self.renamed_bridge(attachment):
            return (
                "give the bridge its old name again first: a reload would create a second bridge of its address",
                (),
            )
        if problem := self.unusable_plugin(attachment):
            return f"its plugins are needed to attach it again: {problem}", ()
        return "", (mend_of("reload", attachment, interrupts=interrupts),)

    def reloads_of(self, attachments: Iterable[Attachment]) -> tuple[str, tuple[Mend, ...]]:
        """Return (the remedy, the mends that attach these containers again)."""
        answers = [self.reloads(attachment) for attachment in attachments]
        remedies = dict.fromkeys(remedy for remedy, _ in answers if remedy)
        return "; ".join(remedies), tuple(mend for _, mends in answers for mend in mends)

    def unusable_plugin(self, attachment: Attachment) -> str:
        """Return why a plugin that attached a container cannot be started, and what to do; "" if all can."""
        net = self.recorded(attachment)
        problems = map(self._problem_of, plugin_names(net) if net is not None else ())
        return next(("; ".join(problem) for problem in problems if problem is not None), "")

    @functools.cached_property
    def _problem_of(self) -> Callable[[str], tuple[str, str] | None]:
        return functools.cache(functools.partial(plugin_problem, self.cni))

    def renamed_bridge(self, attachment: Attachment) -> str:
        """Return the bridge that an attachment uses instead of the configured one, or "".

        Somebody has renamed the bridge. If a bridge with the configured name exists, a later ADD has created it.
        """
        names = [bridge_of(document) for document in self.documents(attachment) if document.get("type") == "bridge"]
        links = self.host.links if self.host is not None else {}
        for end in self.host_ends(attachment) if names else ():
            actual = self.host_links_by_index.get(end.master)
            if actual is not None and actual.name not in names:
                gateways = self.summary_of(attachment).gateways
                if names[0] not in links or not gateways or any(map(actual.has_address, gateways)):
                    return actual.name
        return ""

    def reserved_for(self, network: str, container_id: str) -> list[Reservation]:
        """Return the reservations for a container on a network; with the network "" those on all networks."""
        return [other for name, other in self._reserved.get(container_id, ()) if network in {"", name}]

    @functools.cached_property
    def _reserved(self) -> dict[str, list[tuple[str, Reservation]]]:
        pairs = ((network, other) for (network, _), reservations in self.reservations.items() for other in reservations)
        return grouped((pair[1].container_id, pair) for pair in pairs)

    def is_young(self, reservations: Iterable[Reservation]) -> bool:
        """Return whether one of the reservations may belong to a running ADD, which has no interface yet."""
        return any(reservation.changed > self.started - self.pending_after for reservation in reservations)

    def attached(self, network: str, container_id: str) -> list[Attachment]:
        """Return the attachments of a container to a network; with the network "" those to all networks."""
        return [other for other in self._attached.get(container_id, ()) if network in {"", other.network}]

    @functools.cached_property
    def _attached(self) -> dict[str, list[Attachment]]:
        return grouped((attachment.container_id, attachment) for attachment in self.attachments)

    @functools.cached_property
    def recorded_addresses(self) -> dict[str, list[Attachment]]:
        """The attachments by the addresses of their records."""
        return grouped(
            (address, attachment) for attachment in self.attachments for address in self.addresses_of(attachment)
        )

    def table(self, program: str, table: str) -> Table:
        """Return a table of a program; an empty one if it does not exist or cannot be read."""
        return self.rules.get(program, {}).get(table) or Table()

    @functools.cached_property
    def known_networks(self) -> frozenset[str]:
        """The networks that have a configuration or a record here."""
        return frozenset(
            {net.name for net in self.networks}
            | {attachment.network for attachment in self.attachments if attachment.network}
        )

    def identity_of(self, filename: str) -> tuple[str, str, str] | None:
        """Return (network, container ID, interface) of a record's file name, if a known network's name is its start."""
        networks = self.known_networks | {network for network, _ in self.reservations}
        name = without_hash(filename)
        # Names may contain hyphens, so the longest known network that fits is taken: "a-b" before "a".
        for network in sorted(networks, key=len, reverse=True):
            container_id, separator, ifname = name.removeprefix(f"{network}-").rpartition("-")
            if name.startswith(f"{network}-") and separator and is_valid_pair(container_id, ifname):
                return network, container_id, ifname
        return None

    def is_known(self, network: str, container_id: str, ifname: str = "") -> bool:
        """Return whether a record may belong to this attachment. Corrupt records and those in ``corrupt`` count."""
        recorded = self.attached(network, container_id)
        return any(ifname in {"", attachment.ifname} for attachment in recorded) or self.is_unreadable(
            network, container_id, ifname
        )

    def is_unreadable(self, network: str, container_id: str, ifname: str = "") -> bool:
        """Return whether a record that is corrupt, or was moved to ``corrupt``, may belong to this attachment."""
        return any(name.startswith(network) and f"-{container_id}-{ifname}" in name for name in self._unreadable_names)

    @functools.cached_property
    def _unreadable_names(self) -> tuple[str, ...]:
        corrupt = [os.path.basename(attachment.path) for attachment in self.attachments if attachment.state == CORRUPT]
        # The name of a record that was set aside ends with the time.
        return tuple(map(without_hash, (*corrupt, *(name.rpartition(".")[0] for name in self.set_aside))))


def forwarding_of(device: str) -> str:
    """Return the file that says whether the kernel forwards the IPv4 packets that arrive on one device."""
    return f"/proc/sys/net/ipv4/conf/{device.replace('.', '/')}/forwarding"


def read_node(cni: CNIConfig, *, pending_after: float = PENDING_AFTER) -> NodeState:
    """Read the state of a node. Objects that cannot be read are in ``unread``."""
    started = time.time()
    directory = None
    with suppress(ConfigError):  # the check of the configurations reports it
        directory = read_config_directory(cni.conf_dir)
    known: dict[object, object] = {}
    try:
        records = sorted(
            (_shared(attachment, known) for attachment in cni.iter_cached_attachments()),
            key=lambda attachment: attachment.path,
        )
        set_aside = tuple(RecordStore(cni.cache_dir).names_set_aside())
    except RecordError as error:
        return NodeState(cni, directory, record_error=error)
    unread: dict[str, str] = {}
    in_place: dict[bool, list[Attachment]] = {True: [], False: []}
    for attachment in records:
        in_place[
            not attachment.network or os.path.basename(attachment.path) in names_of(attachment.record.identity)
        ].append(attachment)
    recorded = NodeState(
        cni, directory, tuple(in_place[True]), tuple(in_place[False]), set_aside,
        unread=unread, pending_after=pending_after, started=started, life=Life(old_after=pending_after),
    )  # fmt: skip
    # Read the namespaces before the reservations. A running ADD reserves its address first and gives it to an interface
    # later, so in this order each address that is found has its reservation.
    spaces = recorded.life.spaces
    reservations: dict[tuple[str, str], list[Reservation]] = {}
    configured = {path for net in recorded.different_networks for path in reservation_directories(net)}
    for path in sorted(configured | _unconfigured(cni, configured)):
        with _noting(unread, path, "the reservations cannot be read: "):
            reservations[os.path.basename(path), path] = reservations_in(path)
    host, bridges = None, list[str]()
    with _noting(unread, "this node", "its interfaces cannot be read: "):
        # The namespace of this process is the node's, as for the plugins that it would run.
        host = read_network()
        bridges = [link.name for link in host.links.values() if link.kind == "bridge"]
    rules: dict[str, dict[str, Table]] = {}
    for program in programs():
        with _noting(unread, f"the rules of {program}"):
            rules[program] = saved_rules(program)
    forwards: dict[str, bool] = {}
    for path in (*FORWARDING.values(), *map(forwarding_of, bridges)):
        with suppress(OSError), open(path, encoding="ascii") as file:
            forwards[path] = file.read().strip() != "0"
    return replace(recorded, host=host, spaces=spaces, reservations=reservations, rules=rules, forwards=forwards)


@contextmanager
def _noting(unread: dict[str, str], what: str, problem: str = "") -> Iterator[None]:
    try:
        yield
    except OSError as error:
        unread[what] = f"{problem}{error.strerror or error}"


def _shared(attachment: Attachment, known: dict[object, object]) -> Attachment:
    """Return the attachment without its file's text. Equal records share their configuration."""
    record = attachment.record

    def same(value: T) -> T:
        return known.setdefault(value, value)  # type: ignore[return-value]  # an equal value

    # The last plugin often returns the result of the first one.
    partial = record.result if record.partial == record.result else record.partial
    # Not with_fields(): a dictionary that is filled at once needs three times the memory.
    record = replace(
        record, config=same(record.config), plugins=same(record.plugins), partial=partial, source=None,
        network=same(record.network), version=same(record.version), boot=same(record.boot),
    )  # fmt: skip
    return replace(attachment, config=record.config, network=record.network, record=record)


def plugin_names(*nets: NetworkConfigList) -> list[str]:
    """Return the plugins of networks in order, IPAM plugins included."""
    names = (name for net in nets for plugin in net.plugins for name in (plugin.type, plugin.ipam_type) if name)
    return list(dict.fromkeys(names))


def _unconfigured(cni: CNIConfig, configured: set[str]) -> set[str]:
    """Return host-local's directories that no known configuration names."""
    parents = {os.path.join(cni.cache_dir, "networks"), *map(os.path.dirname, configured)}
    directories: set[str] = set()
    for parent in parents:
        with suppress(OSError):
            directories.update(entry.path for entry in os.scandir(parent) if entry.is_dir(follow_symlinks=False))
    # host-local creates the lock before any reservation. A directory of another program has no lock.
    return {path for path in directories if os.path.exists(os.path.join(path, "lock"))}


def grouped(pairs: Iterable[tuple[K, T]]) -> dict[K, list[T]]:
    """Return the values of each key."""
    groups: dict[K, list[T]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


_last_result: tuple[Attachment | None, Result | None] = (None, None)


def result_of(attachment: Attachment) -> Result | None:
    """Return an attachment's recorded result, or None if it has no usable one."""
    global _last_result  # noqa: PLW0603 - a check reads several parts of one result; 10,000 results would need 40 MB
    if _last_result[0] is attachment:
        return _last_result[1]
    try:
        result = attachment.result
    except CNIError:
        result = None
    _last_result = (attachment, result)
    return result


def addresses_in(space: Space) -> list[str]:
    """Return the IP addresses in a namespace, without prefix lengths."""
    links = space.network.links.values() if space.network is not None else ()
    return [text.partition("/")[0] for link in links for text in link.addresses]


def _summary(result: Result) -> ResultSummary:
    ips = [ip for ip in result.ips if not ip.address.startswith("127.") and ip.address.partition("/")[0] != "::1"]
    addresses = [ip.address.partition("/") for ip in ips]
    gateways = [f"{ip.gateway}/{parts[2]}" for ip, parts in zip(ips, addresses, strict=True) if ip.gateway]
    ends = [interface.name for interface in result.interfaces if not interface.sandbox]
    return ResultSummary(
        tuple(address for address, _, _ in addresses),
        tuple(map(sys.intern, gateways)),
        tuple(name for name in ends if name.startswith("veth")),
    )


def bridge_of(document: Mapping[str, Any]) -> str:
    """Return the bridge of a configuration of ``bridge``."""
    return str(document.get("bridge") or "cni0")


def is_gateway(bridge: Mapping[str, Any]) -> bool:
    """Return whether a configuration of ``bridge`` gives the bridge the containers' gateway address."""
    return bridge.get("isGateway") is True or bridge.get("isDefaultGateway") is True


def name_of(attachment: Attachment) -> str:
    """Return an attachment's name for a finding."""
    return f"container {attachment.container_id}, {attachment.network}, {attachment.ifname}"


def id_of(attachment: Attachment) -> str:
    """Return an attachment as ``ID:IFNAME``."""
    return f"{attachment.container_id}:{attachment.ifname}"


def finding_about(  # noqa: PLR0913, PLR0917 - the fields of a finding
    check: NodeCheck,
    severity: Severity,
    attachment: Attachment,
    name: FindingName,
    seen: str,
    meaning: str = "",
    remedy: str = "",
    mends: tuple[Mend, ...] = (),
) -> NodeFinding:
    """Return a finding about one attachment."""
    return NodeFinding(check, severity, name, name_of(attachment), seen, meaning, remedy, mends, (id_of(attachment),))


def mend_of(kind: MendKind, attachment: Attachment, *details: str, interrupts: bool = False) -> Mend:
    """Return the mend of an attachment's record; ``interrupts``: whether the attachment loses something that works."""
    about = (id_of(attachment),)
    return Mend(kind, attachment.path, details, about, about if interrupts else (), attachment.network)
