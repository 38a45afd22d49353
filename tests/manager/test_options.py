"""The options of a set-up go to its verbs, which refuse them before a plugin runs."""

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
        ({"timeout": 0}, ValueError),
        ({"timeout": -1}, ValueError),
        ({"timeout": float("nan")}, ValueError),
        ({"timeout": "3"}, TypeError),
    ],
)
def test_bad_options_are_refused_and_nothing_is_left(
    node: ManagerNode, make: Callable[..., Any], options: dict[str, Any], error: type[Exception], tool: FakeNamespaces
) -> None:
    node.configure("a")
    with pytest.raises(error, match=next(iter(options))):
        make(namespaces=tool).set_up(Container("c1"), **options)
    assert (node.calls(), tool.there) == ([], {})
