"""A main plugin: a veth pair into the container, with an address from its IPAM plugin.

{"type": "uplink", "ipam": {"type": "host-local", "subnet": "10.89.0.0/24"}}
"""

from __future__ import annotations

import subprocess
from zlib import crc32

from libcni.plugin import Plugin, Request, VerbError

plugin = Plugin("uplink", about="connect a container to the host", ipam=True)


def _ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], check=False, capture_output=True, text=True)
    if done.returncode:
        raise VerbError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def _host_end(request: Request) -> str:
    return f"up{crc32((request.container_id + request.ifname).encode()):08x}"


@plugin.add
def add(request: Request) -> None:
    """Make the pair, then ask the IPAM plugin; if anything fails, nothing is left."""
    _ip("link", "add", _host_end(request), "type", "veth", "peer", "name", request.ifname, "netns", request.netns)
    try:
        request.result = request.ipam_add()
        index = request.result.add_interface(request.ifname, sandbox=request.netns)
        with request.in_namespace():
            for address in request.result.ips:
                address["interface"] = index
                _ip("address", "add", address["address"], "dev", request.ifname)
            _ip("link", "set", request.ifname, "up")
            for route in request.result.routes:
                where = ("via", route["gw"]) if route.get("gw") else ("dev", request.ifname)
                _ip("route", "add", route["dst"], *where)
        _ip("link", "set", _host_end(request), "up")
    except BaseException:
        delete(request)
        raise


@plugin.check
def check(request: Request) -> None:
    """Insist that the interface exists, with its addresses."""
    with request.in_namespace():
        shown = _ip("-oneline", "address", "show", "dev", request.ifname).split()
    for address in request.require_prev_result().ips:
        if address["address"] not in shown:
            raise VerbError(f"{request.ifname} lacks {address['address']}", code=100)


@plugin.delete
def delete(request: Request) -> None:
    """Remove the pair."""
    subprocess.run(["ip", "link", "delete", _host_end(request)], check=False, capture_output=True)


if __name__ == "__main__":
    plugin.run()
