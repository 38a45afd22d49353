"""The doctor says why a plugin's file cannot be started, without starting it."""

from __future__ import annotations

import pytest

from diagnosis.conftest import GOOD, OperatorNode, install

pytestmark = pytest.mark.real


@pytest.mark.parametrize(
    ("content", "seen"),
    [
        (b"", "the file is empty"),
        (b"#!/usr/bin/python9\n", "its interpreter /usr/bin/python9 does not exist"),
        (b"#!/usr/bin/env -S nosuchpython -E\n", "its interpreter nosuchpython is not in PATH"),
        (b"hello", "neither a script"),
        (b"\x7fELF\x02\x01\x01", "neither a program for this machine"),
    ],
)
def test_an_executable_that_cannot_be_started_is_found_without_an_add(
    node: OperatorNode, content: bytes, seen: str
) -> None:
    path = install(node, content)
    found = node.finding(seen)
    assert found.severity == "error"
    assert found.remedy
    assert seen in node.type("libcni networks --check", code=1)
    path.unlink()  # "install the plugin again": the good one is found now
    node.assert_healthy()
    node.type("libcni networks --check")


def test_a_script_with_crlf_line_ends(node: OperatorNode) -> None:
    install(node, GOOD.replace(b"\n", b"\r\n"))
    node.mend("CRLF")
    node.assert_healthy()
