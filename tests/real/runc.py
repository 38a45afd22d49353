"""Real containers for tests: bundles with a busybox, and the runtime that runs them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from nodes import PLUGIN_PATH, PLUGINS, Namespace, RealNode

from libcni.cli import main
from libcni.engines.oci import OWNER
from libcni.engines.oci.pins import Pins, directory_for
from libcni.testing import wait_until

BUSYBOX = "/bin/busybox"
NETWORK: dict[str, Any] = {
    "cniVersion": "1.0.0",
    "name": "front",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "ipMasq": True,
            "capabilities": {"ips": True},
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/16"}]], "routes": [{"dst": "0.0.0.0/0"}]},
            "dns": {"nameservers": ["10.88.0.1"], "search": ["front.test"]},
        },
        {"type": "tuning", "sysctl": {"net.core.somaxconn": "500"}, "capabilities": {"mac": True}},
        {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True},
        {"type": "firewall", "backend": "iptables"},
        {"type": "bandwidth", "capabilities": {"bandwidth": True}},
    ],
}


def why_no_containers(runtime: str) -> str | None:
    """Return why a runtime cannot run containers here, or None if it can."""
    for program in (runtime, BUSYBOX):
        if shutil.which(program) is None:
            return f"not installed: {program} (apt-get install {runtime} busybox-static)"
    return None


class RuntimeNode(RealNode):
    """A RealNode with a container runtime, its containers, and what the hook keeps."""

    def __init__(self, root: Path, host: Namespace, runtime: str) -> None:
        super().__init__(root, host)
        self.settings |= {"owner": OWNER, "env": None, "path": [PLUGINS]}
        self.runtime = runtime
        self.state = root / "state"
        self.state.mkdir()
        # not below the test's directory: pytest must be able to remove that while a pin is mounted
        self.pins = Pins(directory_for(str(self.cache)))
        self.log = root / "hook.log"
        (root / "rootfs/bin").mkdir(parents=True)
        shutil.copy(BUSYBOX, root / "rootfs/bin/busybox")
        (root / "rootfs/etc").mkdir()
        (root / "rootfs/index.html").write_text("hello from a container\n")
        self.write_network("front", NETWORK)

    def write_network(self, name: str, document: dict[str, Any]) -> None:
        """Write a network whose addresses are in ``leases``."""
        text = json.dumps({**document, "name": name})
        self.write(f"{name}.conflist", text.replace('"host-local"', f'"host-local", "dataDir": "{self.leases}"'))

    @property
    def options(self) -> list[str]:
        return [f"--conf-dir={self.conf_dir}", f"--path={PLUGINS}", f"--cache-dir={self.cache}"]

    def plain_bundle(self, container_id: str, *command: str, **annotations: str) -> Path:
        """Write a bundle without a hook."""
        path = self.root / f"bundles/{container_id}"
        path.mkdir(parents=True)
        subprocess.run(["runc", "spec", "--bundle", str(path)], check=True)
        spec = json.loads((path / "config.json").read_text())
        spec["process"].update(args=["/bin/busybox", *command], terminal=False)
        del spec["process"]["rlimits"], spec["linux"]["resources"]  # neither can be set in every CI's own container
        spec["root"]["path"] = str(self.root / "rootfs")
        spec["annotations"] = {f"libcni.{key}": value for key, value in annotations.items()}
        spec["annotations"]["run.oci.hooks.stderr"] = "/dev/stderr"  # else crun discards what a hook says
        (path / "config.json").write_text(json.dumps(spec))
        return path

    def bundle(self, container_id: str, *command: str, hook: tuple[str, ...] = (), **annotations: str) -> Path:
        """Write a bundle and install the hook in it."""
        path = self.plain_bundle(container_id, *command, **annotations)
        assert main(["oci-hook", "--install", str(path), *self.options, "--timeout=300", *hook]) == 0
        return path

    def command(self, *words: str) -> list[str]:
        return [self.runtime, "--root", str(self.state), *words]

    def run(self, container_id: str, *command: str, hook: tuple[str, ...] = (), **annotations: str) -> str:
        """Run a container to its end; return what it printed, and what the runtime did."""
        return self.run_bundle(container_id, self.bundle(container_id, *command, hook=hook, **annotations))

    def run_bundle(self, container_id: str, bundle: Path) -> str:
        words = self.command("run", "--bundle", str(bundle), container_id)
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        return done.stdout

    def start(self, container_id: str, *command: str, hook: tuple[str, ...] = (), **annotations: str) -> None:
        """Start a container that runs until ``end``."""
        bundle = self.bundle(container_id, *command, hook=hook, **annotations)
        words = self.command("run", "--detach", "--bundle", str(bundle), container_id)
        with (bundle / "output").open("w") as output:  # a pipe would stay open as long as the container runs
            done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False)
        assert done.returncode == 0, (bundle / "output").read_text()

    def end(self, container_id: str) -> None:
        subprocess.run(self.command("delete", "--force", container_id), check=True, capture_output=True)

    def addresses(self) -> list[str]:
        """Return the addresses that host-local has given away."""
        return sorted(path.name for path in self.leases.glob("*/[0-9a-f]*[.:]*"))

    def traces(self) -> list[str]:
        """Return what containers have left on the host: interfaces, and rules of one container each."""
        links = json.loads(subprocess.check_output(["ip", "-j", "link"]))
        names = [link["ifname"] for link in links if link["ifname"] not in {"lo", "cni0", "cni1"}]
        rules = subprocess.check_output(["iptables-save"], text=True).splitlines()
        return names + [rule for rule in rules if "10.88." in rule or "CNI-DN-" in rule or "10.99." in rule]

    def wait_for_hooks(self) -> None:
        """Wait until no hook of this node runs, also none whose runtime was killed."""
        wait_until(lambda: not self.hooks(), 300, "a hook hangs")

    def hooks(self) -> list[int]:
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"oci-hook" in words and f"--cache-dir={self.cache}".encode() in words:
                found.append(int(name))
        return found

    def close(self) -> None:
        """End all containers, and remove all pins."""
        for path in self.state.iterdir():
            subprocess.run(self.command("delete", "--force", path.name), check=False, capture_output=True)
        self.wait_for_hooks()
        for pin in self.pins.all():
            self.pins.remove(pin)
        if os.path.isdir(self.pins.directory):
            os.rmdir(self.pins.directory)


def libcni(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command line."""
    command = [sys.executable, "-m", "libcni", *words]
    environment = {**os.environ, "PATH": PLUGIN_PATH, **env}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
