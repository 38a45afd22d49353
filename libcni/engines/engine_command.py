"""The options, the environment and the installed files of a program that a container engine starts."""

from __future__ import annotations

import argparse
import errno
import os
import stat
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from libcni._defaults import CACHE_DIR, CONF_DIR, PLUGIN_PATH, complete_path
from libcni.config.timeouts import seconds
from libcni.errors import CNIError, ConfigError, name_client

if TYPE_CHECKING:
    from libcni.observe.logs import LoggingObserver

_PATHS = (
    ("conf-dir", "NETCONFPATH", CONF_DIR, "network configurations"),
    ("path", "CNI_PATH", PLUGIN_PATH, "directories of plugins"),
    ("cache-dir", "LIBCNI_CACHE_DIR", CACHE_DIR, "records and locks"),
    ("log", "", "", "a log file for every plugin call, with its stdin and stdout"),
)
"""The options that are paths: the name, the variable that replaces the default, the default, and the help."""
_TIMEOUT, _SHORTEST = 50.0, 0.1
MAX_DOCUMENT_BYTES = 4 << 20
"""The size of the largest document on stdin."""


class Parser(argparse.ArgumentParser):
    """A parser with the options of each program that an engine starts. Its errors look like those of other commands.

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
            # An empty variable counts as unset: an empty path would mean the current directory.
            value = os.environ.get(variable) or (presets or {}).get(key, default)
            self.add_argument(f"--{key}", default=value, metavar="PATH", help=f"{text} ({value})" if value else text)
        limit = partial(seconds, minimum=_SHORTEST)
        text = f"{timeout_help} ({_TIMEOUT:g})"
        self.add_argument("--timeout", type=limit, default=_TIMEOUT, metavar="SECONDS", help=text)

    def error(self, message: str) -> NoReturn:
        """Print the error in one line, and end the program with exit code 2."""
        self.exit(2, f"error: {message}; see: {self.prog} --help\n")


def installed_words(options: argparse.Namespace) -> list[str]:
    """Return the options to install in the command that an engine starts, with absolute paths.

    These are all options: the engine passes its environment on, and a variable must not select other records when the
    container ends. Paths become absolute, because the engine has another working directory.
    """
    words = []
    for key, *_ in _PATHS:
        if paths := getattr(options, key.replace("-", "_")):
            absolute = [os.path.abspath(path) for path in paths.split(os.pathsep) if path]
            words.append(f"--{key}={os.pathsep.join(absolute)}")
    return [*words, f"--timeout={options.timeout:g}"]


def archive() -> str | None:
    """Return the path of the one file (``libcni.pyz``) that this program runs from; None: it is installed."""
    path = getattr(__spec__.loader, "archive", None)  # that of zipimporter
    # The one file imports from a descriptor of itself.
    return path and os.path.abspath(sys.argv[0] if path.startswith("/proc/self/fd/") else path)


def what_must_stay() -> list[str]:
    """Return notes for the user: a file that must stay because the engine runs it, or a path that others may change."""
    if file := archive():
        return [f"{file} must stay where it is: the engine runs it at each container's start and end"]
    # A warning here, an error for the one file: a clone that a developer's user owns is a usual place, and cannot move.
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    place = _open_to_others(package) or _open_to_others(sys.prefix)
    return [f"warning: other users may change {place}, and the engine will run it with your rights"] if place else []


def missing_directories(options: argparse.Namespace) -> list[str]:
    """Return a warning for each directory of the options that is missing: else users learn it from a failed start."""
    paths = [path for path in options.path.split(os.pathsep) if path]
    missing = [] if any(map(os.path.isdir, paths)) else paths
    missing += [] if os.path.isdir(options.conf_dir) else [options.conf_dir]
    log = os.path.dirname(os.path.abspath(options.log)) if options.log else "/"
    return [f"warning: there is no directory {path}" for path in [*missing, *([] if os.path.isdir(log) else [log])]]


def _open_to_others(file: str) -> str:
    """Return the file or the directory above it that another user could replace; "" if there is none."""
    place = file
    while place:
        status = os.stat(place)
        # A sticky directory protects the files in it, but not the name of a file that somebody cleans up.
        is_sticky = status.st_mode & stat.S_ISVTX and place not in {file, os.path.dirname(file)}
        # Not the group: on Debian the group staff may write to /usr/local/bin.
        if status.st_uid not in {0, os.geteuid()} or (status.st_mode & stat.S_IWOTH and not is_sticky):
            return place
        place = os.path.dirname(place) if place != "/" else ""
    return ""


def _check_file(file: str) -> None:
    """Raise ConfigError if another user could replace the one file that the engine will run with this user's rights."""
    if place := _open_to_others(file):
        problem = f"other users may change {place}, and the engine would run {file} with your rights"
        raise ConfigError(problem, hint="move libcni.pyz to a directory such as /usr/local/bin, and call it from there")


def command_line() -> list[str]:
    """Return the command that runs this program from another process: Python, with this file or the module.

    An engine runs it as root, in a directory and with variables of others. ``-I`` keeps Python from importing from that
    directory and from PYTHONPATH.

    Raises:
        ConfigError: the command would not find this library, or another user may replace its one file.
    """
    if file := archive():
        _check_file(file)
    script = file or os.path.abspath(sys.argv[0])
    is_file = os.path.isfile(script) and (script == file or os.path.basename(script) == "libcni")
    command = [sys.executable, "-I", *([script] if is_file else ["-m", "libcni"])]
    import subprocess  # only an installation needs it

    # The library may be found by the current directory or by PYTHONPATH alone, for example in a clone.
    tried = subprocess.run([*command, "--version"], cwd="/", capture_output=True, text=True, check=False)  # noqa: S603 - no shell
    if tried.returncode:
        reason = tried.stderr.strip().rpartition("\n")[2]
        problem = f"{' '.join(command)} does not run outside this directory: {reason}"
        hint = "install the library first, for example in a virtual environment (pip install .), and call it from there"
        raise ConfigError(problem, hint=hint)
    return command


def environment() -> dict[str, str]:
    """Return the environment for plugins: this process's, with the directories of iptables added to PATH."""
    return {**os.environ, "PATH": complete_path(os.environ.get("PATH", ""))}


def name_options(error: CNIError, options: argparse.Namespace) -> None:
    """Store the program's directories in an error: a command in its hint must act on the same records."""
    name_client(error, {name: getattr(options, name) for name in ("conf_dir", "path", "cache_dir")})


def read_stdin(seconds: float) -> bytes:
    """Return all bytes of stdin, which an engine writes at once.

    Raises:
        ConfigError: stdin has more than MAX_DOCUMENT_BYTES, or its end does not come within ``seconds``.
    """
    import select

    data, descriptor, deadline = b"", sys.stdin.fileno(), time.monotonic() + seconds
    while select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
        more = os.read(descriptor, 1 << 16)
        if not more:
            return data
        data += more
        if len(data) > MAX_DOCUMENT_BYTES:
            raise ConfigError(f"it has more than {MAX_DOCUMENT_BYTES:,} bytes", file="the document on stdin")
    raise ConfigError(f"its end did not come within {seconds:g} seconds", file="the document on stdin")


def log_to(path: str) -> LoggingObserver:
    """Return an observer that appends every plugin call to a file.

    The file is opened with the first call. A log must not stop a container: if the file cannot be opened or written,
    the program logs a warning and goes on without the file.
    """
    import logging

    from libcni.engines.log_file import LogFile  # with logging, which few runs need
    from libcni.observe.logs import LoggingObserver

    logger = logging.getLogger("libcni.calls")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(LogFile(path))
    logger.propagate = False  # not to stderr: the lines hold the plugins' documents
    return LoggingObserver(logger)


def not_written(error: OSError, file: str, otherwise: str) -> ConfigError:
    """Return the error for a file that cannot be written; ``otherwise``: what a user without root can do instead."""
    hint = f"run it as root, or {otherwise}" if isinstance(error, PermissionError) else None
    # Not the name of the draft beside the file.
    name = file if ".libcni-" in str(error.filename or "") else error.filename or file
    return ConfigError(f"cannot be written: {error.strerror}", file=name, hint=hint)


def install_file(file: str, text: str, mode: int = 0o644) -> None:
    """Write a file, or replace an existing file and keep its mode; raises OSError."""
    from tempfile import TemporaryDirectory  # with shutil and random, which only an installation needs

    with suppress(FileNotFoundError):
        status = os.stat(file)
        # A rename would replace a device such as /dev/stdout, for every program of the machine.
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", file)
        mode = status.st_mode & 0o777
    # Written under another name and renamed when it is complete: an engine must never read half of a file.
    with TemporaryDirectory(prefix=".libcni-", dir=os.path.dirname(file)) as directory:
        draft = os.path.join(directory, os.path.basename(file))
        with open(draft, "w", encoding="utf-8") as opened:
            opened.write(text)
            os.fchmod(opened.fileno(), mode)
            os.fsync(opened.fileno())
        os.replace(draft, file)
