"""One executable file of a plugin, made by ``python -m libcni.plugin build``."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import zipfile
from importlib.util import MAGIC_NUMBER
from pathlib import Path

import pytest

from libcni.config.versions import ALL_VERSIONS
from libcni.executor.start_ahead import reads_first
from libcni.plugin.build import BuildError, build, main
from libcni.testing import call_plugin
from plugin.plugins import LIBRARY, ROOT, config

PLUGIN = """
from libcni.plugin import ErrorCode, Plugin, Request, VerbError
import sys
plugin = Plugin("mine")

@plugin.add
def add(request: Request) -> None:
    modules = [*sys.modules.values()]
    print(*[module.__file__ for module in modules if getattr(module, "__file__", None)], file=sys.stderr)
    if request.config.get("fail"):
        raise VerbError("asked to fail", code=ErrorCode.TRY_AGAIN_LATER)
    for name in request.config.get("modules", ()):
        __import__(name)
    if request.config.get("delegate"):
        request.result = request.delegate_add("inner")

plugin.delete(lambda request: 1 / 0)

if __name__ == "__main__":
    plugin.run()
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("product")
    source, product = directory / "mine.py", directory / "mine"
    source.write_text(PLUGIN, encoding="utf-8")
    build(source, product, python=sys.executable)
    source.unlink()
    return product


def test_the_product_says_that_it_reads_stdin_first(built: Path) -> None:
    assert reads_first(str(built))
    assert built.stat().st_mode & 0o777 == 0o755  # any user may run it


def test_the_product_has_all_that_its_modules_import(built: Path) -> None:
    modules = {}
    with zipfile.ZipFile(built) as archive:
        for name in archive.namelist():
            if name.endswith(".py"):
                modules[name[:-3].replace("/", ".").removesuffix(".__init__")] = ast.parse(archive.read(name))
    for tree in modules.values():
        top = [part for part in tree.body if not isinstance(part, ast.If)]  # what type checkers import
        for node in (node for part in top for node in ast.walk(part) if isinstance(node, ast.ImportFrom)):
            assert node.module in modules or f"{node.module}"[:6] != "libcni"
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            assert {name for name in inner if (LIBRARY / name.replace(".", "/")).with_suffix(".py").exists()} <= {
                *modules
            }
    assert call_plugin(built, "ADD", config(modules=[name for name in modules if name != "__main__"])).status == 0


def test_errors_delegation_and_tracebacks_work_in_the_product(built: Path, tmp_path: Path) -> None:
    assert call_plugin(built, "ADD", config(fail=True)).code == 11
    assert call_plugin(built, "ADD", config("9.9.9")).code == 1
    inner = tmp_path / "inner"
    inner.write_text("#!/bin/sh\necho '{\"ips\": []}'\n")
    inner.chmod(0o755)
    assert call_plugin(built, "ADD", config(delegate=True), path=str(tmp_path)).status == 0
    failed = call_plugin(built, "DEL", config())
    assert failed.document["msg"] == "division by zero"
    assert "mine/_cni_plugin.py" in failed.stderr
    assert "1 / 0" in failed.stderr, "the traceback has the lines of the plugin's own source"


def test_another_version_of_python_runs_the_source(built: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(built) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    assert files["__main__.pyc"].startswith(MAGIC_NUMBER)
    product = tmp_path / "mine"
    with product.open("wb") as file:
        file.write(built.read_bytes().split(b"\n")[0] + b"\n")
        with zipfile.ZipFile(file, "w") as other:
            for name, data in files.items():
                other.writestr(name, b"1234" + data[4:] if name.endswith(".pyc") else data)
    product.chmod(0o755)
    assert call_plugin(product, "ADD", config(fail=True)).code == 11
    assert call_plugin(product, "VERSION").document["supportedVersions"] == [*ALL_VERSIONS]


def test_an_old_python_gets_an_error_document_that_says_which_one_is_needed(built: Path) -> None:
    with zipfile.ZipFile(built) as archive:
        ast.parse(archive.read("__main__.py"), feature_version=(3, 4))
    # The file's own start, under another number: what it does must not depend on a feature of this Python.
    start = f"import runpy, sys; sys.version_info = (3, 9, 1); runpy.run_path({str(built)!r}, run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-IS", "-c", start], check=False, input=b'{"cniVersion": "1.0.0"}', capture_output=True
    )
    assert (done.returncode, done.stderr) == (1, b"")
    document = json.loads(done.stdout)
    assert (document["cniVersion"], document["code"]) == ("1.0.0", 100)
    assert "needs Python 3.11 or newer" in document["msg"]
    assert "is Python 3.9.1" in document["msg"]


def test_other_modules_of_the_plugin_can_be_included(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("ABOUT = 'with a helper'\n")
    source = PLUGIN.replace('Plugin("mine")', 'Plugin("mine", about=ABOUT)').replace(
        "import sys", "import sys\nfrom helper import ABOUT"
    )
    (tmp_path / "mine.py").write_text(source)
    arguments = ["build", str(tmp_path / "mine.py"), "-o", str(tmp_path / "mine"), "--python", sys.executable]
    assert main(arguments) == 1
    assert main([*arguments, "--include", str(tmp_path / "helper.py")]) == 0
    assert "with a helper" in call_plugin(tmp_path / "mine", "").stderr


def test_the_start_imports_no_slow_module(built: Path) -> None:
    env = {**os.environ, "CNI_COMMAND": "VERSION"}
    command = [sys.executable, "-IS", "-X", "importtime", str(built)]
    done = subprocess.run(command, input=b'{"cniVersion": "1.1.0"}', env=env, capture_output=True, check=True)
    loaded = {line.rpartition(b"|")[2].strip().decode() for line in done.stderr.splitlines()}
    assert "libcni.plugin.dispatch" in loaded
    # Python's own start of a zipapp imports collections and functools.
    assert loaded.isdisjoint({"re", "enum", "json", "typing", "dataclasses", "pathlib", "zlib", "site"})
    assert loaded.isdisjoint({"libcni.plugin.results", "libcni.protocol.conversion", "libcni._version"})


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("def broken(:", "cannot compile mine"),
        ("print('hello')", "hello (does the script end with plugin.run()?)"),
        ("", "does not answer VERSION (exit status 0): no output"),
        ("import nothing_of_that_name", "No module named 'nothing_of_that_name' (use --include for"),
        ("import time; time.sleep(60)", "mine does not answer VERSION within 0.1 s"),
    ],
)
def test_a_plugin_that_does_not_work_leaves_the_old_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, source: str, problem: str
) -> None:
    if "within" in problem:
        monkeypatch.setattr("libcni.plugin.build._VERSION_SECONDS", 0.1)
    (tmp_path / "mine.py").write_text(source)
    (tmp_path / "mine").write_text("old")
    arguments = ["build", str(tmp_path / "mine.py"), "-o", str(tmp_path / "mine"), "--python", sys.executable]
    assert main(arguments) == 1
    assert problem in capsys.readouterr().err
    assert (tmp_path / "mine").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "mine.py"]


def test_what_cannot_be_read_or_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"cannot read .*missing\.py"):
        build(tmp_path / "missing.py", tmp_path / "x", python=sys.executable)
    (tmp_path / "mine.py").write_text(PLUGIN)
    with pytest.raises(BuildError, match="cannot start the interpreter /nowhere/python"):
        build(tmp_path / "mine.py", tmp_path / "x", python="/nowhere/python")
    with pytest.raises(BuildError, match=r"cannot write .*no/x: there is no directory .*no$"):
        build(tmp_path / "mine.py", tmp_path / "no" / "x", python=sys.executable)
    (tmp_path / "x").mkdir()
    os.mkfifo(tmp_path / "fifo")
    for name in ("x", "fifo"):
        with pytest.raises(BuildError, match=f"cannot write .*{name}: it is not a regular file"):
            build(tmp_path / "mine.py", tmp_path / name, python=sys.executable)


@pytest.mark.real
def test_the_product_runs_on_a_machine_that_has_only_python(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN)
    build(tmp_path / "mine.py", tmp_path / "mine", python=os.path.realpath(sys.executable))
    hidden = "".join(f"mount -t tmpfs none {path}; " for path in dict.fromkeys([LIBRARY, ROOT]))
    script = f'set -e; {hidden}[ -z "$(ls {LIBRARY})" ]; cd /; exec env -i CNI_COMMAND=VERSION {tmp_path}/mine'
    done = subprocess.run(["unshare", "--mount", "sh", "-c", script], input=b"{}", capture_output=True, check=True)
    assert json.loads(done.stdout)["supportedVersions"] == [*ALL_VERSIONS]
