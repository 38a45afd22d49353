"""Explain which plugins each verb of a network would call, without a process or the disk."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from libcni.config import jsontext
from libcni.config.network import NetworkConfigList
from libcni.config.runtime_conf import RuntimeConf
from libcni.config.versions import supports
from libcni.errors import CNIError, PluginNotFoundError
from libcni.executor.find import find_plugin
from libcni.executor.protocol import CallOptions
from libcni.observe.protocol import Operation
from libcni.protocol.invocation import Invocation, Outcome, VerbName
from libcni.store.attachments import Attachment, pending_record, recorded_network
from libcni.store.namespace import InterfaceLookup
from libcni.store.record import READY, Identity, Record
from libcni.store.records import RecordStore
from libcni.verbs.add import add
from libcni.verbs.check import check
from libcni.verbs.delete import delete
from libcni.verbs.gc import gc
from libcni.verbs.node import Node, run_to_end
from libcni.verbs.reports import DelPolicy
from libcni.verbs.settings import ClientState, Settings
from libcni.verbs.status import status

__all__ = ["ExplainedCall", "ExplainedVerb", "Explanation", "explain"]


@dataclass(frozen=True, slots=True)
class ExplainedCall:
    """One call that a verb would make.

    Attributes:
        invocation: the input of the plugin; ``path`` is "" if its executable is missing.
        injected: the keys of stdin that are not in the plugin's configuration, or not with that value.
        removed: the keys of the plugin's configuration that are not in stdin.
        source: the drop-in file that the configuration comes from, or None.
    """

    invocation: Invocation
    injected: tuple[str, ...]
    removed: tuple[str, ...]
    source: str | None = None


@dataclass(frozen=True, slots=True)
class ExplainedVerb:
    """The calls of one verb.

    Attributes:
        verb: ``ADD``, ``CHECK``, ``DEL``, ``GC`` or ``STATUS``.
        calls: the calls in order.
        note: why the verb makes no calls, or no more calls; else "".
    """

    verb: VerbName
    calls: tuple[ExplainedCall, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The calls that a network's verbs would make.

    Attributes:
        net: the network.
        verbs: ADD, CHECK, DEL, GC and STATUS.
        unused_capabilities: the names of capability arguments that no plugin declares.
        missing: one error for each plugin whose executable is missing.
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
    attachment: Attachment | None = None,
    find: Callable[[str, Sequence[str]], str] = find_plugin,
) -> Explanation:
    """Return the calls of each verb of a network in order, with environment and stdin. Run nothing.

    A plugin's result cannot be known, so ``prevResult`` names the plugin that would print it. GC is explained with
    this attachment as the only valid one. DEL and CHECK are explained from the record of ``attachment``, or as after a
    successful ADD.

    Args:
        net: the network.
        rt: an attachment's parameters; it need not exist.
        path: CNI_PATH.
        attachment: a recorded attachment with the container, interface and network of ``rt``.
        find: returns the path of a plugin's executable.
    """
    missing: dict[str, PluginNotFoundError] = {}
    if attachment is None:
        result = jsontext.dumps({"cniVersion": net.cni_version, "(result)": f"the result of {net.plugins[-1].type}"})
        record = pending_record(net, rt).with_fields(state=READY, result=result, path="(the record)")
        used, recorded_rt, from_record = net, rt, ""
    else:
        record, used = attachment.record, recorded_network(attachment.record) or net
        # The recorded namespace counts, because the caller of DEL and CHECK may leave it out.
        recorded_rt, from_record = replace(rt, netns=None), f"from the record {record.path}"

    def play(verb: VerbName, make: Callable[[Node], Coroutine[Any, Any, object]], note: str = "") -> ExplainedVerb:
        is_recorded = verb in {"CHECK", "DEL"}
        shown = used if is_recorded else net
        node = _ExplainNode(shown, tuple(path), find, None if verb == "ADD" else record, missing)
        try:
            run_to_end(make(node))
        # A verb that refuses its arguments is an explanation, too: the error says why nothing would run.
        except CNIError as error:
            note = note or str(error)
        return ExplainedVerb(verb, tuple(node.calls), note or (from_record if is_recorded else ""))

    pair = (rt.container_id, rt.ifname)
    no_check = "disableCheck is set" if used.disable_check else ""
    no_gc = "disableGC is set" if net.disable_gc else _too_old(net, "GC")
    verbs = (
        play("ADD", lambda node: add(node, net, rt)),
        play("CHECK", lambda node: check(node, net.name, net, recorded_rt), no_check),
        play("DEL", lambda node: delete(node, net.name, net, recorded_rt, DelPolicy())),
        play("GC", lambda node: gc(node, net.name, net, [pair], DelPolicy()), no_gc),
        play("STATUS", lambda node: status(node, net), _too_old(net, "STATUS")),
    )
    return Explanation(net, verbs, net.unused_capabilities(rt.capability_args or {}), tuple(missing.values()))


def _too_old(net: NetworkConfigList, verb: str) -> str:
    return "" if supports(net.cni_version, verb) else f"plugins are not called: version {net.cni_version} has no {verb}"


class _ExplainNode(Node):
    """A node that runs, locks, reads and writes nothing. Every plugin succeeds, and the node collects its calls."""

    def __init__(
        self,
        net: NetworkConfigList,
        path: tuple[str, ...],
        find: Callable[[str, Sequence[str]], str],
        record: Record | None,
        missing: dict[str, PluginNotFoundError],
    ) -> None:
        # Empty directories: a method that is not overridden here finds nothing, and not the records of the machine.
        settings = Settings(path=path, cache_dir="", conf_dir="", env={}, durable=False)
        super().__init__(ClientState(settings, _NoRecords(record)), None, None, Operation("ADD"))
        self.calls: list[ExplainedCall] = []
        self._net = net
        self._find = find
        self._missing = missing

    async def run_plugin(self, invocation: Invocation, options: CallOptions) -> Outcome:
        source = self._net.plugins[invocation.index].source
        self.calls.append(ExplainedCall(invocation, *_changes(self._net, invocation), source))
        result = {"cniVersion": self._net.cni_version, "(result)": f"the result of {invocation.plugin}"}
        return Outcome(0, jsontext.dumps(result).encode())

    async def lock(self, networks: Sequence[str], container_id: str = "", *, exclusive: bool = False) -> None:
        pass

    def find(self, plugin: str) -> str:
        try:
            return self._find(plugin, self.path)
        # The explanation goes on, so that one missing plugin does not hide the others.
        except PluginNotFoundError as error:
            self._missing[plugin] = error
            return ""

    # The explained namespace need not exist, and its state must not change the explanation.
    def is_own_namespace(self, netns: str) -> bool:
        return False

    def look_up(self, netns: str, ifname: str) -> InterfaceLookup | None:
        return None


class _NoRecords(RecordStore):
    """A store without a disk, which holds one record at most."""

    def __init__(self, record: Record | None) -> None:
        super().__init__("", durable=False)
        self._record = record

    def find(self, identity: Identity) -> Record | None:
        return self._record

    def iter_records(self, container_id: str | None = None) -> Iterator[Record]:
        return iter(())

    def of_interface(self, container_id: str, ifname: str) -> list[Record]:
        return []

    def begin(self, record: Record) -> Record:
        return record

    def complete(self, record: Record) -> None:
        pass

    def keep_partial(self, record: Record, result: str) -> None:
        pass

    def partial(self, record: Record) -> str | None:
        return None

    def mark_detaching(self, record: Record) -> Record:
        return record

    def forget(self, record: Record) -> None:
        pass

    def sweep(self, *, older_than: float = 0.0, dry_run: bool = False, left: list[str] | None = None) -> list[str]:
        return []


def _changes(net: NetworkConfigList, invocation: Invocation) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the keys that were injected and removed between a plugin's configuration and its stdin."""
    # Texts, not decoded values: 1.0 and 1.00 are equal in Python, and a plugin in another language may differ.
    own = {member.key: member.text for member in jsontext.members(net.plugins[invocation.index].text)}
    sent = {member.key: member.text for member in jsontext.members(invocation.stdin.decode(errors="surrogatepass"))}
    injected = tuple(key for key, text in sent.items() if own.get(key) != text)
    return injected, tuple(key for key in own if key not in sent)
