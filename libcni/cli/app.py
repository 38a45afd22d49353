"""Assemble the commands; turn errors, signals and broken pipes into exit codes."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Annotated

import typer

from libcni.cli import version_line
from libcni.cli.options import command
from libcni.cli.render import has_escapes
from libcni.cli.signals import Interruption

__all__ = ["COMMANDS", "EPILOG", "make_app", "run_app"]

_ATTACH, _SEE, _REPAIR = "Attach and detach (as cnitool)", "See", "Try and repair"

COMMANDS = (
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
    ("forget", "forget", _REPAIR),
    ("take-over", "take_over", _REPAIR),
    ("exec", "execute", _REPAIR),
    ("oci-hook", "oci_hook", _REPAIR),
)
"""For each command: its name, its module in ``commands`` (and function), its section of the help."""

_TYPER_INTERRUPTED = 130

EPILOG = "Exit codes: 0 done, 1 a plugin or record failed, 2 usage, 3 configuration, 4 not found, 5 timeout or lock."


def run_app(argv: Sequence[str]) -> int:
    """Run the command line and return its exit code. An exception that escapes is a defect of this program."""
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING, stream=sys.stderr)
    logging.addLevelName(logging.WARNING, "warning")
    interruption = Interruption()
    interruption.install()
    try:
        make_app(_needed(argv))(args=list(argv), prog_name="libcni")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        # typer turns a KeyboardInterrupt into this code, without a word.
        return _interrupted(interruption) if code == _TYPER_INTERRUPTED else code
    except BrokenPipeError:
        # The reader has gone. Without this, the interpreter flushes stdout at exit and prints a second error.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return _interrupted(interruption)
    return 0


def _interrupted(interruption: Interruption) -> int:
    name = interruption.signal.name
    typer.echo(f"{name}: a verb that had begun is recorded as pending or detaching; see: libcni doctor", err=True)
    return interruption.exit_code


def _needed(argv: Sequence[str]) -> Iterable[tuple[str, str, str]]:
    """Return the command that is called, or all for help and completion. Importing one command halves the start."""
    is_completing = "_LIBCNI_COMPLETE" in os.environ
    return [one for one in COMMANDS if argv and one[0] == argv[0] and not is_completing] or COMMANDS


def make_app(commands: Iterable[tuple[str, str, str]] = COMMANDS) -> typer.Typer:
    """Return the application with some of the commands, or all."""
    app = typer.Typer(
        name="libcni",
        help="Run, see and repair CNI networks.",
        epilog=EPILOG,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich" if has_escapes(sys.stdout) and has_escapes(sys.stderr) else None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for name, module, panel in commands:
        function = getattr(import_module(f"libcni.cli.commands.{module}"), module)
        app.command(name, rich_help_panel=panel)(command(function))
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version_line())
        raise typer.Exit


_Version = Annotated[
    bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
]


def _root(_version: _Version = False) -> None:
    """Run, see and repair CNI networks."""
