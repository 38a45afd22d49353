"""What the README shows works as it stands, with its directories elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from nodes import PLUGINS, Namespace

REPOSITORY = Path(__file__).resolve().parents[2]
README = (REPOSITORY / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
PRINTED = re.findall(r"^```text\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.mark.real
def test_first_lines_of_a_program_succeed_with_real_plugins(
    tmp_path: Path, host: Namespace, container: Namespace, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {
        "/run/netns/c1": container.path,
        '"/usr/lib/cni"': f'"{PLUGINS}", "{tmp_path}/records"',
        '"host-local"': f'"host-local", "dataDir": "{tmp_path}/leases"',
    }
    block = BLOCKS[0]
    for text, elsewhere in places.items():
        assert block.count(text) == 1
        block = block.replace(text, elsewhere)
    exec(block, {})
    assert capsys.readouterr().out == PRINTED[0]
    assert container.links() == ["lo"]
    assert {path.name for path in (tmp_path / "leases" / "front").iterdir()} <= {"lock", "last_reserved_ip.0"}
    assert list((tmp_path / "records" / "results").iterdir()) == []


def test_the_commands_of_make_exist() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    commands = re.findall(r"`make ([a-z-]+)", README)
    assert commands
    assert [name for name in commands if f"\n{name}:" not in makefile] == []


def test_ci_calls_the_first_commands_as_they_stand_there() -> None:
    first = re.findall(r"^```sh\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)[0]
    commands = [line.partition("#")[0].strip() for line in first.splitlines()]
    assert commands == ["make demo", "make test"]
    called = (REPOSITORY / ".ci/run").read_text().splitlines()
    assert [command for command in commands if command not in called] == []
