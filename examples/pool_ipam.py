#!/usr/bin/env python3
"""An IPAM plugin: addresses out of one subnet, one file per address, one lock per network.

    "ipam": {"type": "pool-ipam", "subnet": "10.1.0.0/16", "routes": [{"dst": "0.0.0.0/0"}], "dataDir": "/var/lib/pool"}

``gateway`` is the subnet's first address unless given. The capability ``ips`` asks for certain addresses.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_interface, ip_network
from itertools import islice
from pathlib import Path

from libcni.plugin import ErrorCode, Plugin, PluginResult, Request, VerbError

DATA_DIR = "/var/lib/cni/pool-ipam"
ALREADY_HAS_ONE, TAKEN = 100, 101
plugin = Plugin("pool-ipam", about="hand out the addresses of a subnet")


class Pool:
    """Hold the addresses of one network: a file per address in use, which says whose it is."""

    def __init__(self, request: Request) -> None:
        ipam = request.config.get("ipam") or {}
        try:
            self.subnet: IPv4Network | IPv6Network = ip_network(ipam["subnet"])
            self.gateway = ip_address(ipam.get("gateway") or self.subnet.network_address + 1)
        except (KeyError, ValueError) as error:
            raise VerbError(f"ipam: {error!r}", code=ErrorCode.INVALID_NETWORK_CONFIG) from error
        self.routes = ipam.get("routes") or []
        self.directory = Path(ipam.get("dataDir") or DATA_DIR, request.name)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes away from this network's addresses."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / "lock").open("a", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def in_use(self) -> dict[IPv4Address | IPv6Address, tuple[str, str]]:
        """Return each address in use with its container and interface."""
        files = [path for path in self.directory.glob("*") if path.suffix != ".new" and path.name != "lock"]
        return {ip_address(path.name): _owner(path) for path in files}

    def of(self, owner: tuple[str, str]) -> list[IPv4Address | IPv6Address]:
        """Return the addresses of one attachment."""
        return [address for address, other in self.in_use().items() if other == owner]

    def free(self) -> Iterator[IPv4Address | IPv6Address]:
        """Go through the addresses that nobody has."""
        used = self.in_use()
        return (address for address in self.subnet.hosts() if address != self.gateway and address not in used)

    def take(self, address: IPv4Address | IPv6Address, owner: tuple[str, str]) -> None:
        """Write down whose ``address`` is: all of it or, after a crash, nothing."""
        new = self.directory / f"{address}.new"
        new.write_text("\n".join(owner), encoding="utf-8")
        new.rename(self.directory / str(address))

    def release(self, address: IPv4Address | IPv6Address) -> None:
        """Give ``address`` back."""
        (self.directory / str(address)).unlink()


def _owner(path: Path) -> tuple[str, str]:
    container_id, _, ifname = path.read_text(encoding="utf-8").partition("\n")
    return container_id, ifname


def _wanted(request: Request, pool: Pool) -> list[IPv4Address | IPv6Address]:
    asked = [ip_interface(text).ip for text in request.runtime_config.ips]
    taken = [str(address) for address in asked if address in pool.in_use()]
    if taken:
        raise VerbError(f"in use: {', '.join(taken)}", code=TAKEN)
    found = asked or list(islice(pool.free(), 1))
    if not found:
        raise VerbError("no free address", code=ErrorCode.TRY_AGAIN_LATER, details=f"{pool.subnet} is full")
    return found


@plugin.add
def add(request: Request) -> PluginResult:
    """Hand out an address, or those that were asked for; what went before is the caller's to pass on."""
    result = PluginResult(request.version)
    pool, owner = Pool(request), (request.container_id, request.ifname)
    with pool.locked():
        if pool.of(owner):
            raise VerbError(f"{' '.join(owner)} has an address already", code=ALREADY_HAS_ONE)
        for address in _wanted(request, pool):
            pool.take(address, owner)
            result.add_ip(f"{address}/{pool.subnet.prefixlen}", gateway=pool.gateway)
    result.routes += pool.routes
    return result


@plugin.check
def check(request: Request) -> None:
    """Insist that the attachment still has its addresses."""
    pool = Pool(request)
    if not pool.of((request.container_id, request.ifname)):
        raise VerbError(f"{request.container_id} {request.ifname} has no address", code=ErrorCode.UNKNOWN_CONTAINER)


@plugin.delete
def delete(request: Request) -> None:
    """Give the attachment's addresses back, if there are any."""
    pool = Pool(request)
    with pool.locked():
        for address in pool.of((request.container_id, request.ifname)):
            pool.release(address)


@plugin.gc
def gc(request: Request) -> None:
    """Give back what no valid attachment has."""
    pool, valid = Pool(request), request.valid_attachments
    with pool.locked():
        for address, owner in pool.in_use().items():
            if owner not in valid:
                pool.release(address)


@plugin.status
def status(request: Request) -> None:
    """Say whether an ADD would find an address."""
    if next(Pool(request).free(), None) is None:
        raise VerbError("no free address", code=ErrorCode.PLUGIN_NOT_AVAILABLE)


if __name__ == "__main__":
    plugin.run()
