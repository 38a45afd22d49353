"""libcni.pyz: the command as one file, on a Python that has no packages at all."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from engines.oci.conftest import end, start
from nodes import FakeNode

from libcni.engines.netavark import OWNER as PODMAN
from libcni.engines.oci import OWNER as HOOK
from libcni.testing import wait_until, why_no_namespaces

SCRIPT = Path(__file__).parents[2] / "scripts/one_file.py"


@pytest.fixture(scope="module")
def libcni(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file, under the name that an operator gives it."""
    return build(tmp_path_factory.mktemp("bin") / "libcni-1.0")


def build(output: Path, *words: str, umask: int = 0o022) -> Path:
    subprocess.run(
        [sys.executable, str(SCRIPT), "-o", str(output), *words], check=True, capture_output=True, umask=umask
    )
    return output


class OneFileNode(FakeNode):
    """A node whose only Python has no packages; ``libcni``: the file."""

    def __init__(self, root: Path, libcni: Path, **settings: Any) -> None:
        super().__init__(root, **settings)
        self.libcni = libcni
        self.configure("front", {"type": "a", "capabilities": dict.fromkeys(("portMappings", "mac"), True)})
        self.made = self.fakes.scenario("a", {})
        self.words = [f"--conf-dir={self.conf_dir}", f"--path={self.bin}", f"--cache-dir={self.cache}"]

    def run(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return run([sys.executable, "-IS", str(self.libcni), *words], stdin)

    def ok(self, *words: str, stdin: str = "") -> str:
        done = self.run(*words, stdin=stdin)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout


def run(words: list[str], stdin: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, input=stdin, cwd="/", env={}, check=False, capture_output=True, text=True)


@pytest.fixture
def node(tmp_path: Path, libcni: Path) -> OneFileNode:
    return OneFileNode(tmp_path, libcni)


def test_the_same_sources_make_the_same_bytes(libcni: Path, tmp_path: Path) -> None:
    again = build(tmp_path / "libcni.pyz", umask=0o077)
    assert again.read_bytes() == libcni.read_bytes()
    assert again.stat().st_mode & 0o777 == 0o755


def test_what_it_says_of_a_python_that_is_too_old(libcni: Path) -> None:
    script = (
        "import sys; sys.version_info = (3, 9, 2); sys.argv = sys.argv[1:]; import runpy; runpy.run_path(sys.argv[0])"
    )
    done = run([sys.executable, "-IS", "-c", script, str(libcni)], "")
    assert done.returncode == 1
    assert "libcni needs Python 3.11 or newer, and" in done.stderr
    assert f"name a newer one: python3.11 {libcni}" in done.stderr


def test_it_has_the_licences_of_what_it_holds_and_nothing_compiled(libcni: Path) -> None:
    import zipfile

    names = zipfile.ZipFile(libcni).namelist()
    assert {name.split("/")[1].partition("-")[0] for name in names if name.startswith("licenses/")} == {
        "filelock", "PyYAML",
    }  # fmt: skip
    assert {Path(name).suffix for name in names if not name.startswith("licenses/")} == {".py"}


@pytest.mark.slow
def test_the_commands_of_an_operator(node: OneFileNode) -> None:
    ports = {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}
    node.ok("add", "front", node.netns("web"), "-c", "web", "--capabilities", json.dumps(ports), *node.words)
    assert "web" in node.ok("attachments", f"--cache-dir={node.cache}")
    assert "8080" in node.ok("show", "web", "-o", "json", f"--cache-dir={node.cache}")
    assert json.loads(node.run("doctor", "-o", "json", *node.words).stdout)["checked"]
    assert node.run("repair", *node.words).returncode == 0
    node.ok("gc", "front", "--none-valid", *node.words)
    assert node.cni.get_cached_attachments() == []


def test_every_command_has_its_modules_and_the_lock_of_other_file_systems(libcni: Path) -> None:
    code = """
import sys
sys.path.insert(0, sys.argv[1])
from libcni.cli.commands import COMMANDS
for command in COMMANDS:
    command.load()
import filelock, yaml, libcni.engines.oci.hook, libcni.engines.netavark.driver
assert yaml.__file__.startswith(sys.argv[1]) and filelock.FileLock
"""
    done = run([sys.executable, "-IS", "-c", code, str(libcni)], "")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_installed_hook_attaches_and_detaches(tmp_path: Path, libcni: Path) -> None:
    reason = why_no_namespaces()
    if reason is not None:
        pytest.skip(reason)
    node = OneFileNode(tmp_path, libcni, owner=HOOK)
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    (bundle / "config.json").write_text(json.dumps({"linux": {"namespaces": [{"type": "network"}]}}))
    said = node.ok("oci-hook", *node.words, "--install", str(bundle))
    assert f"{libcni} must stay where it is: the engine runs it at each container's start and end" in said
    [hook] = json.loads((bundle / "config.json").read_text())["hooks"]["createRuntime"]
    assert hook["args"][:4] == [sys.executable, "-I", str(libcni), "oci-hook"]
    # Their values are checked without pydantic.
    annotations = {"libcni.networks": "front", "libcni.ports": "8080:80", "libcni.mac": "c2:11:22:33:44:55"}
    with ExitStack() as stack:
        pid = start(stack)
        for status in ("creating", "stopped"):
            state = {"ociVersion": "1.0.2", "id": "c1", "status": status, "pid": pid, "bundle": str(bundle)}
            # -S: this Python may have packages, that of the node has none
            program, *words = hook["args"]
            done = run([program, "-S", *words], json.dumps({**state, "annotations": annotations}))
            assert (done.returncode, done.stderr) == (0, "")
            attached = [one.container_id for one in node.cni.get_cached_attachments()]
            assert attached == (["c1"] if status == "creating" else [])
            if status == "creating":
                end(pid)


def test_the_installed_driver_attaches(tmp_path: Path, libcni: Path) -> None:
    node = OneFileNode(tmp_path, libcni, owner=PODMAN)
    said = node.ok("netavark-plugin", *node.words, "--install", str(tmp_path / "drivers"))
    assert f"{libcni} must stay where it is" in said
    driver = tmp_path / "drivers/cni"
    assert shutil.which(str(driver))
    assert f" -I {libcni} netavark-plugin " in driver.read_text()
    done = run([str(driver), "create"], json.dumps({"name": "front", "id": "1" * 64, "driver": "cni"}))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_running_command_keeps_its_modules_while_the_file_is_replaced(node: OneFileNode, tmp_path: Path) -> None:
    began, goes_on = tmp_path / "began", tmp_path / "goes-on"
    node.plugin("a", f"touch {began}; while [ ! -e {goes_on} ]; do sleep 0.05; done; echo broken >&2; exit 1")
    file = shutil.copy(node.libcni, tmp_path / "libcni")
    words = [sys.executable, "-IS", str(file), "add", "front", node.netns("web"), "-c", "web", *node.words]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        wait_until(began.exists)
        (tmp_path / "new").write_text("another version")
        os.replace(tmp_path / "new", file)
        goes_on.touch()
        error = process.communicate(timeout=120)[1]
    assert process.returncode == 1
    assert "broken" in error
    assert "Traceback" not in error


@pytest.mark.parametrize("given", [None, "", "/usr/bin:/bin", "/opt/own:/sbin"])
def test_plugins_find_the_systems_programs_whatever_path_the_command_has(
    node: OneFileNode, tmp_path: Path, given: str | None
) -> None:
    node.plugin("a", f'[ "$CNI_COMMAND" = VERSION ] || echo "$PATH" > {tmp_path}/path')
    words = [sys.executable, "-IS", str(node.libcni), "add", "front", node.netns("web"), "-c", "web", *node.words]
    subprocess.run(words, env={} if given is None else {"PATH": given}, check=True, stdout=subprocess.DEVNULL)
    path = (tmp_path / "path").read_text().strip().split(":")
    first = [name for name in (given or "").split(":") if name]
    assert path[: len(first)] == first
    assert sorted(set(path)) == sorted(path)
    assert {"/usr/sbin", "/sbin", "/usr/bin"} <= set(path)
