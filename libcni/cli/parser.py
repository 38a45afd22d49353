"""The parser of each command, and completion in a shell."""

from __future__ import annotations

import argparse
import functools
import inspect
import io
import os
import shlex
import sys
import textwrap
from collections.abc import Iterable, Sequence
from contextlib import redirect_stderr
from typing import Any, NoReturn

from libcni.cli.commands import COMMANDS, Command
from libcni.cli.options import COMMON
from libcni.cli.overview import width as overview_width
from libcni.cli.render import Fields, print_block

_MEANT = {
    ("-c", "--container"): "CONTAINER without an option", ("--json", "-j", "--format"): "-o json",
    ("--fix", "--repair"): "libcni repair", ("-p", "--port", "--ports", "--publish"): "--capabilities",
}  # fmt: skip
"""Options of other programs, each with the option or command that does the same here."""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors look like those of the commands."""

    def error(self, message: str) -> NoReturn:
        # argparse would print the usage before it.
        more = "" if message.endswith("?") else f"; see: {self.prog} --help"
        print_block(Fields(f"error: {message}{more}", ()), sys.stderr)
        raise SystemExit(2)


def parser_of(command: Command) -> argparse.ArgumentParser:
    """Return the parser of a command."""
    function, arguments = command.load()
    width = overview_width()
    parser = _Parser(
        prog=f"libcni {command.name}",
        usage=usage_of(command),
        description=_folded(inspect.cleandoc(function.__doc__ or ""), width),
        formatter_class=functools.partial(argparse.RawDescriptionHelpFormatter, max_help_position=30, width=width),
        allow_abbrev=False,
    )
    vars(parser)["color"] = False  # Python 3.14 would colour the help in a terminal
    for argument in arguments:
        argument.add_to(parser)
    common = parser.add_argument_group("common options")
    for argument in () if command.is_of_engines else COMMON:
        argument.add_to(common)
    return parser


def read_words(command: Command, words: Sequence[str]) -> dict[str, Any]:
    """Return the values of a command's arguments and options by name."""
    parser = parser_of(command)
    # Intermixed: an option may stand between two arguments of which the second one may be missing.
    options, unknown = parser.parse_known_intermixed_args(words)
    if unknown:
        word = unknown[0].partition("=")[0]
        flags = [flag for argument in (*command.load()[1], *COMMON) for flag in argument.flags]
        meant = _probably_meant(word, flags)
        parser.error(f"unrecognized arguments: {' '.join(unknown)}" + (f"; did you mean {meant}?" if meant else ""))
    if getattr(options, "include_go", False) and options.owner:
        parser.error("--include-go cannot be used with --owner: records of Go libcni have no owner")
    return vars(options)


def refusal(line: str) -> str:
    """Return why the parser of a command refuses a command line; "" if the parser accepts it."""
    try:
        words = shlex.split(line)
    except ValueError as error:  # an apostrophe of the text
        return f"{error}: {line}"
    command = next((known for known in COMMANDS if words[:2] == ["libcni", known.name]), None)
    if command is None:
        return f"there is no such command: {line}"
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            read_words(command, words[2:])
    except SystemExit:
        return said.getvalue().strip()
    return ""


def _probably_meant(word: str, flags: Sequence[str]) -> str:
    """Suggest an option or words for an unrecognized word; "" if nothing is similar."""
    for words, meant in _MEANT.items():
        if word in words and (meant in flags or not meant.startswith("--")):
            return meant
    option = next((flag for flag in ("--ifname", "--validate") if flag in flags), "")
    if option and not word.startswith("-"):
        return f"{option} {word}"
    return closest(word, flags)


def closest(word: str, words: Iterable[str]) -> str:
    """Return the element of ``words`` that is most similar to ``word``, or ""."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, words, 1)), "")


def usage_of(command: Command) -> str:
    """Return the usage line of a command: its name, its arguments and ``[OPTION]...``."""
    _, arguments = command.load()
    positional = [argument.keywords for argument in arguments if not argument.flags[0].startswith("-")]
    shown = {None: "{}", "?": "[{}]", "*": "[{}]..."}
    words = [shown[argument.get("nargs")].format(argument["metavar"]) for argument in positional]
    return " ".join([f"libcni {command.name}", *words, "[OPTION]..."])


def _folded(text: str, width: int) -> str:
    """Fold the paragraphs of a text. An example stays as it is, so that it can be copied."""
    parts = text.split("\n\n")
    return "\n\n".join(part if part.startswith("Example:") else textwrap.fill(part, width) for part in parts)


def complete() -> None:
    """Print the completions of the word at the cursor, for the shell. Without argcomplete (extra cli) print nothing."""
    import argcomplete

    words = os.environ["COMP_LINE"][: int(os.environ["COMP_POINT"])].split(" ")
    command = next((command for command in COMMANDS if words[1:-1][:1] == [command.name]), None)
    if command is not None:
        # The number of first words that argcomplete takes for the name of the program.
        os.environ["_ARGCOMPLETE"] = "2"
        parser = parser_of(command)
    else:
        parser = argparse.ArgumentParser("libcni")
        parser.add_argument("command", choices=[command.name for command in COMMANDS])
        parser.add_argument("--version", action="store_true")
    argcomplete.autocomplete(parser)
