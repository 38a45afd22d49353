"""The table of commands; turn errors and signals into exit codes."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from libcni import printable
from libcni.cli.options import run_command
from libcni.cli.quick import read_words
from libcni.cli.signals import Interruption

Command = tuple[str, str, str]
"""The name of a command, its module in ``commands`` (and function), its section of the help."""

_ATTACH, _SEE, _REPAIR = "Attach and detach (as cnitool)", "See", "Try and repair"

COMMANDS: tuple[Command, ...] = (
    ("add", "add", _ATTACH),
    ("check", "check", _ATTACH),
    ("del", "delete", _ATTACH),
    ("gc", "gc", _ATTACH),
    ("status", "status", _ATTACH),
    ("networks", "networks", _SEE),
    ("attachments", "attachments", _SEE),
    ("watch", "watch", _SEE),
    ("show", "show", _SEE),
    ("diff", "diff", _SEE),
    ("explain", "explain", _SEE),
    ("versions", "versions", _SEE),
    ("validate", "validate", _REPAIR),
    ("doctor", "doctor", _REPAIR),
    ("repair", "repair", _REPAIR),
    ("reload", "reload", _REPAIR),
    ("forget", "forget", _REPAIR),
    ("take-over", "take_over", _REPAIR),
    ("exec", "execute", _REPAIR),
    ("oci-hook", "oci_hook", _REPAIR),
)
_TYPER_INTERRUPTED = 130
_CHANGING = {"add", "del", "gc", "repair", "reload"}

EPILOG = "Exit codes: 0 done, 1 a plugin or record failed, 2 usage, 3 configuration, 4 not found, 5 timeout or lock."


class _Formatter(logging.Formatter):
    """Shows control characters, which paths and plugins' texts may contain, as escapes."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def run_app(argv: Sequence[str]) -> int:
    """Run the command line and return its exit code. An exception that escapes is a defect of this program."""
    interruption = Interruption()
    try:
        # Before a plugin can run: the default action of SIGTERM would end this process and leave the plugin alone.
        interruption.install()
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_Formatter("%(levelname)s: %(message)s"))
        logging.basicConfig(handlers=[handler], level=logging.WARNING)
        logging.addLevelName(logging.WARNING, "warning")
        _run(argv)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        # typer turns a KeyboardInterrupt into this code, without a word.
        return _interrupted(interruption, argv) if code == _TYPER_INTERRUPTED else code
    except KeyboardInterrupt:
        return _interrupted(interruption, argv)
    return 0


def _run(argv: Sequence[str]) -> None:
    is_completing = "_LIBCNI_COMPLETE" in os.environ
    called = tuple(one for one in COMMANDS if argv[:1] == [one[0]] and not is_completing)
    if called:
        function = function_of(called[0])
        given = read_words(function, argv[1:])
        if given is not None:
            run_command(function, given)
            return
    from libcni.cli.typer_app import make_app

    make_app(called or COMMANDS)(args=list(argv), prog_name="libcni")


def function_of(command: Command) -> Callable[..., object]:
    """Return the function of a command."""
    _, module, _ = command
    function: Callable[..., object] = getattr(import_module(f"libcni.cli.commands.{module}"), module)
    return function


def _interrupted(interruption: Interruption, argv: Sequence[str]) -> int:
    name = interruption.signal.name
    # All other commands leave the records as they are.
    if set(argv[:1]) & _CHANGING:
        print(f"{name}: a verb that had begun is recorded as pending or detaching; see: libcni doctor", file=sys.stderr)
    return interruption.exit_code
