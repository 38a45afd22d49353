"""Run two containers with runc, which get their network from libcni's hook, and let them talk. Needs root.

All happens on a machine of its own: a network namespace in which this program runs again. So the bridge and the
firewall rules vanish at the end. With ``--documents`` every plugin call is shown, with what the plugin received.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from narrator import headline, print_tree

from libcni.engines.oci.pins import directory_for
from libcni.testing import why_no_namespaces

HERE = Path(__file__).resolve().parent
BUSYBOX = Path("/bin/busybox")
NEEDED = {
    "runc": "/usr/sbin/runc",
    "busybox-static": str(BUSYBOX),
    "containernetworking-plugins": "/usr/lib/cni/bridge",
    "iptables": "/usr/sbin/iptables",
}


def main() -> None:
    """Run the demo on a machine of its own; say what is missing where that is not possible."""
    missing = [package for package, path in NEEDED.items() if not os.path.exists(path)]
    reason = f"apt-get install {' '.join(missing)}" if missing else why_no_namespaces()
    if reason is not None:
        sys.exit(f"demo-runc: {reason}")
    if "inside" not in sys.argv:
        os.execvp("unshare", ["unshare", "--net", sys.executable, __file__, "inside", *sys.argv[1:]])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with TemporaryDirectory(prefix="libcni-demo-") as directory:
        demo(Demo(Path(directory)))


class Demo:
    """The directory of the demo: one network, bundles, and what the hook writes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = directory / "hook.log"
        self.leases = directory / "leases"
        (directory / "net.d").mkdir()
        self.conflist = (HERE / "demo_real.conflist").read_text()
        (directory / "net.d/10-demo.conflist").write_text(self.conflist.replace("/run/libcni-demo", str(self.leases)))
        (directory / "rootfs/bin").mkdir(parents=True)
        shutil.copy(BUSYBOX, directory / "rootfs/bin/busybox")
        (directory / "rootfs/index.html").write_text("hello, this is web\n")

    def bundle(self, name: str, *command: str, **annotations: str) -> Path:
        """Make a bundle, install the hook in it, and return it."""
        bundle = self.directory / name
        bundle.mkdir()
        self.runc("spec", "--bundle", str(bundle))
        spec: dict[str, Any] = json.loads((bundle / "config.json").read_text())
        spec["process"].update(terminal=False, args=["/bin/busybox", *command])
        del spec["process"]["rlimits"], spec["linux"]["resources"]  # so that it runs inside a container too
        spec["root"]["path"] = str(self.directory / "rootfs")
        spec["annotations"] = {f"libcni.{key}": value for key, value in annotations.items()}
        (bundle / "config.json").write_text(json.dumps(spec))
        words = [f"--{key}={self.directory / value}" for key, value in DIRECTORIES.items()]
        command_line = [sys.executable, "-m", "libcni", "oci-hook", *words, "--path=/usr/lib/cni"]
        subprocess.run([*command_line, "--install", str(bundle)], check=True, stdout=subprocess.DEVNULL)
        return bundle

    def runc(self, *words: str) -> str:
        """Run runc and return its output; a file takes it, because a container that goes on would keep a pipe open."""
        output = self.directory / "output"
        with output.open("w") as file:
            done = subprocess.run(
                ["runc", "--root", str(self.directory / "state"), *words],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                check=False,
            )
        if done.returncode != 0:
            sys.exit(f"demo-runc: runc {' '.join(words)}:\n{output.read_text()}")
        return output.read_text()


DIRECTORIES = {"conf-dir": "net.d", "cache-dir": "cache", "log": "hook.log"}


def demo(here: Demo) -> None:
    """Start a server, ask it from another container and from the host, and end it."""
    headline("The network: examples/demo_real.conflist")
    print(here.conflist)
    web = here.bundle("web", "httpd", "-f", "-p", "80", "-h", "/", ports="8080:80", mac="02:11:22:33:44:55")
    headline("web/config.json: annotations, and the hook that libcni oci-hook --install put in")
    spec = json.loads((web / "config.json").read_text())
    print(json.dumps({"annotations": spec["annotations"], "hooks": spec["hooks"]}, indent=2))

    headline("runc run --detach web")
    here.runc("run", "--detach", "--bundle", str(web), "web")
    try:
        address = show(here)
        client = here.bundle("client", "wget", "-qO-", f"http://{address}/")
        headline(f"runc run client: wget http://{address}/")
        print(here.runc("run", "--bundle", str(client), "client"))
        headline("The host: wget http://10.1.0.1:8080/")
        print(subprocess.check_output([BUSYBOX, "wget", "-qO-", "http://10.1.0.1:8080/"], text=True))
    finally:
        headline("runc delete --force web")
        here.runc("delete", "--force", "web")
        os.rmdir(directory_for(str(here.directory / "cache")))
    print_tree(here.directory / "cache/results", empty="no record")
    print_tree(here.leases, "10.*", empty="no lease")
    if "--documents" in sys.argv:
        headline("Every plugin call of both containers, with its document")
        print(here.log.read_text())
    else:
        print("\n  make demo-runc DOCUMENTS=1 also shows every plugin call with its document\n")


def show(here: Demo) -> str:
    """Print the container's interface and its record; return its address."""
    pins = Path(directory_for(str(here.directory / "cache")))
    [pin] = pins.iterdir()
    words = ["nsenter", f"--net={pin}", "ip", "-brief", "address"]
    print(subprocess.check_output(words, text=True))
    [record] = (here.directory / "cache/results").iterdir()
    print(f"  recorded in {record.relative_to(here.directory)}, with its namespace pinned as {pin.name}")
    address: str = json.loads(record.read_text())["result"]["ips"][0]["address"]
    return address.partition("/")[0]


if __name__ == "__main__":
    main()
