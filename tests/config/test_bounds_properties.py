"""The size and depth of any document are measured in its text exactly as in the decoded value."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libcni.config.jsontext import JSONTextError, check_size

texts = st.text(st.sampled_from('a",:[]{}\\ä\n'), max_size=6)
documents = st.recursive(
    st.none() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=30,
)


def elements_of(value: Any) -> int:
    if not isinstance(value, list | dict):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return max(len(value), 1) + sum(map(elements_of, inner))


def limit_elements(text: str, limit: int) -> str:
    return check_size(text, limit, math.inf)


def limit_depth(text: str, limit: int) -> str:
    return check_size(text, math.inf, limit)


def depth_of(value: Any) -> int:
    if not isinstance(value, list | dict):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(depth_of, inner), default=0)


@given(st.lists(documents, min_size=1, max_size=3), st.booleans(), st.sampled_from([None, 1]))
def test_elements_and_depth(value: Any, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    for check, size in ((limit_elements, elements_of(value)), (limit_depth, depth_of(value))):
        assert check(text, size) == text
        if size:
            with pytest.raises(JSONTextError):
                check(text, size - 1)


@given(st.text(st.sampled_from('"\\[]{},: a'), max_size=30))
def test_text_that_is_no_json_is_measured_without_an_error_of_another_kind(text: str) -> None:
    for check in (limit_elements, limit_depth):
        for limit in (0, 1, 5):
            try:
                assert check(text, limit) == text
            except JSONTextError:
                continue
