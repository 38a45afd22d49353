"""A process that has imported the command line and forks for each command typed: a fork takes 5 ms, the imports 300.

What runs is a process of its own, with its own arguments, environment, directory and streams; only the imports are not
repeated. The tests of the start itself (imports, signals, completion) run the installed script.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from tempfile import TemporaryFile
from typing import Any

from sight import VARIABLE, see_all

__all__ = ["SECONDS", "ForkServer"]

_REQUEST = 200_000
SECONDS = 240
"""The limit of pytest is longer. A machine that does other work may need minutes for a command."""
_CLONE_NEWNET = 0x40000000


class ForkServer:
    """The process that forks.

    Args:
        coverage: the variables that make a process measure its coverage, if they are set.
        data: the file beside which each command writes its coverage; empty if none is measured.
    """

    def __init__(self, coverage: Mapping[str, str], data: str = "") -> None:
        self.coverage = coverage
        self._running = 0  # the process whose exit status was not read
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # Without TERM, FORCE_COLOR and the like, which the imported modules may read once.
            env = {name: text for name, text in os.environ.items() if name.startswith("PYTHON")}
            subprocess.run(
                [sys.executable, __file__, data], stdin=theirs.fileno(), stdout=subprocess.DEVNULL, env=env, check=True
            )

    def close(self) -> None:
        """End the process: it reads the end of the socket."""
        self._socket.close()

    def start(
        self, argv: Sequence[str], streams: Sequence[int], env: Mapping[str, str], cwd: Path, program: str = ""
    ) -> None:
        """Start ``libcni``, or a program in Python, with its three streams, in the network namespace of this thread."""
        self._end()  # a test may have been stopped before it waited
        namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            request = json.dumps({"argv": [program or "libcni", *argv], "env": dict(env), "cwd": str(cwd)})
            socket.send_fds(self._socket, [request.encode()], [*streams, namespace])
            self._running = self._receive(None)
        finally:
            os.close(namespace)

    def wait(self, deadline: float) -> int:
        """Return the exit status of the command that was started, negative for a signal.

        Raises TimeoutError after the deadline; the command is killed then.
        """
        try:
            status = self._receive(max(0.1, deadline - time.monotonic()))
        except TimeoutError:
            self._end()
            raise
        self._running = 0
        return status

    def _receive(self, seconds: float | None) -> int:
        self._socket.settimeout(seconds)
        answer = self._socket.recv(100)
        assert answer, "the fork server has ended"
        return int(answer)

    def _end(self) -> None:
        """Kill what still runs: its exit status would be taken for that of the next command."""
        if self._running:
            try:
                self._receive(0.0)
            except BlockingIOError:
                os.kill(self._running, signal.SIGKILL)
                self._receive(None)
            self._running = 0

    def run(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: Path, *, stdin: str = "", program: str = ""
    ) -> tuple[int, str, str]:
        """Run ``libcni``, or a program, with files for streams; return its exit status, its stdout and its stderr."""
        with TemporaryFile() as given, TemporaryFile() as stdout, TemporaryFile() as stderr:
            given.write(stdin.encode())
            given.seek(0)
            self.start(argv, [stream.fileno() for stream in (given, stdout, stderr)], env, cwd, program)
            status = self.wait(time.monotonic() + SECONDS)
            stdout.seek(0)
            stderr.seek(0)
            return status, stdout.read().decode(), stderr.read().decode()


def _serve(requests: socket.socket) -> None:
    """Fork for each request; return in the child."""
    while True:
        data, descriptors, _, _ = socket.recv_fds(requests, _REQUEST, 4)
        if not data:
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            requests.close()
            _become(json.loads(data), *descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)
        requests.send(b"%d" % pid)
        requests.send(b"%d" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def _become(request: dict[str, Any], stdin: int, stdout: int, stderr: int, namespace: int) -> None:
    """Take over the streams, the namespace, the directory, the environment and the arguments of a new process."""
    for number, descriptor in enumerate((stdin, stdout, stderr)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    if os.fstat(namespace).st_ino != os.stat("/proc/self/ns/net").st_ino:
        assert ctypes.CDLL(None).setns(namespace, _CLONE_NEWNET) == 0
    os.close(namespace)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    if os.environ.pop(VARIABLE, ""):
        see_all()
    sys.argv[:] = request["argv"]
    sys.stdout.reconfigure(line_buffering=os.isatty(1))  # type: ignore[union-attr]


def _import(data: str) -> None:
    """Import what the commands import; measure from then on."""
    import libcni.cli.commands
    import libcni.diagnosis
    import libcni.manager
    from libcni.cli import main

    commands = [f"libcni.cli.commands.{command.name}" for command in iter_modules(libcni.cli.commands.__path__)]
    for name in ("asyncio", "encodings.ascii", "encodings.unicode_escape", "libcni.cli.progress", *commands):
        import_module(name)

    for module in (libcni, libcni.diagnosis, libcni.manager):
        for name in module.__all__:
            getattr(module, name)
    measuring = _measure(data) if data else None
    main(["networks", "--validate", "--conf-dir", "/nonexistent"])
    sys.stdout.flush()  # or each child would write it again
    if measuring is not None:
        measuring.save()  # or each child would write these lines again
    gc.freeze()  # a collection in a child would copy the pages of all that was imported


def _measure(data: str) -> Any:
    """Measure the coverage of this process and of each child; return what does it.

    Only now: measured, the imports take twice as long, and the tests themselves import the same. ``include`` and not
    ``source``: for that each child would look for all files of the library at its end, which takes as long as it does.
    """
    import coverage

    import libcni

    library = os.path.join(os.path.dirname(libcni.__file__), "*")
    measuring = coverage.Coverage(
        data, data_suffix=True, auto_data=True, branch=True, include=[library], config_file=False
    )
    measuring.set_option("run:disable_warnings", ["already-imported", "no-data-collected"])
    measuring.start()
    return measuring


if __name__ == "__main__":
    from libcni.cli import run

    if os.fork():  # no child of the tests: some of them assert that they leave none
        os._exit(0)
    _import(sys.argv[1])
    _serve(socket.socket(fileno=os.dup(0)))
    try:
        if sys.argv[0] == "libcni":
            run()
        sys.path.insert(0, os.path.dirname(sys.argv[0]))
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        if threading.active_count() > 1:
            raise
        # To take the interpreter down takes longer than most commands.
        atexit._run_exitfuncs()
        sys.stdout.flush()
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
        os._exit(1 if isinstance(end.code, str) else end.code or 0)
