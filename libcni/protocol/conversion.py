"""Convert results between spec versions with one table of functions, for the runtime and for plugins.

The functions change decoded documents.
"""

from __future__ import annotations

from libcni.config.versions import RESULT_FORMS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Document = dict[str, Any]

_FLAT, _LISTED, _PLAIN = 0, 1, 2  # the numbers of RESULT_FORMS
_ROUTE_PARTS_OF_0_2 = frozenset({"dst", "gw"})
_INTERFACE_PARTS_OF_1_0 = frozenset({"mtu", "socketPath", "pciID"})


class ConversionError(ValueError):
    """The document is not a result, or cannot be expressed in the other version."""


def convert(document: Document, source: str, target: str) -> Document:
    """Return a result of version ``source`` as version ``target``, with ``cniVersion`` set.

    Unknown keys are kept. Known keys that the other version does not have are dropped: see
    ``docs/reference/configuration.md``.

    Raises:
        ConversionError: no converter exists for these versions, the target version cannot express any of the addresses,
            or a part of the document has a wrong type.
    """
    if source not in RESULT_FORMS or target not in RESULT_FORMS:
        raise ConversionError(f'no converter for CNI result version "{source}" to "{target}"')
    if RESULT_FORMS[source] != RESULT_FORMS[target]:
        document = _CONVERTERS[RESULT_FORMS[source], RESULT_FORMS[target]](document)
    return {"cniVersion": target, **_without(document, {"cniVersion"})}


def as_plain(document: Document) -> Document:
    """Return a result of any version in the form of 1.x; raises ConversionError."""
    return _listed_to_plain(_flat_to_listed(document))


def from_plain(document: Document, target: str) -> Document:
    """Convert a result in the form of 1.x, which has only keys of version ``target``, to the form of that version."""
    if RESULT_FORMS[target] == _PLAIN:
        return document
    listed = _plain_to_listed(document)
    return listed if RESULT_FORMS[target] == _LISTED else _flattened(listed)


def objects(document: Document, key: str) -> list[Document]:
    """Return the objects in the list ``document[key]``; [] if it is missing or null. Raises ConversionError."""
    values = document.get(key)
    if values is None:
        return []
    if not isinstance(values, list):
        raise ConversionError(f"{key} must be a list, not {type(values).__name__}")
    return [object_of(value, f"{key}[{index}]") for index, value in enumerate(values)]


def object_of(value: object, label: str) -> Document:
    """Return ``value``; raises ConversionError if it is not an object."""
    if not isinstance(value, dict):
        raise ConversionError(f"{label} must be an object, not {type(value).__name__}")
    return value


def _without(document: Document, keys: set[str] | frozenset[str]) -> Document:
    return {key: value for key, value in document.items() if key not in keys}


def _flat_to_listed(document: Document) -> Document:
    """0.2 -> 0.3: ``ip4`` and ``ip6`` become entries of ``ips``; their routes become ``routes`` of the result."""
    result = _without(document, {"ip4", "ip6"})
    ips = [*objects(document, "ips")]
    routes = [*objects(document, "routes")]
    for key, version in (("ip4", "4"), ("ip6", "6")):
        if document.get(key) is not None:
            part = object_of(document[key], key)
            routes += objects(part, "routes")
            ip = {"address" if name == "ip" else name: value for name, value in part.items() if name != "routes"}
            ips.append({"version": version, **ip})
    if ips:
        result["ips"] = ips
    if routes:
        result["routes"] = routes
    return result


def _listed_to_flat(document: Document) -> Document:
    """0.3 -> 0.2: keep the first address of each family, with that family's routes (``dst`` and ``gw`` only)."""
    routes = [{key: route[key] for key in route if key in _ROUTE_PARTS_OF_0_2} for route in objects(document, "routes")]
    result = _flattened({**document, "routes": routes})
    if "ip4" not in result and "ip6" not in result:
        raise ConversionError("no valid IP addresses")
    return result


def _flattened(document: Document) -> Document:
    result = _without(document, {"ips", "interfaces", "routes"})
    for ip in objects(document, "ips"):
        version = ip.get("version")
        # 0.2.0 has one address for each family, so the first address wins, as in Go (pkg/types/040/types.go).
        if version in {"4", "6"} and f"ip{version}" not in result:
            parts = _without(ip, {"version", "interface"})
            flat = {"ip" if name == "address" else name: value for name, value in parts.items()}
            routes = [route for route in objects(document, "routes") if _family(route.get("dst")) == version]
            result[f"ip{version}"] = {**flat, **({"routes": routes} if routes else {})}
    return result


def _listed_to_plain(document: Document) -> Document:
    """0.4 -> 1.0: remove ``version`` from each of ``ips``."""
    return _with_each(document, "ips", lambda ip: _without(ip, {"version"}))


def _plain_to_listed(document: Document) -> Document:
    """1.0 -> 0.4: add ``version`` to each of ``ips``."""
    return _with_each(document, "ips", lambda ip: {"version": _family(ip.get("address")), **_without(ip, {"version"})})


def _as_of_1_0(document: Document) -> Document:
    """Remove the keys that are newer than 1.0 from each of ``interfaces``."""
    return _with_each(document, "interfaces", lambda interface: _without(interface, _INTERFACE_PARTS_OF_1_0))


def _with_each(document: Document, key: str, change: Callable[[Document], Document]) -> Document:
    if document.get(key) is None:
        return document
    return {**document, key: [change(part) for part in objects(document, key)]}


def _family(address: object) -> str:
    """Return "4" or "6"; an IPv4-mapped IPv6 address is IPv4, as in Go."""
    text = str(address)
    if ":" not in text:
        return "4"
    from ipaddress import IPv6Interface  # few results are converted, and this import takes 3 ms

    try:
        return "4" if IPv6Interface(text).ip.ipv4_mapped else "6"
    except ValueError:
        return "6"


_CONVERTERS: dict[tuple[int, int], Callable[[Document], Document]] = {
    (_FLAT, _LISTED): _flat_to_listed,
    (_FLAT, _PLAIN): lambda document: _listed_to_plain(_flat_to_listed(document)),
    (_LISTED, _FLAT): _listed_to_flat,
    (_LISTED, _PLAIN): _listed_to_plain,
    (_PLAIN, _FLAT): lambda document: _listed_to_flat(_plain_to_listed(document)),
    (_PLAIN, _LISTED): lambda document: _plain_to_listed(_as_of_1_0(document)),
}
