"""Print errors on stderr with all their fields, and map them to exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from libcni import (
    CNIError,
    CNIErrorGroup,
    ConfigError,
    InvalidIdentifierError,
    LockTimeoutError,
    NetworkNotFoundError,
    NotAttachedError,
    PluginError,
    PluginNotFoundError,
    PluginTimeoutError,
    VersionError,
)
from libcni.cli.render import Fields, Verbatim, ended_by, print_block, print_data, with_short_ids
from libcni.cli.session import Session
from libcni.diagnosis import executable_problem

T = TypeVar("T")
FAILED, USAGE, CONFIGURATION, NOT_FOUND, TOO_LATE = 1, 2, 3, 4, 5
_DOCTORS = (FAILED, USAGE)
"""The exit codes of the doctor's findings. If the doctor could not run, it exits with another code."""


class UsageError(CNIError):
    """Options that contradict each other, or an option that is missing."""


_CODES: dict[int, tuple[type[CNIError], ...]] = {
    TOO_LATE: (PluginTimeoutError, LockTimeoutError),
    NOT_FOUND: (NetworkNotFoundError, PluginNotFoundError, NotAttachedError),
    CONFIGURATION: (ConfigError, VersionError),
    USAGE: (InvalidIdentifierError, UsageError),
}
"""The first code with a matching class decides."""

_STDERR_LINES = 20
# env and shells exit with 126 and 127 if they cannot start a program.
_NOT_STARTED = {None, 126, 127}


def exit_code(error: CNIError) -> int:
    """Return the documented exit code of an error; for a group, the code that all members have, else 1."""
    if isinstance(error, CNIErrorGroup):
        codes = {exit_code(inner) for inner in error.exceptions if isinstance(inner, CNIError)}
        return codes.pop() if len(codes) == 1 else FAILED
    return next((code for code, kinds in _CODES.items() if isinstance(error, kinds)), FAILED)


def without_findings(code: int, command: str) -> int:
    """Return the exit code for a command that could not run: doctor's codes that mean findings are replaced."""
    return CONFIGURATION if command == "doctor" and code in _DOCTORS else code


def outcomes_of(verb: Callable[[], Sequence[T]]) -> Sequence[T | CNIError]:
    """Run a verb for several attachments; return for each its result or error."""
    try:
        return verb()
    except CNIErrorGroup as group:
        outcomes: Sequence[T | CNIError] = group.report
        return outcomes


def raise_errors(verb: str, outcomes: Iterable[object]) -> None:
    """Raise the errors among the outcomes of several attachments. A single error keeps its own fields."""
    errors = [outcome for outcome in outcomes if isinstance(outcome, CNIError)]
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise CNIErrorGroup(f"{verb} of {len(errors)} attachments failed", errors)


def print_error(error: CNIError, session: Session) -> None:
    """Print an error on stderr."""
    # On stderr also as JSON: stdout may hold a part of the answer already.
    if session.output == "json":
        print_data({"error": error_data(error, session)}, sys.stderr)
        return
    if isinstance(error, CNIErrorGroup):
        errors = [inner if isinstance(inner, CNIError) else CNIError(str(inner)) for inner in error.exceptions]
        if len(errors) > 1:
            print_block(Fields(f"error: {error.message}", [*hint_fields(error, session).items()]), sys.stderr)
        elif error.hint is not None:  # it knows the verb, and the plugin's error only the plugin
            errors[0].hint = error.hint
        for inner in errors:
            print_error(inner, session)
        return
    block = Fields(f"error: {message_of(error)}", _details(error, session))
    # A UsageError names IDs for the next command.
    print_block(block if isinstance(error, UsageError) else with_short_ids(block), sys.stderr)


def message_of(error: CNIError) -> str:
    """Return the error in one sentence, without the fields that are printed below it."""
    if isinstance(error, PluginError) and error.plugin:
        names = (("container", error.container_id), ("interface", error.ifname), ("network", error.network))
        where = ", ".join(f"{kind} {name}" for kind, name in names if name)
        what = f"{error.verb} of " if error.verb else ""
        return f'{what}plugin "{error.plugin}" failed' + (f" ({where})" if where else "")
    return error.text


def in_one_line(error: CNIError, session: Session) -> str:
    """Return the error with its cause or hint in parentheses, for a table."""
    more = cause_of(error) or ": ".join(hint_fields(error, session).values())
    return message_of(error) + (f" ({more})" if more else "")


def hint_fields(error: CNIError, session: Session) -> dict[str, str]:
    """Return the hint of an error in the words of the command line: what to do, and the command to type."""
    hint = error.hint
    if hint is None:
        return {}
    value = "" if hint.value in {True, None} else f" {hint.value}"
    words = hint.words(f"{session.option_of(hint.argument)}{value}" if hint.argument else "")
    is_own = hint.command == session.command == "doctor"  # it would fail in the same way
    fields = {"hint": words, "type": Verbatim("" if is_own else session.hint_command(hint))}
    return {name: text for name, text in fields.items() if text}


def _details(error: CNIError, session: Session) -> list[tuple[str, str]]:
    rows = _of_call(error) if isinstance(error, PluginError) else []
    rows += [("rollback", str(inner)) for inner in error.rollback_errors]
    rows += [("note", text) for text in _notes(error)]
    return [*rows, *hint_fields(error, session).items()]


def _of_call(error: PluginError) -> list[tuple[str, str]]:
    code = "" if error.code is None else str(error.code)
    if error.well_known:
        code += f" ({error.well_known.name.lower().replace('_', ' ')})"
    return [
        ("code", code),
        ("message", error.msg or (error.problem if error.code is None else "")),
        ("details", error.details),
        ("plugin", error.path),
        ("cause", cause_of(error)),
        ("ended", f"{ended_by(error)} after {error.seconds:.3f} s".strip()),
        ("stderr", Verbatim("\n".join(error.stderr.rstrip().splitlines()[-_STDERR_LINES:]))),
    ]


def cause_of(error: CNIError) -> str:
    """Return why the kernel refused to start a plugin's file, for example a missing interpreter, or ""."""
    if not isinstance(error, PluginError) or isinstance(error, PluginTimeoutError):
        return ""
    if not os.path.exists(error.path) or error.signal or error.exit_status not in _NOT_STARTED:
        return ""
    problem = executable_problem(error.path)
    return f"{problem[0]}; {problem[1].rstrip(':')}" if problem is not None else ""


def _notes(error: CNIError) -> list[str]:
    return list(getattr(error, "__notes__", ()))  # PEP 678


_FIELDS = (
    "code", "msg", "details", "plugin", "path", "verb", "network", "container_id", "ifname", "exit_status", "signal",
    "seconds", "stdout", "stderr", "file", "location", "problem",
)  # fmt: skip


def error_data(error: CNIError, session: Session) -> dict[str, Any]:
    """Return an error as plain data; empty fields are left out."""
    data: dict[str, Any] = {"kind": type(error).__name__, "message": error.text}
    if isinstance(error, CNIErrorGroup):
        data["message"] = error.message
        data["errors"] = [error_data(inner, session) for inner in error.exceptions if isinstance(inner, CNIError)]
    data |= {name: value for name in _FIELDS if (value := getattr(error, name, None)) not in {None, ""}}
    if error.rollback_errors:
        data["rollback_errors"] = [error_data(inner, session) for inner in error.rollback_errors]
    if cause := cause_of(error):
        data["cause"] = cause
    if notes := _notes(error):
        data["notes"] = notes
    return {**data, **hint_fields(error, session), "exit": without_findings(exit_code(error), session.command)}
