"""The command line ``libcni``. Each command is a file in ``commands``.

The extra ``libcni[cli]`` adds help, messages about wrong options, completion, colours and progress bars.
"""

from __future__ import annotations

import gc
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
    # The hook runs at every start and end of a container, so it must not wait for the imports of the other commands.
    if arguments and arguments[0] == "oci-hook":
        from libcni.oci import main as run_hook

        return run_hook(arguments[1:])
    if list(arguments) == ["--version"]:
        # typer and its imports take six times as long as the answer.
        print(version_line())
        return 0
    from libcni.cli.app import run_app

    try:
        return run_app(list(arguments))
    except ImportError as error:
        # Only the packages of the extra may be missing. Any other failed import is a defect, and needs its traceback.
        if (error.name or "").partition(".")[0] not in {"typer", "rich", "click", "shellingham"}:
            raise
        text = "libcni: help, messages about wrong options and progress bars need: pip install 'libcni[cli]'"
        print(text, file=sys.stderr)
        return _MISSING


def version_line() -> str:
    """Return the version of this program and of the specification."""
    import libcni

    return f"libcni {libcni.__version__} (CNI {libcni.ALL_VERSIONS[0]} to {libcni.CURRENT_VERSION})"


def run() -> None:
    """Run the console script."""
    # Imports allocate many objects that live to the end. Collecting them again and again costs 6 % of the start.
    gc.set_threshold(100_000)
    sys.exit(main())
