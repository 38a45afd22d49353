"""Time limits that a caller may give, and those that are refused."""

from __future__ import annotations

from typing import Any

import pytest

from libcni.config.timeouts import check_timeout


@pytest.mark.parametrize(
    ("value", "limit"),
    [(None, None), (1, 1.0), (0.001, 0.001), (float("inf"), None), (1e300, None), (10**400, None), (1e9, 1e9)],
)
def test_a_limit_in_seconds(value: float | None, limit: float | None) -> None:
    assert check_timeout(value) == limit


@pytest.mark.parametrize("value", [0, 0.0, -0.0, -1, float("nan"), float("-inf")])
def test_no_time_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match=r"plugin_timeout must be a number of seconds above 0, not .*; None"):
        check_timeout(value, "plugin_timeout")


@pytest.mark.parametrize("value", [True, False, "5", [5], 1j])
def test_what_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="timeout must be a number of seconds or None, not"):
        check_timeout(value)
