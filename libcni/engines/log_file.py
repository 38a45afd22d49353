"""The log file of a program that a container engine starts, perhaps in a directory where others may write."""

from __future__ import annotations

import logging
import os
import stat

from libcni.errors import printable

_logger: logging.Logger = logging.getLogger("libcni")

# O_NOFOLLOW: a symbolic link could lead root to a file of another user's choice. O_NONBLOCK: the open of a FIFO would
# wait for a reader.
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class LogFile(logging.Handler):
    """A handler that opens its file with the first line. If an open or a write fails, it warns once and stops."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        self._path = path
        self._descriptor = -1
        self._has_failed = False

    def emit(self, record: logging.LogRecord) -> None:
        """Append a line."""
        if self._has_failed:
            return
        try:
            if self._descriptor < 0:
                self._descriptor = _open(self._path)
            os.write(self._descriptor, f"{self.format(record)}\n".encode(errors="backslashreplace"))
        except (OSError, ValueError) as error:
            self._has_failed = True
            reason = getattr(error, "strerror", None) or error
            _logger.warning("log %s: %s; the program goes on without this log", printable(self._path), reason)

    def close(self) -> None:
        """Close the file."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
        super().close()


def _open(path: str) -> int:
    """Open a log file; raises OSError, or ValueError if it is no regular file of this user or root."""
    # The log holds the plugins' arguments, which may be secrets. So only its owner may read it.
    descriptor = os.open(path, _FLAGS, 0o600)
    status = os.fstat(descriptor)
    problem = "" if stat.S_ISREG(status.st_mode) else "it is not a regular file"
    problem = problem or ("" if status.st_uid in {0, os.geteuid()} else f"it belongs to user {status.st_uid}")
    if problem:
        os.close(descriptor)
        raise ValueError(problem)
    return descriptor
