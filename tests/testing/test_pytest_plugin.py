"""The pytest plugin, as it works in somebody else's test suite."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import pytest
from plugin.plugins import LIBRARY, ROOT

PLUGIN = "libcni.testing.pytest_plugin"


def test_it_is_found_through_its_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {PLUGIN: PLUGIN}


USES_A_NAMESPACE = """
def test_it(cni_netns):
    assert "lo" in cni_netns.interfaces()
"""


@pytest.mark.root
@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("os.geteuid = lambda: 1000", "network namespaces need root"),
        (
            "import libcni.testing.namespaces as made; made.IP_NETNS_DIRECTORY = '/proc/x'",
            "no network namespace can be made: ",
        ),
    ],
)
def test_without_the_means_a_namespace_is_skipped_with_the_reason(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, module: str, reason: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(LIBRARY))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take longer than the test
    pytester.makepyfile(USES_A_NAMESPACE)
    pytester.makeconftest(
        f"import os, pytest\n@pytest.fixture(scope='session', autouse=True)\ndef bare():\n    {module}\n"
    )
    # In a process of its own: the conftest takes things away that this one needs.
    outcome = pytester.runpytest_subprocess("-p", PLUGIN, "-rs", f"--rootdir={pytester.path}")
    outcome.assert_outcomes(skipped=1)
    outcome.stdout.fnmatch_lines([f"*{reason}*"])


@pytest.mark.real
@pytest.mark.usefixtures("cni_namespaces")
def test_a_namespace_is_gone_after_the_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(f"{USES_A_NAMESPACE}    print('made', cni_netns.path)\n")
    outcome = pytester.runpytest("-p", PLUGIN, "-s")
    outcome.assert_outcomes(passed=1)
    path = next(line.split()[-1] for line in outcome.outlines if "made /run/netns/" in line)
    assert not (ROOT / path).exists()


def test_loading_it_loads_nothing_that_coverage_would_miss() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(LIBRARY)!r}); import pytest, {PLUGIN}\n"
        "print(*(name for name in sys.modules if name.startswith('libcni')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == {"libcni", "libcni.testing", PLUGIN}
