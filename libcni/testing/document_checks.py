"""Compare results, errors and version documents with the specification (spec 1.1.0, section 5)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from libcni.config.versions import RESULT_FORMS, parse_version
from libcni.errors import VersionError
from libcni.protocol.result import Result, ResultProblem, read_result


def result_problems(result: dict[str, Any], version: str, *, abbreviated: bool = False) -> list[str]:
    """Return the problems of ``result``, which an ADD printed for a configuration of ``version``.

    ``abbreviated``: an IPAM plugin printed it, so it must have neither ``interfaces`` nor ``ips[].interface``.
    """
    if result.get("cniVersion") != version:
        return [f"cniVersion is {result.get('cniVersion')!r}, and the configuration has {version!r}"]
    try:
        # First the rules that every runtime applies; they are as lenient as Go. The stricter rules follow.
        view = read_result(json.dumps(result), version)
    except ResultProblem as error:
        return [str(error).partition(", in '{")[0]]
    return [*_version_problems(result, version), *_reference_problems(view, abbreviated=abbreviated)]


def _version_problems(result: dict[str, Any], version: str) -> Iterator[str]:
    if RESULT_FORMS[version] == RESULT_FORMS["0.2.0"]:
        yield from (
            f"{key} is not a key of version {version}" for key in ("ips", "interfaces", "routes") if key in result
        )
        return
    for index, ip in enumerate(result.get("ips") or []):
        if RESULT_FORMS[version] == RESULT_FORMS["1.0.0"]:
            if "version" in ip:
                yield f"ips[{index}].version is not a key of version {version}"
        elif ip.get("version") != ("6" if ":" in ip["address"] else "4"):
            yield f"ips[{index}].version is {ip.get('version')!r}"


def _reference_problems(view: Result, *, abbreviated: bool) -> Iterator[str]:
    count = len(view.interfaces)
    for index, interface in enumerate(view.interfaces):
        if not interface.name:
            yield f"interfaces[{index}].name is missing"
    for index, ip in enumerate(view.ips):
        at = 0 if ip.interface is None and count else ip.interface
        if at is not None and not 0 <= at < count:
            yield f"ips[{index}].interface is {at!r}, and there are {count} interfaces"
    if abbreviated and view.interfaces:
        yield "interfaces: an IPAM plugin leaves them out"
    if abbreviated and any(ip.interface is not None for ip in view.ips):
        yield "ips[].interface: an IPAM plugin leaves it out"


def error_problems(document: dict[str, Any]) -> list[str]:
    """Return the problems of an error document, except those of its ``cniVersion``."""
    kinds = {"code": int, "msg": str, "details": str}
    values = {"details": "", **document}
    wrong = [
        key for key, kind in kinds.items() if type(values.get(key)) is not kind or (key == "msg" and not values[key])
    ]
    return [f"{key} is {values.get(key)!r}" for key in wrong]


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
