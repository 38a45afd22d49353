"""Find out who has an address now: host-local has a file for each reserved address, whichever program attached it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Literal

import libcni.kernel.system as system
from libcni.config import jsontext
from libcni.config.network import NetworkConfigList, PluginConfig
from libcni.kernel.regular_file import UnusableFileError, read_regular

_DATA_DIR = "/var/lib/cni/networks"
_MAX_BYTES = 1 << 16


def holder_of(
    net: NetworkConfigList, container_id: str, ifname: str, address: str
) -> Literal["this", "another", "unknown"]:
    """Return which attachment has host-local's reservation of an address: this one, another, or unknown.

    Unknown: another IPAM plugin gave the address, or somebody removed the reservation. A missing file is no proof that
    nobody has the address.
    """
    holders = list(holders_of(net, address))
    # A delegate of flannel or Multus reserves addresses under the name of its own network.
    if (container_id, ifname) in holders or (not holders and (container_id, ifname) in _delegates_holders(address)):
        return "this"
    return "another" if holders and (container_id, "") not in holders else "unknown"


def holders_of(net: NetworkConfigList, address: str) -> Iterator[tuple[str, str]]:
    """Yield the (container ID, interface) of host-local's reservations of an address; the interface may be ""."""
    for plugin in net.plugins:
        if plugin.ipam_type == "host-local":
            yield from _holders_in(os.path.join(_data_directory(plugin), net.name), address)


def _delegates_holders(address: str) -> list[tuple[str, str]]:
    """Return the holders of an address in the usual directories of all networks."""
    try:
        networks = system.listdir(_DATA_DIR)
    except OSError:
        return []
    return [holder for network in networks for holder in _holders_in(f"{_DATA_DIR}/{network}", address)]


def _holders_in(directory: str, address: str) -> Iterator[tuple[str, str]]:
    if "/" in address:  # it may be from a plugin's error text, and must not lead out of the directory
        return
    try:
        path = os.path.join(directory, address)
        data = read_regular(system.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), _MAX_BYTES)
    except (OSError, UnusableFileError, ValueError):
        return
    # host-local writes the container ID and on a second line the interface. Older versions omit the interface.
    container, _, interface = data.decode(errors="replace").strip().partition("\n")
    yield container.strip(), interface.strip()


def _data_directory(plugin: PluginConfig) -> str:
    # Few configurations name a directory. A key may be written with escape sequences.
    if "dataDir" not in plugin.text and "\\" not in plugin.text:
        return _DATA_DIR
    ipam = jsontext.parse(plugin.text).get("ipam")
    return str(ipam.get("dataDir") or _DATA_DIR) if isinstance(ipam, dict) else _DATA_DIR
