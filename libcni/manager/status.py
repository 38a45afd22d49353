"""STATUS of all networks, in parallel and within one timeout."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any

from libcni.config.network import NetworkConfigList
from libcni.manager.context import OperationContext
from libcni.manager.networks import NetworkSet
from libcni.manager.reports import ManagerStatus, NetworkState

Asking = Callable[[], Coroutine[Any, Any, NetworkState]]
"""A coroutine function that asks one network."""


async def status(  # noqa: PLR0913, PLR0917 - only the manager calls it
    context: OperationContext,
    gather: Callable[[list[Asking]], Awaitable[list[NetworkState]]],
    networks: NetworkSet,
    names: Collection[str] | None,
    default_names: Collection[str],
    reason: str,
) -> ManagerStatus:
    """Ask the networks ``names``, or all networks if that is None, whether they can serve ADD.

    ``gather`` runs coroutine functions in parallel, and returns their answers in order.
    ``reason``: why there are no default networks, or "".
    """
    chosen = networks.all if names is None else tuple(networks.network(name) for name in names)
    states = await gather([partial(_ask, context, net) for net in chosen])
    states = [replace(one, is_default=one.name in default_names, kept=one.name in networks.kept) for one in states]
    unready = [
        f"network {one.name}: {one.reason}" for one in states if not one.ready and (one.is_default or names is not None)
    ]
    if names is not None or not reason:
        reason = "; ".join(unready)
    return ManagerStatus(not reason, reason, tuple(states), networks.problems)


async def _ask(context: OperationContext, net: NetworkConfigList) -> NetworkState:
    # STATUS exists only since 1.1.0. For older networks the search for plugins and their versions is the only test.
    validation = await context.call(lambda: context.cni.validate_network_list(net, timeout=context.seconds_left()))
    answer = await context.call(lambda: context.cni.network_status(net, timeout=context.seconds_left()))
    wrong = [*validation.problems, *answer.errors]
    return NetworkState(net.name, net.file, not wrong, str(wrong[0]) if wrong else "", plugins=answer.plugins)
