"""The page docs/write-a-plugin.md, executed: its plugin, its test, and its pieces of code."""

from __future__ import annotations

import ipaddress
import re
import sys

import pytest

from libcni.plugin import Plugin
from libcni.testing import FakePlugins, call_plugin
from plugin.plugins import LIBRARY, ROOT, config

PAGE = (ROOT / "docs/write-a-plugin.md").read_text(encoding="utf-8")
TITLED = dict(re.findall(r'```python title="([^"]+)"\n(.*?)```', PAGE, re.DOTALL))
UNTITLED = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_plugin_of_the_page_passes_the_test_of_the_page(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(LIBRARY))
    pytester.makepyfile(counter=TITLED["counter"], test_counter=TITLED["test_counter.py"])
    pytester.runpytest_subprocess("-p", "libcni.testing.pytest_plugin").assert_outcomes(passed=2)


def test_the_plugin_of_the_page_runs_as_a_program(pytester: pytest.Pytester) -> None:
    path = pytester.path / "counter"
    text = TITLED["counter"].replace("#!/usr/bin/env python3", f"#!{sys.executable}")
    path.write_text(
        text.replace("import Path\n", f"import Path\nimport sys\nsys.path.insert(0, {str(LIBRARY)!r})\n"), "utf-8"
    )
    path.chmod(0o755)
    (pytester.path / "data").mkdir()
    answer = call_plugin(path, "ADD", config(ipam={"dataDir": str(pytester.path / "data")}))
    assert answer.document["ips"] == [{"address": "10.77.0.2/24", "gateway": "10.77.0.1"}]


def test_the_pieces_on_args_and_delegation_work(cni_fakes: FakePlugins) -> None:
    args, delegation = UNTITLED
    plugin = Plugin("page")
    names = {"plugin": plugin, "ipaddress": ipaddress}
    exec(delegation, names)
    delegate = names["add"]
    assert callable(delegate)

    @plugin.add
    def add(request: object) -> None:
        delegate(request)
        scope = {"request": request, **names}
        exec(compile(args, "page", "exec", dont_inherit=True), scope)
        assert vars(scope["args"]) == {"K8S_POD_NAME": "web", "IP": None}

    fake = cni_fakes.scenario("ipam", "ADD: {result: {ips: [{address: 10.0.0.2/24}]}}")
    given, path = "K8S_POD_NAME=web;X=1;IgnoreUnknown=1", str(cni_fakes.path)
    answer = call_plugin(plugin, "ADD", config(ipam={"type": "ipam"}), path=path, args=given)
    assert answer.status == 0, answer.stderr
    assert answer.document["ips"] == [{"address": "10.0.0.2/24"}]
    assert call_plugin(plugin, "DEL", config(ipam={"type": "ipam"}), path=path, args=given).status == 0
    assert fake.verbs == ("ADD", "DEL")
