"""The command ``libcni oci-hook``: its options, and one run of it.

It runs at every start and every end of a container. So it is dispatched before the rest of the command line is loaded,
and imports a module only if this run needs it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from libcni.engines.engine_command import (
    Parser,
    installed_words,
    log_to,
    missing_directories,
    name_options,
    read_stdin,
    what_must_stay,
)
from libcni.engines.oci.annotations import KEYS, PREFIX, read_wanted
from libcni.engines.oci.container_state import ContainerState, read_state
from libcni.errors import CNIError, CNIErrorGroup, ConfigError

__all__ = ["main"]

_ATTACH, _DETACH = ("creating", "created"), "stopped"
_EPILOG = f"""
The container's annotations {", ".join(PREFIX + key for key in KEYS)} say which networks it gets. Without
{PREFIX}networks it gets the default network.
"""


def main(argv: Sequence[str]) -> int:
    """Run the hook, or install it; return the exit code. Errors go to stderr, which runtimes print."""
    options = _parser().parse_args(argv)
    try:
        if options.print or options.install:
            _install(options)
            return 0
        _run(options, read_state(read_stdin(options.timeout)))
    except CNIError as error:
        name_options(error, options)
        _print_error(error)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        "oci-hook",
        "Attach a container as createRuntime or prestart hook of an OCI runtime, detach it as poststop.",
        "seconds for the whole hook; the runtime's own limit must be longer",
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("--resolv-conf", action="store_true", help="write the networks' name servers to resolv.conf in the bundle")
    add("--install", metavar="BUNDLE", help="write the hook with these options into the config.json of a bundle")
    add("--print", metavar="BUNDLE", help="print the config.json that --install would write")
    return parser


def _run(options: argparse.Namespace, state: ContainerState) -> None:
    if state.status not in {*_ATTACH, _DETACH}:
        problem = f'container {state.container_id} has the status "{state.status}", in which this hook does nothing'
        raise ConfigError(problem, hint="run this hook as createRuntime or prestart, and as poststop")
    wanted = None if state.status == _DETACH else read_wanted(state.annotations)
    if wanted is not None and wanted.requests == []:
        return
    from libcni.engines.oci.hook import Hook  # imports the verbs, which a container without networks does not need

    hook = Hook(
        options.path, options.cache_dir, options.conf_dir, timeout=options.timeout, resolv_conf=options.resolv_conf,
        observer=log_to(options.log) if options.log else None,
    )  # fmt: skip
    if wanted is None:
        hook.detach(state.container_id)
    else:
        hook.attach(state, wanted)


def _install(options: argparse.Namespace) -> None:
    from libcni.engines.oci.hook_install import config_file, with_hook, write

    words = [*["--resolv-conf"] * options.resolv_conf, *installed_words(options)]
    file = config_file(options.print or options.install)
    text = with_hook(file, words, options.timeout, resolv_conf=options.resolv_conf)
    if options.print:
        print(text, end="")  # noqa: T201 - the program's output
        return
    write(file, text, resolv_conf=options.resolv_conf)
    print("\n".join([f"installed in {file}", *what_must_stay(), *missing_directories(options)]))  # noqa: T201 - the program's output


def _print_error(error: CNIError) -> None:
    lines = [str(error), *getattr(error, "__notes__", ())]
    if isinstance(error, CNIErrorGroup):
        lines += [note for inner in error.exceptions for note in getattr(inner, "__notes__", ())]
    print("\n".join(f"libcni oci-hook: {line}" for line in lines), file=sys.stderr)  # noqa: T201 - the program's output
