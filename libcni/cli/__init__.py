"""The command line ``libcni``, installed with ``pip install 'libcni[cli]'``. Each command is a file in ``commands``."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence

__all__ = ["main", "run"]

_MISSING = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        argv: the arguments without the program's name; None: those of this process.
    """
    try:
        from libcni.cli.app import run_app
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in {"typer", "rich", "click", "shellingham"}:
            raise
        print("libcni: the command line needs: pip install 'libcni[cli]'", file=sys.stderr)  # noqa: T201
        return _MISSING
    return run_app(sys.argv[1:] if argv is None else argv)


def run() -> None:
    """Run the console script."""
    # Imports allocate many objects that live to the end. Collecting them again and again costs 6 % of the start.
    gc.set_threshold(100_000)
    sys.exit(main())
