"""Check the configuration directory."""

from __future__ import annotations

import os
from functools import partial

from libcni.diagnosis.disk import writable_by_others
from libcni.diagnosis.reading import Reading
from libcni.diagnosis.report import Checked, NodeFinding, Observations, counted, quoted

_error = partial(NodeFinding, "configuration", "error")


def check_configuration(node: Reading) -> Observations:
    """Find configuration files that cannot be used, and keys without effect."""
    path = node.cni.conf_dir
    if not os.path.isdir(path):
        seen = "it is not a directory" if os.path.lexists(path) else "there is no such directory"
        commands = (f"mkdir -p {quoted(path)}",) if not os.path.lexists(path) else ()
        yield _error(path, seen, "no network can be used", "put a .conflist file there", commands)
        return
    if node.directory is None:
        yield _error(path, "it cannot be read", "no network can be used", "run as root")
        return
    found = node.directory
    if not found.networks:
        yield _error(
            path, "no usable network configuration", "no container can be attached", "put a .conflist file there"
        )
    unusable = f" and {counted(len(found.problems), 'unusable file')}" if found.problems else ""
    yield Checked("configuration", f"{counted(len(found.networks), 'network')}{unusable} in {path}")
    yield from writable_by_others("configuration", path)
    for problem in found.problems:
        seen = f"{problem.location}: {problem.problem}" if problem.location else problem.problem
        yield _error(
            problem.file or path, seen, "its network cannot be used",
            problem.hint or "correct the file, or move it elsewhere; then:",
            # Not of the file alone: a second file of a network's name is in order by itself.
            ("libcni networks --check",),
        )  # fmt: skip
    for net in found.networks:
        for text in net.warnings:
            file = net.file or net.name
            yield NodeFinding(
                "configuration", "warning", file, text, "the key has no effect", "remove it from the file"
            )
