"""The result of an ADD: the plugin's text, and a typed view of it."""

from __future__ import annotations

import _socket  # the C part alone: importing socket takes 3 ms
import re
from collections.abc import Callable, Mapping
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Self

from libcni._dataclass import dataclass, field
from libcni.config import jsontext
from libcni.config.jsontext import JSONTextError, Member
from libcni.config.schema import WrongValueError, check_keys, integer, list_of, nullable, string
from libcni.config.versions import ALL_VERSIONS, CURRENT_VERSION, DEFAULT_VERSION, RESULT_FORMS
from libcni.errors import InvalidOutputError, VersionError, short_repr, shorten
from libcni.protocol.conversion import ConversionError, convert, object_of

if TYPE_CHECKING:
    from ipaddress import IPv4Interface, IPv6Interface

__all__ = ["DNS", "IPConfig", "Interface", "Result", "Route"]

MAX_RESULT_BYTES = 1 << 20
"""The largest result that is accepted: it stays in memory and in the record on disk. Real results have a few KiB."""

_CIDR = re.compile(r"[0-9A-Fa-f:.]+/[0-9]{1,3}")


def _cidr(value: Any) -> str:
    """Check for CIDR notation: an address and a decimal prefix length."""
    text = string(value)
    # ipaddress also accepts 10.1.0.5/255.255.0.0 and 10.1.0.5 alone; Go and the specification do not.
    if _CIDR.fullmatch(text) is None:
        raise WrongValueError(f"{short_repr(text)} is not an address in CIDR notation, such as 10.1.0.5/16")
    address, _, length = text.partition("/")
    if not (_is_address(address) and int(length) <= (128 if ":" in address else 32)):
        raise _address_problem(text)
    return text


def _address(value: Any) -> str:
    """Check for an address without a zone. "" is accepted, because Go's plugins write it for no address."""
    text = string(value)
    if text and not _is_address(text):
        if "%" in text:
            raise WrongValueError(f"{short_repr(text)} has a zone, which an address in a result must not have")
        raise _address_problem(text)
    return text


def _is_address(text: str) -> bool:
    """Return whether the C library accepts ``text``; ``ipaddress`` accepts the same and takes ten times as long."""
    try:
        _socket.inet_pton(_socket.AF_INET6 if ":" in text else _socket.AF_INET, text)
    except (OSError, ValueError):
        return False
    return True


def _address_problem(text: str) -> WrongValueError:
    import ipaddress

    try:
        ipaddress.ip_interface(text)
    except ValueError as error:
        return WrongValueError(shorten(str(error), 200))
    return WrongValueError(f"{short_repr(text)} is not an address")


def _names(value: Any) -> tuple[str, ...]:
    return () if value is None else tuple(list_of(string)(list(value) if isinstance(value, tuple) else value))


_Keys = dict[str, tuple[str, Callable[[Any], Any]]]


class _Part:
    """Base class of a result's parts. The constructor raises ValueError for a wrong value."""

    __slots__ = ()

    _KEYS: ClassVar[_Keys]
    """Field name to (the key in the specification, the check of its value)."""
    _REQUIRED: ClassVar[str | None] = None
    extra: Mapping[str, Any]

    def __post_init__(self) -> None:
        for name, (key, check) in self._KEYS.items():
            try:
                object.__setattr__(self, name, check(getattr(self, name)))
            except WrongValueError as error:
                raise WrongValueError(error.problem, (key, *error.path)) from None

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Return the part for decoded JSON.

        Raises:
            ValueError: a value has the wrong type, or a required key is missing.
        """
        if not isinstance(value, dict):
            raise WrongValueError(f"it must be an object, not {'null' if value is None else short_repr(value)}")
        if cls._REQUIRED is not None and cls._REQUIRED not in value:
            raise WrongValueError(f'missing "{cls._REQUIRED}"', (cls._REQUIRED,))
        known = {name: value[key] for name, (key, _) in cls._KEYS.items() if key in value}
        # Plugins may add keys of their own. They stay in ``extra``, so that to_json does not lose them.
        keys = {key for key, _ in cls._KEYS.values()}
        known["extra"] = {key: item for key, item in value.items() if key not in keys}
        return cls(**known)

    def to_json(self) -> dict[str, Any]:
        """Return the part with the specification's keys, without those that are not set."""
        values = {key: getattr(self, name) for name, (key, _) in self._KEYS.items()}
        known = {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}
        return {**{key: value for key, value in known.items() if value is not None and value != []}, **self.extra}


_NULLABLE_STRING, _NULLABLE_INTEGER = nullable(string), nullable(integer)


@dataclass(frozen=True, slots=True)
class Interface(_Part):
    """An interface that the plugins created for the attachment (spec 1.1.0, section 5, Success).

    Attributes:
        name: the interface's name.
        mac: its hardware address.
        sandbox: the isolation domain that contains it, such as a namespace's path; "" or None: the host.
        mtu: its MTU in bytes. Since 1.1.0.
        socket_path: ``socketPath``: the path of a socket file that belongs to it. Since 1.1.0.
        pci_id: ``pciID``: the PCI device that belongs to it. Since 1.1.0.
        extra: keys that the specification does not have.

    Examples:
        >>> Interface("eth0", mac="c2:11:22:33:44:55", sandbox="/run/netns/blue").sandbox
        '/run/netns/blue'
    """

    name: str = ""
    mac: str | None = None
    sandbox: str | None = None
    mtu: int | None = None
    socket_path: str | None = None
    pci_id: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)

    _KEYS: ClassVar[_Keys] = {
        "name": ("name", string),
        "mac": ("mac", _NULLABLE_STRING),
        "sandbox": ("sandbox", _NULLABLE_STRING),
        "mtu": ("mtu", _NULLABLE_INTEGER),
        "socket_path": ("socketPath", _NULLABLE_STRING),
        "pci_id": ("pciID", _NULLABLE_STRING),
    }


@dataclass(frozen=True, slots=True)
class IPConfig(_Part):
    """An address of the attachment (spec 1.1.0, section 5, Success).

    Attributes:
        address: the address with its prefix length, in CIDR notation, such as ``10.1.0.5/16``.
        gateway: the address of the subnet's gateway.
        interface: the index of its interface in ``Result.interfaces``, from 0.
        version: "4" or "6"; in results of 0.3.0 to 0.4.0 only.
        extra: keys that the specification does not have.

    Examples:
        >>> [ip.address for ip in cni.add_network_list(net, rt).ips]
        ['10.1.0.5/16']
    """

    address: str
    gateway: str | None = None
    interface: int | None = None
    version: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)

    _REQUIRED = "address"
    _KEYS: ClassVar[_Keys] = {
        "address": ("address", _cidr),
        "gateway": ("gateway", nullable(_address)),
        "interface": ("interface", _NULLABLE_INTEGER),
        "version": ("version", _NULLABLE_STRING),
    }

    @property
    def ip(self) -> IPv4Interface | IPv6Interface:
        """The address and its network, as the standard library's type."""
        from ipaddress import ip_interface

        return ip_interface(self.address)


@dataclass(frozen=True, slots=True)
class Route(_Part):
    """A route of the attachment (spec 1.1.0, section 5, Success).

    Attributes:
        dst: the destination, in CIDR notation.
        gw: the address of the next hop; None: the gateway of the address may be used.
        mtu: the MTU along the path, in bytes. Since 1.1.0.
        advmss: the maximum segment size to announce, in bytes. Since 1.1.0.
        priority: the priority; a lower number goes first. Since 1.1.0.
        table: the number of the routing table. Since 1.1.0.
        scope: how far the destination is, as Linux numbers it: 0 global, 253 link, 254 host. Since 1.1.0.
        extra: keys that the specification does not have.

    Examples:
        >>> Route("0.0.0.0/0", gw="10.1.0.1", priority=100).gw
        '10.1.0.1'
    """

    dst: str
    gw: str | None = None
    mtu: int | None = None
    advmss: int | None = None
    priority: int | None = None
    table: int | None = None
    scope: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)

    _REQUIRED = "dst"
    _KEYS: ClassVar[_Keys] = {
        "dst": ("dst", _cidr),
        "gw": ("gw", nullable(_address)),
        **{name: (name, _NULLABLE_INTEGER) for name in ("mtu", "advmss", "priority", "table", "scope")},
    }


@dataclass(frozen=True, slots=True)
class DNS(_Part):
    """Name resolution for the attachment (spec 1.1.0, section 5, Success).

    Attributes:
        nameservers: addresses of name servers, the first preferred.
        domain: the local domain, for short names.
        search: domains to search for short names, the first preferred.
        options: resolver options, such as ``ndots:2``.
        extra: keys that the specification does not have.

    Examples:
        >>> DNS(nameservers=("10.1.0.1",), search=("example.org",)).nameservers
        ('10.1.0.1',)
    """

    nameservers: tuple[str, ...] = ()
    domain: str | None = None
    search: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)

    _KEYS: ClassVar[_Keys] = {
        "nameservers": ("nameservers", _names),
        "domain": ("domain", _NULLABLE_STRING),
        "search": ("search", _names),
        "options": ("options", _names),
    }


def _parts_of(kind: type[_Part]) -> Callable[[Any], Any]:
    check = list_of(kind.from_json)
    return lambda value: () if value is None else tuple(check(value))


# The shape of 0.3.0 to 1.1.0. Results of 0.1.0 and 0.2.0 are converted before they are checked.
_RESULT_KEYS: dict[str, Callable[[Any], Any]] = {
    "interfaces": _parts_of(Interface),
    "ips": _parts_of(IPConfig),
    "routes": _parts_of(Route),
    "dns": lambda value: DNS() if value is None else DNS.from_json(value),
}


@dataclass(frozen=True, slots=True)
class Result:
    """The result of an ADD (spec 1.1.0, section 5, Success).

    ``interfaces``, ``ips``, ``routes`` and ``dns`` are a typed view of ``text``. A text of 0.1.0 or 0.2.0 has ``ip4``
    and ``ip6`` instead, so the view shows the converted result. Keys that the specification does not have are in
    ``extra`` of each part.

    Attributes:
        cni_version: the spec version that the result is written in.
        text: the JSON document as the plugin printed it, with ``cniVersion`` added if it was missing.
        interfaces: the interfaces that the plugins created.
        ips: the attachment's addresses.
        routes: the attachment's routes.
        dns: the attachment's name resolution.
        unused_capabilities: the capability arguments of this ADD that no plugin of the network declares.
        notes: warnings of this ADD, which are in the log too: the ADD was repeated after a known fault of a plugin; an
            earlier attachment was detached, and its plugins left rules; a program of the host uses a published port.

    Examples:
        >>> result = Result.from_bytes(b'{"cniVersion": "1.1.0", "ips": [{"address": "10.1.0.5/16"}]}')
        >>> result.ips[0].address, result.as_version("0.4.0").to_dict()["ips"]
        ('10.1.0.5/16', [{'version': '4', 'address': '10.1.0.5/16'}])
    """

    cni_version: str
    text: str
    interfaces: tuple[Interface, ...] = field(default=(), compare=False)
    ips: tuple[IPConfig, ...] = field(default=(), compare=False)
    routes: tuple[Route, ...] = field(default=(), compare=False)
    dns: DNS = field(default=DNS(), compare=False)
    unused_capabilities: tuple[str, ...] = field(default=(), compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def from_bytes(cls, data: bytes | str, version: str | None = None) -> Result:
        """Read a result.

        Args:
            data: the JSON document.
            version: the spec version if the document has no ``cniVersion``; None: 0.1.0.

        Raises:
            InvalidOutputError: the document is not a result; ``problem`` says where and why.
        """
        try:
            return read_result(data, version or DEFAULT_VERSION)
        except ResultProblem as error:
            raise InvalidOutputError(str(error)) from error

    def as_version(self, version: str) -> Result:
        """Return this result converted to another spec version; unknown keys are kept.

        Args:
            version: the spec version, such as ``0.4.0``.

        Raises:
            VersionError: the version is unknown, or cannot express this result.
        """
        if version == self.cni_version:
            return self
        try:
            # Lenient: this result was accepted before, and a conversion that makes it longer must not fail.
            return read_result(convert_text(self.text, self.cni_version, version), version, lenient=True)
        except (ConversionError, ResultProblem) as error:
            problem = f"a result of version {self.cni_version} cannot be converted to {version!r}: {error}"
            raise VersionError(problem, version=version) from error

    def to_dict(self) -> dict[str, Any]:
        """Return the whole document, decoded; each call returns a new object."""
        document: dict[str, Any] = jsontext.parse(self.text)
        return document

    def to_json(self, indent: int | None = 4) -> str:
        """Return the document as indented text, as cnitool prints it. Numbers and strings stay as they are written.

        Args:
            indent: spaces for each level; None: the whole document in one line.
        """
        return jsontext.reindent(self.text, indent)


class ResultProblem(ValueError):  # noqa: N818 - internal; callers raise it as InvalidOutputError
    """A document is not a result."""


def read_result(data: bytes | str, version: str, *, lenient: bool = False) -> Result:
    """Return the result in ``data``; raises ResultProblem.

    Args:
        data: the JSON document.
        version: the spec version if the document has no ``cniVersion``.
        lenient: accept any size. For results from records: Go libcni, which has no limit, may have written them.
    """
    try:
        if not lenient and len(data) > MAX_RESULT_BYTES:
            raise ResultProblem(f"it printed {len(data):,} bytes, and a result has at most {MAX_RESULT_BYTES:,}")
        text = jsontext.decode_utf8(data).strip()
        jsontext.check_size(text, inf if lenient else jsontext.MAX_ELEMENTS)
        # Go decodes "null" into an empty result without an error, so some plugins print it.
        members = jsontext.members(text) if text != "null" else []
        text, document_version = _with_version(text, members, version)
        document = {member.key: member.value for member in members}
        has_ip4_and_ip6 = RESULT_FORMS.get(document_version) == RESULT_FORMS["0.2.0"]  # newer results have lists
        if has_ip4_and_ip6:
            document = convert(document, document_version, CURRENT_VERSION)
        parts = check_keys(document, _RESULT_KEYS)
    except JSONTextError as error:
        raise ResultProblem(_output_problem(data, error)) from error
    except (WrongValueError, ConversionError) as error:
        raise ResultProblem(f"{error}, in {shorten(text, 300)!r}") from error
    return Result(document_version, text, **parts)


def convert_text(text: str, source: str, target: str) -> str:
    """Return the result ``text`` of version ``source`` as version ``target``.

    Raises:
        ConversionError: see ``convert``; or the result has a number that is too large, such as 1e400.
        JSONTextError: ``text`` is not a single JSON document.
    """
    document = convert(object_of(jsontext.parse(text), "the result"), source, target)
    try:
        return jsontext.dumps(document)
    except ValueError as error:
        raise ConversionError("it has a number that is too large for JSON, such as 1e400") from error


def _with_version(text: str, members: list[Member], version: str) -> tuple[str, str]:
    """Return the text with ``cniVersion`` in it, and the version."""
    named = next((member.value for member in reversed(members) if member.key == "cniVersion"), None)
    if isinstance(named, str) and named:
        if named not in ALL_VERSIONS:
            raise ResultProblem(
                f'unsupported CNI result version "{shorten(named, 80)}", in {shorten(text.strip(), 300)!r}'
            )
        return text, named
    rest = [(member.key_text, member.text) for member in members if member.key != "cniVersion"]
    return jsontext.join_object([('"cniVersion"', jsontext.dumps(version)), *rest]), version


def _output_problem(data: bytes | str, error: JSONTextError) -> str:
    start = data[:4096]
    shown = start if isinstance(start, str) else start.decode(errors="backslashreplace")
    if not data.strip():
        return "it printed nothing, and a result was expected"
    return f"it printed something that is not a result ({error}): {shorten(shown.strip(), 300)!r}"
