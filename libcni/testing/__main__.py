"""The command line of ``python -m libcni.testing``, for authors without Python tests."""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from libcni._defaults import PLUGIN_PATH
from libcni.config.versions import ALL_VERSIONS
from libcni.testing.conformance import GROUPS, check_plugin
from libcni.testing.fakes import FakePlugins
from libcni.testing.namespaces import network_namespace

_FAKES = ("fake", "fake-bridge", "fake-ipam", "fake-portmap", "fake-tuning")


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return the exit status: 1 if a check fails, 2 for a wrong argument."""
    parser = argparse.ArgumentParser(prog="python -m libcni.testing", description="Test CNI plugins and runtimes.")
    commands = parser.add_subparsers(required=True)
    about = "Write fake plugins, their state and a log of their calls to a directory, which you can use as CNI_PATH."
    command = commands.add_parser("fakes", help=about, description=about)
    command.add_argument("directory")
    command.add_argument("names", nargs="*", metavar="NAME[=KIND]", help=f"the plugins (default: {' '.join(_FAKES)})")
    command.set_defaults(run=_write_fakes)
    about = "Compare a plugin's answers, and what it leaves behind, with the specification."
    command = commands.add_parser("check", help=about, description=about)
    command.add_argument("plugin", help="the path of the executable")
    command.add_argument("config", help="a configuration with which its ADD succeeds: a JSON file, or the JSON text")
    command.add_argument(
        "--namespace",
        action="store_true",
        help="give it a namespace (chained: one per version, with the interfaces of --prev-result); needs root",
    )
    command.add_argument("--ipam", action="store_true", help="the plugin is an IPAM plugin")
    command.add_argument("--prev-result", metavar="JSON", help="the previous plugin's result: a file, or the JSON text")
    path = os.environ.get("CNI_PATH", PLUGIN_PATH)
    command.add_argument("--path", default=path, help="CNI_PATH (%(default)s)")
    command.add_argument("--args", default="", help="CNI_ARGS")
    command.add_argument("--versions", nargs="+", default=ALL_VERSIONS, metavar="VERSION", help="check only these")
    command.add_argument("--only", nargs="+", default=GROUPS, metavar="GROUP", help=f"run only {', '.join(GROUPS)}")
    command.add_argument(
        "--known", nargs="+", action="extend", default=[], metavar="CHECK=REASON", help="a check that is known to fail"
    )
    command.set_defaults(run=_check)
    options = parser.parse_args(arguments)
    try:
        return int(options.run(options))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 2


def _write_fakes(options: argparse.Namespace) -> int:
    directory = Path(options.directory).absolute()
    directory.mkdir(parents=True, exist_ok=True)
    for word in options.names or _FAKES:
        name, _, kind = word.partition("=")
        FakePlugins(directory).scenario(name, {"kind": kind} if kind else None)
    sys.stdout.write(f"CNI_PATH={directory}\nlog of calls: {directory}/.calls\n")
    return 0


def _check(options: argparse.Namespace) -> int:
    if unexplained := [word for word in options.known if not word.partition("=")[2]]:
        raise ValueError(f"--known needs CHECK=REASON, not {', '.join(unexplained)}")
    known = dict(word.partition("=")[::2] for word in options.known)
    given: dict[str, Any] = {
        "path": options.path, "ipam": options.ipam, "args": options.args, "versions": options.versions, "known": known,
        "only": options.only,
        "prev_result": _json("--prev-result", options.prev_result) if options.prev_result else None,
    }  # fmt: skip
    plugin, config = Path(options.plugin).absolute(), _json("CONFIG", options.config)
    if sys.stderr.isatty():
        sys.stderr.write(f"examining {plugin}, which takes up to a minute\n")
    with network_namespace() if options.namespace else nullcontext() as namespace:
        report = check_plugin(plugin, config, namespace=namespace, **given)
    sys.stdout.write(f"{report}\n")
    return 1 if report.failures else 0


def _json(argument: str, text: str) -> dict[str, Any]:
    """Return the object of an argument: a file, or JSON text."""
    try:
        document = json.loads(text if text.lstrip().startswith("{") else Path(text).read_bytes())
    except OSError as error:
        raise ValueError(f"{argument} is neither a JSON object nor a file: {text}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{argument} is not JSON: {text[:80]}: {error}") from error
    if not isinstance(document, dict):
        raise ValueError(f"{argument} must be a JSON object: {text[:80]}")  # noqa: TRY004 - one error for all wrong arguments
    return document


if __name__ == "__main__":
    sys.exit(main())
