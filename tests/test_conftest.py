"""Tests that cannot run are skipped with a reason; in CI a skipped test is a failure."""

from __future__ import annotations

import time
import tomllib
from pathlib import Path
from tempfile import TemporaryFile

import conftest
import pytest
from forkserver import ForkServer

REPOSITORY = Path(__file__).resolve().parent.parent

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
    pytester.makeini("[pytest]\nmarkers = [real, may_skip, slow]")
    result = pytester.runpytest_inprocess("-rsf", "-p", "no:libcni.testing.pytest_plugin")
    result.assert_outcomes(skipped=skipped, failed=failed, errors=failed, xfailed=1)
    result.stdout.fnmatch_lines(["*no plugins*"])


def test_a_test_that_never_ends_fails_after_its_limit(pytester: pytest.Pytester) -> None:
    """The project's own options, with a limit of a second."""
    options = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert options["timeout"] > 0
    pytester.makepyfile("import time\ndef test_endless():\n    while True:\n        time.sleep(0.1)\n")
    ran = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-o", "timeout=1", "-o", "timeout_func_only=true")
    ran.assert_outcomes(failed=1)


def test_a_command_that_hangs_does_not_give_its_exit_status_to_the_next_one(tmp_path: Path) -> None:
    (tmp_path / "hangs").write_text("import time\ntime.sleep(1000)\n", encoding="utf-8")
    server = ForkServer({})
    with TemporaryFile() as stream:
        streams = [stream.fileno()] * 3
        try:
            for _ in range(2):
                server.start([], streams, {}, tmp_path, str(tmp_path / "hangs"))
                with pytest.raises(TimeoutError):
                    server.wait(time.monotonic())
            server.start([], streams, {}, tmp_path, str(tmp_path / "hangs"))  # and nobody waits for it
            assert server.run(["nosuch"], {}, tmp_path)[0] == 2
        finally:
            server.close()
