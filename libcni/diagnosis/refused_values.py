"""Find values in a configuration that the CNI project's plugins, or the kernel, refuse at ADD.

Measured with the plugins 1.1.1 and 1.9, which refuse the same values except those of ``_BY_NEWER`` and ``_BY_OLDER``.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import chain as joined
from typing import Any, NamedTuple

from libcni.config.conventions import BANDWIDTH, number
from libcni.config.delegates import SUBNET_FILE, delegated
from libcni.config.host_local import AddressRange, IPAddress, address_in, network_in, of_any_case, ranges_of
from libcni.config.network import NetworkConfigList, plugin_documents
from libcni.config.schema import (
    Check,
    WrongValueError,
    an_object,
    boolean,
    check_keys,
    integer,
    list_of,
    nullable,
    object_of,
    string,
)
from libcni.config.schema import format_location as location_of
from libcni.errors import short_repr, some

_LONGEST_NAME = 15
_SMALLEST_MTU, _LARGEST_MTU, _SMALLEST_OF_IPV6 = 68, 65535, 1280


VersionsOf = Callable[[str], Collection[str]]
"""A function that returns the spec versions that an installed plugin supports; () if they are unknown."""
_NEWER = "1.1.0"
"""The newest spec version of the plugins since release 1.6.0."""


def refused_values(net: NetworkConfigList, versions_of: VersionsOf) -> Iterator[tuple[str, str]]:
    """Yield (location, problem) of the values in a network's plugins and their delegates that would be refused."""
    for index, document in enumerate(plugin_documents(net)):
        for _, ran in delegated(net.name, document):
            where = f"plugins[{index}]" if ran is document else f"plugins[{index}], delegate {ran.get('type')}"
            for error in joined(_problems(ran), _of_release(ran, versions_of)):
                yield location_of(where, error.path), error.problem


def _problems(document: Mapping[str, Any]) -> Iterator[WrongValueError]:
    kind, keys = str(document.get("type")), of_any_case(document)
    checks = _CHECKS.get(kind, {})
    for key, value in document.items():
        # Go's decoder knows a key in any case, and null as no value.
        check = checks.get(key.lower())
        if check is not None and value is not None and (error := _problem(check, value)):
            is_quoted = isinstance(value, str) and (value.isdecimal() or value in {"true", "false"})
            yield WrongValueError(f"{error.problem}{', without quotation marks' * is_quoted}", (key, *error.path))
    if kind in _WHOLE and (error := _problem(_WHOLE[kind], keys)):
        yield error
    if kind in _WITH_IPAM and isinstance(keys.get("ipam"), dict) and (error := _problem(_ipam, keys)):
        yield WrongValueError(error.problem, ("ipam", *error.path))


def _of_release(document: Mapping[str, Any], versions_of: VersionsOf) -> Iterator[WrongValueError]:
    """Yield what only the installed release refuses."""
    kind, keys = str(document.get("type")), of_any_case(document)
    for checks, is_newer in ((_BY_NEWER, True), (_BY_OLDER, False)):
        if kind in checks and (error := _problem(checks[kind], keys)):
            versions = versions_of(kind)
            if versions and (_NEWER in versions) is is_newer:
                yield error


def _problem(check: Callable[[Any], object], value: object) -> WrongValueError | None:
    try:
        check(value)
    except WrongValueError as error:
        return error
    return None


def _interface(value: Any) -> None:
    """Check the name of an interface that the plugin creates."""
    name = string(value)
    if len(name.encode(errors="replace")) > _LONGEST_NAME:
        raise WrongValueError(f"{name} has more than {_LONGEST_NAME} characters, and no interface can have that name")
    # The settings of all and of new interfaces are in directories with these names.
    if name in {"", ".", "..", "all", "default"} or any(one in "/:%" or one.isspace() for one in name):
        raise WrongValueError(f"no interface can have the name {short_repr(name)}")


def _mtu(value: Any) -> None:
    if 0 < integer(value) < _SMALLEST_MTU or value > _LARGEST_MTU:
        raise WrongValueError(f"it must be {_SMALLEST_MTU} to {_LARGEST_MTU}, not {value}")


def _mtu_below_master(value: Any) -> None:
    _mtu(number(0, _LARGEST_MTU)(value))


def _one_of(*words: str) -> Check:
    def check(value: Any) -> None:
        if string(value) not in {"", *words}:
            raise WrongValueError(f"it must be {', '.join(words[:-1])} or {words[-1]}, not {short_repr(value)}")

    return check


def _settings(value: Any) -> None:
    """Check the sysctls of tuning."""
    for name in object_of(string)(value):
        parts = name.split("/" if "/" in name.partition(".")[0] else ".")
        if parts[0] != "net":
            raise WrongValueError(f"tuning changes only settings that begin with net, not {name}")
        if _is_unknown(parts):
            raise WrongValueError(f"the kernel has no setting {name}")


def _is_unknown(parts: list[str]) -> bool:
    """Return whether the kernel has no setting of IP with this name, but others beside it."""
    of_ip = parts[:2] in (["net", "ipv4"], ["net", "ipv6"])
    # A container's interface may not exist here. Names of interfaces can have dots.
    if of_ip and parts[2:3] in (["conf"], ["neigh"]):
        parts = [*parts[:3], "default", parts[-1]]
    path = f"/proc/sys/{'/'.join(parts)}"
    return of_ip and ".." not in parts and os.path.isdir(os.path.dirname(path)) and not os.path.exists(path)


def _of_bridge(keys: Mapping[str, Any]) -> None:
    if keys.get("hairpinmode") is True and keys.get("promiscmode") is True:
        raise WrongValueError("hairpinMode and promiscMode exclude each other")


def _of_portmap(keys: Mapping[str, Any]) -> None:
    if keys.get("markmasqbit") is not None and keys.get("externalsetmarkchain") is not None:
        raise WrongValueError("markMasqBit and externalSetMarkChain exclude each other")


def _of_vlan(keys: Mapping[str, Any]) -> None:
    if not keys.get("master"):
        raise WrongValueError("it has no master")


def _of_vrf(keys: Mapping[str, Any]) -> None:
    if not keys.get("vrfname"):
        raise WrongValueError("it has no vrfname")


def _of_host_device(keys: Mapping[str, Any]) -> None:
    if not any(map(keys.get, _DEVICE)) and not _has_capability(keys, "deviceID"):
        raise WrongValueError("it has neither device nor hwaddr, kernelpath or pciBusID")


def _has_capability(keys: Mapping[str, Any], name: str) -> bool:
    """Return whether the runtime may give a plugin this capability argument."""
    capabilities = keys.get("capabilities")
    return isinstance(capabilities, dict) and name in capabilities


def _of_bandwidth(keys: Mapping[str, Any]) -> None:
    BANDWIDTH.whole({key: keys.get(key.lower()) for key in BANDWIDTH.checks})


def _masquerade(keys: Mapping[str, Any]) -> None:
    if keys.get("ipmasq") is True:
        _backend(keys, "ipMasqBackend")


def _backend(keys: Mapping[str, Any], key: str) -> None:
    if keys.get(key.lower()) not in {None, "iptables", "nftables"}:
        raise WrongValueError(f"it must be iptables or nftables, not {short_repr(keys[key.lower()])}", (key,))


def _trunks(keys: Mapping[str, Any]) -> None:
    for index, trunk in enumerate(check_keys(keys, _TRUNKS).get("vlantrunk") or ()):
        path = ("vlanTrunk", index)
        try:
            own = check_keys(of_any_case(trunk), dict.fromkeys(("minid", "maxid", "id"), nullable(_VLAN_OF_TRUNK)))
        except WrongValueError as error:
            raise WrongValueError(f"{error.path[0]}: {error.problem}", path) from None
        first, last = own.get("minid"), own.get("maxid")
        if (first is None) is not (last is None) or (first is not None and first > last):
            raise WrongValueError("it must have minID and maxID, and minID must not be the larger one", path)


def _of_newer_bridge(keys: Mapping[str, Any]) -> None:
    _masquerade(keys)
    _trunks(keys)


_VLAN_OF_TRUNK, _TRUNKS = number(1, 4094), {"vlantrunk": nullable(list_of(an_object))}
_BY_NEWER: dict[str, Callable[[Mapping[str, Any]], None]] = {
    "bridge": _of_newer_bridge, "ptp": _masquerade, "portmap": lambda keys: _backend(keys, "backend"),
}  # fmt: skip
_BY_OLDER: dict[str, Callable[[Mapping[str, Any]], object]] = {
    "firewall": lambda keys: _one_of("open", "same-bridge")(keys.get("ingresspolicy") or "")
}
_VLAN, _MASTER = number(0, 4094), {"master": string, "mtu": _mtu, "linkincontainer": boolean}
_CHECKS: dict[str, dict[str, Check]] = {
    "bridge": {
        "bridge": _interface, "mtu": _mtu, "vlan": _VLAN, "ipmasqbackend": string,
        **dict.fromkeys(("isgateway", "isdefaultgateway", "forceaddress", "ipmasq", "hairpinmode"), boolean),
        **dict.fromkeys(("promiscmode", "macspoofchk", "enabledad", "portisolation"), boolean),
        **dict.fromkeys(("preservedefaultvlan", "disablecontainerinterface"), boolean),
    },
    "ptp": {"ipmasq": boolean, "mtu": _mtu, "ipmasqbackend": string},
    "macvlan": {**_MASTER, "mode": _one_of("bridge", "private", "vepa", "passthru"), "mtu": _mtu_below_master},
    "ipvlan": {**_MASTER, "mode": _one_of("l2", "l3", "l3s")},
    "vlan": {**_MASTER, "vlanid": _VLAN, "mtu": _mtu_below_master},
    "portmap": {
        "snat": boolean, "masqall": boolean, "markmasqbit": number(0, 31), "backend": string,
        "externalsetmarkchain": string, "conditionsv4": list_of(string), "conditionsv6": list_of(string),
    },
    "firewall": {"backend": string, "ingresspolicy": _one_of("open", "same-bridge", "isolated")},
    "tuning": {"sysctl": _settings, "mtu": _mtu, "promisc": boolean, "allmulti": boolean},
    "bandwidth": {key.lower(): check for key, check in BANDWIDTH.checks.items()},
    "vrf": {"vrfname": _interface},
}  # fmt: skip
"""The keys of the plugins in small letters."""
_DEVICE = ("device", "hwaddr", "kernelpath", "pcibusid")
_WHOLE = {
    "bridge": _of_bridge, "portmap": _of_portmap, "bandwidth": _of_bandwidth, "vlan": _of_vlan, "vrf": _of_vrf,
    "host-device": _of_host_device,
}  # fmt: skip
_WITH_IPAM = {"bridge", "ptp", "macvlan", "ipvlan", "vlan", "host-device", "tap", "dummy"}
"""The plugins that give ``ipam`` to the IPAM plugin as it is. Calico's replaces ``usePodCidr`` first."""


def _ipam(keys: Mapping[str, Any]) -> None:
    """Check ``ipam`` of a plugin whose keys are in small letters."""
    ipam = of_any_case(keys["ipam"])
    if ipam.get("type") == "host-local":
        networks = _of_host_local(keys, ipam)
    elif ipam.get("type") == "static":
        networks = _of_static(keys, ipam)
    else:
        return
    mtu = keys.get("mtu")
    if any(net.version == 6 for net, _ in networks) and isinstance(mtu, int) and 0 < mtu < _SMALLEST_OF_IPV6:  # noqa: PLR2004 - of IP
        raise WrongValueError(f"the kernel refuses IPv6 addresses with an MTU of {mtu}: it needs {_SMALLEST_OF_IPV6}")
    _routes(keys, ipam, networks)


_PATHS = {"resolvconf": nullable(string), "datadir": nullable(string)}
_ROUTES = {"routes": nullable(list_of(an_object))}
_Networks = list[tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, IPAddress | None]]
"""The subnet and the gateway of each address that a container gets."""


def _of_host_local(keys: Mapping[str, Any], ipam: Mapping[str, Any]) -> _Networks:
    sets = ranges_of(ipam)
    from_elsewhere = SUBNET_FILE.lower() in keys or _has_capability(keys, "ipRanges")
    if not sets and not from_elsewhere:
        raise WrongValueError("it has neither subnet nor ranges")
    for ranges in sets:
        if sum(one.size for one in ranges) < 1:
            raise WrongValueError(f"its ranges have no address but the gateway's, {ranges[0].gateway}")
    path = check_keys(ipam, _PATHS).get("resolvconf")
    if path and not os.path.exists(path):
        raise WrongValueError(f"there is no file {path}", ("resolvConf",))
    is_gateway = keys.get("isgateway") is True or keys.get("isdefaultgateway") is True
    if is_gateway and keys.get("forceaddress") is not True:
        own = dict.fromkeys(f"{one.gateway}/{one.prefix}" for one, *_ in sets if one.start.version == 4)  # noqa: PLR2004 - of IP
        if len(own) > 1:
            raise WrongValueError(f"the plugin gives a bridge only one IPv4 address, and not {some(list(own))}")
    return [(_network_of(one), one.gateway) for one, *_ in sets]


def _network_of(one: AddressRange) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.ip_network(f"{one.start}/{one.prefix}", strict=False)


def _of_static(keys: Mapping[str, Any], ipam: Mapping[str, Any]) -> _Networks:
    found: _Networks = []
    for index, address in enumerate(
        check_keys(ipam, {"addresses": nullable(list_of(an_object))}).get("addresses") or ()
    ):
        own = of_any_case(address)
        text, gateway = str(own.get("address")), own.get("gateway")
        path = ("addresses", index)
        try:
            net = ipaddress.ip_interface(text if "/" in text else "").network
        except ValueError:
            words = "it must be an address with its prefix length, such as 10.1.0.7/16"
            raise WrongValueError(f"{words}, not {short_repr(own.get('address'))}", (*path, "address")) from None
        if not gateway and keys.get("type") == "ptp":
            raise WrongValueError("ptp needs the gateway of each address", path)
        found.append((net, address_in(gateway, (*path, "gateway")) if gateway else None))
    return found


def _routes(keys: Mapping[str, Any], ipam: Mapping[str, Any], networks: _Networks) -> None:
    """Check the routes. The kernel refuses a gateway that is in no subnet of the container."""
    default_gateways = {gateway.version: gateway for _, gateway in reversed(networks) if gateway is not None}
    routes: list[_Route] = []
    for index, route in enumerate(check_keys(ipam, _ROUTES).get("routes") or ()):
        own, path = of_any_case(route), ("routes", index)
        to = network_in(own.get("dst"), (*path, "dst"))
        gateway = address_in(own["gw"], (*path, "gw")) if own.get("gw") else None
        more = tuple(str(own[key]) for key in ("priority", "table", "scope") if own.get(key))
        routes.append(_Route(to, gateway, more, (*path, "gw")))
    routes += _default_routes(keys, networks, routes)
    on_link = [net for net, _ in networks]
    on_link += [route.to for route in routes if not route.gateway and route.to.version not in default_gateways]
    seen = set()
    for route in routes:
        gateway = route.gateway or default_gateways.get(route.to.version)
        if (route.to, gateway, route.more) in seen:
            also = " (isDefaultGateway adds it as well)" if route.path == ("gateway",) else ""
            raise WrongValueError(f"the route to {route.to} is there twice{also}", ("routes",))
        seen.add((route.to, gateway, route.more))
        is_plain = not any(other.more for other in routes)  # a scope can put a gateway on the link
        if gateway is not None and is_plain and not _is_reachable(gateway, route.to.version, on_link):
            subnets = some([str(net) for net, _ in networks])
            text = (
                f"{gateway} is not in the container's subnet ({subnets}), so the kernel refuses the route to {route.to}"
            )
            raise WrongValueError(text, route.path if route.gateway else ("gateway",))


class _Route(NamedTuple):
    to: ipaddress.IPv4Network | ipaddress.IPv6Network
    gateway: IPAddress | None
    more: tuple[str, ...]
    path: tuple[int | str, ...]


def _default_routes(keys: Mapping[str, Any], networks: _Networks, routes: list[_Route]) -> Iterator[_Route]:
    """Yield the default routes that bridge adds. It takes no notice of one without a gateway of its own."""
    for version, text in ((4, "0.0.0.0/0"), (6, "::/0")) if keys.get("isdefaultgateway") is True else ():
        gateway = next((gateway for net, gateway in networks if net.version == version), None)
        to = ipaddress.ip_network(text)
        if gateway is not None and not any(route.to == to and route.gateway for route in routes):
            yield _Route(to, gateway, (), ("gateway",))


def _is_reachable(
    gateway: IPAddress, version: int, on_link: list[ipaddress.IPv4Network | ipaddress.IPv6Network]
) -> bool:
    """Return whether the kernel takes a gateway for a route of an IP version."""
    if gateway.version == 6 and gateway.is_link_local:  # noqa: PLR2004 - the version of IP
        return version == gateway.version
    return gateway.version == version and any(
        gateway in net and (net.version == 6 or net.prefixlen > 30 or gateway != net.broadcast_address)  # noqa: PLR2004 - of IP
        for net in on_link
    )
