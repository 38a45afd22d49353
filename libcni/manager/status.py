"""STATUS of all networks, in parallel and within one timeout."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial

from libcni.config.network import NetworkConfigList
from libcni.manager.context import OperationContext, remaining
from libcni.manager.networks import NetworkSet
from libcni.manager.reports import ManagerStatus, NetworkState


async def status(
    context: OperationContext,
    networks: NetworkSet,
    names: Collection[str] | None,
    default_names: Collection[str],
    reason: str,
) -> ManagerStatus:
    """Ask the networks ``names``, or all networks if that is None, whether they can serve ADD.

    ``reason``: why there are no default networks, or "".
    """
    deadline = context.deadline
    chosen = networks.all if names is None else tuple(networks.network(name) for name in names)
    states = await context.in_parallel([partial(_ask, context, net, deadline) for net in chosen])
    states = [replace(one, is_default=one.name in default_names, kept=one.name in networks.kept) for one in states]
    unready = [
        f"network {one.name}: {one.reason}" for one in states if not one.ready and (one.is_default or names is not None)
    ]
    if names is not None or not reason:
        reason = "; ".join(unready)
    return ManagerStatus(not reason, reason, tuple(states), networks.problems)


async def _ask(context: OperationContext, net: NetworkConfigList, deadline: float) -> NetworkState:
    # STATUS exists only since 1.1.0. For older networks the search for plugins and their versions is the only test.
    validation = await context.call(lambda: context.cni.validate_network_list(net, timeout=remaining(deadline)))
    answer = await context.call(lambda: context.cni.network_status(net, timeout=remaining(deadline)))
    wrong = [*validation.problems, *answer.errors]
    return NetworkState(net.name, net.file, not wrong, str(wrong[0]) if wrong else "", plugins=answer.plugins)
