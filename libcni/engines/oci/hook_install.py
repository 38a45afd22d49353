"""Write the hook into the ``config.json`` of a bundle."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from typing import Any

from libcni.config.network import read_document
from libcni.engines.engine_command import command_line, install_file, not_written
from libcni.engines.json_request import read_json
from libcni.errors import ConfigError

_STAGES = ("createRuntime", "poststop")
_SPARE_SECONDS = 10


def config_file(path: str) -> str:
    """Return the path of the config.json that a path means: a bundle's, or the file itself."""
    return path if os.path.basename(path) == "config.json" else os.path.join(path, "config.json")


def with_hook(file: str, arguments: Sequence[str], timeout: float, *, resolv_conf: bool) -> str:
    """Return the text of a config.json with the hook, in place of an earlier installation.

    Args:
        file: the config.json.
        arguments: the hook's options.
        timeout: the hook's own time limit in seconds; the runtime's is ten seconds longer.
        resolv_conf: mount the bundle's ``resolv.conf``, which the hook writes.

    Raises:
        ConfigError: the file cannot be read, or the bundle's containers cannot be attached.
    """
    document = read_json(read_document(file), dict, file=file)
    namespaces = _object(document, "linux", file).get("namespaces") or []
    if not any(isinstance(namespace, dict) and namespace.get("type") == "network" for namespace in namespaces):
        problem = "linux.namespaces: the container has no network namespace of its own"
        raise ConfigError(problem, file=file, hint='add {"type": "network"}')
    program, *before = command_line()
    own = {
        "path": program,
        # Python finds its virtual environment by its name, so this must be the whole path.
        "args": [program, *before, "oci-hook", *arguments],
        # The runtime kills a hook at its limit. The hook's own limit comes first, so that it can roll back.
        "timeout": math.ceil(timeout) + _SPARE_SECONDS,
    }
    hooks = _object(document, "hooks", file)
    for stage in _STAGES:
        others = [
            hook
            for hook in hooks.get(stage) or ()
            if not isinstance(hook, dict) or "oci-hook" not in (hook.get("args") or ())
        ]
        hooks[stage] = [*others, own]
    if resolv_conf:
        mount = {"destination": "/etc/resolv.conf", "type": "bind", "source": "resolv.conf", "options": ["bind", "ro"]}
        mounts = document.get("mounts") or []
        if all(isinstance(entry, dict) and entry.get("destination") != mount["destination"] for entry in mounts):
            document["mounts"] = [*mounts, mount]
    return json.dumps(document, indent=4, ensure_ascii=False) + "\n"


def write(file: str, text: str, *, resolv_conf: bool) -> None:
    """Replace a config.json; raises ConfigError if it cannot be written."""
    try:
        install_file(os.path.abspath(file), text)
        if resolv_conf:
            # A mount needs its source before the hook runs.
            source = os.path.join(os.path.dirname(file), "resolv.conf")
            os.close(os.open(source, os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644))
    except OSError as error:
        raise not_written(error, file, "use --print, and let the owner of the file write the output") from error


def _object(document: dict[str, Any], key: str, file: str) -> dict[str, Any]:
    """Return the object under ``key``; add an empty one if it is missing."""
    value = document.get(key) or {}
    if not isinstance(value, dict):
        raise ConfigError(f"{key} is not an object", file=file)
    document[key] = value
    return value
