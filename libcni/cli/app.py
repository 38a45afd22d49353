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

import libcni
from libcni.cli.options import command

__all__ = ["run_app"]

_ATTACH, _SEE, _REPAIR = "Attach and detach (as cnitool)", "See", "Try and repair"
_INTERRUPTED = 130

_COMMANDS = (
    ("add", "add", _ATTACH),
    ("check", "check", _ATTACH),
    ("del", "delete", _ATTACH),
    ("gc", "gc", _ATTACH),
    ("status", "status", _ATTACH),
    ("networks", "networks", _SEE),
    ("attachments", "attachments", _SEE),
    ("show", "show", _SEE),
    ("explain", "explain", _SEE),
    ("versions", "versions", _SEE),
    ("validate", "validate", _REPAIR),
    ("doctor", "doctor", _REPAIR),
    ("diff", "diff", _REPAIR),
    ("repair", "repair", _REPAIR),
    ("exec", "execute", _REPAIR),
)
"""For each command: its name, its module in ``commands`` (and function), its section of the help."""

_EPILOG = "Exit codes: 0 done, 1 a plugin or record failed, 2 usage, 3 configuration, 4 not found, 5 timeout or lock."


def run_app(argv: Sequence[str]) -> int:
    """Run the command line and return its exit code. An exception that escapes is a defect of this program."""
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING, stream=sys.stderr)
    logging.addLevelName(logging.WARNING, "warning")
    try:
        _app(_needed(argv))(args=list(argv), prog_name="libcni")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BrokenPipeError:
        # The reader has gone. Without this, the interpreter flushes stdout at exit and prints a second error.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        typer.echo("interrupted: an ADD that had begun is recorded as pending; see: libcni attachments", err=True)
        return _INTERRUPTED
    return 0


def _needed(argv: Sequence[str]) -> Iterable[tuple[str, str, str]]:
    """Return the command that is called, or all for help and completion. Importing one command halves the start."""
    is_completing = "_LIBCNI_COMPLETE" in os.environ
    return [one for one in _COMMANDS if argv and one[0] == argv[0] and not is_completing] or _COMMANDS


def _app(commands: Iterable[tuple[str, str, str]]) -> typer.Typer:
    app = typer.Typer(
        name="libcni",
        help="Run, see and repair CNI networks.",
        epilog=_EPILOG,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich" if sys.stdout.isatty() and sys.stderr.isatty() else None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for name, module, panel in commands:
        function = getattr(import_module(f"libcni.cli.commands.{module}"), module)
        app.command(name, rich_help_panel=panel)(command(function))
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"libcni {libcni.__version__} (CNI {libcni.ALL_VERSIONS[0]} to {libcni.CURRENT_VERSION})")
        raise typer.Exit


_Version = Annotated[
    bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
]


def _root(_version: _Version = False) -> None:
    """Run, see and repair CNI networks."""
