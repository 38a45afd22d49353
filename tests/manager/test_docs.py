"""The pages on the manager: the code in docs/manager.md works, and the comparison names tests that are there."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

import libcni.manager
from libcni.config.jsontext import dumps
from manager.fakes import RESULT, Place

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"
COMPARISON = (DOCS / "manager-comparison.md").read_text()


def test_every_test_that_the_comparison_names_is_there() -> None:
    named = re.findall(r"`(test_\w+\.py)::(\w+)`", COMPARISON)
    assert len(named) > 50
    trees = {path.name: ast.parse(path.read_text()) for path in HERE.glob("test_*.py")}
    functions = {
        file: {node.name for node in tree.body if isinstance(node, ast.FunctionDef)} for file, tree in trees.items()
    }
    assert [f"{file}::{name}" for file, name in named if name not in functions.get(file, ())] == []


def test_every_row_of_the_comparison_names_a_test_or_says_that_it_is_not_here() -> None:
    rows = [line for line in COMPARISON.splitlines() if line.startswith("| ") and not line.startswith("| |")]
    assert len(rows) > 40
    assert [row for row in rows if "::" not in row and "not here" not in row] == []


def test_the_code_in_the_page_works(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    dns = {"nameservers": ["10.1.0.1"], "search": ["example"]}
    place.network("front")
    place.plugin("front", result={**RESULT, "dns": dns})
    place.network("back")
    places = {"/etc/cni/net.d": place.conf, "/opt/cni/bin": place.bin, "/var/lib/cni": place.cache}
    text = (DOCS / "manager.md").read_text()
    names: dict[str, object] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        exec(re.sub("|".join(places), lambda match: str(places[match[0]]), block), names)
    assert capsys.readouterr().out.splitlines() == [
        "10.1.0.5 ['eth0', 'net1']",
        "nameserver 10.1.0.1",
        "search example",
        "True ",
        "(('front', 'eth0'), ('storage', 'data0'))",
    ]


def test_public_names_are_sorted_there_and_documented() -> None:
    names = libcni.manager.__all__
    assert names == sorted(names, key=lambda name: (not name.isupper(), name[0].islower(), name))
    for name in names:
        assert name == "LOOPBACK" or getattr(libcni.manager, name).__doc__, name
    assert json.loads(dumps(libcni.manager.LOOPBACK.name)) == "cni-loopback"
