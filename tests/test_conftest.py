"""Tests with the real plugins are skipped with a reason where they cannot run; in CI they fail there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import conftest
import pytest


def setup(*, real: bool) -> None:
    item: Any = SimpleNamespace(get_closest_marker=lambda name: (real and name == "real") or None)
    conftest.pytest_runtest_setup(item)


@pytest.fixture
def no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conftest, "why_no_real_plugins", lambda: "not here")


@pytest.mark.parametrize("ci", ["", "false"])
def test_skipped_with_the_reason(no_plugins: None, monkeypatch: pytest.MonkeyPatch, ci: str) -> None:
    monkeypatch.setenv("CI", ci)
    with pytest.raises(pytest.skip.Exception, match="not here"):
        setup(real=True)


def test_a_failure_in_ci(no_plugins: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="not here"):
        setup(real=True)
    setup(real=False)


def test_needs_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert conftest.why_no_real_plugins.__wrapped__() == "needs root"


def test_names_what_is_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(conftest, "REAL_PLUGINS", tmp_path)
    assert "not installed: bridge, host-local" in str(conftest.why_no_real_plugins.__wrapped__())
