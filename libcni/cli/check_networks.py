"""Implement networks --check: whether networks can be used, and the versions that their plugins support."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import libcni
import libcni.reports
from libcni.cli.failures import cause_of, error_data, exit_code, hint_fields, message_of
from libcni.cli.inputs import network_of
from libcni.cli.render import Table
from libcni.cli.session import Session
from libcni.diagnosis import ask_plugins

_Checked = tuple[str, tuple[libcni.reports.PluginValidation, ...], list[libcni.CNIError]]
"""A network's name, or the path of a file with an unusable one; the answers of its plugins, and all problems."""


def check_networks(session: Session, names: list[str]) -> None:
    """Check the networks with these names or paths, or all of the directory, and print the answers."""
    cni = session.client()
    checked = list(_named(cni, names) if names else _configured(cni))
    rows: list[list[str]] = []
    for name, _, problems in checked:
        rows += [[name, "failed", _text(session, name, problem)] for problem in problems] or [[name, "ok", ""]]
    plugins = {answer.plugin: answer for _, answers, _ in checked for answer in answers if answer.supported_versions}
    versions = [[name, ", ".join(answer.supported_versions), answer.path] for name, answer in plugins.items()]
    session.show(
        [_data(session, one) for one in checked],
        Table(("network", "state", "problem"), rows, empty=no_networks(session)),
        *([Table(("plugin", "versions", "executable"), versions, "\nplugins:")] if versions else []),
    )
    if errors := [error for _, _, problems in checked for error in problems]:
        raise SystemExit(exit_code(libcni.CNIErrorGroup("check", errors)))


def no_networks(session: Session) -> str:
    """Return the sentence that the directory of configurations is empty, or does not exist."""
    empty = f"no networks in {session.conf_dir}"
    if os.path.isdir(session.conf_dir):
        return empty
    return empty + (": it is not a directory" if os.path.lexists(session.conf_dir) else ": there is no such directory")


def _named(cni: libcni.CNIConfig, names: list[str]) -> Iterator[_Checked]:
    for name in names:
        try:
            net = network_of(name)
            yield _of(cni, cni.network(net) if isinstance(net, str) else net)
        except libcni.CNIError as error:
            yield name, (), [error]


def _configured(cni: libcni.CNIConfig) -> Iterator[_Checked]:
    directory = libcni.read_config_directory(cni.conf_dir)
    yield from (_of(cni, net) for net in directory.networks)
    for error in directory.problems:
        yield error.file or "", (), [error]


def _of(cni: libcni.CNIConfig, net: libcni.NetworkConfigList) -> _Checked:
    answers = ask_plugins(cni, net)
    problems = [answer.problem for answer in answers if answer.problem is not None]
    if not net.plugins:
        problems.append(libcni.ConfigError("the network has no plugins: add at least one to its list", file=net.file))
    return net.name, answers, problems


def _text(session: Session, name: str, error: libcni.CNIError) -> str:
    # The first column has the file.
    text = message_of(error).removeprefix(f"{name}: ")
    more = cause_of(error) or ": ".join(hint_fields(error, session).values())
    return f"{text} ({more})" if more else text


def _data(session: Session, checked: _Checked) -> dict[str, Any]:
    name, answers, problems = checked
    return {
        "network": name,
        "ok": not problems,
        "plugins": [
            {"plugin": answer.plugin, "path": answer.path, "versions": list(answer.supported_versions)}
            for answer in answers
        ],
        "problems": [error_data(error, session) for error in problems],
    }
