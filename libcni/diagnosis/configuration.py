"""Check the configuration directory."""

from __future__ import annotations

import os
import shlex

from libcni.diagnosis.disk import writable_by_others
from libcni.diagnosis.node_view import NodeView
from libcni.diagnosis.report import Checked, NodeFinding, Observations
from libcni.errors import ConfigError

__all__ = ["check_configuration"]


def check_configuration(node: NodeView) -> Observations:
    """Find configuration files that cannot be used, and keys without effect."""
    path = node.cni.conf_dir
    if not os.path.isdir(path):
        seen = "it is not a directory" if os.path.lexists(path) else "there is no such directory"
        commands = (f"mkdir -p {shlex.quote(path)}",) if not os.path.lexists(path) else ()
        yield NodeFinding(
            "configuration", "error", path, seen, "no network can be used", "put a .conflist file there", commands
        )
        return
    if node.directory is None:
        yield NodeFinding(
            "configuration", "error", path, "it cannot be read", "no network can be used", "run as root",
        )  # fmt: skip
        return
    found = node.directory
    if not found.networks:
        yield NodeFinding(
            "configuration", "error", path, "no usable network configuration", "no container can be attached",
            "put a .conflist file there",
        )  # fmt: skip
    yield Checked("configuration", f"{len(found.networks) + len(found.problems)} networks in {path}")
    yield from writable_by_others("configuration", path)
    for problem in found.problems:
        yield NodeFinding(
            "configuration", "error", problem.file or path, _without_file(problem), "its network cannot be used",
            problem.hint or "correct the file, or move it elsewhere; then:",
            (shlex.join(["libcni", "validate", problem.file]),) if problem.file else (),
        )  # fmt: skip
    for net in found.networks:
        for text in net.warnings:
            file = net.file or net.name
            yield NodeFinding(
                "configuration", "warning", file, text, "the key has no effect", "remove it from the file"
            )


def _without_file(error: ConfigError) -> str:
    return f"{error.location}: {error.problem}" if error.location else error.problem
