"""Each public class has an example in its docstring, which runs; an error may have that of its base class."""

from __future__ import annotations

import doctest
import inspect
import json
import sys
from pathlib import Path

import pytest

import libcni
import libcni.diagnosis
import libcni.engines.oci
import libcni.executor
import libcni.manager
import libcni.observe
import libcni.options
import libcni.plugin
import libcni.testing

PACKAGES = (
    libcni, libcni.diagnosis, libcni.executor, libcni.manager, libcni.observe, libcni.engines.oci, libcni.options,
    libcni.plugin, libcni.testing,
)  # fmt: skip
PROTOCOLS = {"AsyncExecutor", "AsyncPreparedPlugin", "PreparedPlugin"}
"""Executor has the example."""
CLASSES = {
    f"{package.__name__}.{name}": value
    for package in PACKAGES
    for name in package.__all__
    if inspect.isclass(value := getattr(package, name)) and name not in PROTOCOLS
    if not issubclass(value, libcni.CNIError) or "Examples:" in (value.__doc__ or "")
}
NET = {"cniVersion": "1.1.0", "name": "dbnet", "plugins": [{"type": "bridge"}]}
INTERFACE = {"name": "eth0", "sandbox": "/run/netns/c1"}
RESULT = {"interfaces": [INTERFACE], "ips": [{"address": "10.1.0.5/16", "interface": 0}]}


def names(owner: type) -> dict[str, object]:
    """Return what the examples use without making it: a network, an attachment, and clients that run nothing."""
    executor = libcni.testing.RecordingExecutor({("bridge", "ADD"): RESULT})
    cni = libcni.CNIConfig("/opt/cni/bin", "cache", conf_dir="net.d", executor=executor)
    public = {name: getattr(package, name) for package in PACKAGES for name in package.__all__}
    return {
        **public,
        **vars(sys.modules[owner.__module__]),
        "libcni": libcni,
        "executor": executor,
        "cni": cni,
        "manager": libcni.manager.NetworkManager(cni),
        "net": libcni.NetworkConfigList.from_dict(NET),
        "rt": libcni.RuntimeConf("c1", "/run/netns/c1", "eth0"),
    }


@pytest.mark.parametrize("name", CLASSES)
def test_the_class_has_an_example_that_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "needs root" in (CLASSES[name].__doc__ or "") and (reason := libcni.testing.why_no_namespaces()):
        pytest.skip(reason)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.d").mkdir()
    (tmp_path / "net.d" / "10-dbnet.conflist").write_text(json.dumps(NET))
    (example,) = doctest.DocTestFinder(recurse=False).find(CLASSES[name], name, globs=names(CLASSES[name]))
    assert example.examples, "no example"
    problems: list[str] = []
    doctest.DocTestRunner().run(example, out=problems.append)
    assert problems == []
