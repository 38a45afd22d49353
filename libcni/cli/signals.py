"""Let SIGINT, SIGTERM and SIGHUP end a verb."""

from __future__ import annotations

import signal
from types import FrameType

_SIGNAL_EXIT = 128


class Interruption:
    """The signal that ended this program, if one did.

    By default each signal would end the process at once, and the running plugin would go on alone. A KeyboardInterrupt
    stops the plugin and leaves the record as it is.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals = signal.SIGINT

    @property
    def exit_code(self) -> int:
        """The exit code of a program that the signal ended."""
        return _SIGNAL_EXIT + self.signal

    def install(self) -> None:
        """Set the handlers. A signal that is ignored, such as SIGHUP under nohup, stays ignored."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # A program that calls main() may have handlers of its own. They stay.
            if signal.getsignal(number) == signal.SIG_DFL:
                signal.signal(number, self._interrupt)

    def _interrupt(self, number: int, _frame: FrameType | None) -> None:
        self.signal = signal.Signals(number)
        raise KeyboardInterrupt
