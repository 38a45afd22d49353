"""The capabilities that a runtime passes in ``runtimeConfig``, typed (CONVENTIONS.md, well-known capabilities).

Keys of the conventions are read in whatever case: containerd sends ``HostPort`` for ``hostPort``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from libcni.errors import ErrorCode
from libcni.plugin.failure import VerbError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DNS", "Bandwidth", "IPRange", "PortMapping", "RuntimeConfig"]

_T = TypeVar("_T")
_REQUIRED = object()


class PortMapping(NamedTuple):
    """Say that a port of the host leads to one of the container."""

    host_port: int
    container_port: int
    protocol: str
    host_ip: str
    extra: Mapping[str, Any]


class Bandwidth(NamedTuple):
    """Limit an interface: rates in bits per second, bursts in bits, 0 for no limit."""

    ingress_rate: int
    ingress_burst: int
    egress_rate: int
    egress_burst: int
    extra: Mapping[str, Any]


class DNS(NamedTuple):
    """Configure name resolution, as the runtime wants it."""

    servers: tuple[str, ...]
    searches: tuple[str, ...]
    options: tuple[str, ...]
    extra: Mapping[str, Any]


class IPRange(NamedTuple):
    """Offer a range of addresses; "" where a part is left to the plugin."""

    subnet: str
    range_start: str
    range_end: str
    gateway: str
    extra: Mapping[str, Any]


class RuntimeConfig:
    """Read ``runtimeConfig``, each capability when it is asked for; None or empty where the runtime sent none.

    Each property raises VerbError (code 7) where its capability is not as the conventions have it.

    Attributes:
        document: the whole object as it was sent, unknown capabilities included.
        network: the network's name.
    """

    def __init__(self, document: object, network: str = "") -> None:
        self.network = network
        self.document: Mapping[str, Any] = {} if document is None else _Fields("runtimeConfig", document).document

    @property
    def port_mappings(self) -> tuple[PortMapping, ...]:
        """``portMappings``."""
        return tuple(_port_mapping(_Fields("portMappings", entry)) for entry in self._list("portMappings"))

    @property
    def bandwidth(self) -> Bandwidth | None:
        """``bandwidth``."""
        value = self._take("bandwidth", object, None)
        return None if value is None else _bandwidth(_Fields("bandwidth", value))

    @property
    def dns(self) -> DNS | None:
        """``dns``."""
        value = self._take("dns", object, None)
        return None if value is None else _dns(_Fields("dns", value))

    @property
    def ip_ranges(self) -> tuple[tuple[IPRange, ...], ...]:
        """``ipRanges``: per address wanted, the ranges that it may come from."""
        return tuple(
            tuple(_ip_range(_Fields("ipRanges", entry)) for entry in _check("ipRanges", ranges, list))
            for ranges in self._list("ipRanges")
        )

    @property
    def ips(self) -> tuple[str, ...]:
        """``ips``: the addresses wanted, with or without a prefix."""
        return self._strings("ips")

    @property
    def mac(self) -> str | None:
        """``mac``."""
        return self._text("mac")

    @property
    def infiniband_guid(self) -> str | None:
        """``infinibandGUID``."""
        return self._text("infinibandGUID")

    @property
    def device_id(self) -> str | None:
        """``deviceID``, such as a PCI address."""
        return self._text("deviceID")

    @property
    def aliases(self) -> tuple[str, ...]:
        """``aliases``: the container's names on this network. podman sends an object: from networks to names."""
        value = self._take("aliases", object, [])
        names = value.get(self.network) or [] if isinstance(value, dict) else _check("aliases", value, list)
        return tuple(str(_check("aliases", name, str)) for name in names)

    @property
    def cgroup_path(self) -> str | None:
        """``cgroupPath``."""
        return self._text("cgroupPath")

    def _take(self, key: str, kind: type[_T], default: Any) -> Any:
        return _Fields("runtimeConfig", self.document).take(key, kind, default)

    def _text(self, key: str) -> str | None:
        value = self._take(key, str, None)
        return None if value is None else str(value)

    def _list(self, key: str) -> list[Any]:
        return list(self._take(key, list, []))

    def _strings(self, key: str) -> tuple[str, ...]:
        return tuple(str(_check(key, value, str)) for value in self._list(key))


class _Fields:
    """Take the known fields out of a JSON object, whatever their case; what is left is ``extra``."""

    def __init__(self, what: str, document: object) -> None:
        self.what = what
        self.document: dict[str, Any] = _check(what, document, dict)
        self.extra = dict(self.document)

    def take(self, key: str, kind: type[_T], default: Any = _REQUIRED) -> Any:
        found = key if key in self.extra else next((k for k in self.extra if k.lower() == key.lower()), key)
        value = self.extra.pop(found, None)
        if value is None:
            if default is _REQUIRED:
                raise _invalid(f"{self.what}: {key} is missing")
            return default
        return _check(f"{self.what}: {key}", value, kind)

    def strings(self, key: str) -> tuple[str, ...]:
        return tuple(_check(key, value, str) for value in self.take(key, list, []))


def _port_mapping(fields: _Fields) -> PortMapping:
    return PortMapping(
        fields.take("hostPort", int),
        fields.take("containerPort", int),
        fields.take("protocol", str, "tcp"),
        fields.take("hostIP", str, ""),
        fields.extra,
    )


def _bandwidth(fields: _Fields) -> Bandwidth:
    return Bandwidth(
        fields.take("ingressRate", int, 0),
        fields.take("ingressBurst", int, 0),
        fields.take("egressRate", int, 0),
        fields.take("egressBurst", int, 0),
        fields.extra,
    )


def _dns(fields: _Fields) -> DNS:
    return DNS(fields.strings("servers"), fields.strings("searches"), fields.strings("options"), fields.extra)


def _ip_range(fields: _Fields) -> IPRange:
    return IPRange(
        fields.take("subnet", str),
        fields.take("rangeStart", str, ""),
        fields.take("rangeEnd", str, ""),
        fields.take("gateway", str, ""),
        fields.extra,
    )


def _check(what: str, value: Any, kind: type[_T]) -> _T:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _invalid(f"{what} must be {kind.__name__}, not {value!r}")
    return value


def _invalid(problem: str) -> VerbError:
    return VerbError(problem, code=ErrorCode.INVALID_NETWORK_CONFIG)
