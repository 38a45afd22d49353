"""Run one plugin by its path, without records and locks, as ``pkg/invoke`` of Go's CNI library does.

Use it in meta-plugins, in daemons that already manage their attachments, and in tests of a single plugin.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from libcni._dataclass import dataclass, replace
from libcni.config import jsontext
from libcni.config.cni_args import check_args, format_args
from libcni.config.jsontext import JSONTextError
from libcni.config.versions import DEFAULT_VERSION
from libcni.errors import ConfigError, InvalidOutputError
from libcni.executor.interface import CallOptions, Executor
from libcni.executor.process import ProcessExecutor
from libcni.protocol.answer import plugin_error
from libcni.protocol.invocation import Invocation, Outcome
from libcni.protocol.result import Result, ResultProblem, read_result

__all__ = [
    "PluginArgs", "args_from_env", "delegate_args", "exec_plugin_with_result", "exec_plugin_without_result",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class PluginArgs:
    """The CNI_* variables of one plugin call (spec 1.1.0, section 2, Parameters); Go: ``invoke.Args``.

    Attributes:
        command: the verb.
        container_id, netns, ifname: the attachment; "" if the verb has none.
        args: CNI_ARGS: pairs in order, or the text of the variable.
        path: CNI_PATH: the directories of plugins, separated by ":".

    Examples:
        >>> PluginArgs("ADD", "c1", "/run/netns/c1", "eth0", (("K", "V"),), "/opt/cni/bin").env()["CNI_ARGS"]
        'K=V'
    """

    command: str
    container_id: str = ""
    netns: str = ""
    ifname: str = ""
    args: Iterable[tuple[str, str]] | str = ()
    path: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.args, str):
            object.__setattr__(self, "args", tuple(self.args))

    def env(self) -> dict[str, str]:
        """Return the six variables; raises InvalidIdentifierError if CNI_ARGS cannot carry a pair."""
        return {
            "CNI_COMMAND": self.command,
            "CNI_CONTAINERID": self.container_id,
            "CNI_NETNS": self.netns,
            "CNI_IFNAME": self.ifname,
            "CNI_ARGS": self.args if isinstance(self.args, str) else format_args(check_args(self.args)),
            "CNI_PATH": self.path,
        }


def args_from_env(env: Mapping[str, str] | None = None) -> PluginArgs:
    """Return the parameters that this process received as a plugin; ``env``: None means ``os.environ``."""
    env = os.environ if env is None else env
    names = ("COMMAND", "CONTAINERID", "NETNS", "IFNAME", "ARGS", "PATH")
    return PluginArgs(*(env.get(f"CNI_{name}", "") for name in names))


def delegate_args(command: str, env: Mapping[str, str] | None = None) -> PluginArgs:
    """Return the parameters that this process received, with another verb: for a plugin's call of its delegate.

    Args:
        command: the verb.
        env: the variables with the parameters; None: those of this process.
    """
    return replace(args_from_env(env), command=command)


def exec_plugin_with_result(  # noqa: PLR0913 - the parts of a call
    plugin_path: str | os.PathLike[str],
    netconf: bytes | str | Mapping[str, Any],
    args: PluginArgs,
    *,
    executor: Executor | None = None,
    timeout: float | None = 60.0,
    env: Mapping[str, str] | None = None,
) -> Result:
    """Run a plugin by its path, and return the result that it printed.

    Args:
        plugin_path: the executable.
        netconf: the execution configuration, which the plugin receives on stdin: JSON text, or a decoded object.
        args: the CNI_* variables.
        executor: runs the plugin; None: a ProcessExecutor.
        timeout: seconds until the plugin is stopped; None: no limit.
        env: the rest of the plugin's environment; None: this process's.

    Returns:
        The result in the spec version that it names; without ``cniVersion``, in that of the configuration.

    Raises:
        ConfigError: the configuration is no JSON object.
        PluginError: the plugin failed, was stopped or cannot be started.
        InvalidOutputError: the plugin printed no result.
    """
    invocation, outcome = _run(plugin_path, netconf, args, executor, timeout, env)
    version = jsontext.parse(invocation.stdin.decode()).get("cniVersion")
    try:
        return read_result(outcome.stdout, version if isinstance(version, str) and version else DEFAULT_VERSION)
    except ResultProblem as error:
        raise InvalidOutputError(str(error), invocation, outcome) from error


def exec_plugin_without_result(  # noqa: PLR0913 - the parts of a call
    plugin_path: str | os.PathLike[str],
    netconf: bytes | str | Mapping[str, Any],
    args: PluginArgs,
    *,
    executor: Executor | None = None,
    timeout: float | None = 60.0,
    env: Mapping[str, str] | None = None,
) -> None:
    """Run a plugin by its path, for a verb without a result. Parameters and errors as ``exec_plugin_with_result``."""
    _run(plugin_path, netconf, args, executor, timeout, env)


def _run(  # noqa: PLR0913, PLR0917 - the parts of a call
    plugin_path: str | os.PathLike[str],
    netconf: bytes | str | Mapping[str, Any],
    args: PluginArgs,
    executor: Executor | None,
    timeout: float | None,
    env: Mapping[str, str] | None,
) -> tuple[Invocation, Outcome]:
    path = os.fspath(plugin_path)
    text, network = _document(netconf)
    rest = {name: value for name, value in (os.environ if env is None else env).items() if not name.startswith("CNI_")}
    invocation = Invocation(
        args.command, os.path.basename(path), path, text.encode(), args.env(),
        network, args.container_id, args.ifname,
    )  # fmt: skip
    outcome = (executor or ProcessExecutor()).execute(invocation, CallOptions(timeout, rest))
    if outcome.exit_status != 0:
        raise plugin_error(invocation, outcome)
    return invocation, outcome


def _document(netconf: bytes | str | Mapping[str, Any]) -> tuple[str, str]:
    """Return a configuration as text, and the network's name or "". As in Go, no key is required."""
    try:
        text = jsontext.dumps(dict(netconf)) if isinstance(netconf, Mapping) else jsontext.decode_utf8(netconf)
        name = jsontext.last_members(jsontext.check_size(text)).get("name")
    except JSONTextError as error:
        raise ConfigError(error.problem, location=error.location, hint=error.hint) from error
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"the document has no JSON form: {error}") from error
    return text, name.value if name is not None and isinstance(name.value, str) else ""
