"""The command ``libcni``: ``pip install 'libcni[cli]'``. Each command is one file in ``commands``."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence

__all__ = ["main", "run"]

_MISSING = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line with these arguments, or those of the process, and return its exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments and arguments[0] == "oci-hook":  # it runs at every start of a container, and needs no typer
        from libcni.oci import main as run_hook

        return run_hook(arguments[1:])
    try:
        from libcni.cli.app import run_app
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in {"typer", "rich", "click", "shellingham"}:
            raise
        print("libcni: the command line needs: pip install 'libcni[cli]'", file=sys.stderr)  # noqa: T201
        return _MISSING
    return run_app(arguments)


def run() -> None:
    """Be the entry point."""
    gc.set_threshold(100_000)  # imports make much that lives; looking through it again and again is 6 % of the start
    sys.exit(main())
