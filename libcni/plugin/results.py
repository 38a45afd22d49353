"""Results as a plugin builds and prints them (spec 1.1.0, section 5, Success).

A result in memory has the form of 1.x; ``libcni/protocol/conversion.py`` converts it, like the results in the
runtime. Unknown fields are kept.
"""

from __future__ import annotations

from libcni.config.versions import ALL_VERSIONS, CURRENT_VERSION
from libcni.plugin.failure import DECODING_FAILURE, VerbError
from libcni.protocol.conversion import ConversionError, as_plain, convert, from_plain, object_of, objects

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

__all__ = ["PluginResult"]

_LISTS = ("interfaces", "ips", "routes")
_KNOWN = frozenset({"cniVersion", *_LISTS, "dns"})
_OF_A_RESULT = _KNOWN - {"cniVersion"} | {"ip4", "ip6"}


class PluginResult:
    """A result: the copy of a previous plugin's result, or a new result to fill.

    Attributes:
        version (str): the spec version in which the result is printed.
        interfaces: a list of JSON objects with the keys of spec 1.1.0, section 5. These objects may have other keys
            too.
        ips: a list of JSON objects, as ``interfaces``.
        routes: a list of JSON objects, as ``interfaces``.
        dns: a JSON object.
        extra: top-level keys that the specification does not have.

    Examples:
        >>> result = PluginResult("1.1.0")
        >>> eth0 = result.add_interface("eth0", sandbox="/run/netns/blue")
        >>> result.add_ip("10.1.0.5/16", interface=eth0)
        >>> result.to_document()["ips"]
        [{'address': '10.1.0.5/16', 'interface': 0}]
    """

    def __init__(self, version: str = CURRENT_VERSION) -> None:
        self.version = version
        self.interfaces: list[dict[str, Any]] = []
        self.ips: list[dict[str, Any]] = []
        self.routes: list[dict[str, Any]] = []
        self.dns: dict[str, Any] = {}
        self.extra: dict[str, Any] = {}
        self._created_version = version

    @classmethod
    def from_document(cls, document: object, version: str) -> PluginResult:
        """Return the result in ``document``, to be printed in ``version``.

        Args:
            document: a result of any known spec version, as ``json`` decodes it.
            version: the spec version to print it in; also the version of a document without ``cniVersion``.

        Raises:
            VerbError: with code 6, if ``document`` is not a result, or its ``cniVersion`` is unknown.
        """
        result = cls(version)
        try:
            whole = object_of(document, "the result")
            # Otherwise a plugin that returns an error document, or prints one with exit status 0, would report success.
            if "code" in whole and not _OF_A_RESULT & whole.keys():
                raise ConversionError(f"an error document is no result: {whole.get('msg')}")
            source = whole.get("cniVersion") or version
            for name in (source, version):
                if name not in ALL_VERSIONS:
                    raise ConversionError(f"the result has the unknown cniVersion {name!r}")
            # A deep copy: a change of the result must not show in the configuration, which prev_result reads again.
            plain = _copy(as_plain(convert(whole, source, version)))
            result.interfaces, result.ips, result.routes = (objects(plain, key) for key in _LISTS)
            result.dns = object_of(plain.get("dns") or {}, "dns")
        except ConversionError as error:
            raise VerbError(str(error), code=DECODING_FAILURE) from error
        result.extra = {key: value for key, value in plain.items() if key not in _KNOWN}
        return result

    def add_interface(  # noqa: PLR0913 - one parameter for each field of the specification
        self,
        name: str,
        *,
        mac: str | None = None,
        sandbox: str | None = None,
        mtu: int | None = None,
        socket_path: str | None = None,
        pci_id: str | None = None,
    ) -> int:
        """Add an interface and return its index, for ``add_ip``.

        Args:
            name: the interface's name.
            mac: its hardware address.
            sandbox: ``request.netns`` for an interface inside the container, None for one on the host.
            mtu: bytes. This field, ``socket_path`` and ``pci_id`` are left out below spec 1.1.0.
            socket_path: an absolute path to a socket file that belongs to the interface.
            pci_id: the interface's PCI address.
        """
        new = {"mtu": mtu, "socketPath": socket_path, "pciID": pci_id} if self.version == CURRENT_VERSION else {}
        self.interfaces.append(_without_none(name=name, mac=mac, sandbox=sandbox, **new))
        return len(self.interfaces) - 1

    def add_ip(
        self,
        address: object,
        *,
        gateway: object = None,
        interface: int | None = None,
    ) -> None:
        """Add an address.

        Args:
            address: with its prefix length, such as ``10.1.0.5/16``.
            gateway: the subnet's gateway, or None.
            interface: the index that ``add_interface`` returned; None from an IPAM plugin.

        Raises:
            ValueError: if ``address`` is not an address with its prefix length, or ``gateway`` is not an address.
        """
        text = _cidr(address)
        self.ips.append(_without_none(address=text, gateway=_address(gateway), interface=interface))

    def add_route(  # noqa: PLR0913 - one parameter for each field of the specification
        self,
        dst: object,
        *,
        gw: object = None,
        mtu: int | None = None,
        advmss: int | None = None,
        priority: int | None = None,
        table: int | None = None,
        scope: int | None = None,
    ) -> None:
        """Add a route.

        Args:
            dst: the destination network with its prefix length.
            gw: the next hop; None for the gateway of the address.
            mtu: bytes. This field, ``advmss``, ``priority``, ``table`` and ``scope`` are left out below spec 1.1.0.
            advmss: the maximal segment size to advertise, in bytes.
            priority: the route's priority; a lower number is preferred.
            table: the routing table.
            scope: the scope of the destinations, as in rtnetlink: 0 (global), 253 (link) or 254 (host).

        Raises:
            ValueError: if ``dst`` is not a network, or ``gw`` is not an address.
        """
        new: dict[str, int | None] = {}
        if self.version == CURRENT_VERSION:
            new = {"mtu": mtu, "advmss": advmss, "priority": priority, "table": table, "scope": scope}
        self.routes.append(_without_none(dst=_cidr(dst), gw=_address(gw), **new))

    def set_dns(
        self,
        nameservers: Iterable[str] = (),
        *,
        domain: str | None = None,
        search: Iterable[str] = (),
        options: Iterable[str] = (),
    ) -> None:
        """Replace the name server settings; an empty setting is left out.

        Args:
            nameservers: addresses, the preferred one first.
            domain: the local domain, for short names.
            search: domains to search for short names, the preferred one first.
            options: resolver options, such as ``ndots:2``.
        """
        lists = {"nameservers": list(nameservers), "search": list(search), "options": list(options)}
        self.dns = _without_none(domain=domain, **{key: value or None for key, value in lists.items()})

    def to_document(self) -> dict[str, Any]:
        """Return the JSON object to print, in the form of ``version``.

        Raises:
            VerbError: with code 6, if the result has no address and comes from a newer version than 0.2.0, and
                ``version`` is 0.2.0 or older.
        """
        parts = {key: value for key in (*_LISTS, "dns") if (value := getattr(self, key))}
        try:
            return convert(
                from_plain({**parts, **self.extra}, self._created_version), self._created_version, self.version
            )
        except ConversionError as error:
            raise VerbError(
                f"cannot convert the result from {self._created_version} to {self.version}: {error}",
                code=DECODING_FAILURE,
            ) from error


def document_of(returned: object, version: str) -> dict[str, Any]:
    """Return the JSON object to print for a result, or for a mapping with a result's keys; raises VerbError."""
    if not isinstance(returned, PluginResult):
        returned = PluginResult.from_document(returned, version)
    returned.version = version
    return returned.to_document()


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(part) for key, part in value.items()}
    return [_copy(part) for part in value] if isinstance(value, list) else value


def _without_none(**fields: Any) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


def _cidr(value: object) -> str:
    from ipaddress import ip_interface

    text = str(value)
    _, slash, prefix = text.partition("/")
    if not slash or not prefix.isdecimal():
        raise ValueError(f"{text!r} is not an address with its prefix length, such as 10.1.0.5/16")
    ip_interface(text)
    return text


def _address(value: object) -> str | None:
    if value is None:
        return None
    from ipaddress import ip_address

    ip_address(str(value))
    return str(value)
