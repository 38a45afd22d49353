"""One plugin call as plain data: the invocation, and the outcome."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from libcni._dataclass import dataclass, field

__all__ = ["Invocation", "Outcome"]

VerbName = Literal["ADD", "CHECK", "DEL", "GC", "STATUS", "VERSION"]
"""The verbs of the specification, as in CNI_COMMAND."""


@dataclass(frozen=True, slots=True)
class Invocation:
    """The input of one plugin call (spec 1.1.0, section 2).

    Attributes:
        verb: the plugin's CNI_COMMAND: a ``VerbName``, or another word if a caller tests the plugin with it.
        plugin: the plugin's type.
        path: the path of the plugin's executable.
        stdin: the execution configuration, UTF-8 JSON.
        env: the six CNI_* variables, "" if the verb has none.
        network: the network's name, "" if the verb has none.
        container_id: the container's ID, "" if the verb has none.
        ifname: the interface's name, "" if the verb has none.
        index: the plugin's index in the list, from 0.

    Examples:
        >>> result = cni.add_network_list(net, rt)
        >>> call = executor.calls[0].invocation
        >>> call.verb, call.path, call.env["CNI_IFNAME"]
        ('ADD', '/opt/cni/bin/bridge', 'eth0')
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
    """The output of a plugin call that was not stopped.

    Attributes:
        exit_status: the plugin's exit status; None if a signal ended the plugin.
        signal: the number of the signal that ended the plugin, or None.
        stdout: the plugin's whole stdout.
        stderr: the end of the plugin's stderr.
        seconds: how long the plugin ran.

    Examples:
        >>> Outcome(exit_status=1, stdout=b'{"code": 11, "msg": "no free address"}').stdout
        b'{"code": 11, "msg": "no free address"}'
    """

    exit_status: int | None = 0
    stdout: bytes = b""
    stderr: bytes = b""
    signal: int | None = None
    seconds: float = field(default=0.0, compare=False)
