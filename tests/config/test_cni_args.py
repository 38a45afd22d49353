"""CNI_ARGS: text to pairs and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import libcni

plain = st.text(st.characters(exclude_characters=";=\0", exclude_categories=["Cs"]), min_size=1)


@given(st.lists(st.tuples(plain, plain)))
def test_what_is_formatted_is_parsed_back(pairs: list[tuple[str, str]]) -> None:
    assert libcni.parse_args(libcni.format_args(tuple(pairs))) == tuple(pairs)


def test_pairs_stay_in_order_and_may_repeat() -> None:
    assert libcni.parse_args("B=1;A=2;B=3") == (("B", "1"), ("A", "2"), ("B", "3"))
    assert libcni.parse_args("") == ()
    assert libcni.parse_args("A=") == (("A", ""),)


@pytest.mark.parametrize("text", ["A", "A=b=c", "A=1;", ";A=1", "=1", "A=1;;B=2"])
def test_a_text_that_is_no_list_of_pairs_is_refused(text: str) -> None:
    with pytest.raises(libcni.InvalidIdentifierError, match="KEY=VALUE"):
        libcni.parse_args(text)


@pytest.mark.parametrize("args", ["A=B", "", 5, ["A=B"], ["ab"], [("a", "b", "c")], [5]])
def test_what_is_no_list_of_pairs_is_refused_and_parse_args_named(args: Any) -> None:
    with pytest.raises(libcni.InvalidIdentifierError, match=r"invalid CNI_ARGS.* use parse_args"):
        libcni.RuntimeConf("c1", None, "eth0", args=args)
