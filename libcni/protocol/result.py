"""What a plugin answers to ADD: a typed view, beside the text that it printed."""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, FailFast, Field, ValidationError

from libcni.config import jsontext
from libcni.config.jsontext import JSONTextError, Member
from libcni.config.schema import describe
from libcni.config.versions import ALL_VERSIONS, CURRENT_VERSION, DEFAULT_VERSION
from libcni.errors import InvalidOutputError, VersionError, shorten
from libcni.protocol.conversion import ConversionError, convert

__all__ = ["DNS", "IPConfig", "Interface", "Result", "Route"]

_FLAT_VERSIONS = {"0.1.0", "0.2.0"}
_CIDR = re.compile(r"[0-9A-Fa-f:.]+/[0-9]{1,3}")


def _cidr(text: str) -> str:
    """Accept what the specification calls CIDR notation: an address and a decimal prefix length, nothing laxer."""
    if _CIDR.fullmatch(text) is None:
        raise ValueError(f"{shorten(repr(text), 80)} is not an address in CIDR notation, such as 10.1.0.5/16")
    address, _, length = text.partition("/")
    if not (_is_address(address) and int(length) <= (128 if ":" in address else 32)):
        ipaddress.ip_interface(text)  # which says what is wrong with it
    return text


def _is_address(text: str) -> bool:
    """Return whether the C library takes it; ``ipaddress`` does as well then, and takes ten times as long."""
    try:
        socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)
    except (OSError, ValueError):
        return False
    return True


def _address(text: str) -> str:
    if text and not _is_address(text):
        ipaddress.ip_address(text)
        if "%" in text:
            raise ValueError(f"{shorten(repr(text), 80)} has a zone, and an address here has none")
    return text


def _empty_for_null(value: Any) -> Any:
    return () if value is None else tuple(value) if isinstance(value, list) else value


_CIDRText = Annotated[str, AfterValidator(_cidr)]
_AddressText = Annotated[str, AfterValidator(_address)]
_Names = Annotated[tuple[str, ...], BeforeValidator(_empty_for_null)]


class _Part(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, strict=True, extra="allow", populate_by_name=True)

    def to_json(self) -> dict[str, Any]:
        """Return it as the specification writes it, without what is not set."""
        return self.model_dump(by_alias=True, exclude_unset=True)


class Interface(_Part):
    """An interface that the attachment made (spec 1.1.0, section 5, Success).

    Attributes:
        name (str): its name.
        mac (str | None): its hardware address.
        sandbox (str | None): the isolation domain that it is in, such as a namespace's path; "" or None: the host.
        mtu (int | None): its MTU, bytes. Since 1.1.0.
        socket_path (str | None): ``socketPath``: the path of a socket file that belongs to it. Since 1.1.0.
        pci_id (str | None): ``pciID``: the PCI device that belongs to it. Since 1.1.0.
    """

    name: str = ""
    mac: str | None = None
    sandbox: str | None = None
    mtu: int | None = None
    socket_path: str | None = Field(default=None, alias="socketPath")
    pci_id: str | None = Field(default=None, alias="pciID")


class IPConfig(_Part):
    """An address of the attachment (spec 1.1.0, section 5, Success).

    Attributes:
        address (str): the address with its prefix length, in CIDR notation, such as ``10.1.0.5/16``.
        gateway (str | None): the subnet's gateway, an address.
        interface (int | None): the place of its interface in ``Result.interfaces``, from 0.
        version (str | None): "4" or "6"; in results of 0.3.0 to 0.4.0 only.
    """

    address: _CIDRText
    gateway: _AddressText | None = None
    interface: int | None = None
    version: str | None = None

    @property
    def ip(self) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface:
        """The address and its network, as the standard library's type."""
        return ipaddress.ip_interface(self.address)


class Route(_Part):
    """A route of the attachment (spec 1.1.0, section 5, Success).

    Attributes:
        dst (str): the destination, in CIDR notation.
        gw (str | None): the next hop, an address; None: the gateway of the address may be used.
        mtu (int | None): the MTU along the path, bytes. Since 1.1.0.
        advmss (int | None): the maximal segment size to announce, bytes. Since 1.1.0.
        priority (int | None): a lower number goes first. Since 1.1.0.
        table (int | None): the number of its routing table. Since 1.1.0.
        scope (int | None): how far the destination is, as Linux numbers it: 0 global, 253 link, 254 host. Since 1.1.0.
    """

    dst: _CIDRText
    gw: _AddressText | None = None
    mtu: int | None = None
    advmss: int | None = None
    priority: int | None = None
    table: int | None = None
    scope: int | None = None


class DNS(_Part):
    """Name resolution for the attachment (spec 1.1.0, section 5, Success).

    Attributes:
        nameservers (tuple[str, ...]): addresses of name servers, the first preferred.
        domain (str | None): the local domain, for short names.
        search (tuple[str, ...]): domains to search for short names, the first preferred.
        options (tuple[str, ...]): resolver options, such as ``ndots:2``.
    """

    nameservers: _Names = ()
    domain: str | None = None
    search: _Names = ()
    options: _Names = ()


class _View(BaseModel):
    """The shape of 0.3.0 to 1.1.0; 0.1.0 and 0.2.0 are converted before they are looked at."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, strict=True, extra="ignore")

    interfaces: Annotated[tuple[Interface, ...], FailFast(), BeforeValidator(_empty_for_null)] = ()
    ips: Annotated[tuple[IPConfig, ...], FailFast(), BeforeValidator(_empty_for_null)] = ()
    routes: Annotated[tuple[Route, ...], FailFast(), BeforeValidator(_empty_for_null)] = ()
    dns: Annotated[DNS, BeforeValidator(lambda value: {} if value is None else value)] = DNS()


@dataclass(frozen=True, slots=True)
class Result:
    """The result of an ADD (spec 1.1.0, section 5, Success).

    ``interfaces``, ``ips``, ``routes`` and ``dns`` are a typed view of ``text``; where that is of 0.1.0 or 0.2.0, which
    have ``ip4`` and ``ip6``, of the converted result. A field that the specification does not know is in the part's
    ``model_extra``.

    Attributes:
        cni_version: the spec version that it is written in.
        text: the JSON document as the plugin printed it, with ``cniVersion`` added where it was missing.
        interfaces: the interfaces that the attachment made.
        ips: its addresses.
        routes: its routes.
        dns: its name resolution.
        unused_capabilities: the capability arguments given to this ADD that no plugin of the network declares.
    """

    cni_version: str
    text: str
    interfaces: tuple[Interface, ...] = field(default=(), compare=False)
    ips: tuple[IPConfig, ...] = field(default=(), compare=False)
    routes: tuple[Route, ...] = field(default=(), compare=False)
    dns: DNS = field(default=DNS(), compare=False)
    unused_capabilities: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def from_bytes(cls, data: bytes | str, version: str | None = None) -> Result:
        """Read a result.

        Args:
            data: the JSON document.
            version: what a missing ``cniVersion`` means; None: 0.1.0.

        Raises:
            InvalidOutputError: it is not a result; ``problem`` says where and why.
        """
        try:
            return read_result(data, version or DEFAULT_VERSION)
        except ResultProblem as error:
            raise InvalidOutputError(str(error)) from error

    def as_version(self, version: str) -> Result:
        """Return this result as written in another spec version; unknown fields are kept.

        Args:
            version: the spec version, such as ``0.4.0``.

        Raises:
            VersionError: the version is not known, or cannot carry this result.
        """
        if version == self.cni_version:
            return self
        try:
            return read_result(convert(self.text, self.cni_version, version), version)
        except (ConversionError, ResultProblem) as error:
            raise VersionError(
                f"a result of version {self.cni_version} cannot be given as {version!r}: {error}", version=version
            ) from error

    def to_dict(self) -> dict[str, Any]:
        """Return the whole document, decoded; each call makes a new one."""
        document: dict[str, Any] = jsontext.parse(self.text)
        return document

    def to_json(self, indent: int | None = 4) -> str:
        """Return the document as indented text, as cnitool prints it; numbers and strings stay as they are written.

        Args:
            indent: spaces for each level; None: all in one line.
        """
        return jsontext.laid_out(self.text, indent)


class ResultProblem(ValueError):  # noqa: N818 - internal; the flows tell it as InvalidOutputError
    """Say what makes a document no result."""


def read_result(data: bytes | str, version: str) -> Result:
    """Return the result in ``data``; ``version`` is used where it names none. Raises ResultProblem."""
    try:
        text = jsontext.bounded(jsontext.decode(data).strip())
        found = jsontext.members(text) if text != "null" else []
        text, own = _with_version(text, found, version)
        view = _view(text, found, own)
    except JSONTextError as error:
        raise ResultProblem(_output_problem(data, error)) from error
    except ValidationError as error:
        location, problem = describe(error.errors(include_url=False)[0])
        raise ResultProblem(f"{location}: {problem}, in {shorten(text, 300)!r}") from error
    return Result(own, text, view.interfaces, view.ips, view.routes, view.dns)


def _with_version(text: str, found: list[Member], version: str) -> tuple[str, str]:
    """Return the text with ``cniVersion`` in it, and the version."""
    named = next((member.value for member in reversed(found) if member.key == "cniVersion"), None)
    if isinstance(named, str) and named:
        if named not in ALL_VERSIONS:
            raise ResultProblem(
                f'unsupported CNI result version "{shorten(named, 80)}", in {shorten(text.strip(), 300)!r}'
            )
        return text, named
    rest = [(member.key_text, member.text) for member in found if member.key != "cniVersion"]
    return jsontext.join_object([('"cniVersion"', jsontext.dumps(version)), *rest]), version


def _view(text: str, found: list[Member], version: str) -> _View:
    if version not in _FLAT_VERSIONS:
        return _View.model_validate({member.key: member.value for member in found})
    try:
        current = convert(text, version, CURRENT_VERSION)
    except (ConversionError, ValueError) as error:
        raise ResultProblem(str(error)) from error
    return _View.model_validate(jsontext.parse(current))


def _output_problem(data: bytes | str, error: JSONTextError) -> str:
    shown = data if isinstance(data, str) else data.decode(errors="backslashreplace")
    if not shown.strip():
        return "it printed nothing, and a result was expected"
    problem = str(error)
    if "more after the end" in error.problem:
        problem = f"it printed something after the result ({problem})"
    elif shown.lstrip()[0] != "{":
        problem = f"it printed something that is not a result ({problem})"
    return f"{problem}: {shorten(shown.strip(), 300)!r}"
