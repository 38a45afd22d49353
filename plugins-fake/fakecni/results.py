"""Results in the form of each spec version. In memory a result has the form of 1.x and no ``cniVersion``."""

from __future__ import annotations

TYPE_CHECKING = False  # typing itself would be imported at every start
if TYPE_CHECKING:
    from collections.abc import Callable

VERSIONS = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]

FAMILIES = {"ip4": "4", "ip6": "6"}


def number(version: str) -> tuple[int, ...]:
    """Return ``version`` for comparison; an invalid version sorts last."""
    try:
        return tuple(int(part) for part in (version or VERSIONS[0]).split("."))
    except ValueError:
        return (999,)


def generation(version: str) -> int:
    """Return 0 for the shape of 0.1.0 and 0.2.0, 1 for that of 0.3.0 to 0.4.0, 2 for that of 1.x."""
    return (number(version) >= (0, 3)) + (number(version) >= (1,))


def shaped(result: dict, version: str) -> dict:
    """Return ``result`` as ``version`` writes it."""
    shape = (_shape_02, _shape_04, dict)[generation(version)]
    return {"cniVersion": version, **shape(result)}


def _shape_04(result: dict) -> dict:
    return _with_ips(result, lambda ip: {"version": family(ip["address"]), **ip})


def _shape_02(result: dict) -> dict:
    shaped_result = {}
    for key, wanted in FAMILIES.items():
        for ip in result.get("ips", []):
            if family(ip["address"]) == wanted and key not in shaped_result:
                shaped_result[key] = _one_family(ip, wanted, result.get("routes", []))
    return {**shaped_result, "dns": result.get("dns", {})}


def _one_family(ip: dict, wanted: str, routes: list) -> dict:
    entry = {"ip": ip["address"]}
    if "gateway" in ip:
        entry["gateway"] = ip["gateway"]
    return {**entry, "routes": [route for route in routes if family(route["dst"]) == wanted]}


def family(address: str) -> str:
    """Return "4" or "6"."""
    return "6" if ":" in address else "4"


def plain(document: dict) -> dict:
    """Return a result of any version in the shape of 1.x, without ``cniVersion``; unknown keys stay."""
    result = {key: value for key, value in document.items() if key not in ("cniVersion", *FAMILIES)}
    old = [_plain_ip(document[key]) for key in FAMILIES if key in document]
    if old:
        return {**result, "ips": old}
    return _with_ips(result, lambda ip: {key: value for key, value in ip.items() if key != "version"})


def _plain_ip(entry: dict) -> dict:
    return {"address": entry["ip"], **({"gateway": entry["gateway"]} if "gateway" in entry else {})}


def _with_ips(result: dict, change: Callable[[dict], dict]) -> dict:
    return {key: [change(ip) for ip in value] if key == "ips" else value for key, value in result.items()}
