"""Run a command; turn errors and signals into exit codes."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

from libcni import printable
from libcni.cli.commands import COMMANDS
from libcni.cli.failures import UsageError, report_errors
from libcni.cli.inputs import Target
from libcni.cli.parser import complete, overview, parser_of
from libcni.cli.render import print_block
from libcni.cli.session import Session
from libcni.cli.signals import Interruption

_CHANGING = {"add", "del", "gc", "repair", "reload"}


class _Formatter(logging.Formatter):
    """Shows control characters, which paths and plugins' texts may contain, as escapes."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def run_app(argv: Sequence[str]) -> int:
    """Run the command line and return its exit code. An exception that escapes is a defect of this program."""
    interruption = Interruption()
    try:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_Formatter("%(levelname)s: %(message)s"))
        logging.basicConfig(handlers=[handler], level=logging.WARNING)
        logging.addLevelName(logging.WARNING, "warning")
        _run(argv, interruption)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except KeyboardInterrupt:
        # All other commands leave the records as they are.
        if set(argv[:1]) & _CHANGING:
            note = "a verb that had begun is recorded as pending or detaching; see: libcni doctor"
            print(f"{interruption.signal.name}: {note}", file=sys.stderr)
        return interruption.exit_code
    return 0


def _run(argv: Sequence[str], interruption: Interruption) -> None:
    if "_ARGCOMPLETE" in os.environ:
        complete()
        return
    if not argv or argv[0] in {"-h", "--help"}:
        print_block(overview(), sys.stdout if argv else sys.stderr)
        raise SystemExit(0 if argv else 2)
    command = next((one for one in COMMANDS if one.name == argv[0]), None)
    if command is None:
        from difflib import get_close_matches

        near = get_close_matches(argv[0], [one.name for one in COMMANDS], 1)
        meant = f"did you mean {near[0]}?" if near else "see: libcni --help"
        print_block(f"error: there is no command {argv[0]}; {meant}", sys.stderr)
        raise SystemExit(2)
    function, _ = command.load()
    # Intermixed: an option may stand between two arguments of which the second one may be missing.
    given = vars(parser_of(command).parse_intermixed_args(argv[1:]))
    interruption.install()
    session = Session(**{name: given.pop(name) for name in Session.__dataclass_fields__})
    if "capabilities" in given:
        given["target"] = Target(**{name: given.pop(name) for name in Target._fields})
    with report_errors(session):
        if session.output == "openmetrics" and command.name != "doctor":
            raise UsageError("only doctor has --output openmetrics")
        function(session, **given)
