"""Run two containers with examples/runtime.py on the real plugins, let them talk, and kill the runtime. Needs root.

All happens on a machine of its own: network and mount namespaces in which this program runs again. So nothing of this
machine is touched, and the bridge and the firewall rules vanish at the end.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from narrator import headline, print_tree, quiet_at_end_of_pipe

from libcni.testing import why_no_namespaces

HERE = Path(__file__).resolve().parent
PLUGINS = Path("/usr/lib/cni")
RUNTIME = [sys.executable, str(HERE / "runtime.py")]
SERVER = "import http.server as s; s.test(s.SimpleHTTPRequestHandler, port=80)"
FETCH = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=5).status, 'from', sys.argv[1])"


def main() -> None:
    """Run the demo on a machine of its own; say what is missing where that is not possible."""
    reason = why_no_namespaces()
    if reason is None and not (PLUGINS / "bridge").exists():
        reason = f"there are no plugins in {PLUGINS} (apt-get install containernetworking-plugins)"
    if reason is not None:
        sys.exit(f"demo-real: {reason}")
    if sys.argv[1:] != ["inside"]:
        own = ["unshare", "--net", "--mount", "--propagation", "private"]
        os.execvp("unshare", [*own, sys.executable, __file__, "inside"])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with TemporaryDirectory(prefix="libcni-demo-", ignore_cleanup_errors=True) as directory, quiet_at_end_of_pipe():
        try:
            demo(Path(directory))
        finally:
            for name in ("web", "client", "lost"):
                subprocess.run([*RUNTIME, "rm", name], stderr=subprocess.DEVNULL, check=False)


def demo(directory: Path) -> None:
    """Start two containers, ask one from the other and from the machine, kill a runtime, and remove everything."""
    leases, records = directory / "leases", directory / "cache/results"
    conflist = (HERE / "demo_real.conflist").read_text(encoding="utf-8")
    (directory / "net.d").mkdir()
    (directory / "net.d/10-demo.conflist").write_text(conflist.replace("/run/libcni-demo", str(leases)))
    os.environ |= {
        "RUNTIME_HOME": str(directory),
        "LIBCNI_CACHE_DIR": str(directory / "cache"),
        "NETCONFPATH": str(directory / "net.d"),
        "CNI_PATH": str(PLUGINS),
    }
    headline("The network: examples/demo_real.conflist")
    print(conflist)

    headline("Two containers, one with a published port")
    show("run", "web", "--network", "demonet", "--publish", "8080:80", "--", sys.executable, "-c", SERVER)
    show("run", "client", "--network", "demonet", "--", "sleep", "600")
    show("exec", "client", "--", "ip", "-4", "address", "show", "eth0")
    headline("Packets cross")
    wait_for_port()
    show("exec", "client", "--", sys.executable, "-c", FETCH, "http://10.1.0.2/")
    print("\nthe machine:", flush=True)  # before what the other process prints
    subprocess.run([sys.executable, "-c", FETCH, "http://10.1.0.1:8080/"], check=True)

    headline("kill -9 of the runtime, in the middle of an ADD")
    victim = subprocess.Popen([*RUNTIME, "run", "lost", "--network", "demonet", "--", "sleep", "600"])
    while not list(leases.rglob("10.1.0.4")):  # host-local has reserved the address, and the chain goes on
        time.sleep(0.001)
    victim.kill()
    victim.wait()
    print_tree(leases, "10.1.0.4", empty="no lease")
    show("gc")
    show("ps")

    headline("The end")
    show("rm", "web")
    show("rm", "client")
    print_tree(records, empty="no record")
    print_tree(leases, "10.*", empty="no lease")


def show(*words: str) -> None:
    """Print a command of the runtime and run it."""
    short = {sys.executable: "python3", SERVER: "SERVER", FETCH: "FETCH"}
    print(f"\n$ runtime.py {shlex.join(short.get(word, word) for word in words)}", flush=True)
    subprocess.run([*RUNTIME, *words], check=True)


def wait_for_port() -> None:
    """Wait until the web server answers."""
    probe = "until (: </dev/tcp/10.1.0.2/80) 2>/dev/null; do sleep 0.05; done"
    subprocess.run(["bash", "-c", probe], check=True, timeout=20)


if __name__ == "__main__":
    main()
