"""libcni exec: call one plugin once, for authors of plugins."""

from __future__ import annotations

import json
import os
import sys

import libcni
import libcni.executor
from libcni.cli.completion import plugins
from libcni.cli.inputs import read_bytes
from libcni.cli.options import CNI_ARGS, IFNAME, Argument
from libcni.cli.render import ended_by
from libcni.cli.session import Session

_VERBS = ("ADD", "CHECK", "DEL", "GC", "STATUS", "VERSION")
ARGUMENTS = (
    Argument("plugin", metavar="PLUGIN", complete=plugins, help="A plugin type, or the path of an executable."),
    Argument("verb", metavar="VERB", complete=lambda *_: _VERBS, help=f"{', '.join(_VERBS)}, or any other."),
    Argument("--config", default="", metavar="FILE",
        help="The plugin's stdin, byte for byte; -: this program's stdin. Default: a minimal configuration."),
    Argument("--container", "-c", default="", metavar="ID", help="CNI_CONTAINERID."),
    Argument("--netns", default="", metavar="PATH", help="CNI_NETNS."),
    IFNAME, CNI_ARGS,
)  # fmt: skip


def execute(  # noqa: PLR0913, PLR0917 - the options of the command
    session: Session, plugin: str, verb: str, config: str, container: str, netns: str, ifname: str, args: str
) -> None:
    """Call one plugin once, raw.

    The plugin gets exactly the given stdin. Its output is printed. Nothing is recorded or locked.

    Example:
      libcni exec bridge VERSION
    """
    name = os.path.basename(plugin)
    known = verb.upper() if verb.upper() in _VERBS else verb
    env = {
        "CNI_COMMAND": known,
        "CNI_CONTAINERID": container,
        "CNI_NETNS": netns,
        "CNI_IFNAME": ifname,
        "CNI_ARGS": args,
        "CNI_PATH": session.path,
    }
    # find_plugin refuses paths, so that a configuration cannot name any program. Here a person names it.
    path = os.path.abspath(plugin) if "/" in plugin else session.client().find_plugin(plugin)
    minimal = {"cniVersion": libcni.CURRENT_VERSION, "name": "exec", "type": name}
    stdin = read_bytes(config) if config else json.dumps(minimal).encode()
    # This program's own CNI_* variables must not reach the plugin: it would see a mixture of two calls.
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("CNI_")}
    limits = libcni.executor.CallOptions(session.timeout or None, inherited)
    outcome = libcni.executor.ProcessExecutor().execute(libcni.Invocation(known, name, path, stdin, env), limits)
    _show(session, outcome)
    if outcome.exit_status != 0:
        raise SystemExit(1)


def _show(session: Session, outcome: libcni.Outcome) -> None:
    stdout, stderr = (text.decode(errors="backslashreplace") for text in (outcome.stdout, outcome.stderr))
    if session.output != "text":
        ended = {"exit_status": outcome.exit_status, "signal": outcome.signal, "seconds": round(outcome.seconds, 6)}
        session.show({**ended, "stdout": stdout, "stderr": stderr})
        return
    sys.stdout.write(stdout)
    sys.stderr.write(stderr)
    if session.verbose or outcome.exit_status != 0:
        sys.stdout.flush()
        newline = "" if stdout.endswith("\n") or not stdout else "\n"
        sys.stderr.write(f"{newline}{ended_by(outcome)} after {outcome.seconds:.3f} s\n")
