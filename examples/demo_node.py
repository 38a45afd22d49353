"""Fill a node's pool of addresses with dead pods, free it with libcni, and show that no living pod notices. Needs root.

All happens on a machine of its own: network, mount and process namespaces in which this program runs again. So nothing
of this machine is touched. The plugins are the real ones. The records have the form of Go libcni's, as containerd and
CRI-O write them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from narrator import headline, quiet_at_end_of_pipe

import libcni
from libcni.testing import why_no_namespaces

PLUGINS = "/usr/lib/cni"
LIVING = ("shop/web-0", "shop/db-0", "kube-system/dns-0")
DEAD = [f"batch/job-{number}" for number in range(58)]
HOUR = 3600
ANSWERING = """
import socket
with socket.create_server(("", 80)) as server:
    while True:
        server.accept()[0].close()
"""


def main() -> None:
    """Run the demo on a machine of its own; say what is missing where that is not possible."""
    reason = why_no_namespaces()
    if reason is None and not Path(PLUGINS, "bridge").exists():
        reason = f"there are no plugins in {PLUGINS} (apt-get install containernetworking-plugins)"
    if reason is not None:
        sys.exit(f"demo-node: {reason}")
    if sys.argv[1:] != ["inside"]:
        # --kill-child: the pods end with this program, whatever ends it.
        own = ["unshare", "--net", "--mount", "--propagation", "private", "--pid", "--mount-proc", "--fork"]
        os.execvp("unshare", [*own, "--kill-child", sys.executable, __file__, "inside"])
    # The node's own: /run/netns, and the lock of iptables.
    subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with TemporaryDirectory(prefix="libcni-demo-") as directory, quiet_at_end_of_pipe():
        demo(Node(Path(directory)))


class Node:
    """A node with the network ``cbr0`` of 61 addresses."""

    def __init__(self, root: Path) -> None:
        self.records, self.leases = root / "cni/results", root / "cni/networks/cbr0"
        ipam = {"type": "host-local", "subnet": "10.42.0.0/26", "dataDir": str(self.leases.parent)}
        bridge = {"type": "bridge", "bridge": "cni0", "isDefaultGateway": True, "ipMasq": True, "ipam": ipam}
        self.conflist = {"cniVersion": "1.0.0", "name": "cbr0", "plugins": [bridge]}
        (root / "net.d").mkdir()
        (root / "net.d/10-cbr0.conflist").write_text(json.dumps(self.conflist), encoding="utf-8")
        environment = {"NETCONFPATH": root / "net.d", "CNI_PATH": PLUGINS, "LIBCNI_CACHE_DIR": root / "cni"}
        os.environ |= {name: str(value) for name, value in environment.items()}
        self.cni = libcni.CNIConfig(PLUGINS, root / "cni", conf_dir=root / "net.d")

    def start(self, pod: str) -> str:
        """Make a pod's namespace and attach it; return its address."""
        namespace, name = pod.split("/")
        subprocess.run(["ip", "netns", "add", name], check=True)
        args = {"IgnoreUnknown": "1", "K8S_POD_NAMESPACE": namespace, "K8S_POD_NAME": name}
        rt = libcni.RuntimeConf(sandbox(pod), f"/run/netns/{name}", "eth0", args=args)
        address = self.cni.add_network_list("cbr0", rt).ips[0].address.partition("/")[0]
        record = json.loads(self.record(pod).read_text(encoding="utf-8"))
        of_go = {key: value for key, value in record.items() if not key.startswith("libcni")}
        self.record(pod).write_text(json.dumps(of_go), encoding="utf-8")
        return address

    def record(self, pod: str) -> Path:
        """Return the path of a pod's record."""
        return self.records / f"cbr0-{sandbox(pod)}-eth0"

    def crash(self, pods: list[str]) -> None:
        """End pods without a DEL, an hour ago; a power cut tears some of the records, and others are lost."""
        for number, pod in enumerate(pods):
            subprocess.run(["ip", "netns", "del", pod.partition("/")[2]], check=True)
            if number % 3 == 1:
                self.record(pod).write_bytes(b"")
            elif number % 3 == 2:  # noqa: PLR2004 - the last third
                self.record(pod).unlink()
        for path in self.leases.iterdir():
            os.utime(path, (time.time() - HOUR,) * 2)


class Listener(threading.Thread):
    """Ask each living pod 50 times a second whether it answers."""

    def __init__(self, addresses: list[str]) -> None:
        super().__init__(daemon=True)
        self.addresses, self.answers, self.missing = addresses, 0, 0
        self._end = threading.Event()

    def run(self) -> None:
        """Ask until the end."""
        while not self._end.wait(0.02):
            for address in self.addresses:
                answers = is_answering(address)
                self.answers += answers
                self.missing += not answers

    def end(self) -> str:
        """Stop asking, and return what was heard."""
        self._end.set()
        self.join()
        return f"{len(self.addresses)} living pods: {self.answers} questions answered, {self.missing} not"


def sandbox(pod: str) -> str:
    """Return an ID like those of containerd."""
    return hashlib.sha256(pod.encode()).hexdigest()


def is_answering(address: str) -> bool:
    """Return whether a pod accepts a connection."""
    try:
        socket.create_connection((address, 80), timeout=0.5).close()
    except OSError:
        return False
    return True


def libcni_command(*words: str, code: int = 0) -> None:
    """Show a command and what it prints."""
    print(f"\n$ libcni {shlex.join(words)}", flush=True)
    done = subprocess.run([sys.executable, "-m", "libcni", *words], stderr=subprocess.STDOUT, check=False)
    if done.returncode != code:
        sys.exit(f"demo-node: the exit status is {done.returncode} and not {code}")


def demo(node: Node) -> None:
    """Fill the pool, see an ADD fail, free what dead pods have, and attach the pod."""
    headline("A node: cbr0 has 61 addresses, and 61 pods")
    print(json.dumps(node.conflist))
    with ThreadPoolExecutor(4) as pool:
        addresses = list(pool.map(node.start, [*LIVING, *DEAD]))[: len(LIVING)]
    for pod in LIVING:
        # With processes of its own, as containers have: so the doctor sees that this program sees the containers.
        inside = ["ip", "netns", "exec", pod.partition("/")[2], "unshare", "--pid", "--fork"]
        subprocess.Popen([*inside, sys.executable, "-I", "-S", "-c", ANSWERING])
    while not all(map(is_answering, addresses)):
        time.sleep(0.01)
    listener = Listener(addresses)
    listener.start()

    headline("58 of them end without a DEL: a power cut, for example. One more pod")
    node.crash(DEAD)
    subprocess.run(["ip", "netns", "add", "next-0"], check=True)
    attach = ["add", "cbr0", "/run/netns/next-0", "--container", sandbox("shop/next-0")]
    attach += ["--args", "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=next-0"]
    libcni_command(*attach, code=1)
    headline("What is wrong, and what would help? Nothing is changed")
    libcni_command("doctor", code=2)
    headline("Free what the dead pods have")
    libcni_command("repair", "--yes", "--include-go")
    headline("Again")
    libcni_command(*attach)
    libcni_command("attachments")
    print(f"\n{listener.end()}")
    print(f"{len(list(node.leases.glob('10.*')))} addresses are reserved")


if __name__ == "__main__":
    main()
