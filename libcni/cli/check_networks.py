"""Implement networks --check: whether networks can be used, and the versions that their plugins support."""

from __future__ import annotations

import os
from typing import NamedTuple

import libcni
from libcni.cli.failures import cause_of, error_data, exit_code, message_of
from libcni.cli.inputs import network_of
from libcni.cli.render import Table
from libcni.cli.session import Session

_SECONDS = 5.0


class _Checked(NamedTuple):
    """A network that was checked, or a file with an unusable one.

    Attributes:
        name: the network's name, or the file's path.
        plugins: the executable and the supported versions of each plugin.
        errors: the problems that were found.
    """

    name: str
    plugins: dict[str, tuple[str, tuple[str, ...]]]
    errors: list[libcni.CNIError]


def check_networks(session: Session, names: list[str]) -> None:
    """Check the networks with these names or paths, or all of the directory, and print the answers."""
    cni = session.client()
    if names:
        checked = [_of(cni, name) for name in names]
    else:
        found = libcni.read_config_directory(cni.conf_dir)
        checked = [_of_network(cni, net) for net in found.networks]
        checked += [_Checked(error.file or "", {}, [error]) for error in found.problems]
    rows: list[list[str]] = []
    for one in checked:
        rows += [[one.name, "failed", _text(session, one.name, error)] for error in one.errors] or [
            [one.name, "ok", ""]
        ]
    plugins = {name: about for one in checked for name, about in one.plugins.items() if about[0]}
    data = [
        {
            "network": one.name,
            "ok": not one.errors,
            "plugins": [
                {"plugin": name, "path": path, "versions": list(versions)}
                for name, (path, versions) in one.plugins.items()
            ],
            "problems": [error_data(error, session) for error in one.errors],
        }
        for one in checked
    ]
    answers = [[name, ", ".join(versions), path] for name, (path, versions) in plugins.items()]
    session.show(
        data,
        Table(("network", "state", "problem"), rows, empty=no_networks(session)),
        *([Table(("plugin", "versions", "executable"), answers, "\nplugins:")] if answers else []),
    )
    errors = [error for one in checked for error in one.errors]
    if errors:
        raise SystemExit(exit_code(libcni.CNIErrorGroup("check", errors)))


def no_networks(session: Session) -> str:
    """Say that the directory of configurations has none, or does not exist."""
    empty = f"no networks in {session.conf_dir}"
    if os.path.isdir(session.conf_dir):
        return empty
    return empty + (": it is not a directory" if os.path.lexists(session.conf_dir) else ": there is no such directory")


def _text(session: Session, name: str, error: libcni.CNIError) -> str:
    # The first column has the file.
    text = message_of(error).removeprefix(f"{name}: ")
    more = cause_of(error) or session.command(error.hint or "")
    return f"{text} ({more})" if more else text


def _of(cni: libcni.CNIConfig, name: str) -> _Checked:
    try:
        net = network_of(name)
        return _of_network(cni, cni.network(net) if isinstance(net, str) else net)
    except libcni.CNIError as error:
        return _Checked(name, {}, [error])


def _of_network(cni: libcni.CNIConfig, net: libcni.NetworkConfigList) -> _Checked:
    report = cni.validate_network_list(net, timeout=_SECONDS)
    plugins = {one.plugin: (one.path, one.supported_versions) for one in report.plugins}
    errors = list(report.problems)
    # Only the plugin calls its IPAM plugin, so validate_network_list does not see it.
    for name in dict.fromkeys(one.ipam_type for one in net.plugins if one.ipam_type):
        try:
            versions = cni.get_version_info(name, timeout=_SECONDS).supported_versions
            plugins[name] = (cni.find_plugin(name), versions)
        except libcni.CNIError as error:
            errors.append(error)
            continue
        if net.cni_version not in versions:
            text = f'IPAM plugin "{name}" does not support version "{net.cni_version}"'
            errors.append(libcni.VersionError(text, hint=f"it supports {', '.join(versions)}"))
    return _Checked(net.name, plugins, errors)
