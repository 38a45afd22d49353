"""The options, the environment and the installed files of a program that a container engine starts."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from libcni._defaults import CACHE_DIR, CONF_DIR, PLUGIN_PATH
from libcni.config.timeouts import seconds
from libcni.errors import CNIError, ConfigError, name_client

if TYPE_CHECKING:
    from libcni.observe.logs import LoggingObserver

_PATHS = (
    ("conf-dir", "NETCONFPATH", CONF_DIR, "network configurations"),
    ("path", "CNI_PATH", PLUGIN_PATH, "directories of plugins"),
    ("cache-dir", "LIBCNI_CACHE_DIR", CACHE_DIR, "records and locks"),
    ("log", "", "", "a file to which every plugin call is appended, with its documents"),
)
"""The options that are paths: the name, the variable that replaces the default, the default, and the help."""
_TIMEOUT, _SHORTEST = 50.0, 0.1
_PROGRAMS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Parser(argparse.ArgumentParser):
    """A parser with the options that every such program has.

    Args:
        name: the command's name.
        description: what the program does.
        timeout_help: the help of ``--timeout``.
        epilog: the text after the options.
        presets: the defaults of a user without privileges, by option.
    """

    def __init__(
        self,
        name: str,
        description: str,
        timeout_help: str,
        *,
        epilog: str | None = None,
        presets: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            prog=f"libcni {name}",
            description=description,
            epilog=epilog,
            allow_abbrev=False,
            # With a width, argparse does not load shutil and four modules of compression for the terminal's size.
            formatter_class=partial(argparse.HelpFormatter, width=100),
        )
        for key, variable, default, text in _PATHS:
            value = os.environ.get(variable, (presets or {}).get(key, default))
            self.add_argument(f"--{key}", default=value, metavar="PATH", help=f"{text} ({value})" if value else text)
        limit = partial(seconds, minimum=_SHORTEST)
        text = f"{timeout_help} ({_TIMEOUT:g})"
        self.add_argument("--timeout", type=limit, default=_TIMEOUT, metavar="SECONDS", help=text)


def installed_words(options: argparse.Namespace) -> list[str]:
    """Return the command-line options for a program that an engine starts.

    These are all options: the engine passes its environment on, and a variable must not select other records when the
    container ends. Paths become absolute, because the engine has another working directory.
    """
    words = []
    for key, *_ in _PATHS:
        if paths := getattr(options, key.replace("-", "_")):
            absolute = [os.path.abspath(path) for path in paths.split(os.pathsep) if path]
            words.append(f"--{key}={os.pathsep.join(absolute)}")
    return [*words, f"--timeout={options.timeout:g}"]


def command_line() -> list[str]:
    """Return the command line's absolute path: this process's console script, or Python with the module."""
    script = os.path.abspath(sys.argv[0])
    is_console_script = os.path.basename(script) == "libcni" and os.access(script, os.X_OK)
    return [script] if is_console_script else [sys.executable, "-m", "libcni"]


def environment() -> dict[str, str]:
    """Return the environment for plugins. An engine may give no PATH, and plugins need it to find iptables."""
    return {"PATH": _PROGRAMS, **os.environ}


def name_options(error: CNIError, options: argparse.Namespace) -> None:
    """Store the program's directories in an error: a command in its hint must act on the same records."""
    name_client(error, {name: getattr(options, name) for name in ("conf_dir", "path", "cache_dir")})


def log_to(path: str) -> LoggingObserver:
    """Return an observer that appends every plugin call to a file.

    Raises:
        ConfigError: the file cannot be written.
    """
    import logging

    from libcni.observe.logs import LoggingObserver

    try:
        # The log holds the plugins' arguments, which may be secrets. So only its owner may read it.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        handler = logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=path) from error
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger = logging.getLogger("libcni.calls")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    return LoggingObserver(logger)


def install_file(file: str, text: str, mode: int = 0o644) -> None:
    """Write a file, or replace an existing file and keep its mode; raises OSError."""
    from tempfile import TemporaryDirectory  # with shutil and random, which only an installation needs

    with suppress(FileNotFoundError):
        mode = os.stat(file).st_mode & 0o777
    # Written under another name and renamed when it is complete: an engine must never read half of a file.
    with TemporaryDirectory(prefix=".libcni-", dir=os.path.dirname(file)) as directory:
        draft = os.path.join(directory, os.path.basename(file))
        with open(draft, "w", encoding="utf-8") as opened:
            opened.write(text)
            os.fchmod(opened.fileno(), mode)
            os.fsync(opened.fileno())
        os.replace(draft, file)
