"""Let SIGTERM and SIGHUP end a verb as SIGINT does."""

from __future__ import annotations

import signal
from types import FrameType

_SIGNAL_EXIT = 128


class Interruption:
    """The signal that ended this program, if one did.

    Python's answer to SIGINT stops the running plugin and leaves the record as it is. SIGTERM and SIGHUP would end
    the process at once, and the plugin would go on alone.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals = signal.SIGINT

    @property
    def exit_code(self) -> int:
        """The exit code of a program that the signal ended."""
        return _SIGNAL_EXIT + self.signal

    def install(self) -> None:
        """Set the handlers. A signal that is ignored, such as SIGHUP under nohup, stays ignored."""
        for number in (signal.SIGTERM, signal.SIGHUP):
            # A program that calls main() may have handlers of its own. They stay.
            if signal.getsignal(number) == signal.SIG_DFL:
                signal.signal(number, self._interrupt)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self.signal = signal.Signals(number)
        # asyncio has a handler of its own for SIGINT, which cancels the tasks. A shell's background job ignores SIGINT.
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler):
            handler(number, frame)
            return
        raise KeyboardInterrupt
