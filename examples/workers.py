"""Attach containers to a network in several processes: python examples/workers.py NETWORK CONTAINER..."""

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import libcni

# One for each process, because "spawn" imports this module in each.
cni = libcni.CNIConfig(
    os.environ.get("CNI_PATH", "/opt/cni/bin:/usr/lib/cni"),
    os.environ.get("LIBCNI_CACHE_DIR", "/var/lib/cni"),
    conf_dir=os.environ.get("NETCONFPATH", "/etc/cni/net.d"),
)


def attach(network: str, container: str) -> str:
    """Attach a container; return its address, or the error."""
    try:
        result = cni.add_network_list(network, libcni.RuntimeConf(container, f"/run/netns/{container}", "eth0"))
    except libcni.CNIError as error:
        return f"{container}: {type(error).__name__}"
    return f"{container}: {result.ips[0].address}"


def main(network: str, *containers: str) -> None:
    """Attach containers, and print each as soon as it is attached."""
    with ProcessPoolExecutor(3, get_context("spawn")) as pool:
        for line in pool.map(partial(attach, network), containers):
            print(line)


if __name__ == "__main__":
    main(*sys.argv[1:])
