"""The hook's entry for the directory ``hooks.d`` of podman and CRI-O, and for the ``config.json`` of a bundle."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from typing import Any

from libcni.config.network import read_document
from libcni.engine.program import command_line, replace_file
from libcni.engine.request import read_json
from libcni.errors import ConfigError
from libcni.oci.annotations import PREFIX

HOOKS_D = "/usr/share/containers/oci/hooks.d"
"""The directory that podman and CRI-O read if their configuration names none."""
_FILE = "libcni.json"
_STAGES = ("createRuntime", "poststop")
_SPARE_SECONDS = 10


class Installation:
    """The hook with its options, to be written into a file of a runtime.

    Args:
        arguments: the hook's options.
        timeout: the hook's own time limit in seconds; the runtime's is ten seconds longer.
        always: with hooks.d: for all containers, not only for annotated ones.
        resolv_conf: with a bundle: mount its ``resolv.conf``, which the hook writes.
    """

    def __init__(
        self, arguments: Sequence[str], timeout: float, *, always: bool = False, resolv_conf: bool = False
    ) -> None:
        program, *before = command_line()
        self._always = always
        self._resolv_conf = resolv_conf
        self._hook = {
            "path": program,
            # Python finds its virtual environment by this name, so it must be the whole path.
            "args": [program, *before, "oci-hook", *arguments],
            # The runtime kills a hook at its limit. The hook's own limit comes first, so that it can roll back.
            "timeout": math.ceil(timeout) + _SPARE_SECONDS,
        }

    def text(self, path: str) -> str:
        """Return the file that ``write`` would write; raises ConfigError as ``write`` does."""
        document = self._for_hooks_d() if _bundle_config(path) is None else self._for_bundle(path)
        return json.dumps(document, indent=4, ensure_ascii=False) + "\n"

    def write(self, path: str) -> str:
        """Install the hook, in place of an earlier installation, and return the path of the written file.

        Args:
            path: a bundle, its config.json, or a directory for hooks; "": /usr/share/containers/oci/hooks.d.

        Raises:
            ConfigError: the file cannot be read or written, or the bundle's containers cannot be attached.
        """
        config = _bundle_config(path)
        file = config or os.path.join(path or HOOKS_D, _FILE)
        text = self.text(path)
        try:
            os.makedirs(os.path.dirname(os.path.abspath(file)), exist_ok=True)
            replace_file(os.path.abspath(file), text)
            if config is not None and self._resolv_conf:
                # A mount needs its source before the hook runs.
                source = os.path.join(os.path.dirname(config), "resolv.conf")
                os.close(os.open(source, os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644))
        except OSError as error:
            raise ConfigError(f"cannot be written: {error.strerror}", file=error.filename or file) from error
        return file

    def _for_hooks_d(self) -> dict[str, Any]:
        key = PREFIX.replace(".", r"\.")
        when = {"always": True} if self._always else {"annotations": {f"^{key}": "."}}
        return {"version": "1.0.0", "hook": self._hook, "when": when, "stages": list(_STAGES)}

    def _for_bundle(self, path: str) -> dict[str, Any]:
        file = _bundle_config(path) or path
        document = read_json(read_document(file), dict, file=file)
        namespaces = _object(document, "linux", file).get("namespaces") or []
        if not any(isinstance(namespace, dict) and namespace.get("type") == "network" for namespace in namespaces):
            problem = "linux.namespaces: the container has no network namespace of its own"
            raise ConfigError(problem, file=file, hint='add {"type": "network"}')
        hooks = _object(document, "hooks", file)
        for stage in _STAGES:
            # An earlier installation is replaced: a container must not be attached twice.
            others = [
                hook
                for hook in hooks.get(stage) or ()
                if not isinstance(hook, dict) or "oci-hook" not in (hook.get("args") or ())
            ]
            hooks[stage] = [*others, self._hook]
        if self._resolv_conf:
            mount = {"destination": "/etc/resolv.conf", "type": "bind", "source": "resolv.conf"}
            mounts = document.get("mounts") or []
            if all(isinstance(entry, dict) and entry.get("destination") != mount["destination"] for entry in mounts):
                document["mounts"] = [*mounts, {**mount, "options": ["bind", "ro"]}]
        return document


def _bundle_config(path: str) -> str | None:
    """Return the config.json that a path means, or None for a directory of hooks."""
    if os.path.basename(path) == "config.json":
        return path
    if not path or os.path.basename(os.path.abspath(path)) == "hooks.d":
        return None
    inside = os.path.join(path, "config.json")
    if not os.path.isfile(inside):
        raise ConfigError("this is neither a bundle with a config.json nor a directory hooks.d", file=path)
    return inside


def _object(document: dict[str, Any], key: str, file: str) -> dict[str, Any]:
    """Return the object under ``key``; add an empty one if it is missing."""
    value = document.get(key) or {}
    if not isinstance(value, dict):
        raise ConfigError(f"{key} is not an object", file=file)
    document[key] = value
    return value
