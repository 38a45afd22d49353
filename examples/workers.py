"""Attach containers to a network in several processes: python examples/workers.py c1 c2."""

import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import libcni

NETWORK = "dbnet"
# One for each process, because "spawn" imports this module in each.
cni = libcni.CNIConfig(["/opt/cni/bin"], "/var/lib/cni", conf_dir="/etc/cni/net.d")


def attach(container: str) -> str:
    """Attach a container; return its address, or the error."""
    try:
        result = cni.add_network_list(NETWORK, libcni.RuntimeConf(container, f"/run/netns/{container}", "eth0"))
    except libcni.CNIError as error:
        return f"{container}: {type(error).__name__}"
    return f"{container}: {result.ips[0].address}"


def main(containers: list[str]) -> None:
    """Attach containers, and print each as soon as it is attached."""
    with ProcessPoolExecutor(3, get_context("spawn")) as pool:
        for line in pool.map(attach, containers):
            print(line)


if __name__ == "__main__":
    main(sys.argv[1:])
