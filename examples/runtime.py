"""A container runtime in 200 lines: networks, published ports, DNS, bandwidth and addresses are libcni's. Needs root.

    mkdir -p /etc/cni/net.d; cp examples/demo_real.conflist /etc/cni/net.d    # the network "demonet"
    python examples/runtime.py run web --network demonet --publish 8080:80 -- python3 -m http.server 80
    python examples/runtime.py exec web -- ip address
    python examples/runtime.py ps
    python examples/runtime.py rm web
    python examples/runtime.py gc

``--network front --network back=10.99.0.7`` attaches two networks, and asks ``back``, whose plugin needs the capability
``ips``, for an address. ``make demo-real`` runs it all, without the copy.

It has no state file. A container lives as long as a process holds the lock of its directory: the runtime takes the lock
before it attaches anything, and the container's processes inherit it. libcni's records say the rest. So a kill at any
moment leaves nothing that ``gc``, or the next ``run`` of that name, does not clean up.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import libcni
from libcni.manager import Container, NetworkManager, NetworkRequest

HOME = Path(os.environ.get("RUNTIME_HOME", "/run/runtime-example"))
START = 'mount --bind "$1/resolv.conf" /etc/resolv.conf; shift; exec "$@"'


def make_manager() -> NetworkManager:
    """Return a manager that makes the containers' namespaces, and detaches attachments of this runtime only."""
    cni = libcni.CNIConfig(
        os.environ.get("CNI_PATH", "/opt/cni/bin:/usr/lib/cni"),
        os.environ.get("LIBCNI_CACHE_DIR", "/var/lib/cni"),
        conf_dir=os.environ.get("NETCONFPATH", "/etc/cni/net.d"),
        owner="runtime-example",
    )
    return NetworkManager(cni, namespaces=HOME / "netns")


def take_lock(name: str, *, seconds: float = 0.0) -> int | None:
    """Return a descriptor that holds the lock of a container's directory; None if somebody else holds it."""
    path, end = HOME / "containers" / name, time.monotonic() + seconds
    while True:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), path.stat()):  # else the last holder has removed the directory
                return descriptor
        except BlockingIOError:
            if time.monotonic() > end:
                os.close(descriptor)
                return None
            time.sleep(0.02)
        os.close(descriptor)


def names() -> list[str]:
    """Return the names of all containers, dead ones included."""
    return sorted(os.listdir(HOME / "containers"))


def is_live(name: str) -> bool:
    """Tell whether a process holds the container's lock."""
    with suppress(FileNotFoundError):
        if (descriptor := take_lock(name)) is None:
            return True
        os.close(descriptor)
    return False


def first_process(manager: NetworkManager, name: str) -> Iterator[int]:
    """Yield the container's process 1: it is in the network namespace, and has a PID namespace of its own."""
    container = manager.container(name)
    for pid in filter(str.isdigit, os.listdir("/proc") if container else ()):
        try:
            if os.path.samestat(os.stat(f"/proc/{pid}/ns/net"), os.stat(container.netns)):
                status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
                numbers = status.partition("NSpid:")[2].partition("\n")[0].split()
                if numbers[1:] == ["1"]:
                    yield int(pid)
        except OSError:  # it has ended, or is hidden from us
            continue


def port_mapping(text: str) -> libcni.PortMapping:
    """Read HOST:CONTAINER."""
    host, inside = text.split(":")
    return libcni.PortMapping(host_port=int(host), container_port=int(inside))


def request(text: str, args: argparse.Namespace) -> NetworkRequest:
    """Return NAME[=ADDRESS] as a request; the first network also gets the published ports and the limit."""
    name, _, address = text.partition("=")
    is_first = text == args.network[0]
    wanted = libcni.CapabilityArgs(
        ips=[address] if address else None,
        port_mappings=args.publish if is_first else None,
        bandwidth=libcni.Bandwidth(ingress_rate=args.rate, ingress_burst=args.rate) if args.rate and is_first else None,
    )
    return NetworkRequest(name, capability_args=wanted)


def run(args: argparse.Namespace) -> None:
    """Attach a new container and start its command in the background."""
    directory, manager = HOME / "containers" / args.name, make_manager()
    directory.mkdir(exist_ok=True)
    if (held := take_lock(args.name, seconds=0.5)) is None:
        sys.exit(f"runtime: {args.name} runs already")
    manager.tear_down(args.name)  # the remains of a killed container of this name
    try:
        result = manager.set_up(Container(args.name, None, [request(text, args) for text in args.network]), strict=True)
        (directory / "resolv.conf").write_text(result.resolv_conf, encoding="utf-8")
        first = ["nsenter", f"--net={result.netns}", "unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        with (directory / "log").open("w", encoding="utf-8") as log:
            process = subprocess.Popen(
                [*first, "sh", "-ec", START, "sh", str(directory), *args.command],
                pass_fds=[held], start_new_session=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
    except BaseException:
        manager.tear_down(args.name)
        shutil.rmtree(directory)
        raise
    addresses = {ifname: [ip.address for ip in eth.addresses] for ifname, eth in result.interfaces.items()}
    print(json.dumps({"pid": process.pid, "addresses": addresses}))


def execute(args: argparse.Namespace) -> None:
    """Run a command in a container."""
    for pid in first_process(make_manager(), args.name):
        sys.exit(subprocess.call(["nsenter", "-t", str(pid), "--net", "--pid", "--mount", *args.command]))
    sys.exit(f"runtime: {args.name} does not run")


def remove(args: argparse.Namespace) -> None:
    """End a container and detach it."""
    manager, end = make_manager(), time.monotonic() + 10
    while (held := take_lock(args.name)) is None and time.monotonic() < end:
        for pid in first_process(manager, args.name):
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    if held is None:
        sys.exit(f"runtime: {args.name} does not end")
    manager.tear_down(args.name)
    shutil.rmtree(HOME / "containers" / args.name)


def ps(_: argparse.Namespace) -> None:
    """List the containers with their addresses."""
    manager = make_manager()
    for name in names():
        addresses = [ip.address for ip in container.addresses] if (container := manager.container(name)) else []
        print(name, "running" if is_live(name) else "dead", *addresses)


def gc(_: argparse.Namespace) -> None:
    """Detach and remove all containers that do not live."""
    report = make_manager().recover(lambda: [name for name in names() if is_live(name)])
    for item in report.items:
        print(item.outcome, item.container_id, item.network, item.ifname)
    for error in report.errors:
        print(error, file=sys.stderr)
    for name in names():
        if (held := take_lock(name)) is not None:
            shutil.rmtree(HOME / "containers" / name)
            os.close(held)


def arguments() -> argparse.Namespace:
    """Return the command line; ``function`` is the command's function."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for word, function in {"run": run, "exec": execute, "rm": remove, "ps": ps, "gc": gc}.items():
        command = commands.add_parser(word)
        command.set_defaults(function=function)
        if word in {"run", "exec", "rm"}:
            command.add_argument("name")
        if word in {"run", "exec"}:
            command.add_argument("command", nargs="+")
        if word == "run":
            command.add_argument("--network", action="append", required=True, metavar="NAME[=ADDRESS]")
            command.add_argument("--publish", action="append", type=port_mapping, metavar="HOST:CONTAINER")
            command.add_argument("--rate", type=int, metavar="BITS", help="limit, per second, of what comes in")
    return parser.parse_args()


if __name__ == "__main__":
    given = arguments()
    try:
        (HOME / "containers").mkdir(parents=True, exist_ok=True)
        given.function(given)
    except (libcni.CNIError, OSError) as error:
        sys.exit(f"runtime: {error}")
