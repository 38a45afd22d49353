"""One reading of a node: configurations, records, namespaces, interfaces, rules and reservations. Changes nothing."""

from __future__ import annotations

import functools
import os
import shlex
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from libcni._namespace import namespace_identity
from libcni._netlink import Link, Network, read_network
from libcni._rules import PROGRAMS, Table, saved_rules
from libcni.client import CNIConfig
from libcni.config.directory import ConfigDirectory, read_config_directory
from libcni.config.host_local import reservation_directories
from libcni.config.network import NetworkConfigList
from libcni.diagnosis.report import Disruption, NodeCheck, NodeFinding, Severity
from libcni.errors import CNIError, ConfigError, RecordError
from libcni.protocol.result import Result
from libcni.store.attachments import Attachment, is_valid_pair, recorded_network
from libcni.store.place import is_no_namespace
from libcni.store.record import CORRUPT, READY, STALE_BOOT, namespaces_of_processes, sees_same_processes
from libcni.store.records import RecordStore, without_hash

_NAMED = "/run/netns"
FORWARDING = {4: "/proc/sys/net/ipv4/ip_forward", 6: "/proc/sys/net/ipv6/conf/all/forwarding"}
_IN_A_LINE = 20

Identity = tuple[int, int]
K = TypeVar("K")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Space:
    """A network namespace of the node.

    Attributes:
        path: a path that leads to it.
        process: the number of a process that lives in it, or "".
        network: its interfaces and routes, or None if they cannot be read.
    """

    path: str
    process: str = ""
    network: Network | None = None


@dataclass(frozen=True, slots=True)
class Reservation:
    """An address that host-local has reserved; ``changed``: when, in seconds since 1970."""

    address: str
    container_id: str
    ifname: str
    path: str
    changed: float


@dataclass(frozen=True)
class Reading:
    """A node at one moment.

    Attributes:
        cni: the client whose directories are read.
        directory: the configurations, or None if they cannot be read.
        attachments: all records, of all owners.
        set_aside: the file names of corrupt records that repair has moved away.
        record_error: why the records cannot be listed, or None.
        host: the interfaces and routes of this namespace, which the plugins use.
        spaces: all network namespaces, by path and by process.
        reservations: those of host-local, by network and directory.
        rules: the rules by program and table; a program that cannot be read is missing.
        forwards: whether the kernel forwards packets, by IP version.
        unread: what could not be read, with the reason.
        started: when the reading began, in seconds since 1970.
    """

    cni: CNIConfig
    directory: ConfigDirectory | None = None
    attachments: tuple[Attachment, ...] = ()
    set_aside: tuple[str, ...] = ()
    record_error: RecordError | None = None
    host: Network | None = None
    spaces: dict[Identity, Space] = field(default_factory=dict)
    reservations: dict[tuple[str, str], list[Reservation]] = field(default_factory=dict)
    rules: dict[str, dict[str, Table]] = field(default_factory=dict)
    forwards: dict[int, bool] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    started: float = 0.0
    _recorded: dict[tuple[object, ...], NetworkConfigList | None] = field(default_factory=dict)

    @property
    def networks(self) -> tuple[NetworkConfigList, ...]:
        """The usable configurations, in load order."""
        return self.directory.networks if self.directory else ()

    def configured(self, network: str) -> NetworkConfigList | None:
        """Return the configuration that a network has today, or None."""
        return next((net for net in self.networks if net.name == network), None)

    def recorded(self, one: Attachment) -> NetworkConfigList | None:
        """Return the configuration that an attachment's ADD used, or None if it cannot be read."""
        record = one.record
        # Most attachments of a network have the same configuration: it is decoded once.
        key = (record.network, record.config, record.plugins, record.version, record.state == CORRUPT)
        if key not in self._recorded:
            self._recorded[key] = recorded_network(record)
        return self._recorded[key]

    def space_of(self, one: Attachment) -> Space | None:
        """Return the namespace that an attachment's path leads to now, or None."""
        identity = namespace_identity(one.netns) if one.netns.startswith("/") else None
        return self.spaces.get(identity) if identity is not None else None

    @functools.cached_property
    def live(self) -> tuple[tuple[Attachment, Network], ...]:
        """The ready attachments whose namespace can be read, with what is in it."""
        spaces = ((one, self.space_of(one)) for one in self.attachments if one.state == READY)
        return tuple((one, space.network) for one, space in spaces if space is not None and space.network is not None)

    @functools.cached_property
    def holders(self) -> dict[str, list[tuple[Space, Link]]]:
        """The interfaces of all namespaces that have an IP address now, with their namespaces, by address."""
        networks = ((space, space.network) for space in self.spaces.values() if space.network is not None)
        links = ((space, link) for space, network in networks for link in network.links.values())
        return _grouped((text.partition("/")[0], one) for one in links for text in one[1].addresses)

    @functools.cached_property
    def reserved_for(self) -> dict[tuple[str, str], list[Reservation]]:
        """The reservations by network and container ID; with the network "" those of all networks."""
        reserved = ((network, one) for (network, _), found in self.reservations.items() for one in found)
        return _grouped(((key, one.container_id), one) for network, one in reserved for key in {network, ""})

    @functools.cached_property
    def attached(self) -> dict[tuple[str, str], list[Attachment]]:
        """The attachments by network and container ID; with the network "" those of all networks."""
        return _grouped(((key, one.container_id), one) for one in self.attachments for key in {one.network, ""})

    @functools.cached_property
    def recorded_addresses(self) -> dict[str, list[Attachment]]:
        """The attachments by the addresses of their records."""
        return _grouped((address, one) for one in self.attachments for address in addresses_of(one))

    @functools.cached_property
    def why_unknown(self) -> str:
        """Why nobody can say that an address is unused; "" if this program sees all namespaces."""
        if os.geteuid():
            return "only root sees the namespaces of all processes"
        if unread := next((space.path for space in self.spaces.values() if space.network is None), ""):
            return f"{unread} cannot be entered"
        if not all(sees_same_processes(one.record) for one in self.attachments):
            return "this program is in another PID namespace than the runtime, and cannot see all containers"
        return ""

    def table(self, program: str, table: str) -> Table:
        """Return a table of a program; one without chains if it does not exist or cannot be read."""
        return self.rules.get(program, {}).get(table) or Table()

    def recorded_at(self, network: str, address: str, netns: str) -> list[Attachment]:
        """Return the attachments on record of a network that have an IP address in a namespace."""
        identity = namespace_identity(netns)
        found = [one for one in self.recorded_addresses.get(address, []) if one.network == network and one.netns]
        return [one for one in found if namespace_identity(one.netns) == identity]

    def identity_of(self, filename: str) -> tuple[str, str, str] | None:
        """Return (network, container ID, interface) of a record's file name, as far as the known networks tell."""
        networks = {net.name for net in self.networks} | {one.network for one in self.attachments if one.network}
        networks |= {network for network, _ in self.reservations}
        name = without_hash(filename)
        # Names may contain hyphens, so the longest known network that fits is taken: "a-b" before "a".
        for network in sorted(networks, key=len, reverse=True):
            container_id, separator, ifname = name.removeprefix(f"{network}-").rpartition("-")
            if name.startswith(f"{network}-") and separator and is_valid_pair(container_id, ifname):
                return network, container_id, ifname
        return None

    def is_known(self, network: str, container_id: str, ifname: str = "") -> bool:
        """Return whether a record may be of this attachment: also a corrupt one, or one that was set aside."""
        if any(ifname in {"", one.ifname} for one in self.attached.get((network, container_id), [])):
            return True
        corrupt = [os.path.basename(one.path) for one in self.attachments if one.state == CORRUPT]
        # The name of a record that was set aside ends with the time.
        names = map(without_hash, (*corrupt, *(name.rpartition(".")[0] for name in self.set_aside)))
        return any(name.startswith(network) and f"-{container_id}-{ifname}" in name for name in names)


def read_node(cni: CNIConfig) -> Reading:
    """Read a node. What cannot be read is in ``unread``."""
    started = time.time()
    directory = None
    with suppress(ConfigError):  # the check of the configurations reports it
        directory = read_config_directory(cni.conf_dir)
    known: dict[object, object] = {}
    try:
        records = sorted((_shared(one, known) for one in cni.iter_cached_attachments()), key=lambda one: one.path)
        set_aside = tuple(RecordStore(cni.cache_dir).names_set_aside())
    except RecordError as error:
        return Reading(cni, directory, record_error=error)
    unread: dict[str, str] = {}
    recorded = Reading(cni, directory, tuple(records), set_aside, unread=unread, started=started)
    # Read the namespaces before the reservations. A running ADD reserves its address first and gives it to an interface
    # later, so in this order each address that is found has its reservation.
    spaces = _spaces(recorded.attachments)
    reservations: dict[tuple[str, str], list[Reservation]] = {}
    nets = (*recorded.networks, *map(recorded.recorded, recorded.attachments))
    different = {id(net): net for net in nets if net is not None}.values()
    for network, path in sorted({(net.name, path) for net in different for path in reservation_directories(net)}):
        with _noting(unread, path, "the reservations cannot be read: "):
            reservations[network, path] = _reservations(path)
    host = None
    with _noting(unread, "this node", "its interfaces cannot be read: "):
        # The namespace of this process is the node's, as for the plugins that it would run.
        host = read_network()
    rules: dict[str, dict[str, Table]] = {}
    for program in PROGRAMS:
        with _noting(unread, f"the rules of {program}"):
            rules[program] = saved_rules(program)
    forwards: dict[int, bool] = {}
    for version, path in FORWARDING.items():
        with suppress(OSError), open(path, encoding="ascii") as file:
            forwards[version] = file.read().strip() != "0"
    return replace(recorded, host=host, spaces=spaces, reservations=reservations, rules=rules, forwards=forwards)


@contextmanager
def _noting(unread: dict[str, str], what: str, problem: str = "") -> Iterator[None]:
    try:
        yield
    except OSError as error:
        unread[what] = f"{problem}{error.strerror or error}"


def _shared(one: Attachment, known: dict[object, object]) -> Attachment:
    """Share the configuration with the attachments that have an equal one: 10,000 copies need 100 MB."""
    record = one.record

    def same(value: object) -> object:
        return known.setdefault(value, value)

    record = record.with_fields(config=same(record.config), plugins=same(record.plugins))
    return replace(one, config=record.config, record=record)


def plugin_names(*nets: NetworkConfigList) -> list[str]:
    """Return the plugins of networks in order, IPAM plugins included."""
    names = (name for net in nets for one in net.plugins for name in (one.type, one.ipam_type) if name)
    return list(dict.fromkeys(names))


def _reservations(directory: str) -> list[Reservation]:
    found = []
    with suppress(FileNotFoundError):
        for entry in sorted(os.scandir(directory), key=lambda one: one.name):
            # Others: "lock" and "last_reserved_ip.0". The first character is a digit, or that of an IPv6 address.
            if not set(entry.name) <= set("0123456789abcdef.:"):
                continue
            # host-local writes the container ID and, on a second line, the interface.
            with suppress(FileNotFoundError), open(entry.path, encoding="utf-8", errors="replace") as file:
                container_id, _, ifname = file.read().strip().partition("\n")
                changed = os.fstat(file.fileno()).st_mtime
                found.append(Reservation(entry.name, container_id.strip(), ifname.strip(), entry.path, changed))
    return found


def _spaces(attachments: tuple[Attachment, ...]) -> dict[Identity, Space]:
    """Return all network namespaces: those with a path and those of the processes."""
    paths = {one.netns for one in attachments if one.netns.startswith("/") and one.state != STALE_BOOT}
    with suppress(OSError):
        paths.update(os.path.join(_NAMED, name) for name in os.listdir(_NAMED))
    with suppress(OSError), open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
        # Namespaces that are mounted elsewhere, for example by containerd below /var/run/netns.
        mounts = (line.split() for line in file if " - nsfs " in line and " net:[" in line)
        paths.update(words[4].encode().decode("unicode_escape") for words in mounts)
    found = {
        identity: Space(f"/proc/{process}/ns/net", process) for identity, process in namespaces_of_processes().items()
    }
    for path in sorted(paths):
        if (identity := namespace_identity(path)) is not None and not is_no_namespace(path):
            process = found[identity].process if identity in found else ""
            found[identity] = Space(path, process)
    read = {identity: _with_network(space) for identity, space in found.items()}
    # Leave out a namespace that has ended since, for example with its last process.
    return {
        identity: space
        for identity, space in read.items()
        if space.network is not None or namespace_identity(space.path) == identity
    }


def _with_network(space: Space) -> Space:
    with suppress(OSError):
        return Space(space.path, space.process, read_network(space.path))
    return space


def _grouped(pairs: Iterable[tuple[K, T]]) -> dict[K, list[T]]:
    found: dict[K, list[T]] = {}
    for key, one in pairs:
        found.setdefault(key, []).append(one)
    return found


def result_of(attachment: Attachment) -> Result | None:
    """Return an attachment's recorded result, or None if it has no usable one."""
    try:
        return attachment.result
    except CNIError:
        return None


def addresses_of(attachment: Attachment) -> list[str]:
    """Return an attachment's recorded IP addresses without prefix lengths; [] if it has no usable result."""
    result = result_of(attachment)
    return [ip.address.partition("/")[0] for ip in result.ips] if result is not None else []


def is_gateway(bridge: Mapping[str, Any]) -> bool:
    """Return whether a configuration of ``bridge`` gives the bridge the address that is the containers' gateway."""
    return bridge.get("isGateway") is True or bridge.get("isDefaultGateway") is True


def name_of(attachment: Attachment) -> str:
    """Return an attachment in words."""
    return f"container {attachment.container_id}, {attachment.network}, {attachment.ifname}"


def id_of(attachment: Attachment) -> str:
    """Return an attachment as ``ID:IFNAME``."""
    return f"{attachment.container_id}:{attachment.ifname}"


def finding_about(  # noqa: PLR0913, PLR0917 - the fields of a finding
    one: Attachment,
    check: NodeCheck,
    severity: Severity,
    seen: str,
    meaning: str = "",
    remedy: str = "",
    commands: tuple[str, ...] = (),
    *,
    disrupts: tuple[str, ...] = (),
) -> NodeFinding:
    """Return a finding about one attachment; ``disrupts``: the commands that would interrupt it."""
    about = (id_of(one),)
    at_a_price = tuple(Disruption(command, about) for command in disrupts)
    return NodeFinding(check, severity, name_of(one), seen, meaning, remedy, commands, at_a_price, about)


def detach_command(container_id: str, ifname: str, network: str | None = None) -> str:
    """Return the command that detaches an attachment with its record alone.

    If ``network`` is given, the command uses that network's file instead, and an empty namespace.
    """
    given = [network, ""] if network else []
    return shlex.join(["libcni", "del", *given, "-c", container_id, "-i", ifname])


def reload_command(*attachments: Attachment) -> str:
    """Return the command that attaches containers again in place."""
    return shlex.join(["libcni", "reload", *map(id_of, attachments)])


def reload_in_place(node: Reading, attachments: list[Attachment]) -> tuple[str, tuple[str, ...]]:
    """Return the remedy and the commands that attach damaged containers again in place, and no others.

    For many attachments there are several commands, each for a whole network or for some of the names: a terminal does
    not accept a line with 10,000 names.
    """
    remedy = "attach again in place, the addresses stay:"
    if len(attachments) <= _IN_A_LINE:
        return remedy, (reload_command(*attachments),)
    living = Counter(one.network for one in node.attachments if one.state == READY and one.netns)
    whole = {
        network for network, count in Counter(one.network for one in attachments).items() if count == living[network]
    }
    rest = [one for one in attachments if one.network not in whole]
    return remedy, (
        *(shlex.join(["libcni", "reload", "--all", "--network", network]) for network in sorted(whole)),
        *(reload_command(*rest[at : at + _IN_A_LINE]) for at in range(0, len(rest), _IN_A_LINE)),
    )
