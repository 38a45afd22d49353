"""Check whether the kernel forwards packets, and whether the node has a default route."""

from __future__ import annotations

from libcni.diagnosis.mends import Mend, id_of
from libcni.diagnosis.node_state import NodeState, is_default
from libcni.diagnosis.reading import FORWARDING, WITH_GATEWAY, forwarding_of
from libcni.diagnosis.report import NodeFinding, NotChecked, Observations
from libcni.errors import counted, some
from libcni.kernel.link_settings import WITHOUT_IPV6
from libcni.kernel.netlink import DROPS_PACKETS, Link, Network
from libcni.store.attachments import Attachment

_TO_OUTSIDE = {"", "bond", "ipvlan", "macvlan", "team", "veth", "vlan"}
"""The kinds of interfaces that connect a node with other machines; "": a network card."""


def check_forwarding(node: NodeState, live: list[Attachment]) -> Observations:
    """Find packets that the kernel does not forward: those of a version of IP, or those from one interface."""
    off = {path for path, is_on in node.forwards.items() if not is_on}
    if FORWARDING[4] not in off and node.host is not None:  # that setting changes those of each interface
        off |= {forwarding_of(link.name) for link in node.host.links.values() if "forwarding 0" in link.settings}
    outside = {forwarding_of(link.name) for link in node.uplinks}
    users: dict[str, dict[str, None]] = {}
    for attachment in live:
        interfaces = set(map(forwarding_of, node.gateway_interfaces(attachment)))
        paths = {FORWARDING[6 if ":" in address else 4] for address in node.addresses_of(attachment) if interfaces}
        for path in off & (paths | interfaces | outside if FORWARDING[4] in paths else paths):
            users.setdefault(path, {})[id_of(attachment)] = None
    for path, names in sorted(users.items()):
        containers = tuple(names)
        # Somebody may want it so of an interface that no plugin has made.
        remedy = f"sysctl -w {path.removeprefix('/proc/sys/')}=1" if path in outside else ""
        yield NodeFinding(
            "rules", "error", "no-forwarding", path, "the kernel does not forward packets",
            f"{counted(len(containers), 'container')} cannot reach other networks, nor be reached from there", remedy,
            () if remedy else (Mend("forward", path, (), containers),), containers,
        )  # fmt: skip


def check_default_route(node: NodeState, live: list[Attachment]) -> Observations:
    """Find a node that masquerades and has interfaces of its own, but no default route."""
    if node.host is None:
        return
    used = {name for attachment in live for name in node.gateway_interfaces(attachment)}
    ends = {link.name for attachment in live for link in node.host_ends(attachment)}
    links = [link for link in node.host.links.values() if link.is_up and link.kind in _TO_OUTSIDE]
    own = [link for link in links if link.name not in {"lo", *used, *ends}]
    ways = [route for route in node.host.routes if route.ifindex != DROPS_PACKETS and is_default(route.destination)]
    for family, is_6 in (("IPv4", False), ("IPv6", True)):
        outside = [
            link.name for link in own if any((":" in text) == is_6 and text[:4] != "fe80" for text in link.addresses)
        ]
        containers = [
            id_of(attachment)
            for attachment in live
            if any(one.get("ipMasq") is True for one in node.documents(attachment) if one.get("type") in WITH_GATEWAY)
            and any((":" in place) == is_6 and is_default(place) for place, _ in node.summary_of(attachment).routes)
        ]
        # Without IPv6 an interface has no address, and the kernel removes its routes.
        off = [link.name for link in node.uplinks if is_6 and WITHOUT_IPV6 in link.settings]
        if (outside or off) and containers and not any((":" in route.destination) == is_6 for route in ways):
            on_link = {name: _on_link(node.host, node.host.links[name], is_6=is_6) for name in outside}
            device = next(filter(on_link.get, outside), (outside or off)[0])
            near = on_link.get(device, [])
            # The kernel refuses a gateway to which no route leads. A route to one host is the one to the gateway.
            gateway = near[0].removesuffix("/32") if len(near) == 1 and near[0].endswith("/32") else "GATEWAY"
            command = f"ip{' -6' * is_6} route add default via {gateway} dev {device}"
            command += " onlink" if outside and not near and not is_6 else ""
            seen, remedy = f"the node has no default route of {family}", f"if it had one before: {command}"
            if off:  # the route alone would be refused, because the addresses are gone, too
                seen += f"; IPv6 is off on {off[0]}, and with it the addresses of {off[0]} are gone"
                remedy = (
                    f"if it had one before, see /etc/sysctl.d, then let the node's network service configure {off[0]} "
                    f"again, for its addresses and routes, after: sysctl -w net/ipv6/conf/{off[0]}/disable_ipv6=0"
                )
            used_links = {route.ifindex for route in node.host.routes if (":" in route.destination) == is_6}
            is_cut_off = (
                not is_6 and bool(outside) and used_links.isdisjoint(node.host.links[name].index for name in outside)
            )
            if is_cut_off:
                seen += f"; {device} has only {some(node.host.links[device].addresses)}, and no route leads over it"
                remedy = f"give {device} its address with the prefix length of its network, or run: {command}"
            # Many nodes have IPv6 in their own network alone.
            yield NodeFinding(
                "rules", "note" if is_6 else "warning", "no-default-route", "this node", seen,
                f"{counted(len(containers), 'container')} can only reach the networks to which this node has a route",
                remedy, (), tuple(containers),
            )  # fmt: skip
        elif is_6 and containers and not outside and not any(":" in route.destination for route in ways):
            reason = "this node has no address and no default route of IPv6, and may never have had them"
            what = f"IPv6 of {counted(len(containers), 'container')} to other networks"
            yield NotChecked("interfaces", what, reason)


def _on_link(host: Network, link: Link, *, is_6: bool) -> list[str]:
    """Return the destinations that an interface reaches without a gateway."""
    own = {text for text in link.addresses if text.endswith("/128")}
    routes = {route.destination for route in host.routes if route.ifindex == link.index and not route.gateway}
    # An address of one host brings no route, or in IPv6 one that leads to the node itself.
    return sorted(text for text in routes - own if (":" in text) == is_6 and text[:4] != "fe80")
