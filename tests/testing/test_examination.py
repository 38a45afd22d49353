"""Faults of single calls: stdout, hanging, codes, an executable that does not start."""

from __future__ import annotations

from pathlib import Path

import pytest
from plugin.plugins import Recorder

from libcni.plugin import Request, VerbError
from libcni.testing import check_plugin
from testing.faulty import NEWEST, write_shell_plugin


def test_a_log_line_on_stdout_is_found(tmp_path: Path) -> None:
    verbs = ("CHECK", "DEL", "GC", "STATUS")
    path = write_shell_plugin(tmp_path, **{verb: f"echo {verb} done" for verb in verbs})
    failures = check_plugin(path, {}, versions=NEWEST).failures
    problems = [f.problem for f in failures if "print on stdout" in f.check]
    assert problems == ["; ".join(f"{verb}: '{verb} done\\n'" for verb in verbs)]


@pytest.mark.parametrize(
    ("command", "note"),
    [
        ("exec sleep 60", ""),
        ("sleep 60 &", "the plugin has ended, but a process that it started keeps its output open; "),
    ],
)
def test_a_call_that_hangs_ends_the_check_and_loses_no_finding(tmp_path: Path, command: str, note: str) -> None:
    path = write_shell_plugin(tmp_path, STATUS=command)
    report = check_plugin(path, {}, versions=NEWEST, timeout=3.0)
    (problem,) = [f.problem for f in report.failures if f.check == "every call is answered in time"]
    assert problem == f"no answer to STATUS within 3 s; {note}the other checks were not run"
    assert "VERSION answers: passed" in map(str, report.findings)


def test_an_add_that_hangs_is_followed_by_del(tmp_path: Path) -> None:
    hang = "case $CNI_CONTAINERID in conformance-*) exec sleep 60;; esac"  # the invalid calls have another container
    path = write_shell_plugin(tmp_path, ADD=hang, DEL='touch "$0.$CNI_CONTAINERID"')
    report = check_plugin(path, {}, versions=NEWEST, timeout=3.0)
    assert "no answer to ADD" in str(report)
    assert len(list(tmp_path.glob("shell.conformance-*"))) == 1


def test_an_executable_that_cannot_be_started_is_a_finding(tmp_path: Path) -> None:
    assert "it cannot be started" in str(check_plugin(tmp_path / "missing", {}))


@pytest.mark.parametrize("code", [42, 99])
def test_a_code_that_the_specification_reserves_is_found(code: int) -> None:
    def fail(request: Request) -> None:
        raise VerbError("no", code=code)

    report = check_plugin(Recorder(status=fail).plugin, {}, versions=NEWEST)
    check = "error codes below 100 are the specification's"
    assert [f.problem for f in report.failures if f.check == check] == [f"STATUS: code {code}"]


def test_a_plugin_that_ends_by_a_signal_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "killed"
    path.write_text("#!/bin/sh\nkill -9 $$\n", encoding="utf-8")
    path.chmod(0o755)
    report = check_plugin(path, {})
    assert report.versions == ()
    assert report.findings[0].problem.startswith("signal 9")
    assert str(report).startswith(f"{path}: 4 of 7 checks failed\n  VERSION answers: signal 9")
