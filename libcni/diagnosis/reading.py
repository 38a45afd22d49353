"""Read a node: its configurations, records, namespaces, interfaces, rules and reservations.

This module draws no conclusions.
"""

from __future__ import annotations

import functools
import ipaddress
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from shutil import which
from typing import Any, NamedTuple, Self, TypeVar

from libcni._dataclass import dataclass, field, replace
from libcni.client import CNIConfig
from libcni.config.delegates import delegated
from libcni.config.directory import ConfigDirectory, read_config_directory
from libcni.config.host_local import Reservation, reservation_directories, reservations_in
from libcni.config.network import NetworkConfigList, plugin_documents
from libcni.diagnosis.executable import plugin_problem
from libcni.diagnosis.report import problem_of
from libcni.errors import CNIError, ConfigError, RecordError
from libcni.kernel.foreign import Space, ways_in
from libcni.kernel.ipsec import IPsecPolicy, ipsec_policies
from libcni.kernel.life import Answer, Life, Subject
from libcni.kernel.namespace import NamespaceId, is_empty_file, namespace_identity
from libcni.kernel.netfilter import Drop, drops_in, legacy_tables
from libcni.kernel.netlink import Network, RouteAnswer, RouteQuestion, read_network
from libcni.kernel.rules import Table, filtering_tables, programs, read_sets, saved_rules
from libcni.protocol.result import Result
from libcni.store.attachments import Attachment, recorded_network
from libcni.store.life_of_record import bridges_in, life_of, subject_of
from libcni.store.model import CORRUPT, LIVING, LOST_PATH
from libcni.store.records import RecordStore, names_of

FORWARDING = {4: "/proc/sys/net/ipv4/conf/all/forwarding", 6: "/proc/sys/net/ipv6/conf/all/forwarding"}
LOCALNET = "/proc/sys/net/ipv4/conf/all/route_localnet"
BRIDGED = {4: "/proc/sys/net/bridge/bridge-nf-call-iptables", 6: "/proc/sys/net/bridge/bridge-nf-call-ip6tables"}
"""Whether the rules of iptables see packets that stay on a bridge."""
WITH_GATEWAY = {"bridge", "ptp"}
"""The plugins that make this node the gateway of their containers, and can masquerade them."""
_QUEUES = "/proc/thread-self/net/netfilter/nfnetlink_queue"
PENDING_AFTER = 300.0
"""Seconds after which an unfinished ADD, and a reservation without a record, are treated as abandoned."""

_VERSION_SECONDS = 10.0
_SEEN = LIVING - {"unknown", LOST_PATH}
"""The states that say that the recorded path leads to the namespace."""

K = TypeVar("K")
T = TypeVar("T")


DropsIn = Callable[[str, NamespaceId], list[Drop]]
LookUp = Callable[[tuple[str, NamespaceId] | None, Sequence[RouteQuestion]], list[RouteAnswer]]


class ResultSummary(NamedTuple):
    """The part of an attachment's recorded result that the checks need.

    Attributes:
        addresses: its IP addresses without prefix lengths, except those of ``lo``: every container has these.
        gateways: the gateways of these addresses, with prefix length.
        veths: the names of its veths on the host.
        placed: (interface, address with prefix length) of the addresses in the container.
        routes: (destination, the route's own gateway or "").
        macs: the hardware addresses of the attachment's interface.
        has_addresses: whether the result has an address; True if the result is unknown.
    """

    addresses: tuple[str, ...] = ()
    gateways: tuple[str, ...] = ()
    veths: tuple[str, ...] = ()
    placed: tuple[tuple[str, str], ...] = ()
    routes: tuple[tuple[str, str], ...] = ()
    macs: tuple[str, ...] = ()
    has_addresses: bool = True


@dataclass(frozen=True)
class NodeReading:
    """The objects that were read of a node at one moment, and what its records and configurations say.

    Attributes:
        cni: the client whose directories are read.
        directory: the configurations, or None if they cannot be read.
        attachments: the attachments of all records of all owners, except the misplaced records.
        misplaced: the records whose file has the name of another attachment: somebody copied them.
        set_aside: the file names of corrupt records that repair has moved to ``corrupt``.
        record_error: why the records cannot be listed, or None.
        host: the interfaces and routes of this namespace, which the plugins use.
        life: the signs that prove whether a container lives or has ended.
        spaces: all network namespaces that a process, a mount or a descriptor holds.
        reservations: the reservations of host-local, by network and directory.
        rules: the rules by program and table; a program whose rules cannot be listed is missing.
        forwards: whether the kernel forwards packets, routes packets of 127.0.0.1, and lets iptables see packets within
            bridges, by the path of the setting in /proc/sys.
        queues: the numbers of the queues of packets (NFQUEUE) that a program reads; None: unknown.
        ipsec: the policies of IPsec in this namespace.
        unread: the objects that could not be read, with the reason.
        pending_after: seconds after which an unfinished ADD is treated as abandoned.
        started: when the state was read, in seconds since 1970.
        look_up: a function that asks the kernel for the routes of packets in a namespace; None: nothing is asked.
        drops_in: a function that asks the kernel for what the filter of a namespace drops; None: nothing is asked.
        legacy_tables: the same for the tables of iptables' legacy variant in several namespaces.
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
    queues: frozenset[int] | None = None
    ipsec: tuple[IPsecPolicy, ...] = ()
    unread: dict[str, str] = field(default_factory=dict)
    pending_after: float = PENDING_AFTER
    started: float = 0.0
    look_up: LookUp | None = None
    drops_in: DropsIn | None = None
    legacy_tables: Callable[[Sequence[tuple[str, NamespaceId]]], dict[str, list[str]]] | None = None
    _configurations: dict[object, tuple[NetworkConfigList | None, list[Mapping[str, Any]]]] = field(
        default_factory=dict
    )
    _summaries: dict[int, ResultSummary] = field(default_factory=dict)
    _answers: dict[int, Answer] = field(default_factory=dict)

    @classmethod
    def read(cls, cni: CNIConfig, *, pending_after: float = PENDING_AFTER) -> Self:
        """Read the state of a node. Objects that cannot be read are in ``unread``."""
        started = time.time()
        unread: dict[str, str] = {}
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
            # Without records nobody knows whose namespaces, rules and reservations are: all would seem to be left over.
            return cls(cni, directory, record_error=error, host=_host(unread), unread=unread)
        in_place: dict[bool, list[Attachment]] = {True: [], False: []}
        for attachment in records:
            in_place[
                not attachment.network or os.path.basename(attachment.path) in names_of(attachment.record.identity)
            ].append(attachment)
        recorded = cls(
            cni, directory, tuple(in_place[True]), tuple(in_place[False]), set_aside,
            unread=unread, pending_after=pending_after, started=started, life=Life(old_after=pending_after),
        )  # fmt: skip
        # Read the namespaces before the reservations. A running ADD reserves its address first and gives it to an
        # interface later, so in this order each address that is found has its reservation.
        spaces = recorded.life.spaces
        reservations: dict[tuple[str, str], list[Reservation]] = {}
        configured = {path for net in recorded.different_networks for path in reservation_directories(net)}
        for path in sorted(configured | _unconfigured(cni, configured)):
            with _noting(unread, path, "the reservations cannot be read: "):
                reservations[os.path.basename(path), path] = reservations_in(path)
        host = _host(unread)
        rules: dict[str, dict[str, Table]] = {}
        for program in programs():
            with _noting(unread, f"the rules of {program}"):
                rules[program] = saved_rules(program)
                if program == "nft":
                    rules[program] = {**filtering_tables(), **rules[program]}
                else:
                    read_sets(rules[program])
        ipsec: tuple[IPsecPolicy, ...] = ()
        with _noting(unread, "the policies of IPsec"):
            ipsec = ipsec_policies()
        forwards: dict[str, bool] = {}
        for path in (*FORWARDING.values(), *BRIDGED.values(), LOCALNET):
            with suppress(OSError), open(path, encoding="ascii") as file:
                forwards[path] = file.read().strip() != "0"
        return replace(
            recorded,
            host=host,
            spaces=spaces,
            reservations=reservations,
            rules=rules,
            forwards=forwards,
            look_up=ways_in,
            drops_in=drops_in,
            legacy_tables=legacy_tables,
            queues=_queues(),
            ipsec=ipsec,
        )

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

        flannel is replaced by its delegate. Delegates of Multus are left out: they have networks of their own.
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
        """Return the part of an attachment's recorded result that the checks need."""
        # Decoding a result takes as long as all checks, and 10,000 results need 40 MB.
        if id(attachment) not in self._summaries:
            result = None
            with suppress(CNIError):
                result = attachment.result
            self._summaries[id(attachment)] = _summary(result, attachment.ifname) if result else ResultSummary()
        return self._summaries[id(attachment)]

    def addresses_of(self, attachment: Attachment) -> tuple[str, ...]:
        """Return an attachment's recorded IP addresses without prefix lengths."""
        return self.summary_of(attachment).addresses

    def life_of(self, attachment: Attachment) -> Answer:
        """Return whether an attachment's container lives, with the sign that decided."""
        if id(attachment) not in self._answers:
            record = attachment.record
            answer = None
            # Go records no identity, and when a namespace is unmounted, the empty file of its name stays.
            is_left = attachment.made_by_go and is_empty_file(attachment.netns)
            if attachment.state in _SEEN and not is_left:
                # The listing has compared the namespace at the path with the recorded one.
                answer = Answer(
                    "alive", "path", "the path leads to the recorded namespace", record.netns, record.netns_id
                )
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
        macs = self.summary_of(attachment).macs
        return any(link.mac and link.mac in macs for found in places for _, link in found)

    def _with_place(self, answer: Answer, attachment: Attachment) -> Answer:
        """Return the answer with the namespace that alone has the addresses of a living container of Go's."""
        places = self.life.addresses
        found = {place for address in self.addresses_of(attachment) for place, _ in places.get(address, ())}
        if not answer.is_alive or answer.netns is not None or len(found) != 1:
            return answer
        [namespace] = found
        return answer._replace(netns=namespace, path=self.spaces[namespace].path)

    @functools.cached_property
    def different_networks(self) -> tuple[NetworkConfigList, ...]:
        """The recorded configurations, each once, and the present ones."""
        recorded = {id(net): net for net in map(self.recorded, self.attachments) if net is not None}
        return (*recorded.values(), *self.networks)

    def namespace_of(self, attachment: Attachment) -> NamespaceId | None:
        """Return the namespace of an attachment; None if it has ended, or was replaced by another one at its path."""
        answer = self.life_of(attachment)
        return (answer.netns or namespace_identity(attachment.netns)) if answer.is_alive else None

    def space_of(self, attachment: Attachment) -> Space | None:
        """Return an attachment's namespace with its interfaces; None if it has ended or was not read."""
        identity = self.namespace_of(attachment)
        return self.spaces.get(identity) if identity is not None else None

    def table(self, program: str, table: str) -> Table:
        """Return a table of iptables' or nft's rules; an empty one if it does not exist or cannot be read."""
        return self.rules.get(program, {}).get(table) or Table()

    @functools.cached_property
    def bridges_of(self) -> dict[str, tuple[str, ...]]:
        """The bridges of each network and delegate, from the network's file, or else from its attachments' records."""
        found: dict[str, tuple[str, ...]] = {}
        present = set(map(id, self.networks))
        for net in self.different_networks:
            ran = grouped(pair for document in plugin_documents(net) for pair in delegated(net.name, document))
            for network, documents in ran.items():
                bridges = () if id(net) in present else found.get(network, ())
                found[network] = tuple(dict.fromkeys((*bridges, *bridges_in(documents))))
        return found

    def unusable_plugin(self, attachment: Attachment) -> str:
        """Return why a plugin that attached a container cannot be started, and what to do; "" if all can."""
        net = self.recorded(attachment)
        problems = map(self._problem_of, plugin_names(net) if net is not None else ())
        return next(("; ".join(problem) for problem in problems if problem is not None), "")

    @functools.cached_property
    def program(self) -> Callable[[str], str]:
        """A function that returns the path at which the plugins find a program in their PATH, or ""."""
        path = self.cni._settings.environment().get("PATH", "")  # noqa: SLF001 - what a plugin would get
        return functools.cache(lambda name: which(name, path=path) or "")

    @functools.cached_property
    def versions_of(self) -> Callable[[str], tuple[str, ...]]:
        """A function that returns the spec versions that a plugin supports; () if the plugin cannot be asked."""

        def ask(plugin: str) -> tuple[str, ...]:
            with suppress(CNIError):
                return self.cni.get_version_info(plugin, timeout=_VERSION_SECONDS).supported_versions
            return ()

        return functools.cache(ask)

    @functools.cached_property
    def _problem_of(self) -> Callable[[str], tuple[str, str] | None]:
        return functools.cache(functools.partial(plugin_problem, self.cni))


def _queues() -> frozenset[int] | None:
    try:
        with open(_QUEUES, encoding="ascii") as file:
            return frozenset(int(line.split()[0]) for line in file if line.strip())
    except FileNotFoundError:  # without the kernel's module no program can read one
        return frozenset()
    except (OSError, ValueError):
        return None


def forwarding_of(device: str) -> str:
    """Return the path of the sysctl that says whether the kernel forwards IPv4 packets that arrive on a device."""
    return f"/proc/sys/net/ipv4/conf/{device.replace('.', '/')}/forwarding"


def _host(unread: dict[str, str]) -> Network | None:
    host = None
    with _noting(unread, "this node", "the interfaces cannot be read: "):
        # The namespace of this process is the node's, as for the plugins that it would run.
        host = read_network()
    return host  # noqa: RET504 - the context manager may have suppressed an error


@contextmanager
def _noting(unread: dict[str, str], what: str, problem: str = "") -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001 - what others wrote is read here
        unread[what] = f"{problem}{problem_of(error)}"


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
    """Return for each key the values of its pairs."""
    groups: dict[K, list[T]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def _summary(result: Result, ifname: str) -> ResultSummary:
    ips = [ip for ip in result.ips if not ip.address.startswith("127.") and ip.address.partition("/")[0] != "::1"]
    addresses = [ip.address.partition("/") for ip in ips]
    gateways = [f"{ip.gateway}/{parts[2]}" for ip, parts in zip(ips, addresses, strict=True) if ip.gateway]
    return ResultSummary(
        tuple(_canonical(address) for address, _, _ in addresses),
        tuple(map(sys.intern, gateways)),
        tuple(one.name for one in result.interfaces if not one.sandbox and one.name.startswith("veth")),
        tuple(_placed(result, ifname)),
        _same(tuple((destination, route.gw or "") for route in result.routes if (destination := _network(route.dst)))),
        tuple(one.mac for one in result.interfaces if one.name == ifname and one.mac),
        bool(result.ips),
    )


def _canonical(address: str) -> str:
    """Return the usual text of an IPv6 address, as in the names of host-local's files."""
    with suppress(ValueError):
        return str(ipaddress.ip_address(address)) if ":" in address else address
    return address


@functools.lru_cache(4096)
def _same(value: T) -> T:
    """Return an equal value: most containers have the same routes."""
    return value


@functools.lru_cache(4096)
def _network(text: str) -> str:
    """Return the canonical text of a network, or "" if it is none."""
    with suppress(ValueError):
        return str(ipaddress.ip_network(text, strict=False))
    return ""


def _placed(result: Result, ifname: str) -> Iterator[tuple[str, str]]:
    for ip in result.ips:
        if ip.interface is None:
            yield sys.intern(ifname), ip.address
        elif 0 <= ip.interface < len(result.interfaces) and result.interfaces[ip.interface].sandbox:
            yield sys.intern(result.interfaces[ip.interface].name), ip.address


def bridge_of(document: Mapping[str, Any]) -> str:
    """Return the bridge's name in a configuration of the plugin ``bridge``, by default cni0."""
    return str(document.get("bridge") or "cni0")


def is_gateway(bridge: Mapping[str, Any]) -> bool:
    """Return whether a configuration of the plugin ``bridge`` gives the bridge the containers' gateway address."""
    return bridge.get("isGateway") is True or bridge.get("isDefaultGateway") is True


def plugin_names(*nets: NetworkConfigList) -> list[str]:
    """Return the plugins of networks in order, IPAM plugins included."""
    names = (name for net in nets for plugin in net.plugins for name in (plugin.type, plugin.ipam_type) if name)
    return list(dict.fromkeys(names))
