"""Check the configuration directory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial

from libcni.config.distribution_directories import other_conf_dirs
from libcni.config.network import NetworkConfigList
from libcni.diagnosis.disk import writable_by_others
from libcni.diagnosis.node_state import NodeState
from libcni.diagnosis.obstacles import missing_files
from libcni.diagnosis.refused_values import refused_values
from libcni.diagnosis.report import Checked, NodeFinding, Observations
from libcni.errors import ConfigError, Hint, counted

_error = partial(NodeFinding, "configuration", "error")


def check_configuration(node: NodeState) -> Observations:
    """Find unusable configuration files."""
    path, configurations = node.cni.conf_dir, node.directory
    if configurations is None or not os.path.isdir(path):
        seen = "it is not a directory" if os.path.lexists(path) else "there is no such directory"
        others = other_conf_dirs(path)
        remedy = (
            f"configurations may be in {others}: choose one with --conf-dir"
            if others
            else "create the directory, and put a .conflist file there"
        )
        if os.path.isdir(path):
            seen, remedy = "it cannot be read", "run as root"
        yield _error("no-configuration", path, seen, "no network can be used", remedy)
        return
    if not configurations.networks:
        seen, remedy = "no usable network configuration", "put a .conflist file there"
        yield _error("no-configuration", path, seen, "no container can be attached", remedy)
    unusable = f" and {counted(len(configurations.problems), 'unusable file')}" if configurations.problems else ""
    yield Checked("configuration", f"{counted(len(configurations.networks), 'network')}{unusable} in {path}")
    yield from writable_by_others("configuration", path)
    for name in sorted(
        filter(None, (*(net.file for net in configurations.networks), *(one.file for one in configurations.problems)))
    ):
        yield from writable_by_others("configuration", name)
    for problem in configurations.problems:
        seen = f"{problem.location}: {problem.problem}" if problem.location else problem.problem
        # Name both files if two have one network name: each of them is in order by itself.
        remedy, meaning = _remedy(problem, path), "the network of this file cannot be used"
        if problem.file and problem.file == node.blocking_file:
            meaning += "; containerd reads this file first, and no new pod starts: cni plugin not initialized"
            if node.networks:
                net = node.next_network
                meaning += f". CRI-O skips it and attaches pods to {net.name} of {os.path.basename(net.file or '?')}"
        yield _error("unusable-file", problem.file or path, seen, meaning, remedy)
    for net in configurations.networks:
        yield from _refused(node, net)
        for path in missing_files(net):
            yield _error(
                "file-missing", path, f"it does not exist, but the plugins of {net.name} ({net.file}) read it",
                "no container can be attached to it",
                "the plugin's daemon on this node writes the file: restart the daemon, and read its log",
            )  # fmt: skip


def _refused(node: NodeState, net: NetworkConfigList) -> Iterator[NodeFinding]:
    for location, problem in refused_values(net, node.versions_of):
        yield _error(
            "unusable-file", net.file or net.name, f"{location}: {problem}",
            f"the plugin or the kernel refuses this value, so no container can be attached to {net.name}",
            "correct the value",
        )  # fmt: skip


def _remedy(problem: ConfigError, conf_dir: str) -> str:
    hint = Hint(
        f"{problem.hint or 'correct the file, or move it elsewhere'}; then", "networks", options=("--validate",)
    )
    hint.client = {"conf_dir": conf_dir}
    return str(hint)
