"""Tests that cannot run are skipped with a reason; in CI a skipped test is a failure. A worker reports what counts."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

TESTS = """
import pytest

@pytest.mark.real
def test_real():
    pass

def test_skipped():
    pytest.skip("no gcc")

@pytest.mark.may_skip
def test_may_skip():
    pytest.skip("no network")

@pytest.mark.xfail(strict=True)
def test_expected_to_fail():
    raise AssertionError
"""


@pytest.mark.parametrize(("ci", "skipped", "failed"), [("true", 1, 1), ("false", 3, 0), ("", 3, 0)])
def test_a_skipped_test_is_a_failure_in_ci(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, ci: str, skipped: int, failed: int
) -> None:
    monkeypatch.setenv("CI", ci)
    hooks = Path(conftest.__file__).read_text().replace('pytest_plugins = ["pytester", ', "pytest_plugins = [")
    pytester.makeconftest(f"{hooks}\ndef why_no_real_plugins(): return 'no plugins'\n")
    pytester.makepyfile(TESTS)
    pytester.makeini("[pytest]\nmarkers = [real, may_skip]")
    result = pytester.runpytest_inprocess("-rsf", "-p", "no:libcni.testing.pytest_plugin")
    result.assert_outcomes(skipped=skipped, failed=failed, errors=failed, xfailed=1)
    result.stdout.fnmatch_lines(["*no plugins*"])


FAILING = """
import pytest

@pytest.fixture
def broken():
    raise ValueError

@pytest.fixture
def broken_later():
    yield
    raise ValueError

def test_set_up(broken):
    pass

def test_tear_down(broken_later):
    pass

def test_call():
    raise ValueError

def test_right():
    pass
"""


def test_a_worker_reports_each_test_once_and_each_failure(pytester: pytest.Pytester) -> None:
    hooks = Path(conftest.__file__).read_text().replace('pytest_plugins = ["pytester", ', "pytest_plugins = [")
    pytester.makeconftest(f"{hooks}\ndef pytest_configure(config): config.workerinput = {{'workerid': 'gw0'}}\n")
    pytester.makepyfile(FAILING)
    recorded = pytester.inline_run("-p", "no:libcni.testing.pytest_plugin")
    reports = recorded.getreports("pytest_runtest_logreport")
    assert [(one.nodeid.partition("::")[2], one.when, one.outcome) for one in reports] == [
        ("test_set_up", "setup", "failed"),
        ("test_tear_down", "call", "passed"),
        ("test_tear_down", "teardown", "failed"),
        ("test_call", "call", "failed"),
        ("test_right", "call", "passed"),
    ]
