"""The conventions' capability arguments (CONVENTIONS.md of the specification), as typed objects.

    capability_args = CapabilityArgs(port_mappings=[PortMapping(host_port=8080, container_port=80)])

Import this module only where it is used: importing pydantic takes longer than starting a plugin.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from libcni.config.schema import format_location
from libcni.errors import ConfigError, short_repr

__all__ = ["Bandwidth", "CapabilityArgs", "DNSServers", "IPRange", "PortMapping"]

_T = TypeVar("_T")

_MAX_PORT = 65535
_MAX_RATE = 2**64 - 1
_MAX_BURST = 8 * (2**32 - 1) - 1  # the bandwidth plugin refuses a larger burst
_KEYS = {"host_ip": "hostIP", "infiniband_guid": "infinibandGUID", "device_id": "deviceID"}
_SIMILAR = 0.9


def _parsed_by(parse: Callable[[str], object]) -> AfterValidator:
    def check(text: str) -> str:
        parse(text)  # raises ValueError; the text itself stays as the caller wrote it
        return text

    return AfterValidator(check)


def _read_json(kind: type[_Capability]) -> BeforeValidator:
    return BeforeValidator(lambda value: kind.from_json(value) if isinstance(value, Mapping) else value)


_IP = Annotated[str, _parsed_by(ipaddress.ip_address)]
_IPOrCIDR = Annotated[str, _parsed_by(ipaddress.ip_interface)]
_CIDR = Annotated[_IPOrCIDR, Field(pattern=r"/\d+$")]  # ipaddress accepts a network without prefix length
_Port = Annotated[int, Field(strict=True, ge=0, le=_MAX_PORT)]
_Rate = Annotated[int, Field(strict=True, ge=0, le=_MAX_RATE)]
_Burst = Annotated[int, Field(strict=True, ge=0, le=_MAX_BURST)]
_Protocol = Annotated[str, Field(pattern="(?i)^(tcp|udp|sctp)$"), AfterValidator(str.lower)]
_MAC = Annotated[str, Field(pattern="^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}$")]
_GUID = Annotated[str, Field(pattern="^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){7}$")]
_Tuple = Annotated[Sequence[_T], AfterValidator(tuple)]
if TYPE_CHECKING:
    _Strings = list[_T] | tuple[_T, ...]  # not Sequence: a type checker would accept a single string
else:
    _Strings = _Tuple


def _key(name: str) -> str:
    """Return a field's key in CONVENTIONS.md."""
    first, *others = name.split("_")
    return _KEYS.get(name) or first + "".join(part.capitalize() for part in others)


def _meant(word: str, known: Iterable[str]) -> str:
    """Return a suggestion for the misspelt ``word``, such as "; did you mean mac?"; "" if none is similar."""
    folded = {_folded(name): name for name in known}
    nearest = get_close_matches(_folded(word), folded, 1, _SIMILAR)
    return f"; did you mean {folded[nearest[0]]}?" if nearest else ""


def _folded(word: str) -> str:
    return word.replace("_", "").lower()


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return value.to_json() if isinstance(value, _Capability) else value


def _config_error(error: ValidationError, where: str, name_of: Callable[[str], str] = str) -> ConfigError:
    """Convert pydantic's first error in the object at ``where``; ``name_of`` returns a field's displayed name."""
    first = error.errors(include_url=False)[0]
    path = tuple(part if isinstance(part, int) else name_of(part) for part in first["loc"])
    location = format_location(where, path)
    inner = first.get("ctx", {}).get("error")
    if isinstance(inner, ConfigError):  # from an object inside this object
        return ConfigError(inner.problem, location=".".join(filter(None, (location, inner.location))))
    problem = first["msg"].removeprefix("Value error, ")
    if first["type"] not in {"missing", "value_error"}:
        problem += f", not {short_repr(first['input'])}"
    return ConfigError(problem, location=location or None)


# A plugin may know keys that this library does not: they go into "extra". A misspelt key and a wrong value of a known
# key are refused here, because many plugins would ignore them.
class _Capability(BaseModel):
    """Base class of capability arguments. A value that the conventions do not allow raises a ConfigError."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")

    extra: Mapping[str, Any] = Field(default={}, repr=False)

    # Callers catch CNIError and must not need to know pydantic, so its error is translated here.
    if not TYPE_CHECKING:  # type checkers know the fields of each model

        def __init__(self, **values: Any) -> None:
            names = type(self).model_fields
            for name in values:
                if name not in names:
                    meant = _meant(name, names) or "; a key that the conventions do not have goes into extra={...}"
                    raise TypeError(f"{type(self).__name__} has no field {name!r}{meant}")
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise _config_error(error, type(self).__name__) from error

    @field_validator("extra")
    @classmethod
    def _check_extra(cls, extra: Mapping[str, Any]) -> Mapping[str, Any]:
        # Go's plugins ignore the case of keys: such an entry would be a second, unchecked value of the field.
        known = {_folded(name): name for name in cls.model_fields if name != "extra"}
        for key in extra:
            if _folded(key) in known:
                raise ValueError(f"{short_repr(key)} does not belong in extra: use the field {known[_folded(key)]}")
        return dict(extra)

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, name) for name in type(self).model_fields if name != "extra"))

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Return the object for a decoded JSON object with the conventions' keys; unknown keys become ``extra``.

        Raises:
            ConfigError: the conventions do not allow a value, a key is missing, or a key is a misspelt known key.
        """
        names = {_key(name): name for name in cls.model_fields if name != "extra"}
        extra = {key: value for key, value in document.items() if key not in names}
        for key in extra:
            if meant := _meant(key, names):
                raise ConfigError(f"this key is unknown{meant}", location=key)
        try:
            return cls(**{name: document[key] for key, name in names.items() if key in document}, extra=extra)
        except ConfigError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            raise _config_error(error.__cause__, "", _key) from error.__cause__

    def to_json(self) -> dict[str, Any]:
        """Return the values with the conventions' keys, without those that are not set."""
        values = {_key(name): _plain(getattr(self, name)) for name in type(self).model_fields if name != "extra"}
        return {key: value for key, value in values.items() if value is not None} | dict(self.extra)


class PortMapping(_Capability):
    """``portMappings``: a port of the host, forwarded to the container. A wrong value raises ConfigError.

    Attributes:
        host_port (int): 0 to 65535.
        container_port (int): 0 to 65535.
        protocol (str): ``tcp``, ``udp`` or ``sctp``, in any case.
        host_ip (str | None): the host's address to map; None: all addresses of the host.
        extra (Mapping[str, Any]): keys that the conventions do not have.

    Examples:
        >>> CapabilityArgs(port_mappings=[PortMapping(host_port=8080, container_port=80)]).to_json()
        {'portMappings': [{'hostPort': 8080, 'containerPort': 80, 'protocol': 'tcp'}]}
    """

    host_port: _Port
    container_port: _Port
    protocol: _Protocol = "tcp"
    host_ip: _IP | None = None


class Bandwidth(_Capability):
    """``bandwidth``: limits of an interface; None: no limit.

    A wrong value raises ConfigError, and so does a rate without a burst or a burst without a rate: the bandwidth plugin
    refuses them on ADD and on DEL.

    Attributes:
        ingress_rate (int | None): into the container, bits per second.
        ingress_burst (int | None): bits.
        egress_rate (int | None): out of the container, bits per second.
        egress_burst (int | None): bits.
        extra (Mapping[str, Any]): keys that the conventions do not have.

    Examples:
        >>> CapabilityArgs(bandwidth=Bandwidth(ingress_rate=1_000_000, ingress_burst=100_000)).to_json()
        {'bandwidth': {'ingressRate': 1000000, 'ingressBurst': 100000}}
    """

    ingress_rate: _Rate | None = None
    ingress_burst: _Burst | None = None
    egress_rate: _Rate | None = None
    egress_burst: _Burst | None = None

    @model_validator(mode="after")
    def _check_pairs(self) -> Self:
        for rate, burst in (("ingress_rate", "ingress_burst"), ("egress_rate", "egress_burst")):
            if bool(getattr(self, rate)) != bool(getattr(self, burst)):
                raise ValueError(f"{rate} and {burst} must be set together: the bandwidth plugin needs both")
        return self


class IPRange(_Capability):
    """An address pool of ``ipRanges``. A value that is not an address raises ConfigError.

    Attributes:
        subnet (str): the network, in CIDR form.
        range_start (str | None): the first address of the pool.
        range_end (str | None): the last address of the pool.
        gateway (str | None): the subnet's gateway.
        extra (Mapping[str, Any]): keys that the conventions do not have.

    Examples:
        >>> CapabilityArgs(ip_ranges=[[IPRange(subnet="10.1.0.0/16", range_start="10.1.0.9")]]).to_json()
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
        extra (Mapping[str, Any]): keys that the conventions do not have.

    Examples:
        >>> CapabilityArgs(dns=DNSServers(servers=["10.1.0.1"])).to_json()["dns"]["servers"]
        ['10.1.0.1']
    """

    servers: _Strings[_IP] = ()
    searches: _Strings[str] = ()
    options: _Strings[str] = ()


class CapabilityArgs(_Capability):
    """All well-known capability arguments of one attachment.

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
        extra (Mapping[str, Any]): capabilities that the conventions do not have.

    Raises:
        ConfigError: the conventions do not allow a value; the error names its location.

    Examples:
        >>> CapabilityArgs(mac="c2:11:22:33:44:55", ips=["10.1.0.7/16"], extra={"tier": "gold"}).to_json()
        {'ips': ['10.1.0.7/16'], 'mac': 'c2:11:22:33:44:55', 'tier': 'gold'}
    """

    # If two interfaces of a container cannot both have it, add its key to _OF_ONE_INTERFACE in manager/container.py,
    # which must not import pydantic.
    port_mappings: _Tuple[Annotated[PortMapping, _read_json(PortMapping)]] | None = None
    ip_ranges: _Tuple[_Tuple[Annotated[IPRange, _read_json(IPRange)]]] | None = None
    bandwidth: Annotated[Bandwidth, _read_json(Bandwidth)] | None = None
    dns: Annotated[DNSServers, _read_json(DNSServers)] | None = None
    ips: _Strings[_IPOrCIDR] | None = None
    mac: _MAC | None = None
    infiniband_guid: _GUID | None = None
    device_id: str | None = None
    aliases: _Strings[str] | None = None
    cgroup_path: str | None = None
