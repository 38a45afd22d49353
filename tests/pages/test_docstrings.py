"""Each public class of these packages has an example in its docstring, which runs and prints what it says."""

from __future__ import annotations

import doctest
import inspect
from pathlib import Path

import pytest

import libcni
import libcni.plugin
import libcni.testing

PACKAGES = (libcni.plugin, libcni.testing)
CLASSES = {
    f"{package.__name__}.{name}": value
    for package in PACKAGES
    for name in package.__all__
    if inspect.isclass(value := getattr(package, name))
}
CLASSES["libcni.ErrorCode"] = libcni.ErrorCode


@pytest.mark.parametrize("name", CLASSES)
def test_the_class_has_an_example_that_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "needs root" in (CLASSES[name].__doc__ or "") and (reason := libcni.testing.why_no_namespaces()):
        pytest.skip(reason)
    monkeypatch.chdir(tmp_path)
    (example,) = doctest.DocTestFinder(recurse=False).find(CLASSES[name], name)
    assert example.examples, "no example"
    problems: list[str] = []
    doctest.DocTestRunner().run(example, out=problems.append)
    assert problems == []
