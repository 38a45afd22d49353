"""Typed access to the capabilities in ``runtimeConfig`` (CONVENTIONS.md, well-known capabilities).

Upper and lower case of the well-known keys do not matter: containerd sends ``HostPort`` for ``hostPort``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from libcni.plugin.failure import INVALID_NETWORK_CONFIG, VerbError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_T = TypeVar("_T")
_REQUIRED = object()


class PortMappingEntry(NamedTuple):
    """A port of the host that is forwarded to a port of the container."""

    host_port: int
    container_port: int
    protocol: str
    host_ip: str
    extra: Mapping[str, Any]


class BandwidthLimits(NamedTuple):
    """The limits of an interface: rates in bits per second, bursts in bits, 0 for no limit."""

    ingress_rate: int
    ingress_burst: int
    egress_rate: int
    egress_burst: int
    extra: Mapping[str, Any]


class DNSSettings(NamedTuple):
    """The name resolution that the runtime asks for."""

    servers: tuple[str, ...]
    searches: tuple[str, ...]
    options: tuple[str, ...]
    extra: Mapping[str, Any]


class AddressRange(NamedTuple):
    """A range of addresses; "" for a part that the plugin may choose."""

    subnet: str
    range_start: str
    range_end: str
    gateway: str
    extra: Mapping[str, Any]


class RuntimeConfig:
    """The capabilities of ``runtimeConfig``; None or empty for one that the runtime did not send.

    Each property decodes its capability on access, and raises VerbError (code 7) if the value does not follow the
    conventions. So a malformed capability does not disturb a plugin that does not use it.

    Attributes:
        document: the whole object, unknown capabilities included.
        network: the network's name.
    """

    def __init__(self, document: object, network: str = "") -> None:
        self.network = network
        self.document: Mapping[str, Any] = {} if document is None else _Fields("runtimeConfig", document).document

    @property
    def port_mappings(self) -> tuple[PortMappingEntry, ...]:
        """``portMappings``."""
        return tuple(_read(PortMappingEntry, "portMappings", entry) for entry in self._list("portMappings"))

    @property
    def bandwidth(self) -> BandwidthLimits | None:
        """``bandwidth``."""
        value = self._take("bandwidth", object, None)
        return None if value is None else _read(BandwidthLimits, "bandwidth", value)

    @property
    def dns(self) -> DNSSettings | None:
        """``dns``."""
        value = self._take("dns", object, None)
        if value is None:
            return None
        fields = _Fields("dns", value)
        servers, searches, options = (fields.strings(key) for key in ("servers", "searches", "options"))
        return DNSSettings(servers, searches, options, fields.extra)

    @property
    def ip_ranges(self) -> tuple[tuple[AddressRange, ...], ...]:
        """``ipRanges``: for each requested address, the ranges that it may come from."""
        return tuple(
            tuple(_read(AddressRange, "ipRanges", entry) for entry in _check("ipRanges", ranges, list))
            for ranges in self._list("ipRanges")
        )

    @property
    def ips(self) -> tuple[str, ...]:
        """``ips``: the requested addresses, with or without a prefix length."""
        return tuple(_check("ips", value, str) for value in self._list("ips"))

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
        """``aliases``: the container's names on this network; podman sends an object from network names to lists."""
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


class _Fields:
    """The fields of a JSON object, found without regard to case; ``extra`` keeps those that nobody has taken."""

    def __init__(self, label: str, document: object) -> None:
        self.label = label
        self.document: dict[str, Any] = _check(label, document, dict)
        self.extra = dict(self.document)

    def take(self, key: str, kind: type[_T], default: Any = _REQUIRED) -> Any:
        # The exact key wins, if a runtime sends both.
        found = key if key in self.extra else next((k for k in self.extra if k.lower() == key.lower()), key)
        value = self.extra.pop(found, None)
        if value is None:
            if default is _REQUIRED:
                raise _invalid(f"{self.label}: {key} is missing")
            return default
        return _check(f"{self.label}: {key}", value, kind)

    def strings(self, key: str) -> tuple[str, ...]:
        return tuple(_check(key, value, str) for value in self.take(key, list, []))


# For each class the keys of its fields, in their order: the key, its type, and the value if it is missing.
_KEYS: dict[Any, tuple[tuple[Any, ...], ...]] = {
    PortMappingEntry: (("hostPort", int), ("containerPort", int), ("protocol", str, "tcp"), ("hostIP", str, "")),
    BandwidthLimits: tuple((key, int, 0) for key in ("ingressRate", "ingressBurst", "egressRate", "egressBurst")),
    AddressRange: (("subnet", str), ("rangeStart", str, ""), ("rangeEnd", str, ""), ("gateway", str, "")),
}


def _read(kind: Callable[..., _T], label: str, value: object) -> _T:
    fields = _Fields(label, value)
    return kind(*(fields.take(*key) for key in _KEYS[kind]), fields.extra)


def _check(label: str, value: Any, kind: type[_T]) -> _T:
    # In Python True is an int, in JSON it is not.
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _invalid(f"{label} must be {kind.__name__}, not {value!r}")
    return value


def _invalid(problem: str) -> VerbError:
    return VerbError(problem, code=INVALID_NETWORK_CONFIG)
