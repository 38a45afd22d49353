"""The command ``libcni netavark-plugin``: its options, and one run of it.

It runs at every start and every end of a container. So it is dispatched before the rest of the command line is loaded,
and imports a module only if this run needs it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

from libcni._version import __version__
from libcni.engines.engine_command import Parser, environment, log_to, name_options, read_stdin
from libcni.errors import CNIError, CNIErrorGroup, NetworkNotFoundError, PluginNotFoundError

if TYPE_CHECKING:
    from libcni.engines.netavark.driver import Driver

__all__ = ["main"]

_DIRECTORY = "/usr/local/lib/netavark"
"""One of the directories that podman searches if containers.conf names none."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def main(argv: Sequence[str]) -> int:
    """Run the driver, or install it; return the exit code. An error of a verb is an object on stdout, for podman."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.install is not None:
        return _install(options)
    if options.verb == "info":
        return _print({"version": __version__, "api_version": "1.0.0"})
    if options.verb is None or (options.verb != "create" and not options.netns):
        parser.error("give a verb, and for setup and teardown a network namespace (netavark runs this command)")
    for number in _SIGNALS:
        # Keep ignored signals ignored: netavark ignores both while it tears down.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)
    try:
        return _run(options, read_stdin(options.timeout))
    except CNIError as error:
        name_options(error, options)
        _print({"error": _words(error, options)})
    except KeyboardInterrupt:
        _print({"error": "the driver was interrupted by a signal"})
    return 1


def _parser() -> Parser:
    user = _user_directories()
    about = "Attach podman's containers to CNI networks, as a driver of netavark. --install writes the driver."
    parser = Parser("netavark-plugin", about, "seconds for each attach and detach", presets=user)
    directory = user.get("install", _DIRECTORY)
    text = f"write the driver, a script named cni with these options, into a directory ({directory})"
    parser.add_argument("--install", nargs="?", const=directory, metavar="DIRECTORY", help=text)
    text = "the operation that netavark requests, with a JSON document on stdin"
    parser.add_argument("verb", nargs="?", choices=("create", "setup", "teardown", "info"), help=text)
    parser.add_argument("netns", nargs="?", default="", help="the container's network namespace")
    return parser


def _user_directories() -> dict[str, str]:
    """Return the defaults of a user without privileges, by option; {} for root.

    Podman runs the driver as root of a user namespace, which may not write to root's directories.
    """
    if os.geteuid() == 0:
        return {}
    home = os.path.expanduser("~")
    config = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    data = os.environ.get("XDG_DATA_HOME") or f"{home}/.local/share"
    return {"conf-dir": f"{config}/cni/net.d", "cache-dir": f"{data}/libcni", "install": f"{data}/libcni/netavark"}


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    # The roll-back that begins now has its own time limit. A second signal would interrupt it.
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _run(options: argparse.Namespace, data: bytes) -> int:
    from libcni.engines.netavark.podman_request import read_attachment, read_document, read_request

    document = read_document(data)
    driver = _driver(options)
    if options.verb == "create":
        return _print(driver.create(document))
    if options.verb == "teardown":
        driver.teardown(options.netns, read_attachment(document))
        return 0
    request = read_request(document)
    try:
        return _print(driver.setup(options.netns, request))
    except (OSError, KeyboardInterrupt) as error:
        # netavark has ended, and podman knows nothing of this attachment.
        driver.undo(request, error)
        raise


def _driver(options: argparse.Namespace) -> Driver:
    from libcni.client import CNIConfig
    from libcni.engines.netavark.driver import Driver
    from libcni.engines.netavark.podman_request import OWNER

    cni = CNIConfig(
        options.path, options.cache_dir, conf_dir=options.conf_dir, owner=OWNER, timeout=options.timeout,
        cleanup_timeout=options.timeout / 2, env=environment(), stderr=lambda _, text: sys.stderr.write(text),
        observer=log_to(options.log) if options.log else None,
    )  # fmt: skip
    return Driver(cni)


def _words(error: CNIError, options: argparse.Namespace) -> str:
    """Return an error's text for a user of podman."""
    if isinstance(error, CNIErrorGroup):
        return "; ".join(_words(inner, options) for inner in error.exceptions if isinstance(inner, CNIError))
    if isinstance(error, NetworkNotFoundError):
        known = f"there are: {', '.join(error.known)}" if error.known else "the directory has none"
        return f"no CNI network {error.network} in {options.conf_dir} ({known}; --opt conf=NAME names another)"
    if isinstance(error, PluginNotFoundError):
        return f"the CNI plugin {error.plugin} is not in {options.path}"
    # Omit a hint that names an argument of the library's functions.
    return error.text if error.hint and error.hint.argument else str(error)


def _print(answer: dict[str, Any]) -> int:
    print(json.dumps(answer), flush=True)  # noqa: T201 - the program's output
    return 0


def _install(options: argparse.Namespace) -> int:
    from libcni.engines.netavark.driver_install import install

    try:
        print("\n".join(install(options)))  # noqa: T201 - the program's output
    except CNIError as error:
        print(f"libcni netavark-plugin: {error}", file=sys.stderr)  # noqa: T201 - the program's output
        return 1
    return 0
