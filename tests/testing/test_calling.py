"""One call of a plugin, and its answer."""

from __future__ import annotations

import pytest
from plugin.plugins import example

from libcni.testing import Answer, call_plugin


def test_the_answer_of_a_call_can_be_looked_into() -> None:
    got = call_plugin(example("hosts"), "VERSION")
    assert got.code is None
    with pytest.raises(ValueError, match="not a JSON object"):
        _ = Answer(0, "[]", "").document
