"""Read the networks that a container requests, and their arguments, from annotations that begin with ``libcni.``.

    libcni.networks      front, back@net1      (or a JSON array; ``none``: no network)
    libcni.args          IgnoreUnknown=1;K8S_POD_NAME=web
    libcni.ports         8080:80, 127.0.0.1:5353:53/udp
    libcni.ips           10.61.0.7, fd00::7
    libcni.mac           c2:11:22:33:44:55
    libcni.bandwidth     {"ingressRate": 1000000, "ingressBurst": 100000}
    libcni.capabilities  {"aliases": ["db"]}

``args`` goes to every network. The others go to the container's first network; in the JSON array each network has its
own: ``[{"network": "front", "ifname": "eth0", "args": {"K": "V"}, "capabilities": {"mac": "c2:11:22:33:44:55"}}]``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from libcni.config.cni_args import Args, parse_args
from libcni.config.identifiers import validate_interface_name, validate_network_name
from libcni.engines.json_request import MAX_NETWORKS, check_number, check_size, known_capabilities, read_json
from libcni.errors import CNIError, ConfigError, short_repr

if TYPE_CHECKING:
    from libcni.manager.container import NetworkRequest

PREFIX = "libcni."
KEYS = ("networks", "args", "ports", "ips", "mac", "bandwidth", "capabilities")
"""The annotations, without their prefix."""

_NONE = "none"
_REQUEST_KEYS = {"network", "ifname", "args", "capabilities"}
_MAX_PORT = 65535
_PORT = re.compile(
    r"(?:(?:\[(?P<ipv6>[^]]*)]|(?P<ipv4>[^]:[]*)):)?(?P<outside>\d{1,5}):(?P<inside>\d{1,5})(?:/(?P<protocol>tcp|udp|sctp))?",
    re.ASCII,
)


class Wanted(NamedTuple):
    """The networks and arguments that a container requests.

    Attributes:
        requests: the networks in order; [] for none; None: the node's default network.
        args: CNI_ARGS for every network.
        capabilities: capability arguments for the first network.
    """

    requests: list[NetworkRequest] | None
    args: Args
    capabilities: dict[str, Any]

    @property
    def is_explicit(self) -> bool:
        """Whether an annotation names a network or an argument."""
        return bool(self.requests or self.args or self.capabilities)


def read_wanted(annotations: Mapping[str, str]) -> Wanted:
    """Read the networks and arguments of a container from its annotations.

    Raises:
        ConfigError: an annotation is unknown, or its value is invalid; the text names the annotation.
    """
    wanted = {key.removeprefix(PREFIX): text for key, text in annotations.items() if key.startswith(PREFIX)}
    for key in wanted.keys() - set(KEYS):
        known = ", ".join(PREFIX + name for name in KEYS)
        raise ConfigError("it is unknown", file=f"annotation {PREFIX}{key}", hint=f"the annotations are {known}")
    requests: list[NetworkRequest] | None = None
    args: Args = ()
    capabilities: dict[str, Any] = {}
    # In reverse order, so that a capability with an annotation of its own replaces the general one.
    for key in (key for key in reversed(KEYS) if key in wanted):
        text = wanted[key]
        try:
            if not text.strip():
                raise ConfigError("it is empty", hint='write "none" for no network' if key == "networks" else None)
            if key == "networks":
                requests = _networks(text)
            elif key == "args":
                args = parse_args(text)
            else:
                capabilities |= _CAPABILITIES[key](text)
        except CNIError as error:
            raise ConfigError(str(error), file=f"annotation {PREFIX}{key}") from error
    check_size(requests or (), [capabilities])
    return Wanted(requests, args, capabilities)


def _networks(text: str) -> list[NetworkRequest]:
    if text.strip() == _NONE:
        return []
    if not text.lstrip().startswith("["):
        return [_request(part) for part in _listed(text)]
    entries = read_json(text, list, "array")
    if not entries:
        raise ConfigError("the array is empty", hint='write "none" for no network')
    check_number(len(entries), "networks", MAX_NETWORKS)
    return [_request(entry) for entry in entries]


def _request(entry: Any) -> NetworkRequest:
    """Read one network: ``NAME``, ``NAME@IFNAME`` or an object."""
    # Not needed for a container that the hook ignores.
    from libcni.manager.container import NetworkRequest, request_of

    if isinstance(entry, str):
        request = request_of(entry.strip())
    elif isinstance(entry, dict):
        if unknown := entry.keys() - _REQUEST_KEYS:
            known = ", ".join(sorted(_REQUEST_KEYS))
            raise ConfigError(f"the key {short_repr(min(unknown))} is unknown", hint=f"the keys are {known}")
        capabilities = entry.get("capabilities")
        request = NetworkRequest(
            entry.get("network", ""),
            entry.get("ifname"),
            entry.get("args") or (),
            known_capabilities(capabilities) if capabilities else None,
        )
    else:
        raise ConfigError(f"{short_repr(entry)} is neither a network's name nor an object")
    validate_network_name(request.network)
    if request.ifname is not None:
        validate_interface_name(request.ifname)
    return request


def _port(text: str) -> dict[str, Any]:
    """Read ``[HOST_IP:]HOST_PORT:CONTAINER_PORT[/PROTOCOL]``, an IPv6 address in brackets."""
    import ipaddress

    match = _PORT.fullmatch(text.lower())
    if match is None or not all(0 < int(match[name]) <= _MAX_PORT for name in ("outside", "inside")):
        form = "[HOST_IP:]HOST_PORT:CONTAINER_PORT[/tcp|udp|sctp]"
        raise ConfigError(f"{short_repr(text)} is not of the form {form}")
    mapping: dict[str, Any] = {"hostPort": int(match["outside"]), "containerPort": int(match["inside"])}
    mapping["protocol"] = match["protocol"] or "tcp"
    if address := match["ipv6"] or match["ipv4"]:
        try:
            ipaddress.ip_address(address)
        except ValueError as error:
            raise ConfigError(f"{short_repr(text)}: {short_repr(address)} is not an IP address") from error
        mapping["hostIP"] = address
    return mapping


def _listed(text: str) -> list[str]:
    check_number(text.count(",") + 1, "entries")
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise ConfigError(f"{short_repr(text)} has an empty part")
    return parts


_CAPABILITIES: dict[str, Callable[[str], dict[str, Any]]] = {
    "ports": lambda text: {"portMappings": [_port(part) for part in _listed(text)]},
    "ips": lambda text: known_capabilities({"ips": _listed(text)}),
    "mac": lambda text: known_capabilities({"mac": text.strip()}),
    "bandwidth": lambda text: known_capabilities({"bandwidth": read_json(text, dict)}),
    "capabilities": lambda text: known_capabilities(read_json(text, dict)),
}
"""The function that reads the text of each annotation of capability arguments."""
