"""Read the networks in force from their sources. If a file is unusable, its last good network stays in force."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from libcni.config.directory import read_networks
from libcni.config.network import NetworkConfigList, files_in, read_network
from libcni.errors import CNIError, ConfigError, NetworkNotFoundError, PluginNotFoundError
from libcni.manager.options import read_once

__all__ = ["LOOPBACK", "NetworkSet"]

logger: logging.Logger = logging.getLogger("libcni")

ENDINGS = (".conf", ".conflist", ".json")
"""The endings of files with a configuration."""

Default = str | Iterable[str] | int
"""The networks of a container that requests none: a name, names, or a number of networks in order."""

LOOPBACK = NetworkConfigList.from_dict(
    {"cniVersion": "0.4.0", "name": "cni-loopback", "plugins": [{"type": "loopback"}]}
)
"""The network of the plugin ``loopback``. Version 0.4.0: old plugins know it, and it has CHECK."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of networks: ``in_code``, then ``directories``. The first network of a name wins."""

    directories: tuple[str, ...]
    in_code: tuple[NetworkConfigList, ...] = ()
    loopback: NetworkConfigList | None = None


@dataclass(frozen=True, slots=True)
class NetworkSet:
    """The networks that one reading of the sources found.

    Attributes:
        networks: the networks in order: those given in code, then those of each directory by file name.
        loopback: the loopback network, or None.
        problems: one error for each unusable file or directory.
        kept: the names of networks whose file is unusable at the moment: their last good configuration is in force.
        missing: network name to its first plugin that is missing.
        directories: the directories that were read.

    Examples:
        >>> [network.name for network in manager.reload().networks]
        ['dbnet']
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
            NetworkNotFoundError: there is none; the text tells why.
        """
        net = self.find(name)
        if net is None:
            raise self.not_found(name)
        return net

    def not_found(self, name: str | None = None) -> NetworkNotFoundError:
        """Return the error "no network named ``name``", or "no configuration" if there is none at all."""
        where = ", ".join(
            directory if os.path.exists(directory) else f"{directory}, which does not exist"
            for directory in self.directories
        )
        if name is None or not self.networks:
            problem = f"no configuration in {where}" if where else "no configuration was given"
        else:
            problem = f'no network named "{name}"' + (f" in {where}" if where else "")
        if self.problems:
            files = "; ".join(str(error) for error in self.problems)
            problem += f"; {len(self.problems)} cannot be used: {files}"
        return NetworkNotFoundError(problem, network=name, known=tuple(net.name for net in self.networks))


def check_default(default: Default) -> Default:
    """Return the default, with an iterable as a tuple. Raises ValueError if it is empty, TypeError for a wrong type."""
    if not isinstance(default, str | int):
        default = read_once("default", default)
    if isinstance(default, bool):
        raise TypeError(f"default must be a number or names of networks, not {default!r}")
    if not default or (isinstance(default, int) and default < 1):
        raise ValueError(f"default must name at least one network, or be a number from 1 on, not {default!r}")
    return default


def choose_default(networks: NetworkSet, default: Default) -> tuple[NetworkConfigList, ...]:
    """Return the networks of a container that requests none; raises NetworkNotFoundError if a network is missing."""
    if not isinstance(default, int):
        return tuple(networks.network(name) for name in ([default] if isinstance(default, str) else default))
    if not networks.networks:
        raise networks.not_found()
    if len(networks.networks) < default:
        names = ", ".join(net.name for net in networks.networks)
        raise NetworkNotFoundError(
            f"the manager's default needs {default} networks, and only these exist: {names}",
            hint="add the missing configurations, or create the manager with another default",
        )
    return networks.networks[:default]


def load(sources: Sources, last: NetworkSet, find: Callable[[str], str]) -> NetworkSet:
    """Read the sources. An unreadable network stays as it was in ``last``. ``find`` returns a plugin's path."""
    networks = {net.name: net for net in sources.in_code}
    problems: list[CNIError] = []
    kept: list[str] = []
    for directory in sources.directories:
        found, unusable, old = _load_directory(directory, last)
        problems += unusable
        for net in found:
            first = networks.setdefault(net.name, net)
            if first is not net:
                where = first.file or "code"
                problem = f'network "{net.name}" is already defined in {where}'
                problems.append(ConfigError(problem, file=net.file, location="name"))
            elif net.name in old:
                kept.append(net.name)
    ordered = tuple(networks.values())
    everything = ordered if sources.loopback is None else (sources.loopback, *ordered)
    missing = tuple((net.name, error) for net in everything if (error := missing_plugin(net, find)) is not None)
    return NetworkSet(ordered, sources.loopback, tuple(problems), tuple(kept), missing, sources.directories)


def _load_directory(directory: str, last: NetworkSet) -> tuple[list[NetworkConfigList], list[ConfigError], set[str]]:
    """Return the networks of a directory by file name, its problems, and the names of the networks that were kept."""
    # An operator may break a file while containers start and stop. Use its last good configuration until it is mended.
    before = [net for net in last.networks if net.file is not None and os.path.dirname(net.file) == directory]
    try:
        # By file name, .conf and .conflist together, as go-cni and ocicni do. Go libcni and read_config_directory read
        # all .conflist files first: contrary to the numeric prefixes, 10-calico.conflist would come before
        # 00-multus.conf.
        found, problems = read_networks(files_in(directory, ENDINGS))
    except ConfigError as error:
        return before, [error], {net.name for net in before}
    # A volume may be unmounted, or a package upgrade may replace the directory. That must not remove all networks.
    if before and not os.path.isdir(directory):
        return before, [ConfigError("the directory is gone", file=directory)], {net.name for net in before}
    kept = [net for net in before if net.name not in found and _is_unusable(net.file or "")]
    networks = sorted([*found.values(), *kept], key=lambda net: os.fsencode(os.path.basename(net.file or "")))
    return networks, problems, {net.name for net in kept}


def _is_unusable(file: str) -> bool:
    """Return whether a file exists and no network can be read from it."""
    try:
        read_network(file)
    except ConfigError:
        return os.path.lexists(file)
    return False


def missing_plugin(net: NetworkConfigList, find: Callable[[str], str]) -> PluginNotFoundError | None:
    """Return the error for the first plugin of a network that is missing, or None."""
    try:
        for plugin in net.plugins:
            find(plugin.type)
    except PluginNotFoundError as error:
        return error
    return None


def log_changes(old: NetworkSet, new: NetworkSet) -> None:
    """Log the warnings of new networks, and the problems that are new."""
    for net in new.all:
        if net != old.find(net.name):
            net.log_warnings()
    # A broken file is read again at each reload, with another error object of the same text.
    known = {str(error) for error in (*old.problems, *dict(old.missing).values())}
    for error in (*new.problems, *dict(new.missing).values()):
        if str(error) not in known:
            logger.warning("%s", error)
