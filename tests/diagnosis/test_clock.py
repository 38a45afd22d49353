"""The doctor finds jumps of the wall clock."""

from __future__ import annotations

import time

import pytest

from diagnosis.conftest import OperatorNode

pytestmark = pytest.mark.real


def test_a_clock_that_was_set_back(node: OperatorNode) -> None:
    node.attach("c1")
    node.change_record("c1", created=time.time() + 86400)
    report = node.diagnose()
    assert [one.check for one in report.findings] == ["clock"]
    assert report.status == "ok"
