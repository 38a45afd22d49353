"""libcni versions: list the spec versions that each plugin supports."""

from __future__ import annotations

import os
from typing import Annotated, Any

import libcni
from libcni.cli.failures import exit_code, message_of
from libcni.cli.options import Argument, Option
from libcni.cli.render import Table
from libcni.cli.session import Session


def versions(
    session: Session,
    plugins: Annotated[list[str] | None, Argument(metavar="PLUGIN", help="The types of the plugins to ask.")] = None,
    everything: Annotated[bool, Option("--all", help="Ask every executable in the plugin directories.")] = False,
) -> None:
    """Ask plugins for their spec versions.

    Without PLUGIN: the plugins of the configured networks.
    """
    cni = session.client()
    wanted = plugins or (_installed(cni) if everything else [])
    if not plugins and not everything:
        every = [one for net in cni.networks() for one in net.plugins]
        wanted = list(dict.fromkeys(name for one in every for name in (one.type, one.ipam_type) if name))
    errors: list[libcni.CNIError] = []
    asked = [_ask(cni, plugin, errors) for plugin in wanted]
    rows = [[one["plugin"], ", ".join(one["versions"]) or f"error: {one['problem']}", one["path"]] for one in asked]
    hint = "no networks are configured; name plugins, or use --all" if not everything else "no plugins are installed"
    session.show(asked, Table(("plugin", "versions", "executable"), rows, empty=hint))
    if errors:
        raise SystemExit(exit_code(libcni.CNIErrorGroup("versions", errors)))


def _installed(cni: libcni.CNIConfig) -> list[str]:
    names: set[str] = set()
    for directory in cni.path:
        if os.path.isdir(directory):
            names |= {entry.name for entry in os.scandir(directory) if entry.is_file() and os.access(entry, os.X_OK)}
    return sorted(names)


def _ask(cni: libcni.CNIConfig, plugin: str, errors: list[libcni.CNIError]) -> dict[str, Any]:
    answer: dict[str, Any] = {"plugin": plugin, "path": "", "versions": [], "problem": ""}
    try:
        answer["path"] = cni.find_plugin(plugin)
        answer["versions"] = list(cni.get_version_info(plugin).supported_versions)
    except libcni.CNIError as error:
        errors.append(error)
        answer["problem"] = message_of(error)
        if isinstance(error, libcni.PluginError):
            answer["problem"] += f": {error.msg or error.problem}"
        elif any(net.name == plugin for net in libcni.read_config_directory(cni.conf_dir).networks):
            answer["problem"] += f"; {plugin} is a network: libcni validate {plugin} asks its plugins"
    return answer
