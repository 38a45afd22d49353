"""A host program that reaps all children: a number that it has reaped may belong to another process group."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from libcni import Invocation
from libcni.errors import InvalidOutputError
from libcni.executor import CallOptions, ProcessExecutor

FLOOD = """#!/bin/sh
yes | head -c 60000
while [ ! -e {end} ]; do sleep 0.01; done
"""


def test_the_group_of_a_process_that_the_host_has_reaped_is_not_signalled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = tmp_path / "flood"
    plugin.write_text(FLOOD.format(end=tmp_path / "end"))
    plugin.chmod(0o755)
    signalled: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda pid, _: signalled.append(pid))
    read = os.read
    reaped: list[int] = []

    def reap_and_read(descriptor: int, size: int) -> bytes:
        if not reaped:
            (tmp_path / "end").touch()
            reaped.append(os.waitpid(-1, 0)[0])  # what a handler of SIGCHLD in the host does
        return read(descriptor, size)

    monkeypatch.setattr(os, "read", reap_and_read)
    invocation = Invocation("ADD", "flood", str(plugin), b"{}", {"CNI_COMMAND": "ADD"})
    with pytest.raises(InvalidOutputError):
        ProcessExecutor(output_limit=1000).execute(invocation, CallOptions(env={"PATH": os.environ["PATH"]}))
    assert reaped
    assert signalled == []
