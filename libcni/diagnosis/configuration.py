"""Check the configuration directory."""

from __future__ import annotations

import os
from functools import partial

from libcni.config.node_directories import other_conf_dirs
from libcni.diagnosis.disk import writable_by_others
from libcni.diagnosis.node_state import NodeState
from libcni.diagnosis.report import Checked, NodeFinding, Observations, counted
from libcni.errors import ConfigError, Hint

_error = partial(NodeFinding, "configuration", "error")


def check_configuration(node: NodeState) -> Observations:
    """Find unusable configuration files, and keys without effect."""
    path = node.cni.conf_dir
    if not os.path.isdir(path):
        seen = "it is not a directory" if os.path.lexists(path) else "there is no such directory"
        others = other_conf_dirs(path)
        remedy = (
            f"this node has {others}: name one (--conf-dir)" if others else "make it, and put a .conflist file there"
        )
        yield _error("no-configuration", path, seen, "no network can be used", remedy)
        return
    if node.directory is None:
        yield _error("no-configuration", path, "it cannot be read", "no network can be used", "run as root")
        return
    found = node.directory
    if not found.networks:
        yield _error(
            "no-configuration",
            path,
            "no usable network configuration",
            "no container can be attached",
            "put a .conflist file there",
        )
    unusable = f" and {counted(len(found.problems), 'unusable file')}" if found.problems else ""
    yield Checked("configuration", f"{counted(len(found.networks), 'network')}{unusable} in {path}")
    yield from writable_by_others("configuration", path)
    for problem in found.problems:
        seen = f"{problem.location}: {problem.problem}" if problem.location else problem.problem
        yield _error(
            "unusable-file", problem.file or path, seen, "its network cannot be used",
            # Name both files if two have one network name: each of them is in order by itself.
            _remedy(problem, path),
        )  # fmt: skip
    for net in found.networks:
        for text in net.warnings:
            file = net.file or net.name
            yield NodeFinding(
                "configuration",
                "warning",
                "ignored-key",
                file,
                text,
                "the key has no effect",
                "remove it from the file",
            )


def _remedy(problem: ConfigError, conf_dir: str) -> str:
    hint = Hint(f"{problem.hint or 'correct the file, or move it elsewhere'}; then", "networks", options=("--check",))
    hint.client = {"conf_dir": conf_dir}
    return str(hint)
