"""Attach two network namespaces with the real plugins, send packets between them, detach them again. Needs root.

All happens on a machine of its own: a network namespace in which this program runs again. So nothing of this machine
is touched, and the bridge and the firewall rules vanish at the end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from narrator import Narrator, folded, headline, print_tree, quiet_at_end_of_pipe, wrapped

import libcni
from libcni.testing import NetworkNamespace, network_namespace, why_no_namespaces

HERE = Path(__file__).resolve().parent
PLUGINS = Path("/usr/lib/cni")
PORT = {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}
SERVER = """
import socket
with socket.create_server(("", 80)) as server:
    print("listening", flush=True)
    for _ in range(2):
        connection, peer = server.accept()
        with connection:
            connection.sendall(f"hello, you are {peer[0]}".encode())
"""
PORTMAP = (
    "Debian's portmap 1.1.1 fails every CHECK if the machine has IPv6 NAT (could not check ipv6 dnat). That is its own "
    "fault. Here the plugins find an ip6tables without NAT first: testdata/no-ip6-nat."
)
CLIENT = "import socket, sys; print(socket.create_connection((sys.argv[1], int(sys.argv[2])), 5).recv(99).decode())"


def main() -> None:
    """Run the demo on a machine of its own; say what is missing where that is not possible."""
    reason = why_no_namespaces()
    if reason is None and not (PLUGINS / "bridge").exists():
        reason = f"there are no plugins in {PLUGINS} (apt-get install containernetworking-plugins)"
    if reason is not None:
        sys.exit(f"demo-real: {reason}")
    if sys.argv[1:] != ["inside"]:
        os.execvp("unshare", ["unshare", "--net", sys.executable, __file__, "inside"])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with ExitStack() as stack, quiet_at_end_of_pipe():
        blue, green = (stack.enter_context(network_namespace()) for _ in range(2))
        demo(blue, green, Path(stack.enter_context(TemporaryDirectory(prefix="libcni-demo-"))))


def demo(blue: NetworkNamespace, green: NetworkNamespace, directory: Path) -> None:
    """Run ADD, CHECK and DEL for both containers; tell the first one's in full."""
    leases = directory / "leases"
    text = (HERE / "demo_real.conflist").read_text().replace("/run/libcni-demo", os.fspath(leases))
    net = libcni.NetworkConfigList.from_bytes(text)
    narrator = Narrator(net)
    # The first directory holds an ip6tables without NAT: with it portmap's CHECK is sound (the file says why).
    env = {"PATH": f"{HERE.parent / 'testdata/no-ip6-nat'}:/usr/sbin:/usr/bin:/sbin:/bin"}
    narrated = libcni.CNIConfig(path=[os.fspath(PLUGINS)], cache_dir=directory, env=env, observer=narrator)
    quiet = libcni.CNIConfig(path=[os.fspath(PLUGINS)], cache_dir=directory, env=env)
    first = libcni.RuntimeConf("c1", blue.path, "eth0", None, {"mac": "02:11:22:33:44:55", "portMappings": [PORT]})
    second = libcni.RuntimeConf("c2", green.path, "eth0")

    headline("The network: examples/demo_real.conflist")
    print(folded(json.loads(text), 2))
    with narrator.verb("ADD", f"container c1, whose network namespace is {blue.path}"):
        result = narrated.add_network_list(net, first)
    headline(f"ADD  container c2, whose network namespace is {green.path} (in short)")
    print(f"\n  {quiet.add_network_list(net, second).ips[0].address}")
    headline("What is there now")
    show_interfaces(blue=blue, green=green)
    show_packets(result.ips[0].address.partition("/")[0], result.ips[0].gateway or "", blue, green)
    headline("On disk: libcni's record of c1, and host-local's leases")
    print_tree(directory / "results", "*-c1-*", empty="nothing")
    print_tree(leases, "10.*", empty="nothing")

    with narrator.verb("CHECK", "container c1"):
        print()
        wrapped(PORTMAP, 2)
        narrated.check_network_list(net, first)
    with narrator.verb("DEL", "container c1 (the plugins in reverse order)"):
        narrated.del_network_list(net, first)
    headline("DEL  container c2 (in short)")
    quiet.del_network_list(net, second)
    headline("What is there now")
    show_interfaces(blue=blue, green=green)
    print_tree(directory / "results", empty="no record")
    print_tree(leases, "10.*", empty="no lease")
    narrator.print_times()


def show_interfaces(**namespaces: NetworkNamespace) -> None:
    """Print the interfaces of each namespace with their addresses."""
    for name, namespace in namespaces.items():
        print(f"\n  in {name}:")
        for interface, addresses in namespace.interfaces().items():
            print(f"    {interface:8} {', '.join(addresses) or '-'}")


def show_packets(address: str, gateway: str, blue: NetworkNamespace, green: NetworkNamespace) -> None:
    """Let a server in blue answer a client in green, and one on the machine that uses the mapped port."""
    headline("Packets cross")
    command = ["ip", "netns", "exec", blue.name, sys.executable, "-c", SERVER]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()
        said = green.run(sys.executable, "-c", CLIENT, address, "80").strip()
        print(f'\n  green connects to {address}:80, and blue says: "{said}"')
        port = str(PORT["hostPort"])
        said = subprocess.run([sys.executable, "-c", CLIENT, gateway, port], check=True, capture_output=True, text=True)
        print(f'  the machine connects to {gateway}:{port}, and blue says: "{said.stdout.strip()}"')


if __name__ == "__main__":
    main()
