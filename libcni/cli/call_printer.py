"""Implement --verbose: print each plugin call and its duration on stderr."""

from __future__ import annotations

import sys

from libcni import Invocation, Outcome
from libcni.cli.render import ended_by
from libcni.errors import printable
from libcni.observe import Observer, Operation


class CallPrinter(Observer):
    """An observer that prints a line when a plugin call begins, and another line when the call has ended."""

    def before_call(self, _operation: Operation, invocation: Invocation) -> None:
        """Print the call that is about to run."""
        _print(f"> {_call(invocation)}: {invocation.path}")

    def after_call(
        self, _operation: Operation, invocation: Invocation, outcome: Outcome | None, error: BaseException | None
    ) -> None:
        """Print how the call ended."""
        seconds = outcome.seconds if outcome is not None else getattr(error, "seconds", 0.0)
        _print(f"< {_call(invocation)}: {_ending(outcome, error)} in {seconds:.3f} s")


def _call(invocation: Invocation) -> str:
    about = " ".join(filter(None, (invocation.network, invocation.container_id, invocation.ifname)))
    return f"{invocation.plugin} {invocation.verb}" + (f" ({about})" if about else "")


def _ending(outcome: Outcome | None, error: BaseException | None) -> str:
    if error is not None or outcome is None:
        return type(error).__name__
    return "ok" if outcome.exit_status == 0 else ended_by(outcome)


def _print(line: str) -> None:
    # One write: print() writes the end of the line by itself, and several threads call plugins at the same time.
    sys.stderr.write(f"{printable(line)}\n")
    # The plugins' stderr follows on the same stream, and the lines must stay in order.
    sys.stderr.flush()
