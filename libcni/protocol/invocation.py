"""One call of one plugin, as plain data: what goes in, and what came out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from libcni.errors import KEPT, PluginError, shorten

__all__ = ["Invocation", "Outcome", "plugin_failure"]


@dataclass(frozen=True, slots=True)
class Invocation:
    """What is given to a plugin (spec 1.1.0, section 2).

    Attributes:
        verb: ``ADD``, ``CHECK``, ``DEL``, ``GC``, ``STATUS`` or ``VERSION``.
        plugin: the plugin's type.
        path: its executable.
        stdin: the execution configuration, UTF-8 JSON.
        env: the six CNI_* variables, each a string, "" where the verb has none.
        network: the network's name, "" where the verb has none.
        container_id: the container, likewise.
        ifname: the interface's name, likewise.
        index: the plugin's place in the list, from 0.
    """

    verb: str
    plugin: str
    path: str
    stdin: bytes
    env: Mapping[str, str]
    network: str = ""
    container_id: str = ""
    ifname: str = ""
    index: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a plugin left behind when it ended by itself.

    Attributes:
        exit_status: its exit status, or None where a signal ended it.
        signal: the signal's number, or None.
        stdout: all that it printed there.
        stderr: the end of what it printed there.
        seconds: how long it ran.
    """

    exit_status: int | None = 0
    stdout: bytes = b""
    stderr: bytes = b""
    signal: int | None = None
    seconds: float = field(default=0.0, compare=False)


_Failure = TypeVar("_Failure", bound=PluginError)


def plugin_failure(  # noqa: PLR0913 - the fields of PluginError that the call does not have
    kind: type[_Failure],
    invocation: Invocation,
    problem: str,
    outcome: Outcome | None = None,
    *,
    code: int | None = None,
    msg: str = "",
    details: str = "",
    hint: str | None = None,
) -> _Failure:
    """Return an error of class ``kind`` with the fields of the call and, if there is one, of its outcome."""
    ended = outcome or Outcome(exit_status=None)
    return kind(
        problem,
        plugin=invocation.plugin,
        path=invocation.path,
        verb=invocation.verb,
        network=invocation.network,
        container_id=invocation.container_id,
        ifname=invocation.ifname,
        code=code,
        msg=shorten(msg, KEPT),
        details=shorten(details, KEPT),
        stdout=_decoded_start(ended.stdout),
        stderr=ended.stderr.decode(errors="backslashreplace"),
        exit_status=ended.exit_status,
        signal=ended.signal,
        seconds=ended.seconds,
        hint=hint,
    )


def _decoded_start(data: bytes) -> str:
    text = data[:KEPT].decode(errors="backslashreplace")
    return text if len(data) <= KEPT else f"{text}… ({len(data) - KEPT} more bytes)"
