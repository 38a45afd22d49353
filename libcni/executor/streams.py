"""The stdin, stdout and stderr of one plugin process.

stdin is a sealed memfd. It is a pipe if the plugin is started ahead, or if this program may not write files.
stdout and stderr are pipes: a memfd there would break shell plugins that reopen /dev/stdout.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import termios

from libcni.errors import KEPT

_CHUNK = 16 * 1024
_LEAST_PIPE = 4096
"""The number of bytes that the smallest pipe takes: a page of memory."""
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


class OutputLimitError(Exception):
    """The plugin printed more than the limit. The text names the limit and the stream."""


class Streams:
    """The descriptors of a plugin's stdin, stdout and stderr, and the output so far.

    Attributes:
        open_pipes: the read ends of stdout and stderr that are not at their end yet.
        theirs: the plugin's ends of the pipes; close them when the plugin has started.
        stdout: the plugin's stdout so far; its first ``KEPT`` bytes after an OutputLimitError.
        stderr: the last bytes of the plugin's stderr, ``KEPT`` or more.
    """

    def __init__(self, output_limit: int) -> None:
        self.open_pipes: set[int] = set()
        self.stdout: bytearray = bytearray()
        self.stderr: bytearray = bytearray()
        self._output_limit = output_limit
        self._pipes: list[int] = []
        self._stdin: list[int] = []  # both ends of the pipe of a plugin that is started ahead
        self.theirs: list[int] = []
        self._buffers: dict[int, bytearray] = {}
        self._totals: dict[int, int] = {}

    def make(self, stdin: bytes | None) -> list[tuple[int, int]]:
        """Open the descriptors; return (number in the plugin, descriptor) pairs. Raises OSError.

        ``stdin``: all that the plugin will read; None: an empty pipe, for ``feed``.
        """
        theirs = self.theirs
        self._buffers = {}  # an earlier start may have failed
        if stdin is None:
            self._stdin.extend(os.pipe2(os.O_CLOEXEC))
        else:
            try:
                theirs.append(_memfd(stdin))
            except OSError as error:
                # The limit of a file's size (ulimit -f) also applies to files in memory, and must not stop a DEL.
                if error.errno != errno.EFBIG or not self._fill_pipe(stdin):
                    raise
        for buffer in (self.stdout, self.stderr):
            read_end, write_end = os.pipe2(os.O_CLOEXEC)
            self._pipes.append(read_end)
            theirs.append(write_end)
            os.set_blocking(read_end, False)
            self._buffers[read_end] = buffer
        self._totals = dict.fromkeys(self._pipes, 0)
        self.open_pipes = set(self._pipes)
        return [*enumerate(self._stdin[:1] + theirs)]

    def above_stdio(self, moves: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the pairs with copies in place of the descriptors 0, 1 and 2: pipes have these if stdio was closed.

        Otherwise dup2 onto a stream would overwrite the source of a later pair. Raises OSError.
        """
        for index, (number, descriptor) in enumerate(moves):
            if descriptor <= 2:  # noqa: PLR2004 - stderr
                self.theirs.append(fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3))
                moves[index] = number, self.theirs[-1]
        return moves

    def _fill_pipe(self, data: bytes) -> bool:
        """Open a pipe for stdin, write ``data`` and close its write end; return False if ``data`` does not fit."""
        # Both ends are in the list until then, so a forked child closes its copies, and the plugin's stdin can end.
        self._stdin.extend(os.pipe2(os.O_CLOEXEC))
        write_end = self._stdin[1]
        try:
            if len(data) > fcntl.fcntl(write_end, fcntl.F_GETPIPE_SZ):
                fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, len(data))
            # The plugin has not started, so nobody reads the pipe: a blocking write would never end.
            os.set_blocking(write_end, False)
            fits = os.write(write_end, data) == len(data)
        except OSError:
            return False
        self._stdin.remove(write_end)  # before it is closed: a number must not be closed twice
        os.close(write_end)
        self.theirs.append(self._stdin.pop())
        return fits

    def feed(self, stdin: bytes) -> bool:
        """Write the configuration into the empty pipe and close it; return False if the configuration does not fit."""
        write_end = self._stdin[1]
        if len(stdin) > _LEAST_PIPE and len(stdin) > fcntl.fcntl(write_end, fcntl.F_GETPIPE_SZ):
            return False
        # The plugin may have reduced the size of its pipe. A non-blocking write then writes fewer bytes.
        os.set_blocking(write_end, False)
        # The read end stays open until now: without a reader, SIGPIPE would kill a host that does not ignore it.
        is_complete = os.write(write_end, stdin) == len(stdin)
        close_all(self._stdin)
        return is_complete

    def read(self, pipe: int, size: int = _CHUNK) -> int:
        """Read up to ``size`` bytes from a pipe, return how many; raises OutputLimitError past the output limit."""
        try:
            data = os.read(pipe, size)
        except BlockingIOError:
            return 0
        if not data:
            self.open_pipes.discard(pipe)
            return 0
        buffer = self._buffers[pipe]
        buffer += data
        self._totals[pipe] += len(data)
        if buffer is self.stderr:
            del buffer[: -2 * KEPT]
        if self._totals[pipe] > self._output_limit:
            del self.stdout[KEPT:]
            name = "stderr" if buffer is self.stderr else "stdout"
            raise OutputLimitError(f"it printed more than {self._output_limit:,} bytes on {name}, and was stopped")
        return len(data)

    def read_rest(self) -> None:
        """Read the bytes that the pipes hold now; raises OutputLimitError past the output limit."""
        # A grandchild may hold the pipes open for ever: do not wait for their end.
        for pipe in tuple(self.open_pipes):
            if self.read(pipe) == _CHUNK and (waiting := _bytes_waiting(pipe)):
                self.read(pipe, waiting)

    def close(self) -> None:
        """Close all descriptors."""
        self.open_pipes.clear()
        close_all(self._pipes, self._stdin, self.theirs)

    def forget_stdin(self) -> None:
        """Close this process's copies of the plugin's stdin; call it in a forked child."""
        close_all(self._stdin, self.theirs)


def close_all(*lists: list[int]) -> None:
    """Close the descriptors in lists, the last of each list first, and empty the lists."""
    for descriptors in lists:
        while descriptors:
            try:  # noqa: SIM105 - suppress() takes longer than the close
                os.close(descriptors.pop())  # removed from the list first: a number must not be closed twice
            except OSError:
                pass


def _memfd(data: bytes) -> int:
    """Return the descriptor of a sealed file in memory with ``data``."""
    descriptor = os.memfd_create("cni-stdin", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        # pwrite leaves the offset at 0, where the plugin begins to read
        written = os.pwrite(descriptor, data, 0)
        while written < len(data):
            written += os.pwrite(descriptor, data[written:], written)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _bytes_waiting(pipe: int) -> int:
    answer: bytes = fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4)
    return int(struct.unpack("i", answer)[0])
