"""Results as a plugin builds and prints them (spec 1.1.0, section 5, Success).

One form in memory, that of 1.x; one table says how each version prints it. Whatever is not known here is kept.
"""

from __future__ import annotations

from libcni.config.versions import CURRENT_VERSION
from libcni.errors import ErrorCode
from libcni.plugin.failure import VerbError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

__all__ = ["PluginResult"]

_KNOWN = frozenset({"cniVersion", "interfaces", "ips", "routes", "dns", "ip4", "ip6"})
_NEW_FIELDS_SINCE = "1.1.0"


class PluginResult:
    """Hold one result: a previous plugin's to pass on, or a new one to fill.

    Attributes:
        version (str): the spec version in which it is printed.
        interfaces: a list of JSON objects with the keys of spec 1.1.0, section 5, unknown ones included.
        ips: likewise.
        routes: likewise.
        dns: a JSON object.
        extra: top-level keys that the specification does not have.
    """

    def __init__(self, version: str = CURRENT_VERSION) -> None:
        self.version = version
        self.interfaces: list[dict[str, Any]] = []
        self.ips: list[dict[str, Any]] = []
        self.routes: list[dict[str, Any]] = []
        self.dns: dict[str, Any] = {}
        self.extra: dict[str, Any] = {}

    @classmethod
    def from_document(cls, document: object, version: str) -> PluginResult:
        """Return ``document``, a result of any spec version, to be printed in ``version``.

        Raises:
            VerbError: code 6, it is not a result.
        """
        whole = _object(document, "the result")
        result = cls(version)
        result.interfaces = _objects(whole, "interfaces")
        result.ips = [_without_version(ip) for ip in _objects(whole, "ips")]
        result.routes = _objects(whole, "routes")
        result.dns = _object(whole.get("dns") or {}, "dns")
        result.extra = {key: _copy(value) for key, value in whole.items() if key not in _KNOWN}
        for family in ("ip4", "ip6"):
            if whole.get(family) is not None:
                result._take_legacy(_object(whole[family], family))
        return result

    def _take_legacy(self, part: dict[str, Any]) -> None:
        self.routes += _objects(part, "routes")
        rest = {key: value for key, value in part.items() if key not in {"ip", "routes"}}
        self.ips.append({"address": part.get("ip"), **rest})

    def add_interface(
        self, name: str, *, mac: str | None = None, sandbox: str | None = None, **since_1_1: str | int | None
    ) -> int:
        """Add an interface and return its index, for ``add_ip``.

        Args:
            name: its name.
            mac: its hardware address.
            sandbox: for one inside the container, ``request.netns``.
            since_1_1: ``mtu`` (bytes), ``socketPath``, ``pciID``; left out below spec 1.1.0.
        """
        self.interfaces.append(_given(name=name, mac=mac, sandbox=sandbox, **self._new_fields(since_1_1)))
        return len(self.interfaces) - 1

    def add_ip(self, address: object, *, gateway: object = None, interface: int | None = None) -> None:
        """Add an address.

        Args:
            address: with its prefix length, such as ``10.1.0.5/16``.
            gateway: the subnet's gateway, or None.
            interface: what ``add_interface`` returned; None from an IPAM plugin.

        Raises:
            ValueError: not an address with its prefix, or a gateway that is no address.
        """
        text = _cidr(address)
        self.ips.append(_given(address=text, gateway=_address(gateway), interface=interface))

    def add_route(self, dst: object, *, gw: object = None, **since_1_1: int | None) -> None:
        """Add a route to ``dst`` (CIDR), by way of ``gw`` or of the address's gateway.

        Args:
            dst: where to.
            gw: next hop.
            since_1_1: ``mtu`` and ``advmss`` (bytes), ``priority``, ``table``, ``scope``; left out below spec 1.1.0.

        Raises:
            ValueError: ``dst`` is no network, or ``gw`` no address.
        """
        self.routes.append(_given(dst=_cidr(dst), gw=_address(gw), **self._new_fields(since_1_1)))

    def set_dns(
        self,
        nameservers: Iterable[str] = (),
        *,
        domain: str | None = None,
        search: Iterable[str] = (),
        options: Iterable[str] = (),
    ) -> None:
        """Replace the name server settings; what is empty is left out.

        Args:
            nameservers: addresses, the first preferred.
            domain: the local domain, for short names.
            search: domains to search for short names, the first preferred.
            options: resolver options, such as ``ndots:2``.
        """
        lists = {"nameservers": list(nameservers), "search": list(search), "options": list(options)}
        self.dns = _given(domain=domain, **{key: value or None for key, value in lists.items()})

    def _new_fields(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        return fields if self.version == _NEW_FIELDS_SINCE else {}

    def to_document(self) -> dict[str, Any]:
        """Return the JSON object to print, in the form of ``version``."""
        return {"cniVersion": self.version, **_FORMS[self.version](self), **self.extra}


def _form_1(result: PluginResult) -> dict[str, Any]:
    parts = {"interfaces": result.interfaces, "ips": result.ips, "routes": result.routes, "dns": result.dns}
    return {key: value for key, value in parts.items() if value}


def _form_03(result: PluginResult) -> dict[str, Any]:
    form = _form_1(result)
    if result.ips:
        form["ips"] = [{"version": _family(str(ip.get("address"))), **ip} for ip in result.ips]
    return form


def _form_01(result: PluginResult) -> dict[str, Any]:
    form: dict[str, Any] = {"dns": result.dns} if result.dns else {}
    for ip in result.ips:
        family = _family(str(ip.get("address")))
        routes = [route for route in result.routes if _family(str(route.get("dst"))) == family]
        kept = {key: value for key, value in ip.items() if key not in {"address", "interface"}}
        form.setdefault(f"ip{family}", {"ip": ip.get("address"), **kept, **_given(routes=routes or None)})
    return form


_FORMS: Mapping[str, Callable[[PluginResult], dict[str, Any]]] = {
    "0.1.0": _form_01,
    "0.2.0": _form_01,
    "0.3.0": _form_03,
    "0.3.1": _form_03,
    "0.4.0": _form_03,
    "1.0.0": _form_1,
    "1.1.0": _form_1,
}


def _family(address: str) -> str:
    """Return "4" or "6"; an IPv4-mapped IPv6 address is IPv4, as in Go."""
    if ":" not in address:
        return "4"
    from ipaddress import IPv6Interface

    try:
        return "4" if IPv6Interface(address).ip.ipv4_mapped else "6"
    except ValueError:
        return "6"


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(part) for key, part in value.items()}
    return [_copy(part) for part in value] if isinstance(value, list) else value


def _given(**fields: Any) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


def _without_version(ip: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in ip.items() if key != "version"}


def _object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise VerbError(f"{what} must be an object, not {type(value).__name__}", code=ErrorCode.DECODING_FAILURE)
    return {key: _copy(part) for key, part in value.items()}


def _objects(whole: dict[str, Any], key: str) -> list[dict[str, Any]]:
    values = whole.get(key)
    if not isinstance(values, list | None):
        raise VerbError(f"{key} must be a list, not {type(values).__name__}", code=ErrorCode.DECODING_FAILURE)
    return [_object(value, f"{key}[{index}]") for index, value in enumerate(values or [])]


def _cidr(value: object) -> str:
    from ipaddress import ip_interface

    text = str(value)
    _, slash, prefix = text.partition("/")
    if not slash or not prefix.isdecimal():
        raise ValueError(f"{text!r} is not an address with its prefix, such as 10.1.0.5/16")
    ip_interface(text)
    return text


def _address(value: object) -> str | None:
    if value is None:
        return None
    from ipaddress import ip_address

    ip_address(str(value))
    return str(value)
