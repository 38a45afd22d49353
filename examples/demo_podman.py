"""Run two containers of podman 5 on one CNI network, and let them talk. Run it with ``make demo-podman``.

``scripts/peers podman`` gives it a small Debian of its own with podman, so nothing of this machine is changed.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

from narrator import headline, quiet_at_end_of_pipe

HERE = Path(__file__).resolve().parent
COMMAND = [sys.executable, "-m", "libcni"]
PAGE = "echo hello, this is web >/index.html; httpd -f -p 80 -h /"


def main() -> None:
    """Install the driver, start two containers, ask one from the other and from the host, and remove both."""
    show("podman", "--version")
    show("/usr/lib/podman/netavark", "--version")
    headline("A CNI network, and the driver that brings podman to it")
    network = json.loads((HERE / "demo_real.conflist").read_text())
    Path("/etc/cni/net.d").mkdir(parents=True)
    Path("/etc/cni/net.d/10-front.conflist").write_text(json.dumps({**network, "name": "front"}))
    print("the chain of /etc/cni/net.d/10-front.conflist:", ", ".join(one["type"] for one in network["plugins"]))
    show(*COMMAND, "netavark-plugin", "--install")
    show("podman", "network", "create", "--driver", "cni", "front")

    headline("Two containers on it")
    make_image()
    show("podman", "run", "-d", "--name", "web", "--network", "front", "-p", "8080:80", "busybox", "sh", "-c", PAGE)
    chosen = "front:ip=10.1.0.77,mac=c2:11:22:33:44:55"
    show("podman", "run", "-d", "--name", "two", "--network", chosen, "busybox", "sleep", "1000")
    networks = "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{.MacAddress}} via {{.Gateway}}{{end}}"
    show("podman", "inspect", "web", "two", "--format", "{{.Name}} " + networks)
    show("podman", "exec", "two", "wget", "-qO-", "http://10.1.0.2/")
    show("busybox", "wget", "-qO-", "http://10.1.0.1:8080/")
    show(*COMMAND, "attachments")

    headline("The firewall loses its rules, and podman network reload brings them back")
    show("iptables", "-t", "nat", "-F")
    show("podman", "network", "reload", "--all")
    show("busybox", "wget", "-qO-", "http://10.1.0.1:8080/")

    headline("Gone")
    show("podman", "rm", "-f", "-t", "0", "web", "two")
    show(*COMMAND, "attachments")
    leases = [path.name for path in Path("/run/libcni-demo/demonet").glob("10.*")]
    links = json.loads(subprocess.check_output(["ip", "-j", "link", "show", "type", "veth"]))
    print(f"reservations: {len(leases)}, interfaces of containers: {len(links)}")
    show("podman", "network", "rm", "front")


def show(*words: str) -> None:
    """Print a command and run it."""
    shown = shlex.join(words).replace(shlex.join(COMMAND), "libcni")
    print(f"\n$ {shown}", flush=True)
    subprocess.run(words, check=True)


def make_image() -> None:
    """Import an image that holds busybox alone."""
    tree = Path("/tmp/image/bin")  # noqa: S108 - of the demo's own small Debian
    tree.mkdir(parents=True)
    subprocess.run(["cp", "/usr/bin/busybox", tree], check=True)
    for name in ("sh", "sleep", "wget", "httpd"):
        (tree / name).symlink_to("busybox")
    command = "tar -C /tmp/image -c . | podman import --quiet - busybox"
    subprocess.run(["sh", "-c", command], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    with quiet_at_end_of_pipe():
        main()
