"""libcni networks: list the networks of the configuration directory."""

from __future__ import annotations

import os

import libcni
from libcni.cli.failures import message_of
from libcni.cli.options import Quiet
from libcni.cli.render import Table
from libcni.cli.session import Session


def networks(session: Session, quiet: Quiet = False) -> None:
    """List the configured networks and unusable files.

    The networks are in load order. The first is the default: runtimes use it if a container asks for none.
    Drop-in plugins are marked with +.
    """
    found = libcni.read_config_directory(session.conf_dir)
    if quiet:
        for net in found.networks:
            print(net.name)
        return
    rows = []
    for index, net in enumerate(found.networks):
        plugins = ", ".join(f"+{one.type}" if one.source else one.type for one in net.plugins)
        rows.append([net.name, net.cni_version, plugins, _name(net.file, session), "" if index else "default"])
    problems = [[_name(error.file, session), str(error).removeprefix(f"{error.file}: ")] for error in found.problems]
    problems += [[_name(net.file, session), f"warning: {text}"] for net in found.networks for text in net.warnings]
    columns = ("network", "version", "plugins", "file", "")
    data = {
        "directory": found.directory,
        "default": found.networks[0].name if found.networks else None,
        "networks": [
            {
                "name": net.name,
                "version": net.cni_version,
                "file": net.file,
                "plugins": [{"type": one.type, "drop_in": one.source} for one in net.plugins],
                "warnings": list(net.warnings),
            }
            for net in found.networks
        ],
        "problems": [
            {"file": error.file, "place": error.location, "problem": message_of(error)} for error in found.problems
        ],
    }
    empty = f"no networks in {session.conf_dir}"
    if not os.path.isdir(session.conf_dir):
        empty += ": it is not a directory" if os.path.lexists(session.conf_dir) else ": there is no such directory"
    session.show(
        data,
        Table(columns, rows, empty=empty),
        *([Table(("file", "problem"), problems, "\nproblems:")] if problems else []),
    )


def _name(file: str | None, session: Session) -> str:
    """Return a file's path in the configuration directory: a drop-in has its network's directory before its name."""
    return os.path.relpath(file, session.conf_dir) if file else ""
