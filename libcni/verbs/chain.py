"""A network's plugins with their executables, and their calls."""

from __future__ import annotations

from functools import partial

from libcni._dataclass import dataclass, field
from libcni.config.network import NetworkConfigList
from libcni.config.runtime_conf import RuntimeConf
from libcni.protocol.invocation import Invocation, Outcome
from libcni.protocol.request import cni_variables, execution_config
from libcni.verbs.settings import NETNS_OVERRIDE
from libcni.verbs.verb_run import VerbRun


@dataclass(frozen=True, slots=True)
class Chain:
    """A network's plugins with their executables.

    Attributes:
        run: runs the plugins.
        net: the network.
        rt: the attachment; None for GC and STATUS.
        executables: the plugins' paths, in order; "" for a missing executable.
        is_own_netns: whether the attachment is in its program's own namespace, which newer plugins refuse otherwise.
        environments: the CNI_* variables by verb, a cache.
    """

    run: VerbRun
    net: NetworkConfigList
    rt: RuntimeConf | None
    executables: tuple[str, ...]
    is_own_netns: bool = False
    environments: dict[str, dict[str, str]] = field(default_factory=dict, repr=False)

    def with_netns(self, netns: str) -> Chain:
        """Return the chain for another namespace, or for none (``""``)."""
        if self.rt is None or netns == (self.rt.netns or ""):
            return self
        return Chain(self.run, self.net, self.rt.with_netns(netns), self.executables, self.is_own_netns)

    def invocation(
        self, verb: str, index: int, prev_result: str | None = None, valid: str | None = None, *, ahead: bool = False
    ) -> Invocation:
        """Return the call of the plugin at ``index``; ``ahead``: without stdin, which is not known yet."""
        net, rt, plugin = self.net, self.rt, self.net.plugins[index]
        stdin = b""
        if not ahead:
            stdin = execution_config(plugin, net.name, net.cni_version, rt=rt, prev_result=prev_result, valid=valid)
        if verb not in self.environments:
            self.environments[verb] = self._environment(verb)
        return Invocation(
            verb=verb,
            plugin=plugin.type,
            path=self.executables[index],
            stdin=stdin,
            env=self.environments[verb],
            network=net.name,
            container_id=rt.container_id if rt else "",
            ifname=rt.ifname if rt else "",
            index=index,
        )

    def _environment(self, verb: str) -> dict[str, str]:
        """Return the variables that all plugins of the chain receive (spec 1.1.0, section 2, Parameters)."""
        env = cni_variables(verb, self.run.settings.path, self.rt)
        if self.is_own_netns and NETNS_OVERRIDE not in self.run.settings.environment():
            env[NETNS_OVERRIDE] = "1"
        return env

    async def call(self, invocation: Invocation, *, sharers: int = 1, then: int | None = None) -> Outcome:
        """Run one of the plugins.

        Args:
            invocation: the call, from the method ``invocation``.
            sharers: how many calls share the remaining time, this one included.
            then: the index of the next plugin, whose process may be started ahead.

        Raises:
            PluginError: the plugin failed.
        """
        next_call = None
        if then is not None and self.run.starts_ahead:
            # Called when this plugin has started, so that the next process starts while this one works.
            next_call = partial(self.invocation, invocation.verb, then, ahead=True)
        return await self.run.execute(invocation, sharers=sharers, next_call=next_call)
