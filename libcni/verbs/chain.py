"""A network's plugins with their executables, and the calls of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from libcni.config.network import NetworkConfigList
from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import PluginError
from libcni.protocol.invocation import Invocation, Outcome
from libcni.protocol.request import cni_variables, execution_config
from libcni.verbs.node import Node
from libcni.verbs.reports import RetryPolicy, check_type


@dataclass(frozen=True, slots=True)
class Chain:
    """A network's plugins with their executables.

    Attributes:
        node: runs the plugins.
        net: the network.
        rt: the attachment; None for GC and STATUS.
        executables: the plugins' paths, in order; "" for a missing one.
        retry: how often to call a plugin again that answers "try again later"; None: never.
        environments: the CNI_* variables by verb, a cache.
    """

    node: Node
    net: NetworkConfigList
    rt: RuntimeConf | None
    executables: tuple[str, ...]
    retry: RetryPolicy | None = None
    environments: dict[str, dict[str, str]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.retry is not None:
            check_type("retry", self.retry, RetryPolicy)

    def with_netns(self, netns: str) -> Chain:
        """Return the chain for another namespace, or for none (``""``)."""
        if self.rt is None or netns == (self.rt.netns or ""):
            return self
        return Chain(self.node, self.net, self.rt.with_netns(netns), self.executables, self.retry)

    def invocation(
        self, verb: str, index: int, prev_result: str | None = None, valid: str | None = None, *, ahead: bool = False
    ) -> Invocation:
        """Return the call of the plugin at ``index``; ``ahead``: without its configuration, which is not known yet."""
        net, rt, plugin, stdin = self.net, self.rt, self.net.plugins[index], b""
        if not ahead:
            stdin = execution_config(plugin, net.name, net.cni_version, rt=rt, prev_result=prev_result, valid=valid)
        env = self.environments.get(verb)
        # All plugins of a chain receive the same variables (spec 1.1.0, section 2, Parameters).
        if env is None:
            env = self.environments[verb] = cni_variables(verb, self.node.path, rt)
        return Invocation(
            verb=verb,
            plugin=plugin.type,
            path=self.executables[index],
            stdin=stdin,
            env=env,
            network=net.name,
            container_id=rt.container_id if rt else "",
            ifname=rt.ifname if rt else "",
            index=index,
        )

    async def call(
        self,
        invocation: Invocation,
        prev_result: str | None = None,
        *,
        sharers: int = 1,
        then: int | None = None,
        undo: Callable[[], Chain | None] | None = None,
    ) -> Outcome:
        """Run one of the plugins; run it again if it answers "try again later" and ``retry`` allows that.

        Args:
            invocation: the call, made by ``invocation``.
            prev_result: the text of its ``prevResult``, or None for none.
            sharers: how many calls share the time that is left, this one included.
            then: the index of the plugin that is called after this one; its process may be started ahead.
            undo: for ADD: returns the chain for the DEL before a further ADD; None if no DEL may be run.

        Raises:
            PluginError: the plugin failed.
        """
        if self.retry is None:
            next_call = None
            if then is not None and self.node.starts_ahead:
                # Called when this plugin has started: the next process then starts while this one works.
                next_call = partial(self.invocation, invocation.verb, then, ahead=True)
            return await self.node.execute(invocation, sharers=sharers, next_call=next_call)
        # With retries nothing starts ahead: the next call may be a DEL, or the same plugin again.
        for _ in range(self.retry.attempts - 1):
            try:
                return await self.node.execute(invocation, sharers=sharers)
            except PluginError as error:
                if not error.retryable or not await self._may_retry(invocation, prev_result, error, undo):
                    raise
        return await self.node.execute(invocation, sharers=sharers)

    async def _may_retry(
        self,
        invocation: Invocation,
        prev_result: str | None,
        error: PluginError,
        undo: Callable[[], Chain | None] | None,
    ) -> bool:
        """Prepare a further call; return whether it may be made. Before a second ADD the plugin receives a DEL."""
        # A plugin must not receive ADD twice without a DEL in between (spec 1.1.0, section 3).
        if invocation.verb == "ADD":
            chain = undo() if undo is not None else self
            if chain is None:
                error.add_note("the ADD was not tried again: the DEL before that would detach the earlier attachment")
                return False
            try:
                await self.node.execute(chain.invocation("DEL", invocation.index, prev_result))
            except PluginError as undoing:
                error.add_note(f"the ADD was not tried again, because the DEL before that failed: {undoing}")
                return False
        return await self.node.pause(self.retry.delay if self.retry else 0.0)
