"""The set of networks that is in force: read from its sources, with what was good before where it cannot be read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from libcni.config.directory import read_config_directory
from libcni.config.network import NetworkConfigList, read_network
from libcni.errors import CNIError, ConfigError, NetworkNotFoundError, PluginNotFoundError

__all__ = ["LOOPBACK", "Default", "NetworkSet", "Sources", "choose_default", "load"]

Default = str | Sequence[str] | int
"""Which networks a container gets that asks for none: a name, names, or how many of the first by order."""

LOOPBACK = NetworkConfigList.from_dict(
    {"cniVersion": "0.4.0", "name": "cni-loopback", "plugins": [{"type": "loopback"}]}
)
"""The loopback network by the plugin of that name; 0.4.0 is the lowest version with CHECK, for old plugins."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where networks come from: ``given`` in code, then ``directories``; where names clash, the first counts."""

    directories: tuple[str, ...]
    given: tuple[NetworkConfigList, ...] = ()
    loopback: NetworkConfigList | None = None


@dataclass(frozen=True, slots=True)
class NetworkSet:
    """What one look at the sources found.

    Attributes:
        networks: those in force, in order: given in code, then directory by directory in load order.
        loopback: the loopback network, or None.
        problems: why something cannot be used: a file, a directory.
        kept: the names of networks whose file cannot be used at the moment: they stay in force as they were.
        missing: network name to its first plugin that is missing.
        directories: where was looked.
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
        """Return the error for a network that is not there, or, without a name, for none at all."""
        where = ", ".join(self.directories)
        if name is None or not self.networks:
            problem = f"no configuration in {where}" if where else "no configuration was given"
        else:
            problem = f'no network named "{name}"' + (f" in {where}" if where else "")
        if self.problems:
            problem += f"; {len(self.problems)} unusable: {'; '.join(str(error) for error in self.problems)}"
        known = ", ".join(net.name for net in self.networks)
        return NetworkNotFoundError(problem, network=name, hint=f"there are: {known}" if known else None)


def choose_default(networks: NetworkSet, default: Default) -> tuple[NetworkConfigList, ...]:
    """Return the networks of a container that asks for none.

    Raises:
        NetworkNotFoundError: there is none, or not the one that is wanted.
    """
    if isinstance(default, int):
        if not networks.networks:
            raise networks.not_found()
        return networks.networks[: max(default, 0)]
    names = [default] if isinstance(default, str) else default
    return tuple(networks.network(name) for name in names)


def load(sources: Sources, last: NetworkSet, find: Callable[[str], str]) -> NetworkSet:
    """Read the sources; what cannot be read at the moment stays as it was in ``last``. ``find``: finds a plugin."""
    networks = {net.name: net for net in sources.given}
    problems: list[CNIError] = []
    kept: list[str] = []
    for directory in sources.directories:
        found, wrong, old = _load_directory(directory, last)
        problems += wrong
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
    """Return the networks of a directory in load order, what is wrong there, and the names of those that were kept."""
    before = [net for net in last.networks if net.file is not None and os.path.dirname(net.file) == directory]
    try:
        found = read_config_directory(directory)
    except ConfigError as error:
        return before, [error], {net.name for net in before}
    if before and not os.path.isdir(directory):
        return before, [ConfigError("the directory is gone", file=directory)], {net.name for net in before}
    names = {net.name for net in found.networks}
    kept = [net for net in before if net.name not in names and _is_unusable(net.file or "")]
    networks = sorted([*found.networks, *kept], key=lambda net: _load_order(net.file or ""))
    return networks, list(found.problems), {net.name for net in kept}


def _is_unusable(file: str) -> bool:
    """Return whether a file is there and no network can be read from it."""
    try:
        read_network(file)
    except ConfigError:
        return os.path.lexists(file)
    return False


def _load_order(file: str) -> tuple[bool, bytes]:
    return not file.endswith(".conflist"), os.fsencode(os.path.basename(file))


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
