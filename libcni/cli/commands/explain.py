"""libcni explain: show which plugins each verb would run, with which stdin and environment. Runs nothing."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import libcni
import libcni.diagnosis
from libcni.cli.failures import UsageError, in_one_line
from libcni.cli.inputs import Selection, Target
from libcni.cli.listing import decoded, find_attachments, recorded_container
from libcni.cli.options import NETNS, NETWORK, TARGET, Argument
from libcni.cli.render import Block, Fields, Verbatim
from libcni.cli.session import Session

_VERBS = ("ADD", "CHECK", "DEL", "GC", "STATUS")
ARGUMENTS = (
    NETWORK,
    NETNS.but(nargs="?", default="/run/netns/example", help="The path of a network namespace, which need not exist."),
    *TARGET[2:],
    Argument("--verb", action="append", type=str.upper, choices=_VERBS, metavar="VERB",
        help="Show only this verb: add, check, del, gc, status; repeatable."),
)  # fmt: skip
_OTHERS = "(plus this program's environment without CNI_*)"


def explain(session: Session, target: Target, verb: list[str] | None) -> None:
    """Show which plugins each verb would run.

    For each verb: the order of the plugins, and the stdin and environment of each. Runs nothing. CHECK and DEL are
    shown from the record, if the container is attached.

    Example:
      libcni explain front --verb add
    """
    if (word := (target.netns or "").upper()) in _VERBS and not os.path.exists(target.netns or ""):
        raise UsageError(f"{target.netns} is a verb, not a NETNS; did you mean --verb {word.lower()}?")
    cni = session.client()
    network = target.net()
    rt = target._replace(container=recorded_container(cni, target.container) if target.container else None).conf()
    net = cni.network(network) if isinstance(network, str) else network
    # Only this attachment: the container's other attachments were made with other configurations.
    recorded = find_attachments(cni, Selection(rt.container_id, rt.ifname, net.name))
    with _without_warnings():
        explained = libcni.diagnosis.explain(net, rt, cni.path, attachment=recorded[0] if recorded else None)
    missing = {call.missing.plugin: call.missing for verb in explained for call in verb.calls if call.missing}
    unused = net.unused_capabilities(rt.capability_args or {})
    verbs = [one for one in explained if one.verb in (verb or _VERBS)]
    data = {
        "network": net.name,
        "version": net.cni_version,
        "file": net.file,
        "unused_capabilities": list(unused),
        "missing": list(missing),
        "verbs": [
            {"verb": verb.verb, "note": verb.note, "calls": [_call_data(call) for call in verb.calls]} for verb in verbs
        ],
    }
    warnings = [f"warning: no plugin declares the capability argument {name}" for name in unused]
    absent = [f"missing: {in_one_line(error, session)}" for error in missing.values()]
    title = f"{net.name}: version {net.cni_version}, {net.file or 'no file'}"
    session.show(data, title, *warnings, *absent, *_blocks(verbs))


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Log no warnings: the explanation contains them. The logger's level belongs to the program that called main()."""
    logger = logging.getLogger("libcni")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _blocks(verbs: list[libcni.diagnosis.ExplainedVerb]) -> Iterator[Block]:
    for verb in verbs:
        # It is the same for all plugins of a verb.
        environment = [f"{name}={value}" for call in verb.calls[:1] for name, value in call.invocation.env.items()]
        environment += [_OTHERS] if environment else []
        yield ""
        yield Fields(verb.verb, [("note", verb.note), ("environment", Verbatim("\n".join(environment)))])
        yield from (_fields(verb.verb, call) for call in verb.calls)


def _fields(verb: str, call: libcni.diagnosis.ExplainedCall) -> Fields:
    invocation = call.invocation
    rows = [
        ("drop-in", call.source or ""),
        ("injected", ", ".join(call.injected)),
        ("removed", ", ".join(call.removed)),
        ("stdin", Verbatim(invocation.stdin.decode(errors="backslashreplace"))),
    ]
    return Fields(f"{verb} {invocation.plugin}: {'MISSING' if call.missing else invocation.path}", rows)


def _call_data(call: libcni.diagnosis.ExplainedCall) -> dict[str, Any]:
    invocation = call.invocation
    return {
        "plugin": invocation.plugin,
        "path": "" if call.missing else invocation.path,
        "injected": list(call.injected),
        "removed": list(call.removed),
        "environment": dict(invocation.env),
        "stdin": decoded(invocation.stdin),
        "stdin_text": invocation.stdin.decode(errors="backslashreplace"),
    }
