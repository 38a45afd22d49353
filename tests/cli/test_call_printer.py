"""``--verbose``: the lines of plugins that run at the same time stay lines."""

from __future__ import annotations

import io
import sys

import pytest
from helpers import a_call

from libcni.cli.call_printer import CallPrinter
from libcni.observe import Operation


class Writes(io.StringIO):
    """A stream that keeps what each call wrote: between two calls another thread can write."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def write(self, text: str) -> int:
        self.calls.append(text)
        return len(text)


def test_a_line_is_written_with_its_end_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Writes()
    monkeypatch.setattr(sys, "stderr", stream)
    call = a_call(verb="ADD", network="n", container_id="a")
    CallPrinter().before_call(Operation("ADD"), call)
    assert stream.calls == [">  ADD (n a): \n"]
