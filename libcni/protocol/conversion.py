"""Convert results between spec versions with one table of functions. It works on text, so nothing is lost.

A document is a mapping of its top-level keys to the text of their values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from libcni.config import jsontext
from libcni.config.jsontext import Member, dumps, elements, join_array, join_object, members
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
    document = {member.key: member.text for member in members(text)}
    if RESULT_FORMS[source] != RESULT_FORMS[target]:
        document = _CONVERTERS[RESULT_FORMS[source], RESULT_FORMS[target]](document)
    document.pop("cniVersion", None)
    return _object({"cniVersion": dumps(target), **document})


def _object(document: Mapping[str, str]) -> str:
    return join_object([(dumps(key), value) for key, value in document.items()])


def _parts(text: str) -> list[str]:
    return [] if text == "null" else elements(text)


def _flat_to_listed(document: Document) -> Document:
    """0.2 -> 0.3: ``ip4`` and ``ip6`` become entries of ``ips``; their routes become ``routes`` of the result."""
    result = {key: value for key, value in document.items() if key not in {"ip4", "ip6"}}
    ips: list[str] = []
    routes: list[str] = _parts(document.get("routes", "null"))
    for key, version in (("ip4", "4"), ("ip6", "6")):
        if document.get(key, "null") != "null":
            parts = members(document[key])
            kept = {"address" if part.key == "ip" else part.key: part.text for part in parts if part.key != "routes"}
            ips.append(_object({"version": dumps(version), **kept}))
            routes += [text for part in parts if part.key == "routes" for text in _parts(part.text)]
    if ips:
        result["ips"] = join_array(ips)
    if routes:
        result["routes"] = join_array(routes)
    return result


def _listed_to_flat(document: Document) -> Document:
    """0.3 -> 0.2: keep the first address of each family, with that family's routes (``dst`` and ``gw`` only)."""
    left_out = {"ips", "interfaces", "routes"}
    result = {key: value for key, value in document.items() if key not in left_out}
    for text in _parts(document.get("ips", "null")):
        parts = {part.key: part for part in members(text)}
        version = parts["version"].value if "version" in parts else None
        # 0.2.0 has one address for each family, so the first one wins, as in Go (pkg/types/040/types.go).
        if version in {"4", "6"} and f"ip{version}" not in result:
            result[f"ip{version}"] = _flat_ip(parts, _routes_of(document.get("routes", "null"), str(version)))
    if "ip4" not in result and "ip6" not in result:
        raise ConversionError("no valid IP addresses")
    return result


def _flat_ip(parts: Mapping[str, Member], routes: list[str]) -> str:
    left_out = {"version", "interface"}
    kept = [("ip" if key == "address" else key, part.text) for key, part in parts.items() if key not in left_out]
    if routes:
        kept.append(("routes", join_array(routes)))
    return _object(dict(kept))


def _routes_of(routes: str, version: str) -> list[str]:
    found = []
    for text in _parts(routes):
        parts = [part for part in members(text) if part.key in _ROUTE_PARTS_OF_0_2]
        destination = next((part.value for part in parts if part.key == "dst"), "")
        if _family(destination) == version:
            found.append(_object({part.key: part.text for part in parts}))
    return found


def _listed_to_plain(document: Document) -> Document:
    """0.4 -> 1.0: remove ``version`` from each of ``ips``."""
    return _with_each(document, "ips", lambda parts: [part for part in parts if part[0] != "version"])


def _plain_to_listed(document: Document) -> Document:
    """1.0 -> 0.4: add ``version`` to each of ``ips``; remove the newer keys from each of ``interfaces``."""
    result = _with_each(document, "ips", _with_family)
    return _with_each(
        result, "interfaces", lambda parts: [part for part in parts if part[0] not in _INTERFACE_PARTS_OF_1_0]
    )


Parts = list[tuple[str, str]]


def _with_each(document: Document, key: str, change: Callable[[Parts], Parts]) -> Document:
    if document.get(key, "null") == "null":
        return dict(document)
    changed = []
    for text in _parts(document[key]):
        parts = change([(part.key, part.text) for part in members(text)])
        changed.append(_object(dict(parts)))
    return {**document, key: join_array(changed)}


def _with_family(parts: Parts) -> Parts:
    address = next((text for key, text in parts if key == "address"), '""')
    rest = [part for part in parts if part[0] != "version"]
    return [("version", dumps(_family(jsontext.parse(address)))), *rest]


def _family(address: str) -> str:
    """Return "4" or "6"; an IPv4-mapped IPv6 address is IPv4, as in Go."""
    import ipaddress  # few results are converted, and this import takes 3 ms

    parsed = ipaddress.ip_interface(address).ip
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
