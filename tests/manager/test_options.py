"""The options of a set-up are checked before anything is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from libcni.manager import Container
from manager.fakes import FakeNamespaces, ManagerNode


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"on_existing": "sometimes"}, ValueError),
        ({"on_cancel": "never"}, ValueError),
        ({"colour": "red"}, TypeError),
        ({"strict": "yes"}, TypeError),
        ({"timeout": 0}, ValueError),
        ({"timeout": -1}, ValueError),
        ({"timeout": float("nan")}, ValueError),
        ({"timeout": "3"}, TypeError),
    ],
)
def test_bad_options_are_refused_before_anything_is_made(
    node: ManagerNode, make: Callable[..., Any], options: dict[str, Any], error: type[Exception]
) -> None:
    node.configure("a")
    tool = FakeNamespaces()
    with pytest.raises(error, match=next(iter(options))):
        make(namespaces=tool).set_up(Container("c1"), **options)
    assert (node.calls(), tool.done) == ([], [])
