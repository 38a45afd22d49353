"""The code in docs/how-to/networks.md works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from manager.fakes import RESULT, ManagerNode

DOCS = Path(__file__).parents[2] / "docs"


def test_the_code_in_the_page_works(node: ManagerNode, capsys: pytest.CaptureFixture[str]) -> None:
    node.configure("front")
    node.plugin("front", result={**RESULT, "ips": [{"address": "10.61.0.2/24", "interface": 0}]})
    node.configure("back")
    places = {"/etc/cni/net.d": node.conf_dir, "/opt/cni/bin": node.bin, "/var/lib/cni": node.cache}
    text = (DOCS / "how-to/networks.md").read_text()
    names: dict[str, object] = {}
    for code, out in re.findall(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", text, re.MULTILINE | re.DOTALL):
        exec(re.sub("|".join(places), lambda match: str(places[match[0]]), code), names)
        assert capsys.readouterr().out == out
