"""Read a directory of network configurations: the load order, duplicate names, and unusable files."""

from __future__ import annotations

import os
from collections.abc import Iterable

from libcni._dataclass import dataclass
from libcni.config.distribution_directories import other_conf_dirs
from libcni.config.network import NetworkConfigList, files_in, read_network
from libcni.errors import ConfigError, Hint, NetworkNotFoundError

__all__ = ["ConfigDirectory", "load_network_conf", "read_config_directory"]


_SHOWN = 3


@dataclass(frozen=True, slots=True)
class ConfigDirectory:
    """The networks in a configuration directory at the time when it was read.

    Attributes:
        directory: the directory's path.
        networks: the usable networks in load order: ``.conflist`` files by name, then ``.conf`` and ``.json`` by name.
            If several files have the same network name, the first file is used, and the others are in ``problems``.
        problems: one error for each file that cannot be used, in the same order.

    Examples:
        >>> directory = read_config_directory("net.d")
        >>> [network.name for network in directory.networks], directory.problems
        (['dbnet'], ())
    """

    directory: str
    networks: tuple[NetworkConfigList, ...]
    problems: tuple[ConfigError, ...]

    def network(self, name: str) -> NetworkConfigList:
        """Return the network of that name.

        Raises:
            NetworkNotFoundError: no usable file has this name; the text lists unusable files, three at most.
        """
        for net in self.networks:
            if net.name == name:
                return net
        problem = f'no network named "{name}"'
        if not os.path.exists(self.directory):
            problem += ": the directory does not exist"
        elif not self.networks and not self.problems:
            problem += ": the directory has no network configurations"
        if self.problems:
            # Show the files that seem to define the wanted network first.
            likely = sorted(
                self.problems, key=lambda error: name not in os.path.relpath(error.file or "", self.directory)
            )
            more = "; ..." if len(likely) > _SHOWN else ""
            unusable = "; ".join(str(error) for error in likely[:_SHOWN])
            files = "1 file cannot be used" if len(likely) == 1 else f"{len(likely)} files cannot be used"
            problem += f", and {files}: {unusable}{more}"
        known = tuple(net.name for net in self.networks)
        hint = None
        if not known and not self.problems and (others := other_conf_dirs(self.directory)):
            text = f"configurations may be in {others}: pass that directory with {{argument}}"
            hint = Hint(text, argument="conf_dir", value=None)
        raise NetworkNotFoundError(problem, network=name, known=known, file=self.directory, hint=hint)


def read_config_directory(directory: str | os.PathLike[str]) -> ConfigDirectory:
    """Read every configuration in ``directory`` without logging. A missing directory counts as empty.

    A file that cannot be used (unreadable, not a regular file, larger than 16 MiB, wrong content) becomes one of the
    result's ``problems`` and never hides another file's network.

    Raises:
        ConfigError: the directory cannot be read.
    """
    path = os.fspath(directory)
    # Go libcni searches all .conflist files before any .conf file (libcni/conf.go, LoadNetworkConf). The order decides
    # which file defines a network if two have its name.
    networks, problems = read_networks(files_in(path, (".conflist",)) + files_in(path, (".conf", ".json")))
    return ConfigDirectory(path, tuple(networks.values()), tuple(problems))


def read_networks(files: Iterable[str]) -> tuple[dict[str, NetworkConfigList], list[ConfigError]]:
    """Read files in order. Return (networks by name, an error for each unusable file or repeated name)."""
    networks: dict[str, NetworkConfigList] = {}
    problems: list[ConfigError] = []
    for file in files:
        try:
            net = read_network(file)
        # A package upgrade or an editor may leave a broken file; the other networks must stay usable.
        except ConfigError as error:
            problems.append(error)
            continue
        first = networks.setdefault(net.name, net)
        if first is not net:
            problem = f'network "{net.name}" is already defined in {first.file}'
            hint = "move one of the two files elsewhere, or give its network another name"
            problems.append(ConfigError(problem, file=file, location="name", hint=hint))
    return networks, problems


def load_network_conf(directory: str | os.PathLike[str], name: str) -> NetworkConfigList:
    """Load the network ``name`` from a configuration directory, with its drop-in plugins.

    Unusable files are ignored. If the network is not found, the error lists them.

    Args:
        directory: the directory, for example ``/etc/cni/net.d``.
        name: the network's name.

    Raises:
        NetworkNotFoundError: no usable file has that network.
        ConfigError: the directory cannot be read.
    """
    net = read_config_directory(directory).network(name)
    net.log_warnings()
    return net
