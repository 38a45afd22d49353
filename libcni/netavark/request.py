"""Read the request that netavark writes to a driver's stdin: a network of podman, or one attachment of a container.

Podman's options of a network, from ``podman network create --opt KEY=VALUE``:

    conf          front                                       the CNI network; by default podman's name of the network
    args          K=V;K=V                                     CNI_ARGS
    bandwidth     ingressRate=1000000;ingressBurst=100000     or JSON
    capabilities  {"deviceID": "0000:03:00.0"}                capability arguments
    ports         ignore                                      publish no port on this network

``podman run --network NAME:KEY=VALUE`` sets all but ``conf`` for one container.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from libcni.config.cni_args import parse_args
from libcni.config.identifiers import check_network_name
from libcni.engine.request import known_capabilities, read_json, read_member
from libcni.errors import CNIError, ConfigError

__all__ = ["OWNER"]

OWNER = "podman"
"""The owner of the driver's attachments. ``libcni repair --owner podman`` detaches those of ended containers."""

_WHERE = "netavark's request"
_KEYS = ("conf", "args", "bandwidth", "capabilities", "ports")
_member = partial(read_member, file=_WHERE)


class Options(NamedTuple):
    """The options of a network, or of one container on it.

    Attributes:
        conf: the name of the CNI network.
        args: CNI_ARGS.
        capabilities: capability arguments.
        publishes: whether the container's ports are published on this network.
    """

    conf: str
    args: dict[str, str]
    capabilities: dict[str, Any]
    publishes: bool


class Request(NamedTuple):
    """The request of ``setup`` and ``teardown``.

    Attributes:
        ips: the addresses that the container asks for.
        mac: the hardware address that it asks for, "" for any.
        aliases: its names on this network.
        ports: the published ports, as capability arguments ``portMappings``.
    """

    container_id: str
    container_name: str
    ifname: str
    options: Options
    ips: tuple[str, ...]
    mac: str
    aliases: list[str]
    ports: list[dict[str, Any]]


def read_document(data: bytes) -> dict[str, Any]:
    """Return the request's JSON object; raises ConfigError if it is not an object."""
    if not data.strip():
        raise ConfigError("it is empty", file=_WHERE, hint="netavark runs this command as a driver")
    return read_json(data, dict, file=_WHERE)


def read_request(document: Mapping[str, Any]) -> Request:
    """Read the request of ``setup`` and ``teardown``.

    Raises:
        CNIError: the request has another form, or an option of the network or container is unknown or invalid.
    """
    own = _member(document, "network_options", dict, None)
    addresses = _member(own, "static_ips", list, ())
    return Request(
        _member(document, "container_id", str, None),
        _member(document, "container_name", str, ""),
        _member(own, "interface_name", str, None),
        read_options(_member(document, "network", dict, None), _member(own, "options", dict, {})),
        # "podman network reload" repeats an address that the container has asked for.
        tuple(dict.fromkeys(map(str, addresses))),
        _member(own, "static_mac", str, ""),
        _member(own, "aliases", list, []),
        [mapping for port in _member(document, "port_mappings", list, ()) for mapping in _mappings(port)],
    )


def read_options(network: Mapping[str, Any], own: Mapping[str, str] | None = None) -> Options:
    """Read the options of a network of podman, and a container's ``own`` options for it, which replace the network's.

    Raises:
        CNIError: an option is unknown, or its value is invalid; the text names the option.
    """
    options = _member(network, "options", dict, {})
    args: dict[str, str] = {}
    capabilities: dict[str, Any] = {}
    publishes = True
    for key, text in [*_checked(options, _KEYS), *_checked(own or {}, _KEYS[1:])]:
        try:
            if key == "args":
                args |= parse_args(text)
            elif key == "bandwidth":
                capabilities |= known_capabilities({"bandwidth": _limits(text)})
            elif key == "capabilities":
                capabilities |= known_capabilities(read_json(text, dict))
            elif key == "ports" and text != "ignore":
                raise ConfigError(f'it must be "ignore", not "{text}"')
            publishes = publishes and key != "ports"
        except CNIError as error:
            raise ConfigError(str(error), file=f"option {key}") from error
    conf = options.get("conf") or _member(network, "name", str, None)
    return Options(check_network_name(conf), args, capabilities, publishes)


def _checked(options: Mapping[str, Any], known: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for key, value in options.items():
        if key not in known:
            raise ConfigError(f'the driver cni has no option "{key}"', hint=f"the options are {', '.join(known)}")
        if not isinstance(value, str):
            raise ConfigError(f"option {key}: the value is not a string", file=_WHERE)
        yield key, value


def _limits(text: str) -> dict[str, Any]:
    """Read limits of bandwidth: JSON, or the form of CNI_ARGS, because podman cuts --network at each comma."""
    if text.lstrip().startswith("{"):
        return read_json(text, dict)
    return {key: int(value) if value.isascii() and value.isdigit() else value for key, value in parse_args(text)}


def _mappings(port: Any) -> list[dict[str, Any]]:
    """Return the CNI port mappings of a published port of podman: a range of ports, with one or more protocols."""
    if not isinstance(port, dict):
        raise ConfigError(f"port_mappings: {port!r} is not an object", file=_WHERE)
    outside, inside = _member(port, "host_port", int, None), _member(port, "container_port", int, None)
    host_ip = _member(port, "host_ip", str, "")
    protocols = _member(port, "protocol", str, "") or "tcp"
    return [
        {"hostPort": outside + step, "containerPort": inside + step, "protocol": protocol}
        | ({"hostIP": host_ip} if host_ip else {})
        for protocol in protocols.split(",")
        for step in range(_member(port, "range", int, 0) or 1)
    ]
