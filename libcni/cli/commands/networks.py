"""libcni networks: list the networks of the configuration directory, and check that they can be used."""

from __future__ import annotations

import os

import libcni
from libcni.cli.check_networks import check_networks, no_networks
from libcni.cli.failures import message_of
from libcni.cli.options import NETWORK, Argument
from libcni.cli.render import Table
from libcni.cli.session import Session

ARGUMENTS = (
    Argument("--check", nargs="*", metavar="NETWORK", complete=NETWORK.complete,
        help="Check that these networks, or all, can be used: names, or paths to configurations."),
)  # fmt: skip


def networks(session: Session, check: list[str] | None) -> None:
    """List the configured networks and unusable files.

    The networks are in load order. The first is the default: runtimes use it if a container asks for none. Drop-in
    plugins are marked with +.

    --check reads the configurations, finds the plugins and asks them for their spec versions. It attaches nothing.

    Example:
      libcni networks --check front
    """
    if check is not None:
        check_networks(session, check)
        return
    directory = libcni.read_config_directory(session.conf_dir)
    rows = []
    for index, net in enumerate(directory.networks):
        plugins = ", ".join(f"+{plugin.type}" if plugin.source else plugin.type for plugin in net.plugins)
        rows.append([net.name, net.cni_version, plugins, _name(net.file, session), "" if index else "default"])
    problems = [
        [_name(error.file, session), str(error).removeprefix(f"{error.file}: ")] for error in directory.problems
    ]
    problems += [[_name(net.file, session), f"warning: {text}"] for net in directory.networks for text in net.warnings]
    columns = ("network", "version", "plugins", "file", "")
    data = {
        "directory": directory.directory,
        "default": directory.networks[0].name if directory.networks else None,
        "networks": [
            {
                "name": net.name,
                "version": net.cni_version,
                "file": net.file,
                "plugins": [{"type": plugin.type, "drop_in": plugin.source} for plugin in net.plugins],
                "warnings": list(net.warnings),
            }
            for net in directory.networks
        ],
        "problems": [
            {"file": error.file, "place": error.location, "problem": message_of(error)} for error in directory.problems
        ],
    }
    session.show(
        data,
        Table(columns, rows, empty=no_networks(session)),
        *([Table(("file", "problem"), problems, "\nproblems:")] if problems else []),
    )


def _name(file: str | None, session: Session) -> str:
    """Return a file's path in the configuration directory: a drop-in has its network's directory before its name."""
    return os.path.relpath(file, session.conf_dir) if file else ""
