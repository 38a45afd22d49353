"""Attach, check and detach a container through three fake plugins, and show all that happens. Needs no root."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from narrator import Narrator, folded, headline, print_tree, quiet_at_end_of_pipe

import libcni

HERE = Path(__file__).resolve().parent
PLUGINS = HERE.parent / "plugins-fake"
NETNS = "/run/netns/blue"
PORT = {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}


def main() -> None:
    """Run the demo in a directory that is removed afterwards."""
    with TemporaryDirectory(prefix="libcni-demo-") as directory, quiet_at_end_of_pipe():
        demo(Path(directory))


def demo(directory: Path) -> None:
    """Run ADD, CHECK and DEL."""
    net = libcni.NetworkConfigList.from_file(HERE / "demo.conflist")
    rt = libcni.RuntimeConf(
        container_id="c1",
        netns=NETNS,
        ifname="eth0",
        capability_args={"mac": "02:11:22:33:44:55", "portMappings": [PORT]},
    )
    state = directory / "state"
    narrator = Narrator(net)
    cni = libcni.CNIConfig(
        path=[os.fspath(PLUGINS)],
        cache_dir=directory,
        env=environment(state),
        observer=narrator,
    )

    headline("The network: examples/demo.conflist")
    print(folded(json.loads((HERE / "demo.conflist").read_text()), 2), end="\n\n")
    print("The runtime says: container c1, interface eth0,", NETNS)
    print(folded({"capability_args": rt.capability_args and dict(rt.capability_args)}, 2))

    with narrator.verb("ADD", "container c1, interface eth0"):
        result = cni.add_network_list(net, rt)
    headline("The result, as the runtime gets it")
    print(f"\n  {result.ips[0].address} on {result.interfaces[-1].name}, MAC address {result.interfaces[-1].mac}")
    headline("On disk after ADD: libcni's record")
    print_tree(directory / "results", empty="nothing")
    headline("On disk after ADD: what the fake plugins hold")
    print_tree(state, empty="nothing")

    with narrator.verb("CHECK", "container c1, interface eth0"):
        cni.check_network_list(net, rt)

    with narrator.verb("DEL", "container c1, interface eth0 (the plugins in reverse order)"):
        cni.del_network_list(net, rt)
    headline("On disk after DEL")
    print_tree(directory / "results", empty="no record")
    print_tree(state, empty="no address, no interface, no port: nothing has leaked")

    narrator.print_times()


def environment(state: Path) -> dict[str, str]:
    """Return the plugins' environment: where they keep their state, and this Python first."""
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
    return {**os.environ, "PATH": path, "FAKE_CNI_STATE": os.fspath(state)}


if __name__ == "__main__":
    main()
