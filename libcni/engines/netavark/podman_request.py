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
from typing import Any, NamedTuple

from libcni.config.cni_args import parse_args
from libcni.config.identifiers import validate_interface_name, validate_network_name
from libcni.engines.json_request import Field, check_number, known_capabilities, read_json, read_object
from libcni.errors import CNIError, ConfigError, short_repr

__all__ = ["OWNER"]

OWNER = "podman"
"""The owner of the driver's attachments. ``libcni repair --owner podman`` detaches those of ended containers."""

_WHERE = "netavark's request"
_KEYS = ("conf", "args", "bandwidth", "capabilities", "ports")
_MAX_PORT = 65535
_DIGITS = 20
_PROTOCOLS = {"tcp", "udp", "sctp"}

# The documents, member by member. Not pydantic: its import takes longer than all that this program does.
_REQUEST = {
    "container_id": Field(str),
    "container_name": Field(str, ""),
    "network": Field(dict),
    "network_options": Field(dict),
    "port_mappings": Field(list, (), items=dict),
}
_OWN = {
    "interface_name": Field(str),
    "options": Field(dict, {}),
    "static_ips": Field(list, (), items=str),
    "static_mac": Field(str, ""),
    "aliases": Field(list, [], items=str),
}
_NETWORK = {"name": Field(str), "options": Field(dict, {})}
_PORT = {
    "host_port": Field(int, least=1, most=_MAX_PORT),
    "container_port": Field(int, least=1, most=_MAX_PORT),
    "host_ip": Field(str, ""),
    "protocol": Field(str, ""),
    "range": Field(int, 0),
}


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
    """Read the request of ``setup``.

    Raises:
        CNIError: the request has another form, or an option of the network or container is unknown or invalid.
    """
    container_id, name, network, own, published = read_object(document, _REQUEST, _WHERE)
    ifname, options, addresses, mac, aliases = read_object(own, _OWN, _WHERE)
    validate_interface_name(ifname)
    ports: list[dict[str, Any]] = []
    for port in published:
        ports += _mappings(port)
        check_number(len(ports), "ports")  # each of thousands may have a range of thousands
    # "podman network reload" repeats an address that the container has asked for.
    ips = tuple(dict.fromkeys(addresses))
    return Request(container_id, name, ifname, read_options(network, options), ips, mac, aliases, ports)


def read_attachment(document: Mapping[str, Any]) -> Request:
    """Read only container, network and interface of a ``teardown``, which a wrong option must not stop.

    Raises:
        ConfigError: a name is missing, or no string.
    """
    container_id, name, network, own, _ = read_object({**document, "port_mappings": None}, _REQUEST, _WHERE)
    [ifname] = read_object(own, {"interface_name": _OWN["interface_name"]}, _WHERE)
    conf, options = read_object(network, _NETWORK, _WHERE)
    conf = validate_network_name(options.get("conf") or conf)
    return Request(container_id, name, ifname, Options(conf, {}, {}, publishes=False), (), "", [], [])


def read_options(network: Mapping[str, Any], own: Mapping[str, str] | None = None) -> Options:
    """Read the options of a network of podman, and a container's ``own`` options for it, which replace the network's.

    Raises:
        CNIError: an option is unknown, or its value is invalid; the text names the option.
    """
    name, options = read_object(network, _NETWORK, _WHERE)
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
    conf = options.get("conf") or name
    return Options(validate_network_name(conf), args, capabilities, publishes)


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

    # A number of thousands of digits is no number for int().
    def number(text: str) -> int | str:
        return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else text

    return {key: number(value) for key, value in parse_args(text)}


def _mappings(port: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the CNI port mappings of a published port of podman: a range of ports, with one or more protocols."""
    outside, inside, host_ip, names, count = read_object(port, _PORT, _WHERE)
    protocols = dict.fromkeys((names or "tcp").split(","))
    if unknown := protocols.keys() - _PROTOCOLS:
        raise ConfigError(f"port_mappings: {short_repr(min(unknown))} is no protocol", file=_WHERE)
    count = count or 1
    if max(outside, inside) + count - 1 > _MAX_PORT:
        raise ConfigError(
            f"port_mappings: the range of {count} ports from {outside} ends above {_MAX_PORT}", file=_WHERE
        )
    if host_ip:
        import ipaddress  # few containers name an address of the host

        try:
            ipaddress.ip_address(host_ip)
        except ValueError as error:
            problem = f"port_mappings: host_ip {short_repr(host_ip)} is not an IP address"
            raise ConfigError(problem, file=_WHERE) from error
    return [
        {"hostPort": outside + step, "containerPort": inside + step, "protocol": protocol}
        | ({"hostIP": host_ip} if host_ip else {})
        for protocol in protocols
        for step in range(count)
    ]
