"""The state of a plugin on disk: one file for each address, interface or port, so that a leak is a file.

The file's name is the resource; its lines are the container ID, the interface name and the network of its owner.
"""

from __future__ import annotations

import os

from fakecni.call import Failure

TYPE_CHECKING = False  # typing itself would be imported at every start
if TYPE_CHECKING:
    from collections.abc import Callable

Owner = tuple  # (container ID, interface name, network)


class Shelf:
    """One directory of such files."""

    def __init__(self, *parts: str) -> None:
        self.path = os.path.join(*parts)

    def _file(self, name: str) -> str:
        """Return the path of the file for ``name``; a configuration must not lead out of this directory."""
        if "/" in name or name in ("", ".", ".."):
            raise Failure(7, f"invalid name {name!r}")
        return os.path.join(self.path, name)

    def names(self) -> list[str]:
        """Return all names, in order."""
        try:
            return sorted(os.listdir(self.path))
        except FileNotFoundError:
            return []

    def take(self, name: str, owner: Owner) -> bool:
        """Take ``name`` for ``owner``; False if it is taken."""
        os.makedirs(self.path, exist_ok=True)
        try:
            with open(self._file(name), "x") as file:
                file.write("\n".join(owner) + "\n")
        except FileExistsError:
            return False
        return True

    def owned(self, wanted: Callable[[Owner], bool]) -> list[str]:
        """Return the names whose owner is ``wanted``."""
        return [name for name in self.names() if wanted(self._owner(name))]

    def release(self, wanted: Callable[[Owner], bool]) -> None:
        """Give back the names whose owner is ``wanted``."""
        for name in self.owned(wanted):
            self.drop(name)

    def drop(self, name: str) -> None:
        """Give back ``name``, if it is taken."""
        try:
            os.unlink(self._file(name))
        except FileNotFoundError:
            pass

    def _owner(self, name: str) -> Owner:
        """Return the owner; a file that was never finished has an empty one."""
        try:
            with open(os.path.join(self.path, name)) as file:
                lines = [*file.read().split("\n"), "", "", ""]
        except FileNotFoundError:
            lines = ["", "", ""]
        return lines[0], lines[1], lines[2]


def allocate(shelf: Shelf, subnet: str, owner: Owner) -> dict:
    """Take the first free address of ``subnet``, whose first host is the gateway; return an entry of ``ips``."""
    import ipaddress  # only ADD needs it

    network = ipaddress.ip_network(subnet)
    first = int(network.network_address) + 1
    taken = set(shelf.names())
    for number in range(first + 1, first + network.num_addresses - 2):
        address = str(type(network.network_address)(number))
        if address not in taken and shelf.take(address, owner):
            return {"address": f"{address}/{network.prefixlen}", "gateway": str(network.network_address + 1)}
    raise Failure(999, f"no addresses available in {subnet}")
