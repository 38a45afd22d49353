"""Plugins that do not wait for stdin are found."""

from __future__ import annotations

from pathlib import Path

import pytest
from plugin.plugins import write_plugin

from libcni.testing import FakePlugins, NetworkNamespace, check_plugin
from libcni.testing.examination import Examination
from libcni.testing.refusal_checks import check_reads_stdin_first

EAGER = """
import time
if os.environ["CNI_COMMAND"] == "ADD":
    link = ["link", "add", "cnieager0", "type", "veth", "peer", "name", "cnieager1"]
    subprocess.run(["ip", "-netns", "{name}", *link])
plugin.add(lambda request: None)
plugin.delete(lambda request: subprocess.run(["ip", "-netns", "{name}", "link", "delete", "cnieager0"]) and None)
"""


@pytest.mark.real
def test_a_plugin_that_acts_before_it_reads_stdin_is_found(tmp_path: Path, cni_netns: NetworkNamespace) -> None:
    path = write_plugin(tmp_path, "eager", EAGER.format(name=cni_netns.name))
    exam = Examination(path, {}, cni_netns)
    check_reads_stdin_first(exam, "1.1.0")  # alone: the whole examination starts Python a hundred times
    (failure,) = exam.report.failures
    assert failure.check == "ADD does nothing before it has read stdin"
    assert failure.problem == "new: link cnieager0 (down), link cnieager1 (down)"


def test_a_plugin_that_answers_before_it_reads_stdin_is_found(cni_fakes: FakePlugins) -> None:
    path = cni_fakes.path / "deaf"
    path.write_text('#!/bin/sh\necho \'{"cniVersion": "1.1.0", "supportedVersions": ["1.1.0"]}\'\n')
    path.chmod(0o755)
    problems = [f.problem for f in check_plugin(path, {}).failures if "before it has read" in f.check]
    assert problems == ["it ended before its configuration came"]
