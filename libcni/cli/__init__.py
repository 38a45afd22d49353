"""The command line ``libcni``. Each command is a file in ``commands``.

The extra ``libcni[cli]`` adds completion with the Tab key.
"""

from __future__ import annotations

import errno
import gc
import io
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

from libcni._defaults import complete_path

__all__ = ["main", "run"]

_FAILED, _USAGE = 1, 2
# Errors of writing stdout. Errors of writing records are RecordErrors.
_UNWRITABLE = {errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        argv: the arguments without the program's name; None: those of this process.
    """
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv))
        # Here, and not at the interpreter's exit: a closed pipe is not an error here.
        sys.stdout.flush()
    except OSError as error:
        # os.getcwd() names no file.
        if error.errno == errno.ENOENT and error.filename is None:
            print("error: the current directory does not exist any more; give absolute paths", file=sys.stderr)
            return _FAILED
        if error.filename is not None or error.errno not in _UNWRITABLE:
            raise
        if error.errno != errno.EPIPE:
            print(f"error: the output cannot be written: {error.strerror}", file=sys.stderr)
        # Without this, the interpreter flushes stdout at exit and prints a second error.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _FAILED
    return code


def _run(arguments: Sequence[str]) -> int:
    # Both run at every start and end of a container, so they must not wait for the imports of the other commands.
    if arguments[:1] == ["netavark-plugin"]:
        from libcni.engines.netavark import main as run_driver

        return run_driver(arguments[1:])
    if arguments[:1] == ["oci-hook"]:
        from libcni.engines.oci import main as run_hook

        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return run_hook(arguments[1:])
    if arguments == ["--version"]:
        import libcni

        print(f"libcni {libcni.__version__} (CNI {libcni.ALL_VERSIONS[0]} to {libcni.CURRENT_VERSION})")
        return 0
    if arguments[:1] in ([], ["-h"], ["--help"]) and "_ARGCOMPLETE" not in os.environ:
        from libcni.cli.overview import overview

        print(overview(), file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else _USAGE
    from libcni.cli.app import run_app

    return run_app(arguments)


def run() -> None:
    """Run ``main`` as the console script ``libcni``, and exit with its code."""
    # Imports allocate many objects that live to the end. Collecting them again and again costs 6 % of the start.
    gc.set_threshold(100_000)
    # Plugins, doctor and repair need iptables.
    os.environ["PATH"] = complete_path(os.environ.get("PATH", ""))
    # If a stream's descriptor was closed (">&-"), the stream is None, and the next opened file would get the number.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - to the end of the program
    # JSON is UTF-8, even in a locale of another encoding. An ADD that has succeeded must not end in a traceback.
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.encoding.lower() != "utf-8":
        sys.stdout.reconfigure(encoding="utf-8")
    # Ctrl-C ends this process without a traceback until a command begins. A job that ignores SIGINT goes on doing so.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    code = main()
    # At its exit Python collects garbage several times, which costs an eighth of a short command. It skips
    # frozen objects; objects without cycles still end as usual.
    gc.freeze()
    sys.exit(code)
