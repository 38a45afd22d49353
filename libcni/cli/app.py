"""Run a command; turn errors and signals into exit codes."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

import libcni
from libcni.cli.commands import COMMANDS
from libcni.cli.failures import exit_code, print_error, without_findings
from libcni.cli.inputs import Selection, Target
from libcni.cli.listing import check_order
from libcni.cli.parser import closest, complete, read_words
from libcni.cli.render import Fields, print_block
from libcni.cli.session import Session

_CHANGING = {"add", "del", "gc", "repair", "reload"}
_SIGNAL_EXIT = 128
_DOCTOR = libcni.Hint("", "doctor")
_OTHER_WORDS = {
    "ps": "attachments", "ls": "attachments", "list": "attachments", "get": "attachments", "containers": "attachments",
    "inspect": "show", "describe": "show", "rm": "del", "delete": "del", "remove": "del", "detach": "del",
    "disconnect": "del", "attach": "add", "connect": "add", "network": "networks", "prune": "gc", "fix": "repair",
    "restart": "reload", "version": "--version", "help": "--help",
    "plugin": "python -m libcni.plugin --help", "build": "python -m libcni.plugin --help",
    "testing": "python -m libcni.testing --help", "test": "python -m libcni.testing --help",
    "fakes": "python -m libcni.testing --help",
}  # fmt: skip
"""Words that users know from other tools, and words of plugin authors, each with the command that does this here."""


class _Warnings(logging.Handler):
    """Prints each message once: many containers may cause the same warning about their network."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = f"{record.levelname.lower()}: {record.getMessage()}"
        if text not in self._seen:
            self._seen.add(text)
            print_block(Fields(text, ()), sys.stderr)


def run_app(argv: Sequence[str]) -> int:
    """Run the command line and return its exit code. An exception that escapes is a defect of this program."""
    try:
        logging.basicConfig(handlers=[_Warnings()], level=logging.WARNING)
        _run(argv)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except KeyboardInterrupt as interruption:
        return _SIGNAL_EXIT + _signal_of(interruption)
    return 0


def _signal_of(interruption: KeyboardInterrupt) -> signal.Signals:
    # Python's own handler of SIGINT gives no argument.
    return interruption.args[0] if interruption.args else signal.SIGINT


def _run(argv: Sequence[str]) -> None:
    if "_ARGCOMPLETE" in os.environ:
        complete()
        return
    command = next((known for known in COMMANDS if known.name == argv[0]), None)
    if command is None:
        near = _OTHER_WORDS.get(argv[0]) or closest(argv[0], [known.name for known in COMMANDS])
        program = "" if near.startswith("python") else "libcni "
        meant = f"did you mean: {program}{near}" if near else "see: libcni --help"
        print_block(f"error: there is no command {argv[0]}; {meant}", sys.stderr)
        raise SystemExit(2)
    function, _ = command.load()
    try:
        options = read_words(command, argv[1:])
    except SystemExit as end:
        raise SystemExit(without_findings(int(end.code or 0), command.name)) from end
    _let_signals_interrupt()
    common = {name: options.pop(name) for name in Session.__dataclass_fields__ if name != "command"}
    session = Session(**common, command=command.name)
    for name, kind, sign in (("target", Target, "capabilities"), ("selection", Selection, "container")):
        if {sign, "network"} <= options.keys():
            options[name] = kind(**{field: options.pop(field) for field in kind._fields if field in options})
    try:
        if "target" in options:
            check_order(session, options["target"], argv)
        function(session, **options)
    except libcni.CNIError as error:
        print_error(error, session)
        raise SystemExit(without_findings(exit_code(error), command.name)) from error
    except KeyboardInterrupt as interruption:
        # All other commands leave the records as they are.
        if command.name in _CHANGING:
            note = f"an attachment may be unfinished (pending or detaching); see: {session.hint_command(_DOCTOR)}"
            print(f"{_signal_of(interruption).name}: {note}", file=sys.stderr)
        raise


def _let_signals_interrupt() -> None:
    """Let SIGINT, SIGTERM and SIGHUP end a verb with a KeyboardInterrupt that has the signal.

    By default each of them would end the process at once, and the running plugin would go on alone. A
    KeyboardInterrupt stops the plugin and leaves the record as it is. A signal that is ignored, such as SIGHUP under
    nohup, stays ignored.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # A program that calls main() may have handlers of its own. They stay.
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _interrupt)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt(signal.Signals(number))
