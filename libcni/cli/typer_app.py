"""The commands as a typer application: for help, errors in options, shell completion and the manual page."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from libcni.cli import version_line
from libcni.cli.app import COMMANDS, EPILOG, Command, function_of
from libcni.cli.options import Argument, Parameter, parameters_of, run_command


def make_app(commands: tuple[Command, ...] = COMMANDS) -> typer.Typer:
    """Return the application with some of the commands, or all."""
    app = typer.Typer(
        name="libcni",
        help="Run, see and repair CNI networks.",
        epilog=EPILOG,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        # Its panels are half empty at 80 columns, and twice as long.
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(_root)
    for command in commands:
        name, _, panel = command
        app.command(name, rich_help_panel=panel)(_for_typer(function_of(command)))
    return app


def _for_typer(function: Callable[..., object]) -> Callable[..., None]:
    """Return a command with the signature that typer reads."""

    @functools.wraps(function)
    def run(**given: Any) -> None:
        run_command(function, given)

    # In a terminal typer keeps the line breaks of a paragraph, and folds the lines again.
    run.__doc__ = "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(function.__doc__ or "").split("\n\n"))
    # typer reads the options from the signature. That of ``run`` is **given, so it is replaced.
    vars(run)["__signature__"] = inspect.Signature([_parameter(one) for one in parameters_of(function)])
    return run


def _parameter(one: Parameter) -> inspect.Parameter:
    declared = one.declared
    about = (
        typer.Argument(**declared.keywords)
        if isinstance(declared, Argument)
        else typer.Option(*declared.flags, **declared.keywords)
    )
    default = inspect.Parameter.empty if one.default is ... else one.default
    return inspect.Parameter(
        one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[one.kind, about]
    )


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version_line())
        raise typer.Exit


_Version = Annotated[
    bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
]


def _root(_version: _Version = False) -> None:
    """Run, see and repair CNI networks."""
