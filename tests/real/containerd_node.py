"""A real node in namespaces of its own: containerd with its CRI plugin, runc, real plugins and eight pods.

By hand: ``PYTHONPATH=tests .venv/bin/python -m real.containerd_node [containerd[@RELEASE]] -- COMMAND`` brings the node
up, runs the command in it (bash, for instance, or ``libcni doctor``) and takes it down.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from peers import peer_files

from libcni.testing import wait_until, why_no_namespaces
from real.cri import CRI, CRIError, Pod

HERE = Path(__file__).resolve().parent
IMAGE = "node.local/pause:1"

BRIDGE: dict[str, Any] = {
    "type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": True, "promiscMode": True,
    "ipam": {
        "type": "host-local", "ranges": [[{"subnet": "10.213.7.0/27"}]], "routes": [{"dst": "0.0.0.0/0"}],
    },
}  # fmt: skip
PORTMAP = {"type": "portmap", "capabilities": {"portMappings": True}}
CONTAINERD_NET = {"cniVersion": "1.0.0", "name": "containerd-net", "plugins": [BRIDGE, PORTMAP]}
FLANNEL_NET = {
    "cniVersion": "0.3.1", "name": "cbr0",
    "plugins": [
        {"type": "flannel", "delegate": {"bridge": "flannel0", "hairpinMode": True, "isDefaultGateway": True}},
        PORTMAP,
    ],
}  # fmt: skip
FLANNEL_ENV = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"

FLANNEL_RULES = """*nat
:FLANNEL-POSTRTG - [0:0]
-A POSTROUTING -m comment --comment "flanneld masq" -j FLANNEL-POSTRTG
-A FLANNEL-POSTRTG -s 10.244.1.0/24 -d 10.244.0.0/16 -m comment --comment "flanneld masq" -j RETURN
-A FLANNEL-POSTRTG -s 10.244.0.0/16 -d 10.244.1.0/24 -m comment --comment "flanneld masq" -j RETURN
-A FLANNEL-POSTRTG ! -s 10.244.0.0/16 -d 10.244.1.0/24 -m comment --comment "flanneld masq" -j RETURN
-A FLANNEL-POSTRTG -s 10.244.0.0/16 ! -d 224.0.0.0/4 -m comment --comment "flanneld masq" -j MASQUERADE --random-fully
-A FLANNEL-POSTRTG ! -s 10.244.0.0/16 -d 10.244.0.0/16 -m comment --comment "flanneld masq" -j MASQUERADE --random-fully
COMMIT
"""
"""The rules of flannel's daemon for masquerade (pkg/trafficmngr/iptables of flannel 0.24)."""

PODS: dict[str, tuple[str, list[int]]] = {
    "web-0": ("", [18080]),
    "web-1": ("", [18081]),
    "api-0": ("", []),
    "db-0": ("", [15432]),
    "job-runner-with-a-very-long-kubernetes-pod-name-7f9c6d5b8d-x2x4z": ("", []),
    "ing-0": ("flannel", [18443, 18444]),
    "cache-0": ("flannel", []),
    "cache-1": ("flannel", []),
}
"""The pods of a node: their runtime handler, which decides on the network, and their ports of the host."""

CONFIG = """
version = 2
root = "{root}/containerd"
state = "{root}/state"
[grpc]
  address = "{root}/c.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.flannel]
      runtime_type = "io.containerd.runc.v2"
      cni_conf_dir = "/etc/cni/flannel.d"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/opt/cni/bin"
    conf_dir = "/etc/cni/net.d"
"""


def why_no_node() -> str:
    """Return why this machine can have no such node; "" if it can."""
    if os.geteuid() != 0:
        return "needs root"
    if importlib.util.find_spec("grpc") is None:
        return "needs grpcio: scripts/need peers"
    if not os.path.exists("/bin/busybox"):
        return "needs busybox: apt-get install busybox-static"
    return why_no_namespaces() or ""


class ContainerdNode:
    """A node that runs.

    Args:
        root: a directory for all that it keeps. Its path must be short: there is a socket below it.
        peer: the unpacked files of containerd, runc and plugins.
    """

    def __init__(self, root: Path, peer: Path) -> None:
        self.root, self.peer = root, peer
        self.socket = str(root / "c.sock")
        self.ports: dict[str, list[int]] = {}
        self.pods: dict[str, Pod] = {}
        self.is_in_order = True
        programs = [peer.parent / "bin", Path(sys.executable).parent]
        self.env = {
            **{name: text for name, text in os.environ.items() if not name.startswith(("CNI_", "LIBCNI_", "PEER_"))},
            "PATH": ":".join([*map(str, programs), "/usr/sbin", "/usr/bin", "/sbin", "/bin"]),
            "CNI_PATH": "/opt/cni/bin",
            "CONTAINERD_ADDRESS": self.socket,
            "COLUMNS": "240",  # texts are searched, and pytest-xdist sets it to 80
        }
        words = ["unshare", "--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--propagation"]
        words += ["private", "bash", str(HERE / "node_up.sh"), str(root), str(peer / "usr/lib/cni")]
        self._log = (root / "log").open("ab")
        self._holder = subprocess.Popen(words, env=self.env, stdout=self._log, stderr=self._log)
        wait_until(lambda: (root / "up").exists() or self._holder.poll() is not None)
        assert self._holder.poll() is None, self.said()
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children")
        self.init = int(children.read_text(encoding="ascii").split()[0])
        self._started: list[subprocess.Popen[bytes]] = []
        self.start("ip", "netns", "exec", "outside", sys.executable, str(HERE / "traffic.py"), "serve")
        self.cri = CRI(self.socket)

    def said(self) -> str:
        """Return what the node's programs have printed, for the text of a failure."""
        return (self.root / "log").read_text(encoding="utf-8", errors="replace")[-3000:]

    def _entered(self, words: Sequence[str]) -> list[str]:
        namespaces = ["--mount", "--net", "--pid", "--uts", "--ipc"]
        return ["nsenter", "-t", str(self.init), *namespaces, "--wd=/", "--", *words]

    def start(self, *words: str) -> None:
        """Start a program in the node; it ends with the node."""
        self._started.append(subprocess.Popen(self._entered(words), env=self.env, stdout=self._log, stderr=self._log))

    def run(
        self, *words: str, given: str = "", code: int | None = 0, timeout: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the node; ``code``: its exit status, None for any."""
        done = subprocess.run(
            self._entered(words),
            env=self.env,
            input=given,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert code is None or done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def shell(self, script: str, *, code: int | None = 0) -> str:
        """Run a shell's script in the node, and return what it printed."""
        done = self.run("bash", "-c", script, code=code)
        return done.stdout + done.stderr

    def write(self, path: str, document: Any) -> None:
        """Write a file of the node: a document, or text."""
        text = document if isinstance(document, str) else json.dumps(document, indent=2)
        self.run("bash", "-c", 'mkdir -p "${0%/*}" && cat >"$0"', path, given=text)

    def bring_up(self) -> None:
        """Write the configurations, start containerd and run the pods."""
        self.run("install", "-m", "755", str(HERE / "flannel"), "/opt/cni/bin/flannel")
        self.write("/run/flannel/subnet.env", FLANNEL_ENV)
        # The daemon of flannel masquerades, not the plugin. No repair may change its rules.
        self.run("iptables-restore", "--noflush", given=FLANNEL_RULES)
        self.write("/etc/cni/net.d/10-containerd-net.conflist", CONTAINERD_NET)
        self.write("/etc/cni/net.d/20-flannel.conflist", FLANNEL_NET)
        self.shell("mkdir -p /etc/cni/flannel.d && ln -s ../net.d/20-flannel.conflist /etc/cni/flannel.d")
        self.start_containerd()
        save_image(self.root / "pause.tar")
        self.run("ctr", "-n", "k8s.io", "images", "import", "--no-unpack", str(self.root / "pause.tar"))
        wait_until(lambda: self.cri.has_image(IMAGE), 60.0, "containerd does not know the image")
        # portmap fails if two of them create its first chain at the same time.
        first = next(iter(PODS))
        self.run_pods({first: PODS[first]})
        self.run_pods({name: pod for name, pod in PODS.items() if name != first})

    def start_containerd(self) -> None:
        (self.root / "config.toml").write_text(CONFIG.format(root=self.root, image=IMAGE), encoding="utf-8")
        self.start("containerd", "-c", str(self.root / "config.toml"))
        try:
            self.cri.wait()
        except CRIError as error:
            raise AssertionError(f"{error}\n{self.said()}") from None

    def run_pods(self, pods: dict[str, tuple[str, list[int]]]) -> None:
        """Run pods, several at once."""
        with ThreadPoolExecutor(4) as threads:
            ids = list(threads.map(lambda one: self.cri.run(one[0], *one[1][1], handler=one[1][0]), pods.items()))
        self.pods |= {pod.name: pod for pod in map(self.cri.pod, ids)}
        self.ports |= {name: ports for name, (_, ports) in pods.items()}
        wait_until(lambda: not self.traffic(), 60.0, "no traffic")  # a pod that is ready may not listen yet

    def traffic(self, lost: Iterable[str] | None = ()) -> dict[str, str]:
        """Connect all living pods with each other, the node and the world; return what failed, and how.

        ``lost``: the labels of the calls that probably fail, for which little time is spent; None: any may fail.
        """
        living = self.living()
        pods = {name: (pod.ip, pod.pid) for name, pod in self.pods.items() if name in living}
        given = json.dumps({"pods": pods, "ports": self.ports, "lost": None if lost is None else list(lost)})
        answers: dict[str, str] = json.loads(
            self.run(sys.executable, "-I", str(HERE / "traffic.py"), given=given).stdout
        )
        assert len(answers) >= len(pods) ** 2
        return {label: said for label, said in answers.items() if said}

    def living(self) -> set[str]:
        """Return the names of the pods whose process lives."""
        looks = (f"test -e /proc/{pod.pid}/ns/net && echo {name}" for name, pod in self.pods.items())
        return set(self.shell("; ".join([*looks, "true"])).split())

    def expanded(self, script: str) -> str:
        """Return a text with ``${ip[POD]}`` and the like replaced."""
        for name, pod in self.pods.items():
            values = {"ip": pod.ip, "id": pod.id, "pid": str(pod.pid), "netns": pod.netns}
            for key, value in values.items():
                script = script.replace(f"${{{key}[{name}]}}", value)
            if f"${{veth[{name}]}}" in script:
                [inside] = json.loads(self.shell(f"nsenter -t {pod.pid} -n ip -j link show eth0"))
                links = json.loads(self.shell("ip -j link show"))
                [veth] = [one["ifname"] for one in links if one["ifindex"] == inside["link_index"]]
                script = script.replace(f"${{veth[{name}]}}", veth)
        return script

    def break_with(self, script: str) -> None:
        """Run a script that breaks something, or mends it; what it leaves is old."""
        cases = "".join(f'{name}) nsenter -t {pod.pid} -n "$@";; ' for name, pod in self.pods.items())
        self.shell(f"set -e; inside() {{ local pod=$1; shift; case $pod in {cases} esac; }}\n{self.expanded(script)}")
        self.shell("find /var/lib/cni -exec touch -h -d '-2 hours' {} + 2>/dev/null || true")

    def restart(self, names: Iterable[str]) -> None:
        """Let the runtime remove pods that have crashed, and run them again."""
        for name in names:
            self.cri.remove(self.pods.pop(name).id)
            self.run_pods({name: PODS[name]})

    def new_pod_talks(self) -> None:
        """Run one more pod, which must talk with all others, and remove it."""
        self.run_pods({"one-more": ("", [])})
        self.cri.remove(self.pods.pop("one-more").id)
        del self.ports["one-more"]

    def libcni(self, *words: str, code: int | None = 0) -> str:
        """Type a command of libcni into the node's shell and return what it printed."""
        done = self.run("libcni", *words, code=code)
        return done.stdout + done.stderr

    def close(self) -> None:
        """End all that runs on the node: it ends with its first process."""
        self.cri.close()
        self._holder.kill()
        self._holder.wait()
        for process in self._started:
            process.kill()
            process.wait()
        self._log.close()


def save_image(path: Path) -> None:
    """Write an image of busybox, for ``ctr images import``: a pod tells its name on port 8080, to many at once."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        tar.add("/bin/busybox", "bin/busybox", filter=_as_program)
    # Of a pod, only /dev can be written.
    page = "/bin/busybox hostname >/dev/index.html"
    command = ["/bin/busybox", "sh", "-c", f"{page}; exec /bin/busybox httpd -f -p 8080 -h /dev"]
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
    config = {
        "architecture": machine, "os": "linux", "config": {"Entrypoint": command},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer.getvalue()).hexdigest()}"]},
    }  # fmt: skip
    files = {
        "layer.tar": layer.getvalue(),
        "config.json": json.dumps(config).encode(),
        "manifest.json": json.dumps([{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]).encode(),
    }
    with tarfile.open(path, "w") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def _as_program(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.mode, info.uid, info.gid = 0o755, 0, 0
    return info


class Keeper:
    """One node for all tests of a version of containerd; after a test that left it broken, a new one."""

    def __init__(self, peer: str) -> None:
        self.files = peer_files(peer)
        self._open: ContainerdNode | None = None
        self._stack = ExitStack()

    def node(self) -> ContainerdNode:
        if self._open is None:
            self._open = self._stack.enter_context(containerd_node(self.files))
        return self._open

    def drop(self) -> None:
        self._stack.close()
        self._open = None


@contextmanager
def containerd_node(peer: Path) -> Iterator[ContainerdNode]:
    """Bring a node up with eight pods, and take it down."""
    root = Path(tempfile.mkdtemp(prefix="node-", dir="/tmp"))  # the path of a socket must be short
    try:
        node = ContainerdNode(root, peer)
        try:
            node.bring_up()
            yield node
        finally:
            node.close()
    finally:
        with suppress(OSError):
            shutil.rmtree(root)


def main() -> int:
    """Bring the node up and run a command in it."""
    words = sys.argv[1:]
    peer = words.pop(0) if words and words[0] != "--" else "containerd@bookworm"
    begun = time.monotonic()
    with containerd_node(peer_files(peer)) as node:
        sys.stderr.write(f"{len(node.pods)} pods after {time.monotonic() - begun:.1f} s; {node.root}/log\n")
        for pod in node.pods.values():
            sys.stderr.write(f"  {pod.ip:15} {pod.pid:5} {pod.id[:12]} {pod.name}\n")
        sys.stderr.flush()
        sys.stderr.write(f"traffic: {node.traffic() or 'all in order'}\n")
        return subprocess.run(node._entered(words[1:] or ["bash"]), env=node.env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
