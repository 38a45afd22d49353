"""What the README shows works as it stands, with its directories elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from nodes import PLUGINS, Namespace

import libcni

REPOSITORY = Path(__file__).resolve().parents[2]
README = (REPOSITORY / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
PRINTED = re.findall(r"^```text\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
CHAIN = [{"type": "fake-bridge", "ipam": {"subnet": "10.1.0.0/16"}}, {"type": "fake-portmap", "fake": {}}]


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
    assert {path.name for path in (tmp_path / "leases" / "demo").iterdir()} <= {"lock", "last_reserved_ip.0"}
    assert list((tmp_path / "records" / "results").iterdir()) == []


def test_the_overview_has_the_same_first_lines() -> None:
    overview = (REPOSITORY / "docs/index.md").read_text()
    assert f"```python\n{BLOCKS[0]}```\n\n```text\n{PRINTED[0]}```\n" in overview


def test_an_error_says_what_happened(
    tmp_path: Path, fake_path: str, fake_state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    CHAIN[1]["fake"] = {"ADD": {"error": {"code": 11}}}
    net = libcni.NetworkConfigList.from_dict({"cniVersion": "1.1.0", "name": "demo", "plugins": CHAIN})
    names = {
        "libcni": libcni,
        "cni": libcni.CNIConfig(fake_path, tmp_path),
        "net": net,
        "rt": libcni.RuntimeConf("c1", "/run/netns/c1", "eth0"),
    }
    exec(BLOCKS[1], names)
    assert capsys.readouterr().out.startswith("fake-portmap ADD 11 ")


def test_commands_and_links_exist() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    commands = re.findall(r"\bmake ([a-z-]+)", README)
    assert {"demo", "test"} <= set(commands)
    assert [name for name in commands if f"\n{name}:" not in makefile] == []
    links = re.findall(r"\]\((?!http)([^)#]+)\)", README)
    assert links
    assert [link for link in links if not (REPOSITORY / link).exists()] == []
