"""The command line ``libcni``, installed with ``pip install 'libcni[cli]'``. Each command is a file in ``commands``."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

__all__ = ["main", "run", "version_line"]

_MISSING = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        argv: the arguments without the program's name; None: those of this process.
    """
    arguments = sys.argv[1:] if argv is None else argv
    if arguments and arguments[0] == "oci-hook":  # it runs at every start of a container, and needs no typer
        from libcni.oci import main as run_hook

        return run_hook(arguments[1:])
    if list(arguments) == ["--version"]:
        # typer and its imports take six times as long as the answer.
        print(version_line())  # noqa: T201
        return 0
    if arguments and arguments[0] == "attachments" and "_LIBCNI_COMPLETE" not in os.environ:
        from libcni.cli.quick import list_quickly

        if list_quickly(arguments[1:]):
            return 0
    try:
        from libcni.cli.app import run_app
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in {"typer", "rich", "click", "shellingham"}:
            raise
        print("libcni: the command line needs: pip install 'libcni[cli]'", file=sys.stderr)  # noqa: T201
        return _MISSING
    return run_app(arguments)


def version_line() -> str:
    """Return the version of this program and of the specification."""
    import libcni

    return f"libcni {libcni.__version__} (CNI {libcni.ALL_VERSIONS[0]} to {libcni.CURRENT_VERSION})"


def run() -> None:
    """Run the console script."""
    # Imports allocate many objects that live to the end. Collecting them again and again costs 6 % of the start.
    gc.set_threshold(100_000)
    sys.exit(main())
