"""System calls of the faults and of the log."""

from __future__ import annotations

import os
import time

BLOCK = b"x" * 65536


def now() -> float:
    """Return CLOCK_MONOTONIC: the same clock in every process of the machine."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def write(descriptor: int, data: bytes) -> None:
    """Write all of ``data``."""
    while data:
        data = data[os.write(descriptor, data) :]


def write_without_end(descriptor: int) -> None:
    """Write until something ends this process."""
    while True:
        os.write(descriptor, BLOCK)


def append(path: str, data: bytes) -> None:
    """Append in one system call, so that the lines of plugins that run at once do not mix."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(descriptor, data)
    os.close(descriptor)


def appear(path: str, text: str) -> None:
    """Make a file that is complete from the moment at which it can be seen."""
    temporary = f"{path}.{os.getpid()}"
    write_new(temporary, text)
    os.rename(temporary, path)


def write_new(path: str, text: str) -> None:
    """Make a file that must not exist yet (FileExistsError)."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    write(descriptor, text.encode())
    os.close(descriptor)


def wait_for(path: str) -> None:
    """Return once ``path`` exists."""
    while not os.path.exists(path):
        time.sleep(0.002)


def ignore_term() -> None:
    """Ignore SIGTERM from here on."""
    import signal

    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def leave_grandchild(duration: float, holds: list, *, detach: bool) -> int:
    """Leave a process behind that keeps the streams in ``holds`` open; return its pid."""
    child = os.fork()
    if child:
        return child
    if detach:
        os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if name not in holds:
            os.dup2(null, descriptor)
    time.sleep(duration)
    os._exit(0)


def descriptors() -> list:
    """Return the open descriptors and what they are: [[number, target], ...]."""
    numbers = sorted(int(name) for name in os.listdir("/proc/self/fd"))
    return [[number, target] for number in numbers for target in _target(number)]


def _target(descriptor: int) -> list:
    try:
        return [os.readlink(f"/proc/self/fd/{descriptor}")]
    except FileNotFoundError:
        return []  # the one through which the directory was listed
