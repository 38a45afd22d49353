"""Explain which plugins each verb of a network would call, by running the verbs with an executor that runs nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from tempfile import TemporaryDirectory

from libcni._dataclass import dataclass, replace
from libcni.client import CNIConfig
from libcni.config import jsontext
from libcni.config.network import NetworkConfigList
from libcni.config.runtime_conf import RuntimeConf
from libcni.config.versions import supports
from libcni.errors import CNIError, PluginNotFoundError
from libcni.executor.find import find_plugin
from libcni.executor.recording import RecordingExecutor
from libcni.protocol.invocation import Invocation, Outcome, VerbName
from libcni.store.attachments import Attachment, recorded_network

__all__ = ["ExplainedCall", "ExplainedVerb", "explain"]


@dataclass(frozen=True, slots=True)
class ExplainedCall:
    """One call that a verb would make.

    Attributes:
        invocation: the input of the plugin.
        injected: the keys of stdin that the plugin's configuration lacks, or has with another value.
        removed: the keys of the plugin's configuration that are not in stdin.
        source: the drop-in file that the configuration comes from, or None.
        missing: the error if the plugin's executable is missing, or None.

    Examples:
        >>> call = explain(net, rt, ["/opt/cni/bin"])[0].calls[0]
        >>> call.invocation.plugin, call.injected
        ('bridge', ('cniVersion', 'name'))
    """

    invocation: Invocation
    injected: tuple[str, ...]
    removed: tuple[str, ...]
    source: str | None = None
    missing: PluginNotFoundError | None = None


@dataclass(frozen=True, slots=True)
class ExplainedVerb:
    """The calls of one verb.

    Attributes:
        verb: ``ADD``, ``CHECK``, ``DEL``, ``GC`` or ``STATUS``.
        calls: the calls in order.
        note: why the verb makes no calls, or no more calls; else "".

    Examples:
        >>> [(verb.verb, len(verb.calls)) for verb in explain(net, rt, ["/opt/cni/bin"])]
        [('ADD', 1), ('CHECK', 1), ('DEL', 1), ('GC', 1), ('STATUS', 1)]
    """

    verb: VerbName
    calls: tuple[ExplainedCall, ...]
    note: str = ""


def explain(
    net: NetworkConfigList, rt: RuntimeConf, path: Sequence[str], *, attachment: Attachment | None = None
) -> tuple[ExplainedVerb, ...]:
    """Return the calls of ADD, CHECK, DEL, GC and STATUS of a network, with environment and stdin. Run nothing.

    A plugin's result cannot be known, so ``prevResult`` names the plugin that would print it. In GC this attachment is
    the only valid one. DEL and CHECK use the record of ``attachment``; without it, the record that a successful ADD
    would write.

    Args:
        net: the network.
        rt: an attachment's parameters; the attachment need not exist.
        path: CNI_PATH.
        attachment: a recorded attachment with the container, interface and network of ``rt``.
    """
    player = _Player()
    pair = (rt.container_id, rt.ifname)
    # The verbs need a record, and the records of the node must not change.
    with TemporaryDirectory(prefix="libcni-explain-") as directory:
        new = CNIConfig(path, f"{directory}/new", conf_dir=directory, executor=player, env={}, durable=False)
        # The namespace need not exist, and its state must not change the explanation.
        added = player.play(
            "ADD", net, lambda: new.add_network_list(net, rt, on_existing="allow", allow_own_netns=True)
        )
        cni, used, recorded_rt, origin = new, net, rt, ""
        if attachment is not None:
            cni = CNIConfig(path, f"{directory}/old", conf_dir=directory, executor=player, env={}, durable=False)
            os.makedirs(f"{cni.cache_dir}/results", mode=0o700)
            shutil.copy(attachment.path, f"{cni.cache_dir}/results")
            # Use the recorded namespace: a caller of DEL and CHECK may omit it.
            recorded_rt, origin = replace(rt, netns=None), f"from the record {attachment.path}"
            used = recorded_network(attachment.record) or net
        no_check = "disableCheck is set" if used.disable_check else ""
        no_gc = "disableGC is set" if net.disable_gc else _too_old(net, "GC")
        checked = player.play("CHECK", used, lambda: cni.check_network_list(net, recorded_rt), no_check, origin)
        collected = player.play("GC", net, lambda: cni.gc_network_list(net, [pair]), no_gc)
        detached = player.play("DEL", used, lambda: cni.del_network_list(net, recorded_rt), origin=origin)
        asked = player.play("STATUS", net, lambda: cni.network_status(net), _too_old(net, "STATUS"))
    return added, checked, detached, collected, asked


def _too_old(net: NetworkConfigList, verb: str) -> str:
    return "" if supports(net.cni_version, verb) else f"plugins are not called: version {net.cni_version} has no {verb}"


class _Player(RecordingExecutor):
    """Plays verbs: every plugin is found and succeeds, and the result of an ADD names its plugin."""

    def __init__(self) -> None:
        super().__init__({("*", "ADD"): _result})
        self.missing: dict[str, PluginNotFoundError] = {}

    def find(self, plugin: str, path: Sequence[str]) -> str:
        try:
            return find_plugin(plugin, path)
        # The explanation goes on, so that one missing plugin does not hide the others.
        except PluginNotFoundError as error:
            self.missing[plugin] = error
            return plugin  # not "": a DEL with given arguments would skip this plugin

    def play(
        self, verb: VerbName, net: NetworkConfigList, run: Callable[[], object], note: str = "", origin: str = ""
    ) -> ExplainedVerb:
        self.calls.clear()
        try:
            run()
        # The error of a verb that refuses its arguments is its explanation: it says why nothing would run.
        except CNIError as error:
            note = note or str(error)
        calls = tuple(
            ExplainedCall(
                call.invocation,
                *_changes(net, call.invocation),
                net.plugins[call.invocation.index].source,
                self.missing.get(call.invocation.plugin),
            )
            for call in self.calls
        )
        return ExplainedVerb(verb, calls, note or origin)


def _result(invocation: Invocation) -> Outcome:
    version = jsontext.parse(invocation.stdin.decode(errors="surrogatepass"))["cniVersion"]
    document = {"cniVersion": version, "(result)": f"the result of {invocation.plugin}"}
    return Outcome(stdout=jsontext.dumps(document).encode())


def _changes(net: NetworkConfigList, invocation: Invocation) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the keys that were injected and removed between a plugin's configuration and its stdin."""
    # Compare texts, not decoded values: 1.0 and 1.00 are equal in Python, but perhaps not for a plugin.
    own = {member.key: member.text for member in jsontext.members(net.plugins[invocation.index].text)}
    sent = {member.key: member.text for member in jsontext.members(invocation.stdin.decode(errors="surrogatepass"))}
    injected = tuple(key for key, text in sent.items() if own.get(key) != text)
    return injected, tuple(key for key in own if key not in sent)
