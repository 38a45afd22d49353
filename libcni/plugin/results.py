"""Results as a plugin builds and prints them (spec 1.1.0, section 5, Success).

A result in memory has the form of 1.x. One table converts it to the form of each version, by the same rules as the
runtime's own conversion (``libcni/protocol/conversion.py``). Unknown fields are kept.
"""

from __future__ import annotations

from libcni.config.versions import ALL_VERSIONS, CURRENT_VERSION, RESULT_FORMS
from libcni.plugin.failure import DECODING_FAILURE, VerbError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

__all__ = ["PluginResult"]

_KNOWN = frozenset({"cniVersion", "interfaces", "ips", "routes", "dns", "ip4", "ip6"})
_INTERFACE_FIELDS_OF_1_1 = frozenset({"mtu", "socketPath", "pciID"})
_ROUTE_FIELDS_OF_0_2 = frozenset({"dst", "gw"})


class PluginResult:
    """A result: the copy of a previous plugin's result, or a new one to fill.

    Attributes:
        version (str): the spec version in which the result is printed.
        interfaces: a list of JSON objects with the keys of spec 1.1.0, section 5, and unknown keys.
        ips: a list of JSON objects, as ``interfaces``.
        routes: a list of JSON objects, as ``interfaces``.
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
        self._source = version

    @classmethod
    def from_document(cls, document: object, version: str) -> PluginResult:
        """Return the result in ``document``, to be printed in ``version``.

        Args:
            document: a result of any known spec version, as ``json`` decodes it.
            version: the spec version to print it in; also the version of a document without ``cniVersion``.

        Raises:
            VerbError: with code 6, if ``document`` is no result, or its ``cniVersion`` is unknown.
        """
        whole = _object(document, "the result")
        result = cls(version)
        result._source = whole.get("cniVersion") or version
        for found in (result._source, version):
            if found not in ALL_VERSIONS:
                raise VerbError(f"a result has the unknown cniVersion {found!r}", code=DECODING_FAILURE)
        result.interfaces = _objects(whole, "interfaces")
        ips = _objects(whole, "ips")
        if RESULT_FORMS[result._source] == 1 and RESULT_FORMS[version] == 0:
            ips = [ip for ip in ips if ip.get("version") in {"4", "6"}]  # as Go: others have no form there
        result.ips = [_without(ip, {"version"}) for ip in ips]
        result.routes = _objects(whole, "routes")
        result.dns = _object(whole.get("dns") or {}, "dns")
        result.extra = {key: _copy(value) for key, value in whole.items() if key not in _KNOWN}
        for family in ("ip4", "ip6"):
            # IPv4 first, as the runtime converts it: the order of addresses has a meaning for a chained plugin.
            if whole.get(family) is not None:
                part = _object(whole[family], family)
                result.routes += _objects(part, "routes")
                result.ips.append({"address": part.get("ip"), **_without(part, {"ip", "routes"})})
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
        extra: Mapping[str, Any] | None = None,
    ) -> int:
        """Add an interface and return its index, for ``add_ip``.

        Args:
            name: the interface's name.
            mac: its hardware address.
            sandbox: ``request.netns`` for an interface inside the container, None for one on the host.
            mtu: bytes. This field, ``socket_path`` and ``pci_id`` are left out below spec 1.1.0.
            socket_path: an absolute path to a socket file that belongs to the interface.
            pci_id: the interface's PCI address.
            extra: fields that the specification does not have, in any version.
        """
        new = {"mtu": mtu, "socketPath": socket_path, "pciID": pci_id} if self.version == CURRENT_VERSION else {}
        self.interfaces.append(_given(name=name, mac=mac, sandbox=sandbox, **new, **(extra or {})))
        return len(self.interfaces) - 1

    def add_ip(
        self,
        address: object,
        *,
        gateway: object = None,
        interface: int | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Add an address.

        Args:
            address: with its prefix length, such as ``10.1.0.5/16``.
            gateway: the subnet's gateway, or None.
            interface: the index that ``add_interface`` returned; None from an IPAM plugin.
            extra: fields that the specification does not have.

        Raises:
            ValueError: if ``address`` is not an address with its prefix length, or ``gateway`` is not an address.
        """
        text = _cidr(address)
        self.ips.append(_given(address=text, gateway=_address(gateway), interface=interface, **(extra or {})))

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
        extra: Mapping[str, Any] | None = None,
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
            extra: fields that the specification does not have, in any version.

        Raises:
            ValueError: if ``dst`` is not a network, or ``gw`` is not an address.
        """
        new: dict[str, int | None] = {}
        if self.version == CURRENT_VERSION:
            new = {"mtu": mtu, "advmss": advmss, "priority": priority, "table": table, "scope": scope}
        self.routes.append(_given(dst=_cidr(dst), gw=_address(gw), **new, **(extra or {})))

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
        self.dns = _given(domain=domain, **{key: value or None for key, value in lists.items()})

    def to_document(self) -> dict[str, Any]:
        """Return the JSON object to print, in the form of ``version``.

        Raises:
            VerbError: with code 6, if the result has no address and comes from a newer version than 0.2.0, and
                ``version`` is 0.2.0 or older.
        """
        source, target = RESULT_FORMS[self._source], RESULT_FORMS[self.version]
        interfaces, routes = self.interfaces, self.routes
        if source == 2 > target:  # noqa: PLR2004 - the form of 1.x
            interfaces = [_without(interface, _INTERFACE_FIELDS_OF_1_1) for interface in interfaces]
        if source > target == 0:
            if not self.ips:
                raise VerbError("cannot convert the result: no valid IP addresses", code=DECODING_FAILURE)
            routes = [{key: route[key] for key in route if key in _ROUTE_FIELDS_OF_0_2} for route in routes]
        parts = {"interfaces": interfaces, "ips": self.ips, "routes": routes, "dns": self.dns}
        return {"cniVersion": self.version, **_PRINTED_FORMS[target](parts), **self.extra}


def refuse_other_form(document: object, version: str) -> None:
    """Raise a VerbError with code 6 if the form of a ``prevResult`` is not that of ``version``.

    Go's ``version.ParsePrevResult`` does the same.
    """
    found = document.get("cniVersion") if isinstance(document, dict) else None
    if found is None or found == "":
        return  # the fields decide; a runtime that leaves the version out means the configuration's
    if not isinstance(found, str) or RESULT_FORMS.get(found) != RESULT_FORMS[version]:
        raise VerbError(
            "cannot read prevResult", code=DECODING_FAILURE, details=f"its cniVersion is {found!r}, not {version!r}"
        )


def _form_of_1_0(parts: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in parts.items() if value}


def _form_of_0_3(parts: dict[str, Any]) -> dict[str, Any]:
    form = _form_of_1_0(parts)
    if parts["ips"]:
        form["ips"] = [{"version": _family(str(ip.get("address"))), **ip} for ip in parts["ips"]]
    return form


def _form_of_0_1(parts: dict[str, Any]) -> dict[str, Any]:
    form: dict[str, Any] = {"dns": parts["dns"]} if parts["dns"] else {}
    for ip in parts["ips"]:
        family = _family(str(ip.get("address")))
        routes = [route for route in parts["routes"] if _family(str(route.get("dst"))) == family]
        kept = _without(ip, {"address", "interface"})
        # The first address of each family stays: 0.2.0 has no place for another.
        form.setdefault(f"ip{family}", {"ip": ip.get("address"), **kept, **_given(routes=routes or None)})
    return form


_PRINTED_FORMS: tuple[Callable[[dict[str, Any]], dict[str, Any]], ...] = (_form_of_0_1, _form_of_0_3, _form_of_1_0)


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
    # A deep copy: a change of the result must not show in the configuration that a delegate or prev_result reads.
    if isinstance(value, dict):
        return {key: _copy(part) for key, part in value.items()}
    return [_copy(part) for part in value] if isinstance(value, list) else value


def _given(**fields: Any) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


def _without(part: dict[str, Any], keys: set[str] | frozenset[str]) -> dict[str, Any]:
    return {key: value for key, value in part.items() if key not in keys}


def _object(value: object, label: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise VerbError(f"{label} must be an object, not {type(value).__name__}", code=DECODING_FAILURE)
    return {key: _copy(part) for key, part in value.items()}


def _objects(whole: dict[str, Any], key: str) -> list[dict[str, Any]]:
    values = whole.get(key)
    if not isinstance(values, list | None):
        raise VerbError(f"{key} must be a list, not {type(values).__name__}", code=DECODING_FAILURE)
    return [_object(value, f"{key}[{index}]") for index, value in enumerate(values or [])]


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
