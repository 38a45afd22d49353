"""Write the driver where podman finds it: a script with the options of ``libcni netavark-plugin --install``."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess

from libcni.engine.program import command_line, installed_words, replace_file
from libcni.errors import ConfigError

NAME = "cni"
"""The driver's name: the file's, and that of ``podman network create --driver``."""

_SEARCHED = [f"{prefix}/{name}/netavark" for name in ("libexec", "lib") for prefix in ("/usr/local", "/usr")]
"""The directories that podman searches if containers.conf names none."""
_ASK = ["info", "--format", "{{json .Plugins.Network}}"]


def install(options: argparse.Namespace) -> list[str]:
    """Write the driver, in place of an earlier one, and return the lines to print for the user.

    Raises:
        ConfigError: a file or directory cannot be written.
    """
    directory = os.path.abspath(options.install)
    file = os.path.join(directory, NAME)
    # All options: podman hands its environment on, and a variable in it must not lead to other records at teardown.
    words = [*command_line(), "netavark-plugin", *installed_words(options, defaults=True)]
    try:
        os.makedirs(directory, exist_ok=True)
        os.makedirs(options.conf_dir, exist_ok=True)
        replace_file(file, f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', 0o755)
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=error.filename or file) from error
    return [f"installed as {file}", *_seen_by_podman(directory)]


def _seen_by_podman(directory: str) -> list[str]:
    """Return lines that say whether podman finds the driver, and what to do if not; [] if there is no podman."""
    if not (podman := shutil.which("podman")):
        return []
    asked = subprocess.run([podman, *_ASK], capture_output=True, text=True, check=False)  # noqa: S603 - no shell
    try:
        is_seen = NAME in (json.loads(asked.stdout) or ())
    except ValueError:
        return [f"podman did not say whether it finds it: {asked.stderr.strip() or asked.stdout.strip()}"]
    # Podman names no directory, and root's driver serves no user: it may not write root's records.
    others = [file for other in _SEARCHED if other != directory and os.path.exists(file := os.path.join(other, NAME))]
    if is_seen and not others:
        return [f"podman finds it: podman network create --driver {NAME} NETWORK"]
    problem = f"podman may find {others[0]} first" if is_seen else "podman does not look there"
    conf = "/etc/containers/containers.conf" if os.geteuid() == 0 else "~/.config/containers/containers.conf"
    return [f"{problem}. Write in {conf}:", "[network]", f"netavark_plugin_dirs = {json.dumps([directory])}"]
