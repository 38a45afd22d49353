"""Read the networks in force from their sources. If a file is unusable, its last good network stays in force."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable

from libcni._dataclass import dataclass
from libcni.config.directory import read_networks
from libcni.config.network import NetworkConfigList, files_in, read_network
from libcni.errors import CNIError, ConfigError, NetworkNotFoundError

__all__ = ["LOOPBACK", "NetworkSet"]

logger: logging.Logger = logging.getLogger("libcni")

ENDINGS = (".conf", ".conflist", ".json")
"""The endings of files with a configuration."""

LOOPBACK = NetworkConfigList.from_dict(
    {"cniVersion": "0.4.0", "name": "cni-loopback", "plugins": [{"type": "loopback"}]}
)
"""The network of the plugin ``loopback``.

It has version 0.4.0, because old plugins know this version and it has CHECK.
"""


@dataclass(frozen=True, slots=True)
class NetworkSet:
    """The networks in force after a reload.

    Attributes:
        networks: the networks in order: those given in code, then those of the directory by file name.
        loopback: the loopback network, or None.
        problems: one error for each unusable file, and for an unusable directory.
        kept: the names of networks whose file is unusable at the moment: their last good configuration is in force.
        directory: the directory that was read.

    Examples:
        >>> [network.name for network in manager.reload().networks]
        ['dbnet']
    """

    networks: tuple[NetworkConfigList, ...] = ()
    loopback: NetworkConfigList | None = None
    problems: tuple[CNIError, ...] = ()
    kept: tuple[str, ...] = ()
    directory: str = ""

    @property
    def all(self) -> tuple[NetworkConfigList, ...]:
        """All networks, loopback first."""
        return self.networks if self.loopback is None else (self.loopback, *self.networks)

    def find(self, name: str | None) -> NetworkConfigList | None:
        """Return the network of that name, or None; ``name`` None: the first network."""
        if name is None:
            return next(iter(self.networks), None)
        return next((net for net in self.all if net.name == name), None)

    def network(self, name: str | None) -> NetworkConfigList:
        """Return the network of that name; None: the first network.

        Raises:
            NetworkNotFoundError: no network has this name; the text says why.
        """
        net = self.find(name)
        if net is not None:
            return net
        where = self.directory if os.path.exists(self.directory) else f"{self.directory}, which does not exist"
        problem = f'no network named "{name}" in {where}' if self.networks else f"no configuration in {where}"
        if self.problems:
            files = "; ".join(str(error) for error in self.problems)
            problem += f"; unusable: {files}"
        raise NetworkNotFoundError(problem, network=name, known=tuple(net.name for net in self.networks))


Stamp = tuple[object, ...] | None
"""The state of a directory of configurations; None if a later change might not change the state."""

_TICK_NS = 20_000_000
"""Nanoseconds in which two changes of a file may have the same time."""


def stamp_of(directory: str, names: Iterable[str]) -> Stamp:
    """Return the state of the files that ``load`` reads: those of the directory, and the drop-ins of these networks."""
    now = time.time_ns()
    found: list[tuple[str, int, int, int]] = []
    for folder in (directory, *(f"{directory}/{name}" for name in names)):
        try:
            with os.scandir(folder) as entries:
                statuses = [(entry.path, entry.stat()) for entry in entries if entry.name.endswith(ENDINGS)]
        except OSError as error:
            found.append((folder, error.errno or 0, 0, 0))
            continue
        found += [(path, status.st_ino, status.st_size, status.st_ctime_ns) for path, status in statuses]
    # A second write in the same tick of the kernel's clock would keep the time, and perhaps the size.
    return None if any(now - changed < _TICK_NS for *_, changed in found) else tuple(sorted(found))


def load(
    directory: str, in_code: Iterable[NetworkConfigList], loopback: NetworkConfigList | None, last: NetworkSet
) -> NetworkSet:
    """Read the networks; of several with one name, use the first. An unreadable network stays as in ``last``."""
    networks = {net.name: net for net in in_code}
    # An operator may break a file while containers start and stop. Use its last good configuration until it is mended.
    before = [net for net in last.networks if net.file is not None and os.path.dirname(net.file) == directory]
    try:
        # A volume may be unmounted, or a package upgrade may replace the directory. That must not remove all networks.
        if before and not os.path.isdir(directory):
            raise ConfigError("the directory no longer exists", file=directory)
        readable, problems = read_networks(files_in(directory, ENDINGS))
        kept = [net for net in before if net.name not in readable and _is_unusable(net.file or "")]
    except ConfigError as error:
        readable, problems, kept = {}, [error], before
    # By file name, .conf and .conflist together, as go-cni and ocicni do. Go libcni and read_config_directory read all
    # .conflist files first: contrary to the numeric prefixes, 10-calico.conflist would come before 00-multus.conf.
    for net in sorted([*readable.values(), *kept], key=lambda net: os.fsencode(os.path.basename(net.file or ""))):
        first = networks.setdefault(net.name, net)
        if first is not net:
            problem = f'network "{net.name}" is already defined in {first.file or "code"}'
            problems.append(ConfigError(problem, file=net.file, location="name"))
    return NetworkSet(tuple(networks.values()), loopback, tuple(problems), tuple(net.name for net in kept), directory)


def _is_unusable(file: str) -> bool:
    """Return whether a file exists and no network can be read from it."""
    try:
        read_network(file)
    except ConfigError:
        return os.path.lexists(file)
    return False


def log_changes(old: NetworkSet, new: NetworkSet) -> None:
    """Log the warnings of new networks, and the problems that are new."""
    for net in new.all:
        if net != old.find(net.name):
            net.log_warnings()
    # A broken file is read again at each reload, with another error object of the same text.
    known = {str(error) for error in old.problems}
    for error in new.problems:
        if str(error) not in known:
            logger.warning("%s", error)
