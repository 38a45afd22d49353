"""Plugins written with libcni.plugin, called by Go libcni (tests/go_plugin_driver)."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from libcni.testing import NetworkNamespace
from plugin.plugins import ROOT, write_example, write_plugin
from plugin.real_plugins import DIRECTORY, IFNAME

pytestmark = pytest.mark.slow

GOPATH = Path("/usr/share/gocode")
BRIDGE = f"cnit{secrets.token_hex(4)}"


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("go") is None or not (GOPATH / "src/github.com/containernetworking/cni").is_dir():
        pytest.skip("needs golang-go and golang-github-appc-cni-dev")
    directory = tmp_path_factory.mktemp("go")
    env = {**os.environ, "GO111MODULE": "off", "GOPATH": str(GOPATH), "GOCACHE": str(directory / "cache")}
    build = ["go", "build", "-o", str(directory / "driver"), "."]
    subprocess.run(build, cwd=ROOT / "tests/go_plugin_driver", env=env, check=True)
    return directory / "driver"


class Runtime:
    """Go libcni, for one network and one container."""

    def __init__(self, driver: Path, directory: Path, *plugins: dict[str, Any], netns: str = "/run/netns/none") -> None:
        self.driver = driver
        self.directory = directory
        self.netns = netns
        self.path = directory / "plugins"
        self.path.mkdir()
        document = {"cniVersion": "1.0.0", "name": "gonet", "plugins": plugins}
        (directory / "net.conflist").write_text(json.dumps(document), encoding="utf-8")

    def run(self, *commands: str, **capabilities: Any) -> list[dict[str, Any]]:
        """Run the commands and return what Go libcni made of each."""
        env = {**os.environ, "CNI_PATH": f"{self.path}:{DIRECTORY}", "CAP_ARGS": json.dumps(capabilities)}
        where = [self.directory / "cache", self.directory / "net.conflist"]
        done = subprocess.run(
            [self.driver, *where, "c1", self.netns, IFNAME, *commands],
            env=env,
            check=True,
            capture_output=True,
            text=True,
        )
        return [json.loads(line) for line in done.stdout.splitlines()]


PASSING = "plugin.delete(lambda r: None)\n"


def test_a_whole_life_in_a_chain_of_python_plugins(driver: Path, tmp_path: Path) -> None:
    wire = {"type": "wire", "ipam": {"type": "pool-ipam", "subnet": "10.9.0.0/24", "dataDir": str(tmp_path / "pool")}}
    hosts = {"type": "hosts", "file": str(tmp_path / "hosts"), "capabilities": {"aliases": True}}
    runtime = Runtime(driver, tmp_path, wire, hosts)
    write_example(runtime.path, "pool-ipam", "pool_ipam")
    write_example(runtime.path, "hosts", "hosts")
    write_plugin(
        runtime.path,
        "wire",
        """
@plugin.add
def add(request):
    assert request.args["K8S_POD_NAME"] == "web"
    request.result = request.delegate_add("pool-ipam")
    index = request.result.add_interface(request.ifname, sandbox=request.netns, mtu=9000)
    request.result.ips[0]["interface"] = index
plugin.check(lambda request: request.forward("pool-ipam"))
plugin.delete(lambda request: request.forward("pool-ipam"))
""",
    )
    answers = runtime.run("validate", "version", "add", "check", "del", "del", aliases=["db"])
    validated, version, added, *others = answers
    assert validated["result"] == ["aliases"]
    assert version["result"][-1] == "1.1.0"
    assert added["result"] == {
        "cniVersion": "1.0.0",
        "interfaces": [{"name": IFNAME, "sandbox": "/run/netns/none"}],
        "ips": [{"address": "10.9.0.2/24", "gateway": "10.9.0.1", "interface": 0}],
        "dns": {},
    }
    assert others == [{"command": command} for command in ("check", "del", "del")]
    assert (tmp_path / "hosts").read_text(encoding="utf-8") == ""
    assert not (tmp_path / "pool" / "gonet" / "10.9.0.2").exists()


def test_an_error_reaches_go_with_code_and_text(driver: Path, tmp_path: Path) -> None:
    runtime = Runtime(driver, tmp_path, {"type": "full"}, {"type": "never"})
    body = """
@plugin.add
def add(request):
    print("a print does no harm")
    raise VerbError("full", code=ErrorCode.TRY_AGAIN_LATER, details="all of it")
"""
    write_plugin(runtime.path, "full", body + PASSING)
    write_plugin(runtime.path, "never", "plugin.add(lambda r: 1 / 0)\n" + PASSING)
    (added,) = runtime.run("add")
    assert (added["code"], added["msg"], added["details"]) == (11, "full", "all of it")
    assert 'plugin type="full" failed (add)' in added["error"]


def test_an_unforeseen_error_is_an_internal_one_for_go(driver: Path, tmp_path: Path) -> None:
    runtime = Runtime(driver, tmp_path, {"type": "broken"})
    write_plugin(runtime.path, "broken", "plugin.add(lambda r: 1 / 0)\n" + PASSING)
    (added,) = runtime.run("add")
    assert (added["code"], added["msg"]) == (999, "division by zero")


@pytest.mark.real
@pytest.mark.usefixtures("cni_namespaces")
def test_the_examples_beside_the_real_plugins(driver: Path, tmp_path: Path, cni_netns: NetworkNamespace) -> None:
    ipam = {"type": "pool-ipam", "subnet": "10.88.10.0/24", "dataDir": str(tmp_path / "pool")}
    hosts = {"type": "hosts", "file": str(tmp_path / "hosts")}
    plugins: list[dict[str, Any]] = [{"type": "bridge", "bridge": BRIDGE, "ipam": ipam}, hosts, {"type": "tuning"}]
    runtime = Runtime(driver, tmp_path, *plugins, netns=cni_netns.path)
    write_example(runtime.path, "pool-ipam", "pool_ipam")
    write_example(runtime.path, "hosts", "hosts")
    try:
        added, checked = runtime.run("add", "check")
        assert [ip["address"] for ip in added["result"]["ips"]] == ["10.88.10.2/24"]
        assert "10.88.10.2/24" in cni_netns.interfaces()[IFNAME]
        assert (tmp_path / "hosts").read_text(encoding="utf-8") == f"10.88.10.2 c1 # gonet c1 {IFNAME}\n"
        assert checked == {"command": "check"}
        assert runtime.run("del") == [{"command": "del"}]
        assert IFNAME not in cni_netns.interfaces()
    finally:
        subprocess.run(["ip", "link", "delete", BRIDGE], check=False, capture_output=True)
