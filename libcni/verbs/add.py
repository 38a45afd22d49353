"""ADD: check the request, then try it (``tries``): earlier attachments (``earlier``), record, plugins (``attempt``)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from libcni._dataclass import replace
from libcni.config.identifiers import check_loopback, validate_network_name
from libcni.config.network import NetworkConfigList, check_plugins
from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import ConfigError, Hint
from libcni.options import OnCancel, OnExisting, check_word
from libcni.protocol.result import Result
from libcni.store.attachments import new_record
from libcni.store.place import Place
from libcni.store.present_interfaces import lasting_path
from libcni.verbs.chain import Chain
from libcni.verbs.host_ports import host_ports
from libcni.verbs.path_to_use import checked_conf
from libcni.verbs.tries import Tries
from libcni.verbs.verb_run import VerbRun

logger: logging.Logger = logging.getLogger("libcni")


async def add(  # noqa: PLR0913 - the options of the verb
    run: VerbRun,
    net: NetworkConfigList,
    rt: RuntimeConf,
    *,
    rollback: bool = True,
    on_existing: OnExisting = "refuse",
    strict: bool = False,
    allow_own_netns: bool = False,
    on_cancel: OnCancel = "keep",
    namespace: Place | None = None,
) -> Result:
    """Attach a container to a network (spec 1.1.0, section 3, Adding an attachment).

    ADD finds every executable and writes the record before it runs the first plugin. It completes the record after the
    last plugin, and rolls back after a failure. ``namespace``: the namespace of the container's other networks. ADD is
    refused if the path leads to another namespace, even if it was replaced while an earlier attachment was detached.
    """
    validate_network_name(net.name)
    rt = checked_conf(rt)
    check_word("on_existing", on_existing, OnExisting)
    check_word("on_cancel", on_cancel, OnCancel)
    check_plugins(net)
    check_loopback(rt.ifname, [plugin.type for plugin in net.plugins])
    unused = _unused_capabilities(net, rt.capability_args, strict=strict) if rt.capability_args else ()
    _refuse_no_namespace(run, rt.netns or "")
    is_own_netns = bool(rt.netns) and run.sight.is_own_namespace(rt.netns or "")
    if is_own_netns:
        rt = _in_own_namespace(rt, is_allowed=allow_own_netns)
    chain = Chain(run, net, rt, run.find_all(net), is_own_netns)
    tries = Tries(
        chain,
        new_record(net, rt, is_own_netns=is_own_netns),
        # Examine the namespace before an earlier attachment is detached for this ADD.
        namespace or run.sight.namespace(rt.netns or ""),
        () if on_existing == "allow" else host_ports(net, rt.capability_args),
        on_existing=on_existing,
        on_cancel=on_cancel,
        rollback=rollback,
        strict=strict,
    )
    result = await tries.attach()
    return replace(result, unused_capabilities=unused, notes=tuple(tries.notes))


def _in_own_namespace(rt: RuntimeConf, *, is_allowed: bool) -> RuntimeConf:
    """Return the parameters of an ADD in this program's own namespace; raises ConfigError if it is not allowed."""
    if not is_allowed:
        # A roll-back would delete this program's own interface.
        text = "give the container's namespace; or use {argument} to attach this program's own namespace"
        problem = f"{rt.netns} is the network namespace of this program itself"
        raise ConfigError(problem, location="netns", hint=Hint(text, argument="allow_own_netns"))
    return rt.with_netns(lasting_path(rt.netns or ""))


def _refuse_no_namespace(run: VerbRun, netns: str) -> None:
    """Raise ConfigError if there is a file at a path that is no network namespace: each plugin would fail, DEL too.

    A text that leads to no file may have a meaning for the plugins.
    """
    place = run.sight.namespace(netns) if netns else Place()
    if place.netns is not None and not place.cookie and run.sight.is_other_file(netns):
        hint = "give the path of a namespace, such as /run/netns/NAME or /proc/PID/ns/net"
        raise ConfigError(f"{netns} is a file, but not a network namespace", location="netns", hint=hint)


def _unused_capabilities(
    net: NetworkConfigList, capability_args: Mapping[str, Any], *, strict: bool
) -> tuple[str, ...]:
    from libcni.config.conventions import check_capability_args  # few ADDs have capability arguments

    unused = net.unused_capabilities(capability_args)
    # Checked before anything runs: half of the chain would run, and a plugin's DEL may refuse the same value.
    check_capability_args(capability_args, unused)
    if unused:
        from difflib import get_close_matches  # few callers mistype

        declared = [name for plugin in net.plugins for name in plugin.capabilities]
        similar = [match for name in unused for match in get_close_matches(name, declared, 1)]
        names = ", ".join(unused)
        problem = f'network "{net.name}": no plugin declares the capability {names}, so none receives its arguments'
        problem += f"; did you mean {', '.join(similar)}?" if similar else ""
        if strict:
            hint = f'add "capabilities": {{"{unused[0]}": true}} to the plugin that supports it'
            raise ConfigError(problem, file=net.file, hint=hint)
        logger.warning("%s", problem)
    return unused
