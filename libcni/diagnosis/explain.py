"""What would be run, without running it: the verbs' flows, driven with no process and no disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from libcni.config import jsontext
from libcni.config.network import NetworkConfigList
from libcni.config.runtime_conf import RuntimeConf
from libcni.config.versions import supports
from libcni.errors import CNIError, PluginNotFoundError
from libcni.executor import find_plugin
from libcni.protocol.invocation import Invocation, Outcome
from libcni.store.record import Record
from libcni.verbs import add_flow, check_flow, del_flow, gc_flow, status_flow
from libcni.verbs.steps import AllRecords, AwaitOrphan, Begin, Complete, Find, Flow, Lookup, Siblings

__all__ = ["ExplainedCall", "ExplainedVerb", "Explanation", "explain"]


@dataclass(frozen=True, slots=True)
class ExplainedCall:
    """One call that a verb would make.

    Attributes:
        invocation: what the plugin would get; ``path`` is "" where its executable is missing.
        injected: the keys of stdin that are not in the plugin's configuration, or not with that value.
        removed: the keys of the plugin's configuration that are not in stdin.
    """

    invocation: Invocation
    injected: tuple[str, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExplainedVerb:
    """The calls of one verb.

    Attributes:
        verb: ``ADD``, ``CHECK``, ``DEL``, ``GC`` or ``STATUS``.
        calls: in order.
        note: why there are none, or no more; else "".
    """

    verb: str
    calls: tuple[ExplainedCall, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a network's verbs would do.

    Attributes:
        net: the network.
        verbs: ADD, CHECK, DEL, GC and STATUS.
        unused_capabilities: the names of capability arguments that no plugin takes.
        missing: one error for each plugin whose executable is not there.
    """

    net: NetworkConfigList
    verbs: tuple[ExplainedVerb, ...]
    unused_capabilities: tuple[str, ...]
    missing: tuple[PluginNotFoundError, ...]


def explain(
    net: NetworkConfigList,
    rt: RuntimeConf,
    path: Sequence[str],
    *,
    find: Callable[[str, Sequence[str]], str] = find_plugin,
) -> Explanation:
    """Return what each verb of a network would run, in order, with which environment and stdin. Runs nothing.

    A plugin's result cannot be known, so ``prevResult`` is one that says whose it is. GC is explained with this one
    attachment as the valid one, DEL and CHECK as after a successful ADD.

    Args:
        net: the network.
        rt: an attachment's parameters; it need not exist.
        path: CNI_PATH.
        find: where an executable is.
    """
    stage = _Stage(net, path, find)
    verbs = (
        stage.play("ADD", add_flow(net, rt, path)),
        stage.play("CHECK", check_flow(net.name, net, rt, path), "disableCheck is set" if net.disable_check else ""),
        stage.play("DEL", del_flow(net.name, net, rt, path)),
        stage.play("GC", gc_flow(net, [(rt.container_id, rt.ifname)], path), _why_no_gc(net)),
        stage.play("STATUS", status_flow(net, path), _too_old(net, "STATUS")),
    )
    return Explanation(net, verbs, net.unused_capabilities(rt.capability_args or {}), tuple(stage.missing.values()))


def _why_no_gc(net: NetworkConfigList) -> str:
    return "disableGC is set" if net.disable_gc else _too_old(net, "GC")


def _too_old(net: NetworkConfigList, verb: str) -> str:
    return "" if supports(net.cni_version, verb) else f"plugins are not called: version {net.cni_version} has no {verb}"


class _Stage:
    """Answers the steps of flows as if all went well, and writes the calls down."""

    def __init__(self, net: NetworkConfigList, path: Sequence[str], find: Callable[[str, Sequence[str]], str]) -> None:
        self._net = net
        self._path = path
        self._find = find
        self._record: Record | None = None
        self._calls: list[ExplainedCall] = []
        self.missing: dict[str, PluginNotFoundError] = {}

    def play(self, verb: str, flow: Flow[Any], note: str = "") -> ExplainedVerb:
        """Drive one flow to its end."""
        self._calls = []
        try:
            answer = self._answer(next(flow))
            while True:
                answer = self._answer(flow.send(answer))
        except StopIteration:
            pass
        except CNIError as error:
            note = note or str(error)
        return ExplainedVerb(verb, tuple(self._calls), note)

    def _answer(self, step: Any) -> Any:
        if isinstance(step, Invocation):
            return self._called(step)
        if isinstance(step, Find):
            return tuple(self._executable(plugin) for plugin in step.plugins)
        if isinstance(step, Begin):
            return step.record
        if isinstance(step, Complete):
            self._record = replace(step.record, path="(the record)")
        if isinstance(step, Lookup):
            return self._record
        return [] if isinstance(step, Siblings | AllRecords) else isinstance(step, AwaitOrphan) or None

    def _called(self, invocation: Invocation) -> Outcome:
        self._calls.append(ExplainedCall(invocation, *_changes(self._net, invocation)))
        result = {"cniVersion": self._net.cni_version, "(result)": f"what {invocation.plugin} prints"}
        return Outcome(0, jsontext.dumps(result).encode())

    def _executable(self, plugin: str) -> str:
        try:
            return self._find(plugin, self._path)
        except PluginNotFoundError as error:
            self.missing[plugin] = error
            return ""


def _changes(net: NetworkConfigList, invocation: Invocation) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the keys that were injected and removed between a plugin's configuration and its stdin."""
    own = {member.key: member.text for member in jsontext.members(net.plugins[invocation.index].text)}
    sent = {member.key: member.text for member in jsontext.members(invocation.stdin.decode(errors="surrogatepass"))}
    injected = tuple(key for key, text in sent.items() if own.get(key) != text)
    return injected, tuple(key for key in own if key not in sent)
