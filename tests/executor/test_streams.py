"""A plugin's stdin, stdout and stderr: sealed, read to their end, limited."""

from __future__ import annotations

from pathlib import Path

import pytest

from executor.plugins import Kind, execute, run, script
from libcni.errors import InvalidOutputError, PluginTimeoutError


def test_large_input_and_large_output_do_not_deadlock(tmp_path: Path) -> None:
    data = b'"' + b"x" * 3_000_000 + b'"'
    outcome = run(script(tmp_path, "cat >&2; head -c 2000000 /dev/zero"), data)
    assert len(outcome.stdout) == 2_000_000
    assert outcome.stderr == data[-64 * 1024 :]


def test_a_plugin_may_ignore_its_input(tmp_path: Path) -> None:
    assert run(script(tmp_path, "exec true"), b"x" * 1_000_000).exit_status == 0


def test_stdin_is_sealed_and_stdout_can_be_reopened(tmp_path: Path) -> None:
    body = "cat /dev/stdin; echo more > /dev/stdout; echo x > /dev/stdin 2>/dev/null || echo sealed"
    assert run(script(tmp_path, body), b"in ").stdout == b"in more\nsealed\n"


@pytest.mark.parametrize(("pipe", "name"), [("", "stdout"), (">&2", "stderr")])
def test_output_is_limited(tmp_path: Path, pipe: str, name: str) -> None:
    with pytest.raises(InvalidOutputError, match=f"more than 1,000 bytes on {name}"):
        run(script(tmp_path, f"yes {pipe}"), output_limit=1000)


def test_a_flood_while_it_is_stopped_is_still_a_timeout(tmp_path: Path, kind: Kind) -> None:
    body = "trap 'yes >&2 & yes' TERM; while :; do sleep 0.01; done"
    with pytest.raises(PluginTimeoutError):
        execute(kind, script(tmp_path, body), 0.2, output_limit=1000)
