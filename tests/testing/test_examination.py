"""Faults of single calls: stdout, hanging, codes, an executable that does not start."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from plugin.plugins import Recorder

from libcni.plugin import Request, VerbError
from libcni.testing import assert_plugin_conforms, check_plugin
from testing.faulty import NEWEST, write_executable, write_shell_plugin


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
@pytest.mark.slow
def test_a_call_that_hangs_ends_the_check_and_loses_no_finding(tmp_path: Path, command: str, note: str) -> None:
    path = write_shell_plugin(tmp_path, STATUS=command)
    report = check_plugin(path, {}, versions=NEWEST, timeout=3.0)
    (problem,) = [f.problem for f in report.failures if f.check == "every call is answered in time"]
    assert problem == f"no answer to STATUS within 3 s; {note}the other checks were not run"
    assert "VERSION answers: passed" in map(str, report.findings)


@pytest.mark.slow
def test_an_add_that_hangs_is_followed_by_del(tmp_path: Path) -> None:
    hang = "case $CNI_CONTAINERID in conformance-*) exec sleep 60;; esac"  # the invalid calls have another container
    path = write_shell_plugin(tmp_path, ADD=hang, DEL='touch "$0.$CNI_CONTAINERID"')
    report = check_plugin(path, {}, versions=NEWEST, timeout=3.0)
    assert "no answer to ADD" in str(report)
    assert len(list(tmp_path.glob("shell.conformance-*"))) == 1


@pytest.mark.parametrize(
    ("text", "mode", "problem"),
    [
        (None, 0, "there is no such file"),
        ("#!/bin/sh\n", 0o644, "it is not executable (chmod +x)"),
        ("#!/no/such/sh\n", 0o755, "the interpreter /no/such/sh does not exist; install the interpreter"),
        (
            "echo\n",
            0o755,
            "neither a script (its first line has no #!) nor a Linux executable; install",
        ),
    ],
)
def test_an_executable_that_cannot_be_started_is_no_examination(
    tmp_path: Path, text: str | None, mode: int, problem: str
) -> None:
    path = tmp_path / "plugin"
    if text is not None:
        path.write_text(text, encoding="utf-8")
        path.chmod(mode)
    with pytest.raises(ValueError, match=re.escape(f"{path} cannot be started: {problem}")):
        check_plugin(path, {})


def test_an_executable_that_vanishes_is_a_finding(tmp_path: Path) -> None:
    path = write_shell_plugin(tmp_path, ADD='rm -f "$0"')
    assert "it cannot be started" in str(check_plugin(path, {}, only=["life"]))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"versions": ["1.1"]}, r"there is no version of the specification 1\.1; choose from 0\.1\.0, "),
        ({"versions": []}, "no version of the specification is given; choose from 0.1.0, "),
        ({"versions": ["0.4.0"]}, r"it supports 1\.1\.0, but none of versions=0\.4\.0"),
        ({"only": []}, "no group of checks is given; choose from refusals, "),
        ({"only": ["addresses"]}, r'no ADD has succeeded: the group "addresses" is for IPAM plugins'),
        ({"only": ["several"]}, "no ADD has succeeded: exit status 1: .*no bridge"),
        ({"only": ["failures"]}, "no ADD has succeeded: exit status 1: .*no bridge"),
    ],
)
def test_what_examines_nothing_is_refused(options: dict[str, Any], problem: str) -> None:
    """Otherwise the report would be green, and a CI would test nothing."""

    def fail(request: Request) -> None:
        raise VerbError("no bridge")

    with pytest.raises(ValueError, match=problem):
        check_plugin(Recorder(NEWEST, add=fail).plugin, {}, **options)


def test_known_failures_do_not_make_an_examination(tmp_path: Path) -> None:
    path = write_shell_plugin(tmp_path, ADD="exit 9")
    with pytest.raises(ValueError, match="no ADD has succeeded: exit status 9"):
        check_plugin(path, {}, only=["failures"], known={"VERSION echoes cniVersion": "it prints 1.1.0"})


def test_a_plugin_of_versions_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    answer = '{"cniVersion": "0.4.0", "supportedVersions": ["2.0.0"]}'
    path = write_executable(tmp_path / "new", f"#!/bin/sh\necho '{answer}'\n")
    with pytest.raises(ValueError, match=r"it supports none of the versions 0\.1\.0, "):
        check_plugin(path, {})


@pytest.mark.parametrize("group", ["life", "several", "failures"])
def test_a_plugin_that_needs_a_namespace_is_not_examined_without_one(group: str) -> None:
    def enter(request: Request) -> None:
        with request.in_namespace():
            pass

    with pytest.raises(ValueError, match=r"ADD needs a namespace .*cannot enter .*; pass namespace= \(--namespace\)"):
        check_plugin(Recorder(NEWEST, add=enter).plugin, {}, only=[group])


def test_an_ipam_plugin_that_is_checked_as_another_one_has_a_note() -> None:
    def add(request: Request) -> None:
        request.result.add_ip("10.9.0.2/24")

    plugin = Recorder(add=add).plugin
    note = "ADD gives addresses and no interface: pass ipam=True (--ipam) for an IPAM plugin"
    with pytest.warns(UserWarning, match=re.escape(note)):
        report = assert_plugin_conforms(plugin, {}, only=["life"])
    assert str(report).endswith(f"0 of {len(report.findings)} checks failed\n  note: {note}")
    assert assert_plugin_conforms(plugin, {}, args="IP=10.9.0.2/24", ipam=True, only=["life"]).notes == []


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
    assert str(report).endswith("\n  note: it supports no known version, so the other checks were not run")
