"""The recipes of examples/other-runtimes for LXC, systemd-nspawn and bubblewrap work as they stand there."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from nodes import Namespace, RealNode

from .runc import NETWORK

pytestmark = [pytest.mark.real, pytest.mark.slow]

DIRECTORY = Path(__file__).resolve().parents[2] / "examples/other-runtimes"
FILES = {path.name: path.read_text() for path in DIRECTORY.iterdir()}
SHOW = ("/bin/ip", "-4", "-o", "address", "show", "eth0")
PROGRAMS = Path(sys.executable).parent


class Recipes(RealNode):
    """A RealNode with the page's files, whose directories are its own, and a root file system with busybox."""

    def __init__(self, root: Path, host: Namespace) -> None:
        super().__init__(root, host)
        rootfs = root / "rootfs"
        for name in ("bin", "proc", "sys", "dev", "etc", "tmp", "usr", "var", "run"):
            (rootfs / name).mkdir(parents=True)
        shutil.copy("/bin/busybox", rootfs / "bin/busybox")
        for name in ("ip", "false"):
            (rootfs / "bin" / name).symlink_to("busybox")
        bridge = self.bridge("10.88.0.0/16")
        self.write("front.conflist", {**NETWORK, "plugins": [bridge]})
        for name, text in FILES.items():
            (root / name).write_text(self.here(text))
            (root / name).chmod(0o755)

    def here(self, text: str) -> str:
        return text.replace("/containers", str(self.root)).replace("/usr/local/bin", str(PROGRAMS))

    def type(self, *command: str) -> subprocess.CompletedProcess[str]:
        env = os.environ | {
            "NETCONFPATH": str(self.conf_dir),
            "LIBCNI_CACHE_DIR": str(self.cache),
            "CNI_PATH": "/usr/lib/cni",
            "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
        }
        return subprocess.run(
            command, cwd=self.root, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip

    def assert_nothing_is_left(self, name: str) -> None:
        assert (self.cni.get_cached_attachments(), self.leased()) == ([], {})
        assert not Path("/run/netns", name).exists()


@pytest.fixture
def recipes(host: Namespace, tmp_path: Path) -> Recipes:
    for program in ("bwrap", "lxc-execute", "systemd-nspawn", "/bin/busybox", "jq"):
        if shutil.which(program) is None:
            pytest.skip(
                f"not installed: {program} (apt-get install bubblewrap lxc systemd-container busybox-static jq)"
            )
    return Recipes(tmp_path, host)


def test_lxc(recipes: Recipes) -> None:
    run = ("lxc-execute", "-P", str(recipes.root), "-n", "lx", "-f", "lxc.conf", "-o", "lxc.log")
    assert "inet 10.88.0.2/16" in recipes.type(*run, "--", *SHOW).stdout, (recipes.root / "lxc.log").read_text()
    recipes.assert_nothing_is_left("lx")


def test_lxc_starts_nothing_without_its_network(recipes: Recipes) -> None:
    recipes.write("front.conflist", {**NETWORK, "plugins": [{"type": "missing"}]})
    done = recipes.type("lxc-execute", "-P", str(recipes.root), "-n", "lx", "-f", "lxc.conf", "--", *SHOW)
    assert (done.returncode != 0, "inet" in done.stdout) == (True, False)
    recipes.assert_nothing_is_left("lx")


def test_nspawn(recipes: Recipes) -> None:
    """systemd is not the first process of a test's machine, so the units' commands are typed in their order."""
    make, attach = commands(recipes, "cni-web.service", "ExecStart")
    [detach] = commands(recipes, "cni-web.service", "ExecStop")
    [server] = commands(recipes, "web.service", "ExecStart")
    for command in (make, attach):
        assert recipes.type(*command).returncode == 0
    assert "inet 10.88.0.2/16" in recipes.type(*server[:-1], *SHOW).stdout
    assert recipes.type(*detach).returncode == 0
    recipes.assert_nothing_is_left("web")


def commands(recipes: Recipes, unit: str, key: str) -> list[list[str]]:
    return [shlex.split(line) for line in re.findall(rf"^{key}=(.*)$", (recipes.root / unit).read_text(), re.MULTILINE)]


def test_bubblewrap(recipes: Recipes) -> None:
    done = recipes.type("./in-network", "front", "bw", *SHOW)
    assert "inet 10.88.0.2/16" in done.stdout, done.stderr
    recipes.assert_nothing_is_left("bw")
    assert recipes.type("./in-network", "front", "bw", "/bin/false").returncode == 1
    recipes.assert_nothing_is_left("bw")


def test_bubblewrap_runs_nothing_without_its_network(recipes: Recipes) -> None:
    done = recipes.type("./in-network", "nowhere", "bw", *SHOW)
    assert (done.returncode != 0, "inet" in done.stdout) == (True, False)
    assert "nowhere" in done.stderr
    recipes.assert_nothing_is_left("bw")


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(["./in-network", "front", "taken", *SHOW], id="bubblewrap"),
        pytest.param(["lxc-execute", "-P", "{root}", "-n", "taken", "-f", "lxc.conf", "--", *SHOW], id="lxc"),
    ],
)
def test_a_namespace_of_that_name_is_left_alone(recipes: Recipes, run: list[str]) -> None:
    subprocess.run(["ip", "netns", "add", "taken"], check=True)
    try:
        done = recipes.type(*(word.format(root=recipes.root) for word in run))
        assert (done.returncode != 0, "inet" in done.stdout) == (True, False)
        assert Path("/run/netns/taken").exists()
    finally:
        subprocess.run(["ip", "netns", "del", "taken"], check=True)
    recipes.assert_nothing_is_left("taken")
