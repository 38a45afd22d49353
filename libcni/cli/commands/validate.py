"""libcni validate: check that networks can be used."""

from __future__ import annotations

from typing import Annotated

import libcni
from libcni.cli.failures import error_data, exit_code, message_of
from libcni.cli.hints import hint_of
from libcni.cli.inputs import network_of
from libcni.cli.options import Argument, complete_network
from libcni.cli.render import Table
from libcni.cli.session import Session

_SECONDS = 5.0


def validate(
    session: Session,
    networks: Annotated[
        list[str] | None,
        Argument(metavar="NETWORK", help="Names or paths; all of the directory.", autocompletion=complete_network),
    ] = None,
) -> None:
    """Check that networks can be used.

    Reads the configurations, finds the plugins and asks them for their versions. Attaches nothing.
    """
    cni = session.client()
    checked = [_of(cni, name) for name in networks] if networks else _of_directory(cni)
    rows: list[list[str]] = []
    for name, errors in checked:
        rows += [[name, "failed", _text(session, name, one)] for one in errors] or [[name, "ok", ""]]
    data = [
        {"network": name, "ok": not errors, "problems": [error_data(one, session) for one in errors]}
        for name, errors in checked
    ]
    session.show(data, Table(("network", "state", "problem"), rows, empty=f"no networks in {session.conf_dir}"))
    errors = [error for _, found in checked for error in found]
    if errors:
        raise SystemExit(exit_code(libcni.CNIErrorGroup("validate", errors)))


def _text(session: Session, name: str, error: libcni.CNIError) -> str:
    # The first column has the file.
    text = message_of(error).removeprefix(f"{name}: ")
    return f"{text} ({hint})" if (hint := session.hint(hint_of(error))) else text


_Checked = tuple[str, list[libcni.CNIError]]


def _of_directory(cni: libcni.CNIConfig) -> list[_Checked]:
    found = libcni.read_config_directory(cni.conf_dir)
    checked = [(net.name, _problems(cni, net)) for net in found.networks]
    broken: list[_Checked] = [(error.file or "", [error]) for error in found.problems]
    return [*checked, *broken]


def _of(cni: libcni.CNIConfig, name: str) -> _Checked:
    try:
        net = network_of(name)
        net = cni.network(net) if isinstance(net, str) else net
    except libcni.CNIError as error:
        return name, [error]
    return net.name, _problems(cni, net)


def _problems(cni: libcni.CNIConfig, net: libcni.NetworkConfigList) -> list[libcni.CNIError]:
    found = list(cni.validate_network_list(net, timeout=_SECONDS).problems)
    # Only the plugin calls its IPAM plugin, so validate_network_list does not see it.
    for name in dict.fromkeys(one.ipam_type for one in net.plugins if one.ipam_type):
        try:
            versions = cni.get_version_info(name, timeout=_SECONDS).supported_versions
        except libcni.CNIError as error:
            found.append(error)
            continue
        if net.cni_version not in versions:
            text = f'IPAM plugin "{name}" does not support version "{net.cni_version}"'
            found.append(libcni.VersionError(text, hint=f"it supports {', '.join(versions)}"))
    return found
