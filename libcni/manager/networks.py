"""The networks in force: read from their sources. An unusable file leaves its last good network in force."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from libcni.config.directory import conf_files
from libcni.config.network import NetworkConfigList, read_network
from libcni.errors import CNIError, ConfigError, NetworkNotFoundError, PluginNotFoundError

__all__ = ["LOOPBACK", "Default", "NetworkSet", "Sources", "check_default", "choose_default", "load"]

_ENDINGS = (".conf", ".conflist", ".json")

Default = str | Sequence[str] | int
"""The networks of a container that names none: a name, names, or how many of the first by order."""

LOOPBACK = NetworkConfigList.from_dict(
    {"cniVersion": "0.4.0", "name": "cni-loopback", "plugins": [{"type": "loopback"}]}
)
"""The loopback network by the plugin of that name; 0.4.0 is the lowest version with CHECK, for old plugins."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The origins of networks: ``given`` in code, then ``directories``. Of two with one name the first counts."""

    directories: tuple[str, ...]
    given: tuple[NetworkConfigList, ...] = ()
    loopback: NetworkConfigList | None = None


@dataclass(frozen=True, slots=True)
class NetworkSet:
    """The networks that one reading of the sources found.

    Attributes:
        networks: those in force, in order: given in code, then directory by directory, by file name.
        loopback: the loopback network, or None.
        problems: one error for each file or directory that cannot be used.
        kept: the names of networks whose file cannot be used at the moment: their last good form stays in force.
        missing: network name to its first plugin that is missing.
        directories: the directories that were read.
    """

    networks: tuple[NetworkConfigList, ...] = ()
    loopback: NetworkConfigList | None = None
    problems: tuple[CNIError, ...] = ()
    kept: tuple[str, ...] = ()
    missing: tuple[tuple[str, PluginNotFoundError], ...] = ()
    directories: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[NetworkConfigList, ...]:
        """All networks, loopback first."""
        return self.networks if self.loopback is None else (self.loopback, *self.networks)

    def find(self, name: str) -> NetworkConfigList | None:
        """Return the network of that name, or None."""
        return next((net for net in self.all if net.name == name), None)

    def network(self, name: str) -> NetworkConfigList:
        """Return the network of that name.

        Raises:
            NetworkNotFoundError: there is none; the text says why.
        """
        net = self.find(name)
        if net is None:
            raise self.not_found(name)
        return net

    def not_found(self, name: str | None = None) -> NetworkNotFoundError:
        """Return the error for an unknown network, or, without a name, for no network at all."""
        where = ", ".join(self.directories)
        if name is None or not self.networks:
            problem = f"no configuration in {where}" if where else "no configuration was given"
        else:
            problem = f'no network named "{name}"' + (f" in {where}" if where else "")
        if self.problems:
            problem += f"; {len(self.problems)} unusable: {'; '.join(str(error) for error in self.problems)}"
        known = ", ".join(net.name for net in self.networks)
        return NetworkNotFoundError(problem, network=name, hint=f"there are: {known}" if known else None)


def check_default(default: Default, minimum: int | None) -> None:
    """Refuse a default that means no network.

    Raises:
        ValueError: ``default`` or ``minimum`` is less than 1, or ``default`` has no name.
        TypeError: one of them is of another type.
    """
    for name, value in (("default", default), ("minimum", minimum)):
        if isinstance(value, bool):
            raise TypeError(f"{name} must be a number, not {value!r}")
        if isinstance(value, int) and value < 1:
            raise ValueError(f"{name} must be at least 1, not {value}")
    if not default:
        raise ValueError("default must name at least one network")


def choose_default(networks: NetworkSet, default: Default, minimum: int | None = None) -> tuple[NetworkConfigList, ...]:
    """Return the networks of a container that names none.

    Raises:
        NetworkNotFoundError: a network is missing, or fewer are there than have to be.
    """
    if isinstance(default, int):
        if not networks.networks:
            raise networks.not_found()
        chosen = networks.networks[:default]
    else:
        chosen = tuple(networks.network(name) for name in ([default] if isinstance(default, str) else default))
    wanted = default if minimum is None and isinstance(default, int) else minimum or 0
    if len(networks.networks) < wanted:
        names = ", ".join(net.name for net in networks.networks)
        raise NetworkNotFoundError(
            f"{len(networks.networks)} of at least {wanted} networks are there: {names}",
            hint="add the missing configurations, or make the manager with another minimum",
        )
    return chosen


def load(sources: Sources, last: NetworkSet, find: Callable[[str], str]) -> NetworkSet:
    """Read the sources. A network that cannot be read stays as it was in ``last``. ``find``: finds a plugin."""
    networks = {net.name: net for net in sources.given}
    problems: list[CNIError] = []
    kept: list[str] = []
    for directory in sources.directories:
        found, unusable, old = _load_directory(directory, last)
        problems += unusable
        for net in found:
            first = networks.setdefault(net.name, net)
            if first is not net:
                where = first.file or "code"
                problems.append(ConfigError(f'"{net.name}" is already in {where}', file=net.file, location="name"))
            elif net.name in old:
                kept.append(net.name)
    ordered = tuple(networks.values())
    everything = ordered if sources.loopback is None else (sources.loopback, *ordered)
    missing = tuple((net.name, error) for net in everything if (error := _missing_plugin(net, find)) is not None)
    return NetworkSet(ordered, sources.loopback, tuple(problems), tuple(kept), missing, sources.directories)


def _load_directory(directory: str, last: NetworkSet) -> tuple[list[NetworkConfigList], list[CNIError], set[str]]:
    """Return the networks of a directory by file name, its problems, and the names of the networks that were kept."""
    before = [net for net in last.networks if net.file is not None and os.path.dirname(net.file) == directory]
    try:
        found, problems = _read_directory(directory)
    except ConfigError as error:
        return before, [error], {net.name for net in before}
    if before and not os.path.isdir(directory):
        return before, [ConfigError("the directory is gone", file=directory)], {net.name for net in before}
    kept = [net for net in before if net.name not in found and _is_unusable(net.file or "")]
    networks = sorted([*found.values(), *kept], key=lambda net: os.fsencode(os.path.basename(net.file or "")))
    return networks, problems, {net.name for net in kept}


def _read_directory(directory: str) -> tuple[dict[str, NetworkConfigList], list[CNIError]]:
    """Read a directory by file name, ``.conf`` and ``.conflist`` together: go-cni and ocicni choose their default so.

    Go libcni, and with it ``read_config_directory``, reads all ``.conflist`` files first. A node whose
    ``00-multus.conf`` is meant to come before ``10-calico.conflist`` would pass Multus over.
    """
    networks: dict[str, NetworkConfigList] = {}
    problems: list[CNIError] = []
    for file in conf_files(directory, _ENDINGS):
        try:
            net = read_network(file)
        except ConfigError as error:
            problems.append(error)
            continue
        first = networks.setdefault(net.name, net)
        if first is not net:
            problems.append(ConfigError(f'"{net.name}" is already in {first.file}', file=file, location="name"))
    return networks, problems


def _is_unusable(file: str) -> bool:
    """Return whether a file is there and no network can be read from it."""
    try:
        read_network(file)
    except ConfigError:
        return os.path.lexists(file)
    return False


def _missing_plugin(net: NetworkConfigList, find: Callable[[str], str]) -> PluginNotFoundError | None:
    try:
        for plugin in net.plugins:
            find(plugin.type)
    except PluginNotFoundError as error:
        return error
    return None


def changes(old: NetworkSet, new: NetworkSet) -> tuple[list[str], list[str], Iterable[CNIError]]:
    """Return the names that became usable or changed, the names that have gone, and the problems that are new."""
    unusable = dict(new.missing)
    were_usable = {net.name: net for net in old.all if net.name not in dict(old.missing)}
    ready = [net.name for net in new.all if net.name not in unusable and were_usable.get(net.name) != net]
    gone = [net.name for net in old.all if new.find(net.name) is None]
    known = {str(error) for error in (*old.problems, *dict(old.missing).values())}
    return ready, gone, [error for error in (*new.problems, *unusable.values()) if str(error) not in known]
