"""The conventions' capability arguments (CONVENTIONS.md of the specification), as typed objects.

    capability_args = CapabilityArgs(port_mappings=[PortMapping(host_port=8080, container_port=80)])

Import this module only for a caller that uses it: pydantic takes longer to start than a plugin.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from libcni.config.schema import format_location
from libcni.errors import ConfigError, short_repr

__all__ = ["Bandwidth", "CapabilityArgs", "DNSServers", "IPRange", "PortMapping"]

_MAX_PORT = 65535


def _parsed_by(parse: Callable[[str], object]) -> AfterValidator:
    def check(text: str) -> str:
        parse(text)  # raises ValueError; the text itself stays as the caller wrote it
        return text

    return AfterValidator(check)


_IP = Annotated[str, _parsed_by(ipaddress.ip_address)]
_IPOrCIDR = Annotated[str, _parsed_by(ipaddress.ip_interface)]
_CIDR = Annotated[_IPOrCIDR, Field(pattern=r"/\d+$")]  # ipaddress accepts a network without prefix length
_Port = Annotated[int, Field(ge=0, le=_MAX_PORT)]
_Bits = Annotated[int, Field(ge=0)]
_Protocol = Annotated[str, Field(pattern="(?i)^(tcp|udp|sctp)$"), AfterValidator(str.lower)]
_MAC = Annotated[str, Field(pattern="^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}$")]
_GUID = Annotated[str, Field(pattern="^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){7}$")]
_KEYS = {"host_ip": "hostIP", "infiniband_guid": "infinibandGUID", "device_id": "deviceID"}


def config_error(error: ValidationError, where: str, file: str | None = None) -> ConfigError:
    """Return the first of pydantic's errors in the object at ``where`` of ``file``."""
    found = error.errors(include_url=False)[0]
    problem = found["msg"].removeprefix("Value error, ")
    if found["type"] not in {"missing", "value_error"}:
        problem += f", not {short_repr(found['input'])}"
    return ConfigError(problem, file=file, location=format_location(where, found["loc"]))


# The conventions gain keys over the years, and a plugin may know a key that this library does not. So unknown fields
# are kept. A wrong value of a known key is refused here, because many plugins would ignore it.
class _Capability(BaseModel):
    """Base class of capability arguments. A value that the conventions do not allow raises a ConfigError."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True,
        extra="allow",
        alias_generator=lambda name: _KEYS.get(name) or to_camel(name),
        populate_by_name=True,
    )

    # Callers catch CNIError and must not need to know pydantic, so its error is translated here.
    if not TYPE_CHECKING:  # type checkers know the fields of each model

        def __init__(self, **values: Any) -> None:
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise config_error(error, type(self).__name__) from error

    def to_json(self) -> dict[str, Any]:
        """Return the values with the conventions' keys, without those that are not set."""
        return self.model_dump(by_alias=True, exclude_none=True)


class PortMapping(_Capability):
    """``portMappings``: a port of the host, forwarded to the container. A wrong value raises ConfigError.

    Attributes:
        host_port (int): 0 to 65535.
        container_port (int): 0 to 65535.
        protocol (str): ``tcp``, ``udp`` or ``sctp``, in any case.
        host_ip (str | None): the host's address to map; None: all addresses of the host.

    Examples:
        >>> CapabilityArgs(portMappings=[PortMapping(hostPort=8080, containerPort=80)]).to_args()
        {'portMappings': [{'hostPort': 8080, 'containerPort': 80, 'protocol': 'tcp'}]}
    """

    host_port: _Port
    container_port: _Port
    protocol: _Protocol = "tcp"
    host_ip: _IP | None = None


class Bandwidth(_Capability):
    """``bandwidth``: limits of an interface; None: no limit. A wrong value raises ConfigError.

    Attributes:
        ingress_rate (int | None): into the container, bits per second.
        ingress_burst (int | None): bits.
        egress_rate (int | None): out of the container, bits per second.
        egress_burst (int | None): bits.

    Examples:
        >>> CapabilityArgs(bandwidth=Bandwidth(ingressRate=1_000_000, ingressBurst=100_000)).to_args()
        {'bandwidth': {'ingressRate': 1000000, 'ingressBurst': 100000}}
    """

    ingress_rate: _Bits | None = None
    ingress_burst: _Bits | None = None
    egress_rate: _Bits | None = None
    egress_burst: _Bits | None = None


class IPRange(_Capability):
    """One pool of ``ipRanges``. A value that is not an address raises ConfigError.

    Attributes:
        subnet (str): the network, in CIDR form.
        range_start (str | None): the first address of the pool.
        range_end (str | None): the last address of the pool.
        gateway (str | None): the subnet's gateway.

    Examples:
        >>> CapabilityArgs(ipRanges=[[IPRange(subnet="10.1.0.0/16", rangeStart="10.1.0.9")]]).to_args()
        {'ipRanges': [[{'subnet': '10.1.0.0/16', 'rangeStart': '10.1.0.9'}]]}
    """

    subnet: _CIDR
    range_start: _IP | None = None
    range_end: _IP | None = None
    gateway: _IP | None = None


class DNSServers(_Capability):
    """``dns``: the settings of the container's resolver. A server that is not an address raises ConfigError.

    Attributes:
        servers (Sequence[str]): addresses of name servers.
        searches (Sequence[str]): domains.
        options (Sequence[str]): resolver options, such as ``ndots:2``.

    Examples:
        >>> CapabilityArgs(dns=DNSServers(servers=["10.1.0.1"])).to_args()["dns"]["servers"]
        ['10.1.0.1']
    """

    servers: Sequence[_IP] = ()
    searches: Sequence[str] = ()
    options: Sequence[str] = ()


class CapabilityArgs(_Capability):
    """All well-known capability arguments of one attachment. Add others as ``{**args.to_args(), "key": value}``.

    Attributes:
        port_mappings (Sequence[PortMapping] | None): the host's ports that are forwarded to the container.
        ip_ranges (Sequence[Sequence[IPRange]] | None): for each wanted address, the pools to take it from.
        bandwidth (Bandwidth | None): limits of the interface.
        dns (DNSServers | None): the settings of the resolver.
        ips (Sequence[str] | None): addresses, with or without prefix length.
        mac (str | None): the interface's hardware address.
        infiniband_guid (str | None): its InfiniBand GUID.
        device_id (str | None): the device to use, for example a PCI address.
        aliases (Sequence[str] | None): names of the container on this network.
        cgroup_path (str | None): the container's cgroup.

    Raises:
        ConfigError: the convention does not allow a value; the error names its location.

    Examples:
        >>> CapabilityArgs(mac="c2:11:22:33:44:55", ips=["10.1.0.7/16"]).to_args()
        {'ips': ['10.1.0.7/16'], 'mac': 'c2:11:22:33:44:55'}
    """

    port_mappings: Sequence[PortMapping] | None = None
    ip_ranges: Sequence[Sequence[IPRange]] | None = None
    bandwidth: Bandwidth | None = None
    dns: DNSServers | None = None
    ips: Sequence[_IPOrCIDR] | None = None
    mac: _MAC | None = None
    infiniband_guid: _GUID | None = None
    device_id: str | None = None
    aliases: Sequence[str] | None = None
    cgroup_path: str | None = None

    def to_args(self) -> dict[str, Any]:
        """Return ``RuntimeConf.capability_args``."""
        return self.to_json()
