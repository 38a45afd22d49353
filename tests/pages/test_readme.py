"""What the README shows works as it stands, with its three directories elsewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
README = (REPOSITORY / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
FAILING = {"while": "FAIL", "error": {"code": 11}}
DBNET = {
    "cniVersion": "1.1.0",
    "name": "dbnet",
    "plugins": [
        {"type": "fake-bridge", "ipam": {"subnet": "10.1.0.0/16"}},
        {
            "type": "fake-portmap",
            "capabilities": {"portMappings": True},
            "fake": {"while": "FAIL", "error": {"code": 11}},
        },
    ],
}


@pytest.fixture
def blocks(tmp_path: Path, fake_path: str, fake_state: Path) -> list[str]:
    """Return the README's code with directories that the test may use."""
    (tmp_path / "10-db.conflist").write_text(json.dumps(DBNET).replace("FAIL", str(tmp_path / "fail")))
    places = {"/etc/cni/net.d": str(tmp_path), "/opt/cni/bin": fake_path, "/var/lib/cni": str(tmp_path / "cache")}
    return [re.sub("|".join(places), lambda match: places[match[0]], block) for block in BLOCKS]


def test_first_lines_of_a_program(blocks: list[str], fake_state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exec(blocks[0], {})
    assert capsys.readouterr().out == "10.1.0.2/16\n"
    assert [path for path in fake_state.rglob("*") if path.is_file()] == []


def test_an_error_says_what_happened(blocks: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    exec(blocks[0], names)
    (tmp_path / "fail").touch()
    exec(blocks[1], names)
    assert capsys.readouterr().out.splitlines()[1] == "fake-portmap ADD 11 set to fail 1 "


def test_commands_and_links_exist() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    commands = re.findall(r"\bmake ([a-z-]+)", README)
    assert {"demo", "test"} <= set(commands)
    assert [name for name in commands if f"\n{name}:" not in makefile] == []
    links = re.findall(r"\]\((?!http)([^)#]+)\)", README)
    assert links
    assert [link for link in links if not (REPOSITORY / link).exists()] == []
