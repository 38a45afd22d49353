"""libcni networks: list the networks of the configuration directory, and check that they can be used."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import libcni
from libcni.cli.failures import CONFIGURATION, error_data, exit_code, in_one_line
from libcni.cli.inputs import network_of
from libcni.cli.options import NETWORK, Argument
from libcni.cli.render import Table
from libcni.cli.session import Session
from libcni.diagnosis import ask_plugins
from libcni.diagnosis.refused_values import refused_values

ARGUMENTS = (
    Argument("--validate", nargs="*", metavar="NETWORK", complete=NETWORK.complete,
        help="Check that networks can be used: those with these names or paths, or all."),
)  # fmt: skip


class Found(NamedTuple):
    """Configured networks.

    Attributes:
        networks: the networks.
        problems: what is wrong, with the name of the network or file.
        versions: the spec versions of each plugin that was asked, by path.
    """

    networks: tuple[libcni.NetworkConfigList, ...]
    problems: tuple[tuple[str, libcni.CNIError], ...] = ()
    versions: Mapping[str, tuple[str, ...]] = {}


def networks(session: Session, validate: list[str] | None) -> None:
    """List the configured networks, and files that cannot be used.

    The networks are in load order. The first is the default: runtimes use it if a container asks for none. Drop-in
    plugins are marked with +.

    --validate reads the configurations, checks the values of the CNI project's plugins, finds the plugins and asks them
    for their spec versions. It attaches nothing.

    Example:
      libcni networks --validate front
    """
    directory = libcni.read_config_directory(session.conf_dir)
    default = next((net.name for net in directory.networks), None)
    if validate:
        found = named(session, validate)
    else:
        problems = tuple((_name(error.file, session), error) for error in directory.problems)
        found = Found(directory.networks, problems)
    if validate is not None:
        found = validated(session.client(), found)
    tables = _tables(session, found, default, empty="" if validate else _none(session))
    session.show({"directory": directory.directory, "default": default, **_data(session, found)}, *tables)
    if not validate and not os.path.isdir(session.conf_dir):
        raise SystemExit(CONFIGURATION)
    if validate is not None and found.problems:
        raise SystemExit(exit_code(libcni.CNIErrorGroup("validate", [error for _, error in found.problems])))


def named(session: Session, names: list[str]) -> Found:
    """Return the networks with these names or paths, and a problem for each name or path that cannot be read."""
    nets: list[libcni.NetworkConfigList] = []
    problems: list[tuple[str, libcni.CNIError]] = []
    for name in names:
        try:
            net = network_of(name)
            nets.append(session.client().network(net) if isinstance(net, str) else net)
        except libcni.CNIError as error:
            problems.append((name, error))
    return Found(tuple(nets), tuple(problems))


def validated(cni: libcni.CNIConfig, found: Found) -> Found:
    """Check the values of the found networks, and ask their plugins for versions; return ``found`` with the answers."""
    problems, versions = [*found.problems], {**found.versions}
    for net in found.networks:
        answers = ask_plugins(cni, net)
        problems += _refused(net, {answer.plugin: answer.supported_versions for answer in answers})
        for answer in answers:
            if answer.supported_versions:
                versions[answer.path] = answer.supported_versions
            if answer.problem is not None:
                problems.append((net.name, answer.problem))
    return Found(found.networks, tuple(problems), versions)


def _refused(
    net: libcni.NetworkConfigList, versions: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[str, libcni.CNIError]]:
    for location, problem in refused_values(net, lambda plugin: versions.get(plugin, ())):
        yield net.name, libcni.ConfigError(problem, file=net.file, location=location)


def _data(session: Session, found: Found) -> dict[str, Any]:
    return {
        "networks": [
            {
                "name": net.name,
                "version": net.cni_version,
                "file": net.file,
                "plugins": [{"type": plugin.type, "drop_in": plugin.source} for plugin in net.plugins],
                "warnings": list(net.warnings),
            }
            for net in found.networks
        ],
        "problems": [{"of": name, **error_data(error, session)} for name, error in found.problems],
        "plugins": [{"path": path, "versions": list(versions)} for path, versions in found.versions.items()],
    }


def _tables(session: Session, found: Found, default: str | None, empty: str) -> Iterator[Table]:
    rows = [
        [
            net.name, net.cni_version,
            ", ".join(f"+{plugin.type}" if plugin.source else plugin.type for plugin in net.plugins),
            _name(net.file, session), "default" if net.name == default else "",
        ]
        for net in found.networks
    ]  # fmt: skip
    yield Table(("network", "version", "plugins", "file", ""), rows, empty=empty)
    problems = [[name, _text(session, name, error)] for name, error in found.problems]
    problems += [[_name(net.file, session), f"warning: {text}"] for net in found.networks for text in net.warnings]
    yield Table(("network or file", "problem"), problems, "\nproblems:" if rows else "problems:")
    versions = [[path, ", ".join(versions)] for path, versions in found.versions.items()]
    yield Table(("plugin", "versions"), versions, "\nplugins:")


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
