"""Check the executables of plugins, and ask them for VERSION and STATUS."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from functools import partial

from libcni.client import CNIConfig
from libcni.config.network import NetworkConfigList
from libcni.config.versions import supports
from libcni.diagnosis.disk import writable_by_others
from libcni.diagnosis.executable import executable_problem
from libcni.diagnosis.reading import Reading, plugin_names
from libcni.diagnosis.report import Checked, NodeFinding, NotChecked, Observation, Observations, quoted
from libcni.errors import CNIError, PluginNotFoundError, PluginTimeoutError

_error = partial(NodeFinding, "plugins", "error")

_SECONDS = 5.0


def check_plugins(node: Reading) -> Observations:
    """Check the plugins of all configured networks: executables, VERSION, STATUS."""
    directories = [directory for directory in node.cni.path if os.path.isdir(directory)]
    if not directories:
        where = ", ".join(node.cni.path) or "CNI_PATH"
        seen = "there is no such directory" if node.cni.path else "it is empty"
        yield _error(where, seen, "no plugin can be run", "install CNI plugins, or set CNI_PATH")
        return
    for directory in directories:
        yield from writable_by_others("plugins", directory)
    reported: set[Observation] = set()
    for net in node.networks:
        for found in _check_network(node.cni, net):
            if found not in reported:
                reported.add(found)
                yield found


def _check_network(cni: CNIConfig, net: NetworkConfigList) -> Iterator[Observation]:
    """Check the executables of a network, IPAM plugins included. Asks for VERSION and, from 1.1.0 on, for STATUS.

    Each call ends after 5 seconds.
    """
    names = plugin_names(net)
    # A plugin that cannot be started or hangs at VERSION is not called with STATUS: it would fail or hang again.
    usable = True
    for name in names:
        problem = _plugin_problem(cni, net, name)
        if problem is not None:
            usable = False
            yield problem
    yield Checked("plugins", f"executables and VERSION of network {net.name}: {', '.join(names)}")
    if not supports(net.cni_version, "STATUS"):
        yield NotChecked("plugins", f"network {net.name}", f"STATUS: version {net.cni_version} does not have it")
    elif usable:
        yield from _check_status(cni, net)


def _plugin_problem(  # noqa: PLR0911 - one return for each problem
    cni: CNIConfig, net: NetworkConfigList, name: str
) -> NodeFinding | None:
    """Return why a plugin of a network cannot be used, or None."""
    subject = f"network {net.name}, plugin {name}"
    meaning = "ADD of this network fails"
    try:
        path = cni.find_plugin(name)
    except PluginNotFoundError as error:
        rejected = [one.rpartition(" is ")[0] for one in error.rejected]
        commands = tuple(f"chmod +x {quoted(one)}" for one in rejected if os.path.isfile(one))
        remedy = "make it executable:" if commands else error.hint or "install it, or set CNI_PATH"
        return _error(subject, error.text, meaning, remedy, commands)
    except CNIError as error:
        return _error(subject, str(error), meaning, f"correct the type in {net.file}")
    if (problem := executable_problem(path)) is not None:
        return _error(subject, f"{path}: {problem[0]}", meaning, problem[1])
    try:
        versions = cni.get_version_info(name, timeout=_SECONDS).supported_versions
    except PluginTimeoutError:
        by_hand = f'echo \'{{"cniVersion":"1.0.0"}}\' | CNI_COMMAND=VERSION timeout {_SECONDS:.0f} {quoted(path)}'
        return _error(
            subject, f"{path} did not answer VERSION within {_SECONDS:.0f} s and was ended", f"{meaning}, or hangs",
            "install the plugin again; a longer timeout does not help. To see it by hand:", (by_hand,),
        )  # fmt: skip
    except CNIError as error:
        return _error(subject, str(error), meaning, error.hint or "install the plugin again")
    if net.cni_version not in versions:
        return _error(
            subject, f"it does not support version {net.cni_version}; it supports {', '.join(versions)}", meaning,
            f"change cniVersion in {net.file}, or install another version of the plugin",
        )  # fmt: skip
    return None


def _check_status(cni: CNIConfig, net: NetworkConfigList) -> Observations:
    try:
        status = cni.network_status(net, timeout=_SECONDS)
    except CNIError as error:
        yield NotChecked("plugins", f"network {net.name}", f"STATUS: {error}")
        return
    yield Checked("plugins", f"STATUS of network {net.name}")
    for one in status.plugins:
        if one.error is not None:
            meaning, remedy = "the plugin says that it cannot serve ADD", "do what its message says; then:"
            if isinstance(one.error, PluginTimeoutError):
                meaning, remedy = "the plugin does not answer; ADD may hang, too", "find out what it waits for; then:"
            yield _error(
                f"network {net.name}, plugin {one.plugin}", f"STATUS: {one.error}", meaning, one.error.hint or remedy,
                (shlex.join(["libcni", "status", net.name, "-v"]),),
            )  # fmt: skip
