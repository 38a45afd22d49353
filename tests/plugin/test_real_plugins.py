"""The conformance helper on the real plugins: they fail where they are known to be wrong, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from libcni.config.versions import ALL_VERSIONS
from libcni.testing import NetworkNamespace
from plugin.real_plugins import SUBJECTS, examine, row, why_not

PUBLISHED = Path(__file__).resolve().parents[2] / "testdata/evidence/plugin-conformance.md"

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("machine")]


@pytest.fixture
def machine(cni_namespaces: Callable[[], AbstractContextManager[NetworkNamespace]]) -> Iterator[None]:
    """Play the machine in a namespace of its own: the links have the same names in each test."""
    with cni_namespaces() as namespace, namespace.entered():
        namespace.run("ip", "link", "set", "lo", "up")
        yield


# Each takes some seconds of the processor: two of them run with every change, in one version.
@pytest.mark.parametrize(
    ("name", "versions"),
    [
        ("host-local", ["1.0.0"]),
        ("tuning", ["1.0.0"]),
        *(pytest.param(name, ALL_VERSIONS, marks=pytest.mark.slow) for name in SUBJECTS),
    ],
)
def test_a_real_plugin_fails_its_known_faults_only(name: str, versions: Sequence[str]) -> None:
    text = PUBLISHED.read_text(encoding="utf-8")
    if reason := why_not(name):  # a gap must be a published one
        assert f"| {name} | not examined: {reason} |" in text
        return
    report = examine(name, versions)
    assert report.versions
    faults = SUBJECTS[name].faults_in(report.versions)
    assert {finding.check for finding in report.failures} == faults, str(report)
    assert all(f"| {check} |" in text for check in faults)
    # The tables are those of a kernel that lacks some kinds of links.
    assert len(versions) == 1 or row(report) in text or f"| {name} | not examined" in text
