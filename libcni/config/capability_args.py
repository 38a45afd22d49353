"""The conventions' capability arguments (CONVENTIONS.md of the specification), as typed objects.

    capability_args = CapabilityArgs(port_mappings=[PortMapping(host_port=8080, container_port=80)])

Import this module only where it is used: importing pydantic takes longer than starting a plugin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from libcni.config.conventions import (
    BANDWIDTH,
    CAPABILITY_ARGS,
    DNS_SERVERS,
    IP_RANGE,
    PORT_MAPPING,
    Convention,
    key_of,
    letters_of,
    similar,
)
from libcni.config.schema import WrongValueError, format_location
from libcni.errors import ConfigError, short_repr

__all__ = ["Bandwidth", "CapabilityArgs", "DNSServers", "IPRange", "PortMapping"]


def _plain(value: Any) -> Any:
    """Return a value as JSON decodes it."""
    if isinstance(value, _Capability):
        return value.to_json()
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(part) for part in value]
    return value


def _typed(value: Any, kind: type[_Capability] | None) -> Any:
    """Return a value with tuples for lists, and with objects of ``kind`` for mappings."""
    if isinstance(value, Mapping) and kind is not None:
        return kind._read(value)  # noqa: SLF001 - of the same family
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        return value
    parts = []
    for index, part in enumerate(value):
        try:
            parts.append(_typed(part, kind))
        except WrongValueError as error:
            raise WrongValueError(error.problem, (index, *error.path)) from None
    return tuple(parts)


def _first_problem(error: ValidationError, name_of: Callable[[str], str]) -> WrongValueError:
    """Return the first problem; ``name_of`` returns a field's displayed name."""
    first = error.errors(include_url=False)[0]
    path = tuple(name_of(str(part)) for part in first["loc"])
    inner = first.get("ctx", {}).get("error")
    if isinstance(inner, WrongValueError):
        return WrongValueError(inner.problem, (*path, *inner.path))
    problem = "it is missing" if first["type"] == "missing" else first["msg"].removeprefix("Value error, ")
    return WrongValueError(problem, path)


if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass as _Listed
else:

    class _Listed(type(BaseModel)):
        """The class of these classes: ``dir()`` and ``help()`` show their names, not the 60 of pydantic's models."""

        def __dir__(cls) -> list[str]:
            return ["from_json", "to_json", *cls.model_fields]


# A plugin may know keys that this library does not: they go into "extra". A misspelt key and a wrong value of a known
# key are refused here, because many plugins would ignore them.
class _Capability(BaseModel, metaclass=_Listed):
    """Base class of capability arguments. A value that the conventions do not allow raises a ConfigError."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")
    _convention: ClassVar[Convention]
    _kinds: ClassVar[Mapping[str, type[_Capability]]] = {}

    extra: Mapping[str, Any] = Field(default={}, repr=False)

    # Callers catch CNIError and must not need to know pydantic, so its error is translated here.
    if not TYPE_CHECKING:  # type checkers know the fields of each model

        def __init__(self, *wrong: Any, **values: Any) -> None:
            """Check the fields, all given by name. ConfigError names the field with a wrong value."""
            kind = type(self)
            names = kind.model_fields
            if wrong:
                fields = ", ".join(f"{name}=..." for name in list(names)[1:3])
                raise TypeError(f"{kind.__name__} takes fields by name only: {kind.__name__}({fields})")
            for name in values:
                if name not in names:
                    meant = similar(name, names) or "; a key that the conventions do not have goes into extra={...}"
                    raise TypeError(f"{kind.__name__} has no field {name!r}{meant}")
            try:
                super().__init__(**values)
            except ValidationError as error:
                problem = _first_problem(error, str)
                text, location = problem.problem, format_location(kind.__name__, problem.path)
                if not problem.path:  # a rule of several keys, in the words of the conventions
                    for name in names:
                        text = text.replace(key_of(name), name)
                raise ConfigError(text, location=location) from error

    @field_validator("*", mode="plain")
    @classmethod
    def _check_field(cls, value: Any, info: ValidationInfo) -> Any:
        name = str(info.field_name)
        if name == "extra":
            return cls._checked_extra(value)
        field = cls.model_fields[name]
        if value is None and not field.is_required():
            return field.default
        typed = _typed(value, cls._kinds.get(name))
        try:
            checked = cls._convention.check(key_of(name), _plain(typed))
        except WrongValueError as error:
            raise WrongValueError(error.problem, error.path[1:]) from None
        if isinstance(typed, Mapping):  # only a plain mapping of capability arguments may have this form
            raise WrongValueError(f"it must be a list, not {short_repr(value)}")
        return checked if isinstance(checked, str) else typed

    @classmethod
    def _checked_extra(cls, extra: Any) -> Mapping[str, Any]:
        if not isinstance(extra, Mapping):
            raise WrongValueError(f"it must be a mapping, not {short_repr(extra)}")
        # Go's plugins ignore the case of keys: such an entry would be a second, unchecked value of the field.
        known = {letters_of(name): name for name in cls.model_fields if name != "extra"}
        for key in extra:
            if letters_of(key) in known:
                problem = f"{short_repr(key)} does not belong in extra: use the field {known[letters_of(key)]}"
                raise WrongValueError(problem)
        return dict(extra)

    @model_validator(mode="after")
    def _check_whole(self) -> Self:
        self._convention.whole(self.to_json())
        return self

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, name) for name in type(self).model_fields if name != "extra"))

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Return the object for a decoded JSON object with the conventions' keys; unknown keys become ``extra``.

        null and "" mean that a key is not set, as they do for plugins in Go.

        Raises:
            ConfigError: the conventions do not allow a value, a key is missing, or a key is a misspelt known key.
        """
        try:
            return cls._read(document)
        except WrongValueError as error:
            raise ConfigError(error.problem, location=format_location("", error.path) or None) from None

    @classmethod
    def _read(cls, document: Mapping[str, Any]) -> Self:
        names = {key_of(name): name for name in cls.model_fields if name != "extra"}
        extra = {key: value for key, value in document.items() if key not in names}
        for key in extra:
            if meant := similar(key, names):
                raise WrongValueError(f"this key is unknown{meant}", (key,))
        values = {names[key]: value for key, value in document.items() if key in names and value not in (None, "")}
        try:
            return cls(**values, extra=extra)
        except ConfigError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            raise _first_problem(error.__cause__, key_of) from None

    def to_json(self) -> dict[str, Any]:
        """Return the values with the conventions' keys, without those that are not set."""
        values = {key_of(name): _plain(getattr(self, name)) for name in type(self).model_fields if name != "extra"}
        return {key: value for key, value in values.items() if value is not None} | dict(self.extra)


class PortMapping(_Capability):
    """``portMappings``: a port of the host, forwarded to the container. A wrong value raises ConfigError.

    Attributes:
        host_port (int): 1 to 65535.
        container_port (int): 1 to 65535.
        protocol (str): ``tcp``, ``udp`` or ``sctp``, in any case.
        host_ip (str | None): the host's address to map; None: all addresses of the host.
        extra (Mapping[str, Any]): keys that the conventions do not have.

    Examples:
        >>> CapabilityArgs(port_mappings=[PortMapping(host_port=8080, container_port=80)]).to_json()
        {'portMappings': [{'hostPort': 8080, 'containerPort': 80, 'protocol': 'tcp'}]}
    """

    _convention = PORT_MAPPING

    host_port: int
    container_port: int
    protocol: str = "tcp"
    host_ip: str | None = None


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

    _convention = BANDWIDTH

    ingress_rate: int | None = None
    ingress_burst: int | None = None
    egress_rate: int | None = None
    egress_burst: int | None = None


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

    _convention = IP_RANGE

    subnet: str
    range_start: str | None = None
    range_end: str | None = None
    gateway: str | None = None


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

    _convention = DNS_SERVERS

    # Not Sequence: a type checker would accept a single string.
    servers: list[str] | tuple[str, ...] = ()
    searches: list[str] | tuple[str, ...] = ()
    options: list[str] | tuple[str, ...] = ()


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

    _convention = CAPABILITY_ARGS
    _kinds: ClassVar[Mapping[str, type[_Capability]]] = {
        "port_mappings": PortMapping, "ip_ranges": IPRange, "bandwidth": Bandwidth, "dns": DNSServers
    }  # fmt: skip

    port_mappings: Sequence[PortMapping] | None = None
    ip_ranges: Sequence[Sequence[IPRange]] | None = None
    bandwidth: Bandwidth | None = None
    dns: DNSServers | None = None
    ips: list[str] | tuple[str, ...] | None = None
    mac: str | None = None
    infiniband_guid: str | None = None
    device_id: str | None = None
    aliases: list[str] | tuple[str, ...] | None = None
    cgroup_path: str | None = None
