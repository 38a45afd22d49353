"""One call of one plugin, as plain data: what goes in, and what came out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from libcni.errors import PluginError

__all__ = ["Invocation", "Outcome", "failure"]


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


def failure(
    kind: type[_Failure], invocation: Invocation, problem: str, outcome: Outcome | None = None, **details: Any
) -> _Failure:
    """Return a PluginError that says which call it was and what the plugin left behind.

    ``details``: further fields of PluginError, such as ``code``, ``msg``, ``hint``.
    """
    left = outcome or Outcome(exit_status=None)
    return kind(
        problem,
        plugin=invocation.plugin,
        path=invocation.path,
        verb=invocation.verb,
        network=invocation.network,
        container_id=invocation.container_id,
        ifname=invocation.ifname,
        stdout=left.stdout.decode(errors="backslashreplace"),
        stderr=left.stderr.decode(errors="backslashreplace"),
        exit_status=left.exit_status,
        signal=left.signal,
        seconds=left.seconds,
        **details,
    )
