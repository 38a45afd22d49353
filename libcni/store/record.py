"""One attachment record: what it says, and its form on disk, which is Go libcni's own (kind ``cniCacheV1``).

What Go does not have stands under one key of its own, ``libcni``, which Go ignores.
"""

from __future__ import annotations

import base64
import functools
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from libcni.config import jsontext
from libcni.config.identifiers import check_container_id, check_ifname, check_network_name
from libcni.config.jsontext import JSONTextError, dumps
from libcni.errors import InvalidIdentifierError, shorten

__all__ = [
    "CORRUPT", "LEGACY", "PENDING", "READY", "STALE_BOOT", "Identity", "Record", "boot_id", "decode", "encode",
]  # fmt: skip

PENDING, READY, STALE_BOOT, CORRUPT, LEGACY = "pending", "ready", "stale-boot", "corrupt", "legacy"

_KIND = "cniCacheV1"
_DEEPER = 8  # a record holds a result, and more, some levels down
_RESULT_KEYS = {"cniVersion", "ip4", "ip6", "ips", "interfaces"}  # 0.1.0 has no cniVersion in its results

Identity = tuple[str, str, str]
"""(network, container ID, interface name)."""


@dataclass(frozen=True)
class Record:
    """One attachment as it stands on disk.

    Attributes:
        network, container_id, ifname: its identity; all "" where the file says none (corrupt or legacy).
        state: ``pending`` (its ADD has not ended), ``ready``, ``stale-boot`` (made before the last reboot), ``corrupt``
            (cannot be read; ``problem`` says why), ``legacy`` (a bare result, as Go libcni wrote before 0.8).
        netns: as given to ADD. netns_id: its (device, inode) then, or None.
        config: the network configuration document, byte for byte.
        version: the spec version that was used; "" where the record was made by Go.
        plugins: the text of each plugin configuration that was used, drop-ins included; () where made by Go.
        args: CNI_ARGS. capability_args, network_args: JSON objects as text, or "".
        result: the result of the ADD as text, or None.
        created: seconds since 1970, or None.
        boot: the boot identity when it was made, or "".
        path: the file.
        problem: why it is corrupt.
    """

    network: str = ""
    container_id: str = ""
    ifname: str = ""
    state: str = READY
    netns: str = ""
    netns_id: tuple[int, int] | None = None
    config: bytes = b""
    version: str = ""
    plugins: tuple[str, ...] = field(default_factory=tuple)
    args: tuple[tuple[str, str], ...] = ()
    capability_args: str = field(default_factory=str)
    network_args: str = field(default_factory=str)
    result: str | None = field(default_factory=lambda: None)
    created: float | None = None
    boot: str = ""
    path: str = ""
    problem: str = ""

    if not TYPE_CHECKING:

        def __getattr__(self, name):  # noqa: ANN001, ANN204 - not for type checkers: they know the fields
            """Find the texts in the file when one is wanted: to list ten thousand records, none is."""
            if name not in _LAZY or "_text" not in self.__dict__:
                raise AttributeError(name)
            self.__dict__.update(_texts(self.__dict__["_text"]))
            return self.__dict__[name]

    @property
    def identity(self) -> Identity:
        """(network, container ID, interface name)."""
        return self.network, self.container_id, self.ifname

    @property
    def capabilities(self) -> dict[str, Any]:
        """``capability_args``, decoded."""
        known: dict[str, Any] | None = self.__dict__.get("_capabilities")
        if known is None:
            known = jsontext.parse(self.capability_args) if self.capability_args else {}
        return known

    @property
    def complete(self) -> bool:
        """Whether the ADD ended well, in this boot or an earlier one."""
        return self.state == READY or (self.state == STALE_BOOT and self.result is not None)


@functools.cache
def boot_id() -> str:
    """Return what identifies this boot of the machine, or "" where the system does not say."""
    try:
        descriptor = os.open("/proc/sys/kernel/random/boot_id", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:  # not open(): it needs codecs, which are gone while the interpreter shuts down
        return os.read(descriptor, 100).decode().strip()
    finally:
        os.close(descriptor)


def encode(record: Record) -> bytes:
    """Return the file of a record: Go's keys in Go's order, then ours."""
    config = base64.b64encode(record.config).decode()
    parts = [
        f'{{"kind":"{_KIND}","containerId":{dumps(record.container_id)},"config":"{config}"',
        f'"ifName":{dumps(record.ifname)},"networkName":{dumps(record.network)}',
        *([f'"netns":{dumps(record.netns)}'] if record.netns else ()),
        *([f'"cniArgs":{dumps(record.args)}'] if record.args else ()),
        *([f'"capabilityArgs":{record.capability_args}'] if record.capability_args else ()),
        *([f'"result":{record.result}'] if record.result else ()),
        f'"libcni":{{"state":"{record.state}","created":{dumps(record.created)},"bootId":{dumps(record.boot)}',
        f'"netnsId":{dumps(record.netns_id)},"cniVersion":{dumps(record.version)}',
        f'"plugins":{jsontext.join_array(list(record.plugins))},"networkArgs":{record.network_args or "null"}}}}}',
    ]
    return ",".join(parts).encode()


def decode(data: bytes, path: str) -> Record:
    """Return the record in a file's bytes; one that cannot be read comes back in state corrupt, never as an error."""
    try:
        return _decode(data, path)
    except (
        JSONTextError,
        InvalidIdentifierError,
        KeyError,
        TypeError,
        ValueError,
        ArithmeticError,
        RecursionError,
    ) as error:
        problem = "it is empty" if not data.strip(b"\0 \n") else f"it is not a record: {shorten(str(error), 300)}"
        return Record(state=CORRUPT, path=path, problem=problem)


def _decode(data: bytes, path: str) -> Record:
    # what is found later must not depend on how deep the program's stack is then
    text = jsontext.check_nesting(jsontext.decode(data), jsontext.MAX_DEPTH + _DEEPER)
    value = jsontext.parse(text)
    if not isinstance(value, dict):
        raise TypeError("it is not an object")
    kind = value.get("kind")
    if kind is None and value.keys() & _RESULT_KEYS:
        return Record(state=LEGACY, path=path, result=data.decode())
    if kind != _KIND:
        raise ValueError(f"its kind is {kind!r}, not {_KIND!r}")
    own = value.get("libcni", {})
    if not isinstance(own, dict):
        raise TypeError("libcni is not an object")
    _check_object(value, "capabilityArgs")
    return _unread(
        text,
        value.get("capabilityArgs") or {},
        network=check_network_name(value["networkName"]),
        container_id=check_container_id(value["containerId"]),
        ifname=check_ifname(value["ifName"]),
        netns=_environment_text(_text(value.get("netns") or "")),
        config=base64.b64decode(_text(value.get("config") or "")),
        args=tuple([(_text(key), _text(text)) for key, text in value.get("cniArgs") or ()]),
        path=path,
        **(_own_fields(own) if own else {}),
    )


def _unread(text: str, capabilities: dict[str, Any], **fields: Any) -> Record:
    """Return a record whose texts are looked for in ``text`` when one of them is wanted."""
    record = object.__new__(Record)
    record.__dict__.update(_DEFAULTS)
    record.__dict__.update(fields)
    record.__dict__.update(_text=text, _capabilities=capabilities)
    return record


def _texts(text: str) -> dict[str, Any]:
    """Return the fields of a record that are texts of its file, found in it as they stand."""
    found = {member.key: member for member in jsontext.members(text)}
    own = {member.key: member for member in jsontext.members(found["libcni"].text)} if "libcni" in found else {}
    result = found.get("result")
    return {
        "capability_args": _object_text(found.get("capabilityArgs")),
        "result": result.text if result is not None and result.value is not None else None,
        "plugins": tuple(element.text for element in jsontext.elements(own["plugins"].text)) if own else (),
        "network_args": _object_text(own.get("networkArgs")),
    }


def _object_text(member: jsontext.Member | None) -> str:
    """Return the text of an object, or "" where there is none or an empty one."""
    return member.text if member is not None and member.value else ""


_LAZY = _texts("{}")
_DEFAULTS = {name: value for name, value in vars(Record()).items() if name not in _LAZY}


def _own_fields(own: dict[str, Any]) -> dict[str, Any]:
    """Return what Go does not have."""
    boot = _text(own["bootId"])
    created = own["created"]
    state = _text(own["state"])
    if state not in {PENDING, READY}:
        raise ValueError(f"its state is {state!r}")
    if not isinstance(own["plugins"], list):
        raise TypeError("its plugins are not an array")
    _check_object(own, "networkArgs")
    return {
        "state": STALE_BOOT if boot and boot_id() and boot != boot_id() else state,
        "netns_id": _netns_id(own["netnsId"]),
        "version": _text(own["cniVersion"]),
        "created": None if created is None else float(_number(created)),
        "boot": boot,
    }


def _netns_id(value: Any) -> tuple[int, int] | None:
    if value is None:
        return None
    device, inode = value
    return int(_number(device)), int(_number(inode))


def _number(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"a number was expected, not {type(value).__name__}")
    return value


def _check_object(value: dict[str, Any], key: str) -> None:
    if value.get(key) and not isinstance(value[key], dict):
        raise TypeError(f"{key} is not an object")


def _environment_text(text: str) -> str:
    if "\0" in text:
        raise ValueError("a NUL in it")
    os.fsencode(text)
    return text


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a string was expected, not {type(value).__name__}")
    return value
