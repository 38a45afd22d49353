"""A node for a program that a container engine starts: the hook of OCI runtimes, or the driver of podman."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryFile
from unittest import mock

from nodes import FakeNode

from libcni.cli import main

UNNEEDED = {"dataclasses"} if sys.version_info < (3, 14) else set[str]()
"""Modules that a program without networks does not need; from Python 3.14 on logging loads dataclasses."""

MODULES = """
import sys
from libcni.cli import main
code = main(sys.argv[1:])
print("", *sorted(set(sys.modules)), file=sys.stderr)
sys.exit(code)
"""


class EngineNode(FakeNode):
    """A node with a program; ``program``: its command of ``libcni``."""

    program = ""

    def __init__(self, root: Path, owner: str) -> None:
        super().__init__(root, owner=owner, durable=True)
        self.words = [f"--conf-dir={self.conf_dir}", f"--path={self.bin}", f"--cache-dir={self.cache}"]

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "libcni", self.program, *self.words, *words]

    def run_program(self, document: str, *words: str) -> tuple[int, str, str]:
        """Run it as an engine does, with nothing in its environment; return the exit code, stdout and stderr."""
        out, err = io.StringIO(), io.StringIO()
        with TemporaryFile("w+") as stdin, redirect_stdout(out), redirect_stderr(err):
            stdin.write(document)
            stdin.seek(0)
            with mock.patch.dict(os.environ, clear=True), mock.patch("sys.stdin", stdin):
                code = main([self.program, *self.words, *words])
        return code, out.getvalue(), err.getvalue()

    def loaded(self, document: str, *words: str) -> set[str]:
        """Run it in a process of its own; return the modules that it loaded."""
        program = [sys.executable, "-c", MODULES, self.program, *self.words, *words]
        # coverage measures child processes if these are set, and imports modules of its own there
        env = {name: text for name, text in os.environ.items() if not name.startswith("COVERAGE")}
        done = subprocess.run(program, input=document, env=env, check=True, capture_output=True, text=True)
        return set(done.stderr.split())
