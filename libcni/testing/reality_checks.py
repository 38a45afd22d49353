"""Compare a result with the namespace, and with the answer of the IPAM plugin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from libcni.plugin import PluginResult, VerbError
from libcni.testing.examination import Examination
from libcni.testing.snapshot import links_of


def check_reality(exam: Examination, result: dict[str, Any]) -> None:
    """Check that what an ADD has reported exists, and that it has used the answer of its IPAM plugin."""
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


def _missing(exam: Examination, view: PluginResult) -> Iterator[str]:
    """Yield the interfaces and addresses that are not there; those of ``prev_result`` are the previous plugin's."""
    namespace = exam.namespace
    assert namespace is not None
    inside, host = links_of(namespace), links_of(None)
    earlier = {(part["name"], part.get("mac")) for part in exam.previous_interfaces()}
    for interface in view.interfaces:
        name, mac = str(interface.get("name")), interface.get("mac")
        where, links = ("the namespace", inside) if interface.get("sandbox") == namespace.path else ("the host", host)
        if interface.get("sandbox") not in {None, "", namespace.path} or (name, mac) in earlier:
            continue
        link = links.get(name)
        if link is None:
            yield f"{name} is not on {where}" if links is host else f"{name} is not in {where}"
            continue
        if links is inside and mac and str(mac).lower() != link["address"]:
            yield f"{name} has the hardware address {link['address']}, and the result says {mac}"
        if links is inside and interface.get("mtu") and interface["mtu"] != link["mtu"]:
            yield f"{name} has the MTU {link['mtu']}, and the result says {interface['mtu']}"
    addresses = {ip.get("address") for ip in (exam.prev_result or {}).get("ips") or []}
    for ip in view.ips:
        index = ip.get("interface")
        interface = view.interfaces[index] if isinstance(index, int) and 0 <= index < len(view.interfaces) else {}
        if (
            interface.get("sandbox") == namespace.path
            and interface.get("name") in inside
            and ip["address"] not in addresses
        ):
            has = inside[interface["name"]]["addresses"]
            if ip["address"] not in has:
                name, others = interface["name"], ", ".join(has) or "none"
                yield f"{name} lacks the address {ip['address']} of the result: it has {others}"


def _unused(view: PluginResult, answer: PluginResult) -> Iterator[str]:
    has = {(ip.get("address"), ip.get("gateway")) for ip in view.ips}
    for ip in answer.ips:
        if (ip.get("address"), ip.get("gateway")) not in has:
            by = f" by {ip['gateway']}" if ip.get("gateway") else ""
            yield f"the IPAM plugin gave {ip.get('address')}{by}, and the result does not have it"
    has_routes = {route.get("dst") for route in view.routes}
    for route in answer.routes:
        if route.get("dst") not in has_routes:
            yield f"the IPAM plugin gave the route {route.get('dst')}, and the result does not have it"
