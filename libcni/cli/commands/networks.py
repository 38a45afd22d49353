"""libcni networks: list the networks of the configuration directory, and check that they can be used."""

from __future__ import annotations

import os

import libcni
from libcni.cli.failures import error_data, exit_code, in_one_line
from libcni.cli.inputs import network_of
from libcni.cli.options import NETWORK, Argument
from libcni.cli.render import Table
from libcni.cli.session import Session
from libcni.diagnosis import ask_plugins

ARGUMENTS = (
    Argument("--validate", nargs="*", metavar="NETWORK", complete=NETWORK.complete,
        help="Check that these networks, or all, can be used: names, or paths to configurations."),
)  # fmt: skip

_Problem = tuple[str, libcni.CNIError]
"""The name of a network or file, and what is wrong with it."""


def networks(session: Session, validate: list[str] | None) -> None:
    """List the configured networks and unusable files.

    The networks are in load order. The first is the default: runtimes use it if a container asks for none. Drop-in
    plugins are marked with +.

    --validate reads the configurations, finds the plugins and asks them for their spec versions. It attaches nothing.

    Example:
      libcni networks --validate front
    """
    directory = libcni.read_config_directory(session.conf_dir)
    nets = list(directory.networks)
    problems: list[_Problem] = [(_name(error.file, session), error) for error in directory.problems]
    default = nets[0].name if nets else None
    if validate:
        nets, problems = _named(session, validate)
    versions: dict[str, tuple[str, ...]] = {}
    if validate is not None:
        cni = session.client()
        for net in nets:
            answers = ask_plugins(cni, net)
            versions |= {answer.path: answer.supported_versions for answer in answers if answer.supported_versions}
            problems += [(net.name, answer.problem) for answer in answers if answer.problem is not None]
            if not net.plugins:
                problem = "the network has no plugins: add at least one to its list"
                problems.append((net.name, libcni.ConfigError(problem, file=net.file)))
    rows = [
        [
            net.name, net.cni_version,
            ", ".join(f"+{plugin.type}" if plugin.source else plugin.type for plugin in net.plugins),
            _name(net.file, session), "default" if net.name == default else "",
        ]
        for net in nets
    ]  # fmt: skip
    texts = [[name, _text(session, name, error)] for name, error in problems]
    texts += [[_name(net.file, session), f"warning: {text}"] for net in nets for text in net.warnings]
    data = {
        "directory": directory.directory,
        "default": default,
        "networks": [
            {
                "name": net.name,
                "version": net.cni_version,
                "file": net.file,
                "plugins": [{"type": plugin.type, "drop_in": plugin.source} for plugin in net.plugins],
                "warnings": list(net.warnings),
            }
            for net in nets
        ],
        "problems": [{"of": name, **error_data(error, session)} for name, error in problems],
        "plugins": [{"path": path, "versions": list(known)} for path, known in versions.items()],
    }
    session.show(
        data,
        Table(("network", "version", "plugins", "file", ""), rows, empty="" if validate else _none(session)),
        Table(("network or file", "problem"), texts, "\nproblems:" if rows else "problems:"),
        Table(
            ("plugin", "versions"), [[path, ", ".join(supported)] for path, supported in versions.items()], "\nplugins:"
        ),
    )
    if validate is not None and problems:
        raise SystemExit(exit_code(libcni.CNIErrorGroup("validate", [error for _, error in problems])))


def _named(session: Session, names: list[str]) -> tuple[list[libcni.NetworkConfigList], list[_Problem]]:
    """Return the networks with these names or paths, and a problem for each name or path that cannot be read."""
    nets: list[libcni.NetworkConfigList] = []
    problems: list[_Problem] = []
    for name in names:
        try:
            net = network_of(name)
            nets.append(session.client().network(net) if isinstance(net, str) else net)
        except libcni.CNIError as error:
            problems.append((name, error))
    return nets, problems


def _none(session: Session) -> str:
    empty = f"no networks in {session.conf_dir}"
    if os.path.isdir(session.conf_dir):
        return empty
    return empty + (": it is not a directory" if os.path.lexists(session.conf_dir) else ": there is no such directory")


def _name(file: str | None, session: Session) -> str:
    """Return a file's path in the configuration directory: a drop-in has its network's directory before its name."""
    return os.path.relpath(file, session.conf_dir) if file else ""


def _text(session: Session, name: str, error: libcni.CNIError) -> str:
    # The first column has the file.
    return in_one_line(error, session).removeprefix(f"{getattr(error, 'file', None) or name}: ")
