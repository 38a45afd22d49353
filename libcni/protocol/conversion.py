"""Convert results between spec versions with one table of functions. It works on text, so nothing is lost.

A document is a mapping of its top-level keys to the text of their values.
"""

from __future__ import annotations

from collections.abc import Callable

from libcni.config import jsontext
from libcni.config.jsontext import dumps, elements, join_array, join_object, members
from libcni.config.versions import RESULT_FORMS

Document = dict[str, str]
Converter = Callable[[Document], Document]

_FLAT, _LISTED, _PLAIN = 0, 1, 2  # the numbers of RESULT_FORMS
_ROUTE_PARTS_OF_0_2 = {"dst", "gw"}
_INTERFACE_PARTS_OF_1_0 = {"mtu", "socketPath", "pciID"}


class ConversionError(ValueError):
    """The result cannot be expressed in the other version."""


def convert(text: str, source: str, target: str) -> str:
    """Return the result ``text`` of version ``source`` as version ``target``, with ``cniVersion`` set.

    Unknown keys are kept. Known keys that the other version does not have are dropped: see
    ``docs/explanation/results.md``.

    Raises:
        ConversionError: there is no converter between the two, or no address that the target version can carry.
        JSONTextError: ``text`` is not a result.
    """
    if source not in RESULT_FORMS or target not in RESULT_FORMS:
        raise ConversionError(f'no converter for CNI result version "{source}" to "{target}"')
    document = _texts(text)
    if RESULT_FORMS[source] != RESULT_FORMS[target]:
        document = _CONVERTERS[RESULT_FORMS[source], RESULT_FORMS[target]](document)
    document.pop("cniVersion", None)
    return _object({"cniVersion": dumps(target), **document})


def _texts(text: str) -> Document:
    return {member.key: member.text for member in members(text)}


def _object(document: Document) -> str:
    return join_object([(dumps(key), value) for key, value in document.items()])


def _parts(document: Document, key: str) -> list[str]:
    """Return the texts of the elements of a list; [] if it is missing or null."""
    text = document.get(key, "null")
    return [] if text == "null" else elements(text)


def _without(document: Document, keys: set[str]) -> Document:
    return {key: value for key, value in document.items() if key not in keys}


def _flat_to_listed(document: Document) -> Document:
    """0.2 -> 0.3: ``ip4`` and ``ip6`` become entries of ``ips``; their routes become ``routes`` of the result."""
    result = _without(document, {"ip4", "ip6"})
    ips: list[str] = []
    routes = _parts(document, "routes")
    for key, version in (("ip4", "4"), ("ip6", "6")):
        if document.get(key, "null") != "null":
            parts = _texts(document[key])
            routes += _parts(parts, "routes")
            kept = {"address" if name == "ip" else name: text for name, text in parts.items() if name != "routes"}
            ips.append(_object({"version": dumps(version), **kept}))
    if ips:
        result["ips"] = join_array(ips)
    if routes:
        result["routes"] = join_array(routes)
    return result


def _listed_to_flat(document: Document) -> Document:
    """0.3 -> 0.2: keep the first address of each family, with that family's routes (``dst`` and ``gw`` only)."""
    result = _without(document, {"ips", "interfaces", "routes"})
    for text in _parts(document, "ips"):
        parts = _texts(text)
        version = jsontext.parse(parts.get("version", "null"))
        # 0.2.0 has one address for each family, so the first one wins, as in Go (pkg/types/040/types.go).
        if version in {"4", "6"} and f"ip{version}" not in result:
            kept = _without(parts, {"version", "interface"})
            flat = {"ip" if name == "address" else name: text for name, text in kept.items()}
            if routes := _routes_of(document, version):
                flat["routes"] = join_array(routes)
            result[f"ip{version}"] = _object(flat)
    if "ip4" not in result and "ip6" not in result:
        raise ConversionError("no valid IP addresses")
    return result


def _routes_of(document: Document, version: str) -> list[str]:
    found = []
    for text in _parts(document, "routes"):
        parts = _texts(text)
        if _family(parts.get("dst", '""')) == version:
            found.append(_object({key: parts[key] for key in parts if key in _ROUTE_PARTS_OF_0_2}))
    return found


def _listed_to_plain(document: Document) -> Document:
    """0.4 -> 1.0: remove ``version`` from each of ``ips``."""
    return _with_each(document, "ips", lambda parts: _without(parts, {"version"}))


def _plain_to_listed(document: Document) -> Document:
    """1.0 -> 0.4: add ``version`` to each of ``ips``; remove the newer keys from each of ``interfaces``."""
    result = _with_each(document, "ips", _with_family)
    return _with_each(result, "interfaces", lambda parts: _without(parts, _INTERFACE_PARTS_OF_1_0))


def _with_each(document: Document, key: str, change: Converter) -> Document:
    if document.get(key, "null") == "null":
        return dict(document)
    return {**document, key: join_array([_object(change(_texts(text))) for text in _parts(document, key)])}


def _with_family(parts: Document) -> Document:
    return {"version": dumps(_family(parts.get("address", '""'))), **_without(parts, {"version"})}


def _family(address: str) -> str:
    """Return "4" or "6" for the text of an address; an IPv4-mapped IPv6 address is IPv4, as in Go."""
    import ipaddress  # few results are converted, and this import takes 3 ms

    parsed = ipaddress.ip_interface(jsontext.parse(address)).ip
    mapped = isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None
    return "4" if parsed.version == 4 or mapped else "6"  # noqa: PLR2004 - the family is called so


_CONVERTERS: dict[tuple[int, int], Converter] = {
    (_FLAT, _LISTED): _flat_to_listed,
    (_FLAT, _PLAIN): lambda document: _listed_to_plain(_flat_to_listed(document)),
    (_LISTED, _FLAT): _listed_to_flat,
    (_LISTED, _PLAIN): _listed_to_plain,
    (_PLAIN, _FLAT): lambda document: _listed_to_flat(_plain_to_listed(document)),
    (_PLAIN, _LISTED): _plain_to_listed,
}
