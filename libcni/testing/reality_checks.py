"""Compare a result with the namespace, with the answer of the IPAM plugin, and with the runtime's request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import ip_network
from typing import Any

from libcni.plugin import PluginResult, VerbError
from libcni.testing.examination import Examination
from libcni.testing.snapshot import links_of, route_destinations


def check_reality(exam: Examination, result: dict[str, Any]) -> None:
    """Check that everything an ADD has reported exists, and that the ADD has used the answer of its IPAM plugin."""
    try:
        view = PluginResult.from_document(result, exam.version)
        answer = PluginResult.from_document(exam.recorder.answer, exam.version) if exam.recorder else None
    except VerbError:
        return  # another finding
    # Before 0.3.0 a result has no interfaces.
    if exam.namespace is not None and view.interfaces:
        exam.add_finding("ADD reports what exists", _missing(exam, view))
    if answer is not None:
        exam.add_finding("ADD uses the answer of the IPAM plugin", _unused(view, answer))
    if asked := [*_unheard(exam, view)]:
        exam.add_finding("ADD gives what the runtime asks for", "; ".join(filter(None, asked)))


def _missing(exam: Examination, view: PluginResult) -> Iterator[str]:
    """Yield what is missing, or differs from the report, except what ``prev_result`` had."""
    namespace, previous = exam.namespace, exam.prev_result or {}
    assert namespace is not None
    inside, host = links_of(namespace), links_of(None)
    old_links = {(part["name"], part.get("mac")) for part in previous.get("interfaces") or []}
    old_addresses = {ip.get("address") for ip in previous.get("ips") or []}
    names = [str(part.get("name")) for part in view.interfaces if part.get("sandbox") == namespace.path]
    if names and not {exam.ifname, "lo"} & {*names}:
        yield f"CNI_IFNAME is {exam.ifname}, and the interface in the namespace is {', '.join(names)}"
    for index, interface in enumerate(view.interfaces):
        where, links = ("in the namespace", inside) if interface.get("sandbox") else ("on the host", host)
        if interface.get("sandbox") not in {None, "", namespace.path}:
            continue
        name = str(interface.get("name"))
        link = links.get(name)
        if link is None and name in inside:
            yield f"{name} is in the namespace, and the result has no sandbox for it"
            continue
        if (interface.get("name"), interface.get("mac")) not in old_links:
            yield from _wrong_link(interface, link, where)
        addresses = [ip["address"] for ip in view.ips if ip.get("interface") == index]
        if link is not None:
            yield from _wrong_addresses(link, [address for address in addresses if address not in old_addresses])
    new, old = (
        {str(ip_network(route["dst"], strict=False)) for route in routes}
        for routes in (view.routes, previous.get("routes") or [])
    )
    for dst in sorted(new - old - (route_destinations(namespace) if new else set())):
        yield f"the route {dst} of the result is not in the namespace"


def _wrong_link(interface: Mapping[str, Any], link: Mapping[str, Any] | None, where: str) -> Iterator[str]:
    name, mac, mtu = interface.get("name"), interface.get("mac"), interface.get("mtu")
    if link is None:
        yield f"{name} is not {where}"
    elif mac and str(mac).lower() != link["address"] and interface.get("sandbox"):
        yield f"{name} has the hardware address {link['address']}, and the result says {mac}"
    elif mtu and mtu != link["mtu"] and interface.get("sandbox"):
        yield f"{name} has the MTU {link['mtu']}, and the result says {mtu}"


def _wrong_addresses(link: Mapping[str, Any], addresses: list[str]) -> Iterator[str]:
    for address in addresses:
        if address not in link["addresses"]:
            has = ", ".join(link["addresses"]) or "none"
            yield f"{link['ifname']} lacks the address {address} of the result: it has {has}"
    if addresses and "UP" not in link["flags"]:
        yield f"{link['ifname']} is down"


def _unused(view: PluginResult, answer: PluginResult) -> Iterator[str]:
    has = {(ip.get("address"), ip.get("gateway")) for ip in view.ips}
    for ip in answer.ips:
        if (ip.get("address"), ip.get("gateway")) not in has:
            gateway = f" (gateway {ip['gateway']})" if ip.get("gateway") else ""
            yield f"the IPAM plugin gave {ip.get('address')}{gateway}; the result lacks it"
    has_routes = {route.get("dst") for route in view.routes}
    for route in answer.routes:
        if route.get("dst") not in has_routes:
            yield f"the IPAM plugin gave the route {route.get('dst')}; the result lacks it"


def _unheard(exam: Examination, view: PluginResult) -> Iterator[str]:
    """Yield for each address that CNI_ARGS or the capabilities ask for the problem, or ""."""
    given = dict(pair.partition("=")[::2] for pair in exam.args.split(";"))
    capabilities: Mapping[str, Any] = exam.config_base.get("runtimeConfig") or {}
    has = {str(ip.get("address")).partition("/")[0] for ip in view.ips}
    for address in [given.get("IP"), *(capabilities.get("ips") or [])] if exam.prev_result is None and view.ips else ():
        if address:
            missing = address.partition("/")[0] not in has
            yield f"{address} was requested, but the result has {', '.join(sorted(has))}" if missing else ""
    macs = {str(part.get("mac")).lower() for part in view.interfaces if part.get("sandbox")}
    for mac in filter(None, {given.get("MAC"), capabilities.get("mac")}) if macs else ():
        missing = mac.lower() not in macs
        yield f"the hardware address {mac} was requested, but the result has {', '.join(macs)}" if missing else ""
