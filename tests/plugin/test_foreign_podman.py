"""Plugins written with libcni.plugin, called by podman with its CNI backend.

In a restricted sandbox the container itself may fail to start, after its network has been set up: what counts is that
podman's ADD and DEL reached the plugins and were answered as podman wants it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plugin.plugins import write_example, write_plugin

pytestmark = [pytest.mark.slow, pytest.mark.real, pytest.mark.usefixtures("cni_namespaces")]

CONTAINERS_CONF = """
[network]
network_backend = "cni"
cni_plugin_dirs = ["{plugins}"]
network_config_dir = "{conf}"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
runtime = "crun"
[containers]
cgroups = "disabled"
log_driver = "k8s-file"
"""

WIRE = """
import json

def note(request):
    seen = {"verb": request.verb, "container": request.container_id, "netns": request.netns, "ifname": request.ifname}
    seen["there"] = os.path.exists(request.netns)
    seen["args"] = request.args
    seen["ports"] = [mapping[:4] for mapping in request.runtime_config.port_mappings]
    with open(request.config["log"], "a") as log:
        log.write(json.dumps(seen) + "\\n")

@plugin.add
def add(request):
    note(request)
    request.result = request.delegate_add(request.config["ipam"]["type"])
    request.result.ips[0]["interface"] = request.result.add_interface(
        request.ifname, mac="02:00:00:00:00:07", sandbox=request.netns)

@plugin.delete
def delete(request):
    note(request)
    request.forward(request.config["ipam"]["type"])
"""


FULL = """
@plugin.add
def add(request):
    raise VerbError("full", details="no cable left")
plugin.delete(lambda request: None)
"""


class Podman:
    """Podman with everything that it keeps under one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.plugins, self.conf, rootfs = (directory / name for name in ("plugins", "conf", "rootfs"))
        for path in (self.plugins, self.conf, rootfs / "bin"):
            path.mkdir(parents=True)
        shutil.copy("/bin/busybox", rootfs / "bin/true")
        text = CONTAINERS_CONF.format(plugins=self.plugins, conf=self.conf)
        (directory / "containers.conf").write_text(text, encoding="utf-8")

    def run(self, *options: str) -> str:
        """Run ``/bin/true`` in a container and return podman's own debug log."""
        places = {"root": "storage", "runroot": "run", "tmpdir": "tmp"}
        where = [f"--{option}={self.directory / name}" for option, name in places.items()]
        podman = ["podman", "--log-level=debug", "--storage-driver=vfs", *where]
        done = subprocess.run(
            [*podman, "run", "--rm", *options, "--rootfs", str(self.directory / "rootfs"), "/bin/true"],
            env={**os.environ, "CONTAINERS_CONF": str(self.directory / "containers.conf")},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return done.stderr


@pytest.fixture
def podman() -> Iterator[Podman]:
    missing = [program for program in ("podman", "crun", "busybox") if shutil.which(program) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)} (apt-get install podman crun busybox-static)")
    with tempfile.TemporaryDirectory(prefix="cnipod") as directory:  # tmp_path is too long for podman's runroot
        yield Podman(Path(directory))


def write_network(podman: Podman, *plugins: dict[str, Any]) -> None:
    document = {"cniVersion": "1.0.0", "name": "pynet", "plugins": plugins}
    (podman.conf / "pynet.conflist").write_text(json.dumps(document), encoding="utf-8")


def test_podman_adds_and_deletes_through_python_plugins(podman: Podman, tmp_path: Path) -> None:
    write_plugin(podman.plugins, "wire", WIRE)
    write_example(podman.plugins, "pool-ipam", "pool_ipam")
    write_example(podman.plugins, "hosts", "hosts")
    ipam = {"type": "pool-ipam", "subnet": "10.88.12.0/24", "dataDir": str(tmp_path / "pool")}
    log, hosts = tmp_path / "log", tmp_path / "hosts"
    wire = {"type": "wire", "log": str(log), "ipam": ipam, "capabilities": {"portMappings": True}}
    write_network(podman, wire, {"type": "hosts", "file": str(hosts), "capabilities": {"aliases": True}})
    said = podman.run("--network=pynet", "--name=webby", "-p=127.0.0.1:18088:80", "--network-alias=db")
    assert "Error: plugin type" not in said, said  # how Go libcni begins each error of a plugin
    added, deleted = (json.loads(line) for line in log.read_text(encoding="utf-8").splitlines())
    assert (added["verb"], deleted["verb"]) == ("ADD", "DEL")
    for call in (added, deleted):
        assert call["ifname"] == "eth0"
        assert call["netns"].startswith("/run/netns/netns-")
        assert call["ports"] == [[18088, 80, "tcp", "127.0.0.1"]]
        assert call["args"]["K8S_POD_NAME"] == "webby"
    assert added["container"] == deleted["container"]
    assert added["there"]
    assert "cni result for container" in said
    assert "IP:10.88.12.2" in said  # podman has read the result
    assert hosts.read_text(encoding="utf-8") == ""
    assert not (tmp_path / "pool/pynet/10.88.12.2").exists()


def test_podman_shows_a_python_plugins_error(podman: Podman, tmp_path: Path) -> None:
    write_plugin(podman.plugins, "wire", FULL)
    write_network(podman, {"type": "wire"})
    said = podman.run("--network=pynet")
    assert 'plugin type="wire" failed (add)' in said.replace("\\", "")
    assert "full: no cable left" in said
