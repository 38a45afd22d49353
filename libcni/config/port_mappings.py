"""The published ports in capability arguments, whose keys are read without regard to case, like Go's encoding/json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

PORT_MAPPINGS = "portMappings"


class HostPort(NamedTuple):
    """A port of the host that an attachment publishes; ``address`` is "" for all addresses of the host."""

    number: int
    protocol: str
    address: str

    def collides(self, other: HostPort) -> bool:
        """Return whether a connection to the host could match both ports."""
        if (self.number, self.protocol) != (other.number, other.protocol):
            return False
        addresses = {_canonical(self.address), _canonical(other.address)}
        if "" in addresses or len(addresses) == 1:
            return True
        # 0.0.0.0 and :: stand for all addresses of their family.
        is_one_family = len({":" in address for address in addresses}) == 1
        return is_one_family and not addresses.isdisjoint({"0.0.0.0", "::"})  # noqa: S104 - nothing is bound

    def __str__(self) -> str:
        """Return the port in the form ``127.0.0.1:8080/tcp``."""
        return f"{self.address}{':' if self.address else ''}{self.number}/{self.protocol}"


def ports_in(capability_args: Mapping[str, Any] | None) -> Iterator[HostPort]:
    """Yield the ports of the host in capability arguments, whose values may have any type.

    containerd records ``HostPort`` and ``Protocol``, other runtimes ``hostPort`` and ``protocol``. portmap ignores a
    mapping without a port of the host.
    """
    return (port for port, _ in published_in(capability_args))


def published_in(capability_args: Mapping[str, Any] | None) -> Iterator[tuple[HostPort, str]]:
    """Yield the ports of ``ports_in``, each with the port of the container; "" if that is missing."""
    mappings = (capability_args or {}).get(PORT_MAPPINGS)
    for mapping in mappings if isinstance(mappings, list | tuple) else ():
        if isinstance(mapping, Mapping):
            fields = {str(key).lower(): value for key, value in mapping.items()}
            number = fields.get("hostport")
            if number and isinstance(number, int | float):
                protocol, address = str(fields.get("protocol") or "tcp").lower(), str(fields.get("hostip") or "")
                inside = fields.get("containerport")
                # A record may have 8080.0.
                port = HostPort(number, protocol, address)  # type: ignore[arg-type]
                yield port, f"{inside:g}" if isinstance(inside, int | float) else ""


def _canonical(address: str) -> str:
    """Return the usual text of an IPv6 address, which has many; any other text as it is."""
    if ":" not in address:
        return address
    from ipaddress import ip_address  # few ADDs compare IPv6 addresses of the host

    try:
        return str(ip_address(address))
    except ValueError:
        return address
