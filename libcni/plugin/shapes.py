"""Compare results, errors and version documents with the specification (spec 1.1.0, section 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from ipaddress import ip_address, ip_interface
from typing import Any

from libcni.config.versions import parse_version, supports
from libcni.errors import VersionError

_Problems = Iterator[str]


def result_problems(result: dict[str, Any], version: str, *, abbreviated: bool = False) -> list[str]:
    """Return the problems of ``result``, which an ADD printed for a configuration of ``version``.

    ``abbreviated``: an IPAM plugin printed it, so it must have neither ``interfaces`` nor ``ips[].interface``.
    """
    # The other checks rely on lists of objects.
    problems = [*_not_objects(result)]
    if problems:
        return problems
    if result.get("cniVersion") != version:
        problems.append(f"cniVersion is {result.get('cniVersion')!r}, and the configuration has {version!r}")
    # Before 0.3.0 a result has ip4 and ip6, and none of the other lists.
    if not supports(version, "ips"):
        return [*problems, *_legacy(result)]
    problems += [*_ips(result, version), *_routes(result, "routes"), *_interfaces(result), *_dns(result)]
    if abbreviated:
        problems += _not_abbreviated(result)
    return problems


def _not_objects(result: dict[str, Any]) -> _Problems:
    for key in ("ips", "routes", "interfaces"):
        if not isinstance(result.get(key), list | None):
            yield f"{key} must be a list, not {result[key]!r}"
        elif not all(isinstance(part, dict) for part in result.get(key) or []):
            yield f"{key} must hold objects"
    if not isinstance(result.get("dns"), dict | None):
        yield f"dns must be an object, not {result['dns']!r}"


def _legacy(result: dict[str, Any]) -> _Problems:
    for family in ("ip4", "ip6"):
        part = result.get(family)
        if not isinstance(part, dict | None):
            yield f"{family} must be an object, not {part!r}"
        elif part is not None:
            yield from _text(part, "ip", ip_interface, family, needed=True)
            yield from _text(part, "gateway", ip_address, family)
            yield from _routes(part, f"{family}.routes")
    for key in ("ips", "interfaces", "routes"):
        if key in result:
            yield f"{key} is not of this version"


def _ips(result: dict[str, Any], version: str) -> _Problems:
    count = len(_list(result, "interfaces"))
    for index, ip in enumerate(_list(result, "ips")):
        where = f"ips[{index}]"
        yield from _text(ip, "address", ip_interface, where, needed=True)
        yield from _text(ip, "gateway", ip_address, where)
        at = ip.get("interface", 0 if count else None)
        if at is not None and (not isinstance(at, int) or not 0 <= at < count):
            yield f"{where}.interface is {at!r}, and there are {count} interfaces"
        if supports(version, "ips without version"):
            if "version" in ip:
                yield f"{where}.version is not of this version"
        elif ip.get("version") != ("6" if ":" in str(ip.get("address")) else "4"):
            yield f"{where}.version is {ip.get('version')!r}"


def _routes(result: dict[str, Any], where: str) -> _Problems:
    for index, route in enumerate(_list(result, "routes")):
        yield from _text(route, "dst", ip_interface, f"{where}[{index}]", needed=True)
        yield from _text(route, "gw", ip_address, f"{where}[{index}]")


def _interfaces(result: dict[str, Any]) -> _Problems:
    for index, interface in enumerate(_list(result, "interfaces")):
        yield from _text(interface, "name", str, f"interfaces[{index}]", needed=True)
        for key in ("mac", "sandbox"):
            yield from _text(interface, key, str, f"interfaces[{index}]")


def _dns(result: dict[str, Any]) -> _Problems:
    dns = result.get("dns") or {}
    for key in ("nameservers", "search", "options"):
        if not all(isinstance(value, str) for value in _list(dns, key)):
            yield f"dns.{key} must hold strings"
    yield from _text(dns, "domain", str, "dns")


def _not_abbreviated(result: dict[str, Any]) -> _Problems:
    if result.get("interfaces"):
        yield "interfaces: an IPAM plugin leaves them out"
    if any("interface" in ip for ip in _list(result, "ips")):
        yield "ips[].interface: an IPAM plugin leaves it out"


def _text(
    part: dict[str, Any], key: str, rule: Callable[[str], object], where: str, *, needed: bool = False
) -> _Problems:
    if part.get(key) is None or part[key] == "":
        if needed:
            yield f"{where}.{key} is missing"
    elif not isinstance(part[key], str):
        yield f"{where}.{key} must be a string, not {part[key]!r}"
    elif rule is ip_interface and "/" not in part[key]:
        yield f"{where}.{key} has no prefix: {part[key]!r}"
    else:
        try:
            rule(part[key])
        except ValueError as error:
            yield f"{where}.{key}: {error}"


def _list(part: dict[str, Any], key: str) -> list[Any]:
    value = part.get(key) or []
    return value if isinstance(value, list) else [value]  # such as a string in dns, whose parts are then wrong


def error_problems(document: dict[str, Any]) -> list[str]:
    """Return the problems of an error document, except those of its ``cniVersion``."""
    problems = []
    if not isinstance(document.get("code"), int) or isinstance(document.get("code"), bool):
        problems.append(f"code is {document.get('code')!r}")
    if not isinstance(document.get("msg"), str) or not document["msg"]:
        problems.append(f"msg is {document.get('msg')!r}")
    if not isinstance(document.get("details", ""), str):
        problems.append(f"details is {document['details']!r}")
    return problems


def version_problems(document: dict[str, Any]) -> list[str]:
    """Return the problems of a VERSION document, except whether it repeats the version of its input."""
    problems = []
    if not isinstance(document.get("cniVersion"), str) or not document["cniVersion"]:
        problems.append(f"cniVersion is {document.get('cniVersion')!r}")
    versions = document.get("supportedVersions")
    if not isinstance(versions, list) or not versions:
        return [*problems, f"supportedVersions is {versions!r}"]
    for version in versions:
        try:
            parse_version(version)
        except VersionError as error:
            problems.append(f"supportedVersions: {error}")
    return problems
