"""STATUS of all networks, in parallel and within one timeout."""

from __future__ import annotations

from functools import partial

from libcni._dataclass import dataclass
from libcni.config.network import NetworkConfigList
from libcni.errors import NetworkNotFoundError
from libcni.manager.networks import NetworkSet
from libcni.manager.operation import ManagerOperation
from libcni.observe.observer import Operation
from libcni.verbs.status import status as network_status
from libcni.verbs.version import validate

__all__ = ["ManagerStatus", "NetworkState"]


@dataclass(frozen=True, slots=True)
class NetworkState:
    """Whether a network can serve ADD.

    Attributes:
        name: the network's name.
        ready: whether it can serve ADD.
        reason: why it cannot, or "".

    Examples:
        >>> [(network.name, network.ready) for network in manager.status().networks]
        [('dbnet', True)]
    """

    name: str
    ready: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ManagerStatus:
    """Whether containers can be set up.

    Attributes:
        ready: whether the default network can serve ADD.
        reason: why it cannot, or "".
        networks: the state of each network in order, loopback first.

    Examples:
        >>> status = manager.status()
        >>> status.ready, status.reason
        (True, '')
    """

    ready: bool
    reason: str
    networks: tuple[NetworkState, ...] = ()


async def status(operation: ManagerOperation, networks: NetworkSet, default: str | None) -> ManagerStatus:
    """Ask all networks whether they can serve ADD."""
    await operation.run.take_turn()
    states = await operation.run.side_by_side([partial(_ask, operation, net) for net in networks.all])
    try:
        name = networks.network(default).name
    except NetworkNotFoundError as error:
        return ManagerStatus(ready=False, reason=str(error), networks=tuple(states))
    state = next(state for state in states if state.name == name)
    return ManagerStatus(state.ready, state.reason and f"network {name}: {state.reason}", tuple(states))


async def _ask(operation: ManagerOperation, net: NetworkConfigList) -> NetworkState:
    # STATUS exists only since 1.1.0. For older networks the search for plugins and their versions is the only test.
    validation = await operation.part(Operation("VERSION", net.name), operation.seconds_left()).complete(validate, net)
    answer = await operation.part(Operation("STATUS", net.name), operation.seconds_left()).complete(network_status, net)
    wrong = [*validation.problems, *answer.errors]
    return NetworkState(net.name, not wrong, str(wrong[0]) if wrong else "")
