"""The error that a plugin answers with."""

from __future__ import annotations

import pickle

import pytest

from libcni.plugin import ErrorCode, VerbError


@pytest.mark.parametrize("code", [0, -7])
def test_a_code_that_says_success_is_refused_at_once(code: int) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        VerbError("no", code=code)


def test_a_verb_error_reads_well() -> None:
    assert str(VerbError("full")) == "full"
    assert str(VerbError("full", code=11, details="all of it")) == "full; all of it"
    assert VerbError("full").code == ErrorCode.INTERNAL
    restored = pickle.loads(pickle.dumps(VerbError("full", code=11, details="all of it")))
    assert (restored.code, restored.msg, restored.details) == (11, "full", "all of it")
