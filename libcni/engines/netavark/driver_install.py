"""Write the driver where podman finds it: a script with the options of ``libcni netavark-plugin --install``."""

from __future__ import annotations

import argparse
import json
import os
import shlex

from libcni.engines.engine_command import (
    command_line,
    install_file,
    installed_words,
    missing_directories,
    not_written,
    what_must_stay,
)
from libcni.store.files import make_directory

NAME = "cni"
"""The name of the driver's file, and the value of ``podman network create --driver``."""

_SEARCHED = [f"{prefix}/{name}/netavark" for name in ("libexec", "lib") for prefix in ("/usr/local", "/usr")]
"""The directories that podman searches if containers.conf names none."""


def install(options: argparse.Namespace) -> list[str]:
    """Write the driver, in place of an earlier one, and return the lines to print for the user.

    Raises:
        ConfigError: a file or directory cannot be written.
    """
    directory = os.path.abspath(options.install)
    file = os.path.join(directory, NAME)
    words = [*command_line(), "netavark-plugin", *installed_words(options)]
    try:
        for needed in (directory, os.path.abspath(options.conf_dir)):
            make_directory(needed, mode=0o755)
        install_file(file, f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', 0o755)
    except OSError as error:
        raise not_written(error, file, "leave out DIRECTORY to use your home directory") from error
    lines = [
        f"installed as {file}",
        *what_must_stay(),
        *missing_directories(options),
        f"create a network: podman network create --driver {NAME} NETWORK",
    ]
    if directory in _SEARCHED:
        return lines
    conf = "/etc/containers/containers.conf" if os.geteuid() == 0 else "~/.config/containers/containers.conf"
    searched = f"podman does not search this directory by default. Write in {conf}:"
    return [lines[0], searched, "[network]", f"netavark_plugin_dirs = {json.dumps([directory])}", *lines[1:]]
