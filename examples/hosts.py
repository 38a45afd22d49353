#!/usr/bin/env python3
"""A chained plugin: keep a hosts file with the addresses and names of a network's containers.

    {"type": "hosts", "file": "/run/dbnet.hosts", "capabilities": {"aliases": true}}

It stands anywhere behind the plugin that makes the interface, and passes that one's result on.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path

from libcni.plugin import ErrorCode, Plugin, Request, VerbError

LINES_GONE = 100
plugin = Plugin("hosts", versions=("0.4.0", "1.0.0", "1.1.0"), about="keep a hosts file of a network")


def _file(request: Request) -> Path:
    name = request.config.get("file")
    if not isinstance(name, str) or not name.startswith("/"):
        raise VerbError(f"file must be an absolute path, not {name!r}", code=ErrorCode.INVALID_NETWORK_CONFIG)
    return Path(name)


def _mark(request: Request, container_id: str, ifname: str) -> str:
    return f"# {request.name} {container_id} {ifname}"


def _lines(request: Request) -> list[str]:
    if request.prev_result is None:
        raise VerbError("hosts must stand behind another plugin", code=ErrorCode.INVALID_NETWORK_CONFIG)
    names = " ".join(request.runtime_config.aliases or (request.container_id,))
    mark = _mark(request, request.container_id, request.ifname)
    return [f"{ip['address'].partition('/')[0]} {names} {mark}" for ip in request.prev_result.ips]


def _rewrite(path: Path, change: Callable[[list[str]], list[str]]) -> None:
    with path.open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        lines = change(file.read().splitlines())
        file.truncate(0)
        file.writelines(f"{line}\n" for line in lines)


@plugin.add
def add(request: Request) -> None:
    """Write the container's lines; the result is the previous plugin's."""
    new = _lines(request)
    _rewrite(_file(request), lambda lines: lines + new)


@plugin.check
def check(request: Request) -> None:
    """Insist that the lines are there."""
    path = _file(request)
    there = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    gone = [line for line in _lines(request) if line not in there]
    if gone:
        raise VerbError(f"not in {path}: {gone[0]}", code=LINES_GONE)


@plugin.delete
def delete(request: Request) -> None:
    """Take the container's lines out."""
    path, mark = _file(request), _mark(request, request.container_id, request.ifname)
    if path.exists():
        _rewrite(path, lambda lines: [line for line in lines if not line.endswith(mark)])


@plugin.gc
def gc(request: Request) -> None:
    """Take out the lines of containers that are no more."""
    valid = tuple(_mark(request, *attachment) for attachment in request.valid_attachments)
    path, network = _file(request), f"# {request.name} "
    if path.exists():
        # Another network may have the same file.
        _rewrite(path, lambda lines: [line for line in lines if network not in line or line.endswith(valid)])


@plugin.status
def status(request: Request) -> None:
    """Say whether the file's directory is there."""
    if not _file(request).parent.is_dir():
        raise VerbError(f"no directory {_file(request).parent}", code=ErrorCode.PLUGIN_NOT_AVAILABLE)


if __name__ == "__main__":
    plugin.run()
