"""The command line ``libcni``. Each command is a file in ``commands``.

The extra ``libcni[cli]`` adds help, messages about wrong options, completion, colours and progress bars.
"""

from __future__ import annotations

import codecs
import errno
import gc
import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

__all__ = ["main", "run", "version_line"]

_FAILED, _MISSING = 1, 2
# Errors of writing stdout. Errors of writing records are RecordErrors.
_UNWRITABLE = {errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        argv: the arguments without the program's name; None: those of this process.
    """
    try:
        code = _run(sys.argv[1:] if argv is None else argv)
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
        from libcni.cli.app import COMMANDS

        # Without the extra nothing else lists the commands.
        text = "libcni: help, messages about wrong options and progress bars need: pip install 'libcni[cli]'"
        print(f"{text}\ncommands: {', '.join(name for name, *_ in COMMANDS)}", file=sys.stderr)
        return _MISSING


def version_line() -> str:
    """Return the version of this program and of the specification."""
    import libcni

    return f"libcni {libcni.__version__} (CNI {libcni.ALL_VERSIONS[0]} to {libcni.CURRENT_VERSION})"


def run() -> None:
    """Run the console script."""
    # Imports allocate many objects that live to the end. Collecting them again and again costs 6 % of the start.
    gc.set_threshold(100_000)
    # Python has None for a stream whose descriptor was closed (">&-"), and the next file to be opened would get its
    # number.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - to the end of the program
    # The texts of plugins have any characters, and not every encoding has them. An ADD that has succeeded must not end
    # in a traceback because of that.
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.encoding.lower() != "utf-8":
        codecs.register_error("libcni.json", _escaped)
        sys.stdout.reconfigure(errors="libcni.json")
    _import_quietly(sys.argv[1:])
    sys.exit(main())


def _import_quietly(arguments: Sequence[str]) -> None:
    """Import the program. Ctrl-C meanwhile ends this process without a traceback: nothing has begun."""
    if arguments == ["--version"]:
        return
    # The C part: signal imports enum, and Ctrl-C meanwhile would be a traceback.
    import _signal as signal  # type: ignore[import-not-found]  # typeshed has no stub

    # A shell's background job ignores SIGINT, and must go on doing so.
    is_python = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_python:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    with suppress(ImportError):  # main reports it
        if arguments[:1] == ["oci-hook"]:
            from libcni.oci import main as _hook  # noqa: F401 - imported here for _run
        else:
            from libcni.cli.app import COMMANDS, function_of

            for command in COMMANDS:
                if arguments[:1] == [command[0]]:
                    function_of(command)
    if is_python:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """Replace characters that the encoding of stdout does not have by JSON's escapes, so that JSON stays JSON."""
    import json

    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end
