"""The command ``libcni oci-hook``: its options, and one run of it.

It runs at every start and every end of a container. So it is dispatched before the rest of the command line is loaded,
and imports a module only if this run needs it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from libcni.errors import CNIError, CNIErrorGroup, ConfigError
from libcni.oci.annotations import KEYS, PREFIX, annotated, read_wanted
from libcni.oci.pins import CACHE_DIR
from libcni.oci.state import ContainerState, read_state

if TYPE_CHECKING:
    from libcni.observe.logs import LoggingObserver
    from libcni.oci.hook import Hook

__all__ = ["main"]

_PATHS = {
    "conf-dir": "/etc/cni/net.d",
    "path": "/opt/cni/bin:/usr/lib/cni",
    "cache-dir": CACHE_DIR,
    "log": "",
}
"""The options that are paths, and their values without an option or variable."""
_TIMEOUT = 50.0
_ATTACH, _DETACH = ("creating", "created"), ("stopped",)
_EPILOG = f"""
The container's annotations {", ".join(PREFIX + key for key in KEYS)} say which networks it gets. The options of the
same names apply to containers without annotations. Without both, the default network is used.
"""


def main(argv: Sequence[str]) -> int:
    """Run the hook, or install it; return the exit code. Errors go to stderr, which runtimes print."""
    options = _parser().parse_args(argv)
    try:
        if options.print is not None or options.install is not None:
            _install(options)
            return 0
        _run(options, read_state(sys.stdin.buffer.read()))
    except CNIError as error:
        _print_error(error)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="libcni oci-hook",
        description="Attach a container as createRuntime or prestart hook of an OCI runtime, detach it as poststop.",
        epilog=_EPILOG,
        allow_abbrev=False,
        # With a width, argparse does not load shutil and four modules of compression for the size of the terminal.
        formatter_class=partial(argparse.HelpFormatter, width=100),
    )
    add = parser.add_argument
    for key in KEYS:
        add(f"--{key}", metavar="VALUE", help=f"for containers without the annotation {PREFIX}{key}")
    add("--annotated-only", action="store_true", help=f"leave containers alone that have no {PREFIX}* annotation")
    add("--resolv-conf", action="store_true", help="write the networks' name servers to resolv.conf in the bundle")
    for key, variable, text in (
        ("conf-dir", "NETCONFPATH", "network configurations"),
        ("path", "CNI_PATH", "directories of plugins"),
        ("cache-dir", "LIBCNI_CACHE_DIR", "records and locks"),
        ("log", "", "a file to which every plugin call is appended, with its documents"),
    ):
        value = os.environ.get(variable, _PATHS[key])
        add(f"--{key}", default=value, metavar="PATH", help=f"{text} ({value})" if value else text)
    text = f"seconds for the whole hook ({_TIMEOUT:g}); the runtime's own limit must be longer"
    add("--timeout", type=_seconds, default=_TIMEOUT, metavar="SECONDS", help=text)
    text = "write the hook with these options into a bundle, or into a hooks.d of podman and CRI-O"
    add("--install", nargs="?", const="", metavar="PATH", help=text)
    add("--print", nargs="?", const="", metavar="PATH", help="print what --install would write")
    add("--always", action="store_true", help="with hooks.d: for all containers, not only for annotated ones")
    return parser


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of seconds")
    return seconds


def _run(options: argparse.Namespace, state: ContainerState) -> None:
    if state.status in _DETACH:
        _hook(options).detach(state.container_id)
        return
    if state.status not in _ATTACH:
        problem = f'there is nothing to do for container {state.container_id} in status "{state.status}"'
        raise ConfigError(problem, hint="run this hook as createRuntime or prestart, and as poststop")
    # Before the annotations are read: an invalid annotation must not stop a container that this hook ignores.
    if options.annotated_only and not annotated(state.annotations):
        return
    wanted = read_wanted(state.annotations, _defaults(options))
    if wanted.requests != []:
        _hook(options).attach(state, wanted)


def _defaults(options: argparse.Namespace) -> dict[str, str]:
    return {key: value for key in KEYS if (value := getattr(options, key)) is not None}


def _hook(options: argparse.Namespace) -> Hook:
    # Imports the verbs, which a container without annotations does not need.
    from libcni.oci.hook import Hook

    return Hook(
        options.path,
        options.cache_dir,
        options.conf_dir,
        timeout=options.timeout,
        resolv_conf=options.resolv_conf,
        observer=_observer(options.log) if options.log else None,
    )


def _install(options: argparse.Namespace) -> None:
    from libcni.oci.install import Installation, seen_by_podman

    # A mistake in an option would stop every container that the installed hook is called for.
    read_wanted({}, _defaults(options))
    arguments = _arguments(options)
    installation = Installation(arguments, options.timeout, always=options.always, resolv_conf=options.resolv_conf)
    if options.print is not None:
        print(installation.text(options.print), end="")  # noqa: T201 - the program's output
        return
    file = installation.write(options.install)
    print(f"installed in {file}")  # noqa: T201 - the program's output
    if os.path.basename(file) != "config.json" and (seen := seen_by_podman(file)):
        print(seen, file=sys.stderr)  # noqa: T201 - the program's output


def _arguments(options: argparse.Namespace) -> list[str]:
    """Return the options for the installed hook, with absolute paths: a runtime runs hooks in the bundle."""
    words = [f"--{key}={value}" for key in KEYS if (value := getattr(options, key)) is not None]
    words += [f"--{key}" for key in ("annotated-only", "resolv-conf") if getattr(options, key.replace("-", "_"))]
    for key, default in _PATHS.items():
        paths = getattr(options, key.replace("-", "_"))
        if paths != default:
            words.append(f"--{key}=" + os.pathsep.join(os.path.abspath(one) for one in paths.split(os.pathsep) if one))
    return [*words, *([] if options.timeout == _TIMEOUT else [f"--timeout={options.timeout:g}"])]


def _observer(path: str) -> LoggingObserver:
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


def _print_error(error: CNIError) -> None:
    lines = [str(error), *getattr(error, "__notes__", ())]
    if isinstance(error, CNIErrorGroup):
        lines += [note for one in error.exceptions for note in getattr(one, "__notes__", ())]
    print("\n".join(f"libcni oci-hook: {line}" for line in lines), file=sys.stderr)  # noqa: T201 - the program's output
