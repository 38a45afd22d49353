"""One plugin after the other: how each is called, and what its answer means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from libcni.config.network import NetworkConfigList
from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import PluginError
from libcni.protocol.answer import plugin_error, read_add_result
from libcni.protocol.invocation import Invocation, Outcome
from libcni.protocol.request import environment, execution_config
from libcni.protocol.result import Result
from libcni.verbs.steps import Flow, Pause

__all__ = ["Chain", "RetryPolicy", "run"]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """What to do where a plugin answers "try again later" (code 11): call this plugin again, within the verb's time.

    Attributes:
        attempts: how often it is called at most, the first time included.
        delay: seconds to wait before each further call.
    """

    attempts: int = 3
    delay: float = 1.0


@dataclass(frozen=True, slots=True)
class Chain:
    """A list's plugins, each with its executable ("" where it is missing), ready to be called.

    ``rt`` is None for the verbs that have no attachment; ``path`` is CNI_PATH.
    """

    net: NetworkConfigList
    rt: RuntimeConf | None
    executables: tuple[str, ...]
    path: Sequence[str]
    retry: RetryPolicy | None = None

    def invocation(self, verb: str, index: int, prev_result: str | None = None, valid: str | None = None) -> Invocation:
        """Return the call of the plugin at ``index``."""
        net, rt, plugin = self.net, self.rt, self.net.plugins[index]
        return Invocation(
            verb=verb,
            plugin=plugin.type,
            path=self.executables[index],
            stdin=execution_config(plugin, net.name, net.cni_version, rt=rt, prev_result=prev_result, valid=valid),
            env=environment(verb, self.path, rt),
            network=net.name,
            container_id=rt.container_id if rt else "",
            ifname=rt.ifname if rt else "",
            index=index,
        )

    def add(self, *, strict: bool = False) -> Flow[Result]:
        """Run ADD through the chain; each plugin gets the result of the one before it (spec 1.1.0, section 3)."""
        result: Result | None = None
        printed: bytes | None = None
        for index in range(len(self.net.plugins)):
            invocation = self.invocation("ADD", index, result.text if result else None)
            outcome = yield from self.call(invocation)
            if outcome.stdout != printed:  # most plugins after the first print what they were given
                result = read_add_result(invocation, outcome, self.net.cni_version, strict=strict)
                printed = outcome.stdout
        if result is None:
            raise AssertionError("a list without plugins is refused before")
        return result

    def check(self, prev_result: str) -> Flow[None]:
        """Run CHECK through the chain, up to the first error."""
        for index in range(len(self.net.plugins)):
            yield from self.call(self.invocation("CHECK", index, prev_result))

    def call(self, invocation: Invocation) -> Flow[Outcome]:
        """Run one plugin, and where it asks to be tried again later, do as ``retry`` says."""
        for _ in range(self.retry.attempts - 1 if self.retry else 0):
            try:
                return (yield from run(invocation))
            except PluginError as error:
                if not error.retryable or not (yield from self._may_retry(invocation, error)):
                    raise
        return (yield from run(invocation))

    def _may_retry(self, invocation: Invocation, error: PluginError) -> Flow[bool]:
        """Let the time pass; between two ADDs a plugin must see a DEL (spec 1.1.0, section 3)."""
        if invocation.verb == "ADD":
            try:
                yield from run(self.invocation("DEL", invocation.index))
            except PluginError as undoing:
                error.add_note(f"it was not tried again: {undoing}")
                return False
        in_time: bool = yield Pause(self.retry.delay if self.retry else 0.0)
        return in_time


def run(invocation: Invocation) -> Flow[Outcome]:
    """Run one plugin; raises PluginError unless its exit status is 0."""
    outcome: Outcome = yield invocation
    if outcome.exit_status != 0:
        raise plugin_error(invocation, outcome)
    return outcome
