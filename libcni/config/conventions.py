"""The keys and rules of the conventions' capability arguments (CONVENTIONS.md of the specification).

The keys are declared only here. The typed classes in ``capability_args.py`` check their values with these rules, and
ADD checks plain mappings with them. A plugin's ``RuntimeConfig`` has the same keys (a test compares them). This module
does not use pydantic: importing it takes longer than starting a plugin.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from libcni.config.port_mappings import PORT_MAPPINGS, HostPort, ports_in
from libcni.config.schema import Check, WrongValueError, an_object, format_location, integer, list_of, string
from libcni.errors import ConfigError, short_repr

OF_ONE_INTERFACE = frozenset({"ips", "mac", "infinibandGUID", "deviceID"})
"""Capabilities with a value that only one interface can have: with a second network, that network's ADD would fail."""

MOST_PORTS = 4096
"""How many host ports one attachment may have."""

_MAX_PORT = 65535
_MAX_RATE = 2**64 - 1
_MAX_BURST = 8 * (2**32 - 1) - 1  # the bandwidth plugin refuses a larger burst
_KEYS = {"host_ip": "hostIP", "infiniband_guid": "infinibandGUID", "device_id": "deviceID"}
_SIMILAR = 0.9


class Convention:
    """The keys of one object of the conventions, with the check of each key's value. A Convention is itself a check.

    Args:
        checks: the check of each key, by its name in Python.
        needed: the names of the keys that must be there.
        whole: raises WrongValueError if the values of several keys do not fit together.
    """

    def __init__(
        self,
        checks: Mapping[str, Check],
        needed: Iterable[str] = (),
        whole: Callable[[Mapping[str, Any]], None] = lambda _: None,
    ) -> None:
        self.checks: dict[str, Check] = {key_of(name): check for name, check in checks.items()}
        self.needed: frozenset[str] = frozenset(map(key_of, needed))
        self.whole = whole
        self._keys = {key.lower(): key for key in self.checks}

    def __call__(self, value: Any) -> dict[str, Any]:
        """Return the checked object with the conventions' keys; raises WrongValueError for the first problem.

        A plugin in Go ignores the case of keys, reads null and "" as "not set", and ignores unknown keys. So does this
        check, but it refuses a key that is probably a misspelt known one.
        """
        known: dict[str, Any] = {}
        for written, part in an_object(value).items():
            key = self._keys.get(written.lower())
            if key is None:
                if meant := similar(written, self.checks):
                    raise WrongValueError(f"this key is unknown{meant}", (written,))
            elif part is not None and part != "":
                known[key] = self.check(key, part, written)
        for key in self.checks:  # in the order of the declaration
            if key in self.needed and key not in known:
                raise WrongValueError(f'missing "{key}"', (key,))
        self.whole(known)
        return known

    def check(self, key: str, value: Any, written: str = "") -> Any:
        """Return the checked value of one key."""
        try:
            return self.checks[key](value)
        except WrongValueError as error:
            raise WrongValueError(error.problem, (written or key, *error.path)) from None


def key_of(name: str) -> str:
    """Return the key in CONVENTIONS.md for a Python name: ``hostPort`` for ``host_port``."""
    first, *others = name.split("_")
    return _KEYS.get(name) or first + "".join(part.capitalize() for part in others)


def similar(word: str, known: Iterable[str]) -> str:
    """Return a suggestion for the misspelt ``word``, such as "; did you mean mac?"; "" if none is similar."""
    from difflib import get_close_matches  # few callers mistype

    by_letters = {letters_of(name): name for name in known}
    nearest = get_close_matches(letters_of(word), by_letters, 1, _SIMILAR)
    return f"; did you mean {by_letters[nearest[0]]}?" if nearest else ""


def letters_of(word: str) -> str:
    """Return a key in a form that is the same for ``host_ip``, ``hostIP`` and ``HostIp``."""
    return word.replace("_", "").lower()


def number(least: int, most: int) -> Check:
    """Return a check for an integer from ``least`` to ``most``."""

    def check(value: Any) -> int:
        if not least <= integer(value) <= most:
            raise WrongValueError(f"it must be {least} to {most}, not {value}")
        return int(value)

    return check


def _text(pattern: str, words: str) -> Check:
    def check(value: Any) -> str:
        if not re.fullmatch(pattern, string(value), re.ASCII | re.IGNORECASE):
            raise WrongValueError(f"it must be {words}, not {short_repr(value)}")
        return str(value)

    return check


def _parsed(kind: str, words: str) -> Check:
    def check(value: Any) -> str:
        import ipaddress  # only where an address is checked

        try:
            getattr(ipaddress, kind)(string(value))
        except WrongValueError:
            raise
        except ValueError:
            raise WrongValueError(f"it must be {words}, not {short_repr(value)}") from None
        return str(value)

    return check


_address = _parsed("ip_address", "an IP address, such as 10.1.0.7")
_address_or_cidr = _parsed("ip_interface", "an IP address with or without a prefix length, such as 10.1.0.7/16")


def _subnet(value: Any) -> str:
    words = "a network in CIDR form, such as 10.1.0.0/16"
    _text(r".+/\d+", words)(value)  # ipaddress accepts a network without prefix length, or with a netmask
    return str(_parsed("ip_interface", words)(value))


def _protocol(value: Any) -> str:
    return str(_text("tcp|udp|sctp", "tcp, udp or sctp")(value)).lower()


def _aliases(value: Any) -> Any:
    # podman sends an object from network names to lists.
    return {name: list_of(string)(names) for name, names in value.items()} if isinstance(value, dict) else _names(value)


def _port_mappings(mappings: Any) -> Any:
    checked = list_of(PORT_MAPPING)(mappings)
    # Each port has a lock and rules of its own, so thousands of them would take minutes.
    if len(checked) > MOST_PORTS:
        raise WrongValueError(f"{len(checked):,} host ports are mapped; an attachment can have at most {MOST_PORTS:,}")
    seen: dict[int, list[HostPort]] = {}
    for index, port in enumerate(ports_in({PORT_MAPPINGS: checked})):
        of_number = seen.setdefault(port.number, [])
        if any(map(port.collides, of_number)):
            problem = f"host port {port} is mapped twice: only the first mapping would get connections"
            raise WrongValueError(problem, (index,))
        of_number.append(port)
    return checked


def _rates_with_bursts(values: Mapping[str, Any]) -> None:
    for rate, burst in (("ingressRate", "ingressBurst"), ("egressRate", "egressBurst")):
        if bool(values.get(rate)) != bool(values.get(burst)):
            raise WrongValueError(f"{rate} and {burst} must be set together: the bandwidth plugin needs both")


_names = list_of(string)
_port, _rate, _burst = number(1, _MAX_PORT), number(0, _MAX_RATE), number(0, _MAX_BURST)

PORT_MAPPING = Convention(
    {"host_port": _port, "container_port": _port, "protocol": _protocol, "host_ip": _address},
    # portmap writes a rule that iptables refuses if there is no protocol.
    needed=("host_port", "container_port", "protocol"),
)
BANDWIDTH = Convention(
    {"ingress_rate": _rate, "ingress_burst": _burst, "egress_rate": _rate, "egress_burst": _burst},
    whole=_rates_with_bursts,
)
IP_RANGE = Convention(
    {"subnet": _subnet, "range_start": _address, "range_end": _address, "gateway": _address}, needed=("subnet",)
)
DNS_SERVERS = Convention({"servers": list_of(_address), "searches": _names, "options": _names})
CAPABILITY_ARGS = Convention(
    {
        "port_mappings": _port_mappings,
        "ip_ranges": list_of(list_of(IP_RANGE)),
        "bandwidth": BANDWIDTH,
        "dns": DNS_SERVERS,
        "ips": list_of(_address_or_cidr),
        "mac": _text(
            "[0-9a-f]{2}([:-][0-9a-f]{2}){5}|[0-9a-f]{4}([.][0-9a-f]{4}){2}",
            "a hardware address of six bytes, such as c2:11:22:33:44:55",
        ),
        "infiniband_guid": _text("[0-9a-f]{2}([:-][0-9a-f]{2}){7}", "eight bytes, such as c2:11:22:33:44:55:66:77"),
        "device_id": string,
        "aliases": _aliases,
        "cgroup_path": string,
    }
)


def check_capability_args(capability_args: Mapping[str, Any], unused: Collection[str] = ()) -> None:
    """Check the values of the well-known capability arguments. Values of other capabilities are not checked.

    Names of capabilities are compared exactly, because a plugin declares them exactly.

    Args:
        capability_args: decoded JSON values by the name of the capability.
        unused: names that no plugin declares. Their values reach no plugin, and are not checked.

    Raises:
        ConfigError: the conventions do not allow a value; ``location`` names the key.
    """
    for name, value in capability_args.items():
        if name in CAPABILITY_ARGS.checks and name not in unused and value is not None and value != "":
            try:
                CAPABILITY_ARGS.check(name, value)
            except WrongValueError as error:
                raise ConfigError(error.problem, location=format_location("capability_args", error.path)) from None
