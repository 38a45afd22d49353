"""STATUS of all networks, in parallel and within one timeout."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial

from libcni.config.network import NetworkConfigList
from libcni.errors import CNIError
from libcni.manager.networks import NetworkSet
from libcni.manager.operation import ManagerOperation
from libcni.observe.observer import Operation
from libcni.verbs.status import PluginStatus
from libcni.verbs.status import status as network_status
from libcni.verbs.version import validate

__all__ = ["ManagerStatus", "NetworkState"]


@dataclass(frozen=True, slots=True)
class NetworkState:
    """Whether a network can serve ADD.

    Attributes:
        name: the network's name.
        file: the file that it was read from, or None.
        ready: whether it can serve ADD.
        reason: why it cannot, or "".
        is_default: whether it is one of the default networks.
        kept: whether its file is unusable at the moment, so that its last good configuration is in force.
        plugins: each plugin's answer to STATUS.

    Examples:
        >>> [(one.name, one.ready, one.is_default) for one in manager.status().networks]
        [('dbnet', True, True)]
    """

    name: str
    file: str | None
    ready: bool
    reason: str = ""
    is_default: bool = False
    kept: bool = False
    plugins: tuple[PluginStatus, ...] = ()


@dataclass(frozen=True, slots=True)
class ManagerStatus:
    """Whether containers can be set up.

    Attributes:
        ready: whether all default networks can serve ADD and there are enough; or whether all requested networks can.
        reason: why not, or "".
        networks: the state of each network that was asked, in order, loopback first.
        problems: the errors of unusable files and directories.

    Examples:
        >>> status = manager.status()
        >>> status.ready, [(network.name, network.ready) for network in status.networks]
        (True, [('dbnet', True)])
    """

    ready: bool
    reason: str
    networks: tuple[NetworkState, ...] = ()
    problems: tuple[CNIError, ...] = ()

    def network(self, name: str) -> NetworkState | None:
        """Return the state of one network, or None."""
        return next((state for state in self.networks if state.name == name), None)


async def status(
    operation: ManagerOperation,
    networks: NetworkSet,
    names: Collection[str] | None,
    default_names: Collection[str],
    reason: str,
) -> ManagerStatus:
    """Ask the networks ``names``, or all networks if that is None, whether they can serve ADD.

    ``reason``: why there are no default networks, or "".
    """
    chosen = networks.all if names is None else tuple(networks.network(name) for name in names)
    await operation.node.take_turn()
    states = await operation.node.side_by_side([partial(_ask, operation, net) for net in chosen])
    states = [
        replace(state, is_default=state.name in default_names, kept=state.name in networks.kept) for state in states
    ]
    unready = [
        f"network {state.name}: {state.reason}"
        for state in states
        if not state.ready and (state.is_default or names is not None)
    ]
    if names is not None or not reason:
        reason = "; ".join(unready)
    return ManagerStatus(not reason, reason, tuple(states), networks.problems)


async def _ask(operation: ManagerOperation, net: NetworkConfigList) -> NetworkState:
    # STATUS exists only since 1.1.0. For older networks the search for plugins and their versions is the only test.
    validation = await operation.part(Operation("VERSION", net.name), operation.seconds_left()).run(validate, net)
    answer = await operation.part(Operation("STATUS", net.name), operation.seconds_left()).run(network_status, net)
    wrong = [*validation.problems, *answer.errors]
    return NetworkState(net.name, net.file, not wrong, str(wrong[0]) if wrong else "", plugins=answer.plugins)
