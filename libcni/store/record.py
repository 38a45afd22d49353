"""An attachment record and its format on disk, which is Go libcni's (kind ``cniCacheV1``).

Fields that Go does not have are under an additional key, ``libcni``, which Go ignores.
"""

from __future__ import annotations

import base64
import functools
import math
import os
from dataclasses import dataclass, fields
from typing import Any, Final, Literal

import libcni._system as system
from libcni._namespace import namespace_identity
from libcni.config import jsontext
from libcni.config.identifiers import check_container_id, check_ifname, check_network_name
from libcni.config.jsontext import Values, dumps, quote
from libcni.errors import ConfigError, shorten
from libcni.protocol.result import MAX_RESULT_BYTES
from libcni.store.files import MAX_RECORD_BYTES, record_error
from libcni.store.place import NOT_OURS

PENDING: Final = "pending"
READY: Final = "ready"
DETACHING: Final = "detaching"
STALE_BOOT: Final = "stale-boot"
CORRUPT: Final = "corrupt"
LEGACY: Final = "legacy"

RecordState = Literal["pending", "ready", "detaching", "stale-boot", "corrupt", "legacy"]

_ON_DISK: Final = (PENDING, READY, DETACHING)
_KIND = "cniCacheV1"
DETACHING_MARK: Final = '{"libcni":{"detaching":'
"""The begin of a record's file. The byte after it is a 0; a 1 says that the state of a ready record is detaching."""
_ADDED_BYTES = 4 * MAX_RESULT_BYTES  # the room for a result: escapes for ASCII make it up to three times as long
# Results of 0.1.0 have no cniVersion.
_RESULT_KEYS = {"cniVersion", "ip4", "ip6", "ips", "interfaces"}

_SPLIT = frozenset({"libcni", "plugins"})
"""The keys whose parts are needed as text."""

Identity = tuple[str, str, str]
"""(network, container ID, interface name)."""


@dataclass(frozen=True)
class Record:
    """An attachment recorded on disk.

    Attributes:
        network, container_id, ifname: its identity; all "" in a corrupt or legacy record.
        state: ``pending`` (its ADD has not ended), ``ready``, ``detaching`` (a DEL has begun and not ended),
            ``stale-boot`` (made before the last reboot), ``corrupt`` (unreadable; ``problem`` tells why), ``legacy``
            (a bare result, from Go libcni before 0.8).
        netns: the namespace's path that ADD received. netns_id: its (device, inode) at that time, or None.
        config: the network configuration document, byte for byte.
        version: the spec version of the ADD; "" if Go made the record.
        plugins: the text of each plugin configuration of the ADD, drop-ins included; () if Go made the record.
        args: CNI_ARGS. capability_args, network_args: JSON objects as text, or "".
        result: the result of the ADD as text, or None.
        created: seconds since 1970, or None.
        uptime: seconds since the boot when it was made (CLOCK_BOOTTIME, which cannot be set), or None.
        boot: the boot ID when it was made, or "".
        pid_namespace: the inode of the PID namespace of the program that ran the ADD, or None.
        owner: the program that the attachment belongs to, "" for none.
        ifindex: the number of its interface in the namespace, 0 if it has none, or None if it is not recorded.
        mac: the hardware address of its interface, or "".
        netns_cookie: the kernel's number of the namespace, or None. Unlike inode numbers it is never used again.
        is_refused: whether the ADD was refused before it ran a plugin, because the interface existed.
        path: the file.
        problem: why it is corrupt, or "".
    """

    network: str = ""
    container_id: str = ""
    ifname: str = ""
    state: RecordState = READY
    netns: str = ""
    netns_id: tuple[int, int] | None = None
    config: bytes = b""
    version: str = ""
    plugins: tuple[str, ...] = ()
    args: tuple[tuple[str, str], ...] = ()
    capability_args: str = ""
    network_args: str = ""
    result: str | None = None
    created: float | None = None
    uptime: float | None = None
    boot: str = ""
    pid_namespace: int | None = None
    owner: str = ""
    ifindex: int | None = None
    mac: str = ""
    netns_cookie: int | None = None
    is_refused: bool = False
    path: str = ""
    problem: str = ""

    @property
    def identity(self) -> Identity:
        """(network, container ID, interface name)."""
        return self.network, self.container_id, self.ifname

    def with_fields(self, **changed: Any) -> Record:
        """Return the record with some fields changed, as ``dataclasses.replace`` does in ten times the time."""
        if not _FIELDS.issuperset(changed):
            raise TypeError(f"a record has no {', '.join(changed.keys() - _FIELDS)}")
        record = object.__new__(Record)
        record.__dict__.update(self.__dict__, **changed)
        return record


_FIELDS = frozenset(one.name for one in fields(Record))


@functools.cache  # it does not cache exceptions: after one EMFILE the next call must try again
def boot_id() -> str:
    """Return the identity of this boot of the machine, or "" if the system has none.

    Raises:
        RecordError: it cannot be read now. Then a record may be stale, so none can be called ready.
    """
    path = "/proc/sys/kernel/random/boot_id"
    try:
        # Not open(): it needs codecs, which do not exist any more while the interpreter shuts down.
        descriptor = system.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return system.read(descriptor, 100).decode().strip()
        finally:
            system.close(descriptor)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise record_error("the boot ID cannot be read", path, error) from error


def namespaces_of_processes() -> dict[tuple[int, int], str]:
    """Return the network namespaces of all processes in /proc, each as (device, inode) with one process's number."""
    numbers = [name for name in system.listdir("/proc") if name.isdigit()]
    found = {namespace_identity(f"/proc/{number}/ns/net"): number for number in numbers}
    return {identity: number for identity, number in found.items() if identity is not None}


def pid_namespace() -> int | None:
    """Return the inode of this process's PID namespace, or None if the system does not tell it."""
    try:
        return _inode_of_pid_namespace()
    except OSError:
        return None


@functools.cache  # a process stays in its PID namespace; a forked child may be in another one
def _inode_of_pid_namespace() -> int:
    return system.stat("/proc/self/ns/pid").st_ino


os.register_at_fork(after_in_child=_inode_of_pid_namespace.cache_clear)


def sees_same_processes(record: Record) -> bool:
    """Return whether this program sees in /proc what the program of the ADD saw; if that is unknown: True.

    In another PID namespace a container that runs has no process in /proc.
    """
    return record.pid_namespace in {None, pid_namespace()}


def encode(record: Record) -> bytes:
    """Return the bytes of a record's file: this library's key, then Go's keys in Go's order."""
    own: dict[str, Any] = {
        # What is stale is known from the boot.
        "state": READY if record.state == STALE_BOOT else record.state,
        "created": record.created,
        "uptime": record.uptime,
        "bootId": record.boot,
        "netnsId": record.netns_id,
        "pidNamespace": record.pid_namespace,
        "cniVersion": record.version,
        "owner": record.owner,
    }
    if record.ifindex is not None or record.netns_cookie is not None:
        own |= {"netnsCookie": record.netns_cookie, "ifindex": record.ifindex, "mac": record.mac}
    if record.is_refused:
        own["refused"] = True
    config = base64.b64encode(record.config).decode()
    parts = [
        f"{DETACHING_MARK}0,{dumps(own)[1:-1]}",
        f'"plugins":[{",".join(record.plugins)}],"networkArgs":{record.network_args or "null"}}}',
        f'"kind":"{_KIND}","containerId":{quote(record.container_id)},"config":"{config}"',
        f'"ifName":{quote(record.ifname)},"networkName":{quote(record.network)}',
        *([f'"netns":{quote(record.netns)}'] if record.netns else ()),
        *([f'"cniArgs":{dumps(record.args)}'] if record.args else ()),
        *([f'"capabilityArgs":{record.capability_args}'] if record.capability_args else ()),
        *([f'"result":{record.result}'] if record.result else ()),
    ]
    return f"{','.join(parts)}}}".encode()


def check_readable(record: Record) -> Record:
    """Return the record of an ADD that has not begun, after a check that its file will not be too large to read back.

    Raises:
        ConfigError: the file would be too large with the largest result that a plugin may print.
    """
    texts = "".join((record.capability_args, record.network_args, dumps(record.args), *record.plugins))
    size = len(record.config) * 4 // 3 + len(texts.encode(errors="surrogatepass"))
    if size > MAX_RECORD_BYTES - _ADDED_BYTES:
        problem = f"the record of this ADD could not be read back: it would have more than {MAX_RECORD_BYTES:,} bytes"
        raise ConfigError(problem, hint="use a smaller configuration, or smaller arguments")
    return record


def decode(data: bytes, path: str) -> Record:
    """Return the record in a file's bytes, in state corrupt if they are not a record. Never raises."""
    try:
        return _decode(data, path)
    except (KeyError, TypeError, ValueError, ArithmeticError, RecursionError, MemoryError) as error:
        problem = "it is empty" if not data.strip(b"\0 \n") else f"it is not a record: {shorten(str(error), 300)}"
        return Record(state=CORRUPT, path=path, problem=problem)


def _decode(data: bytes, path: str) -> Record:
    text = jsontext.decode_utf8(data)
    found = jsontext.values(text, _SPLIT)
    kind = _value(found, "kind")
    if kind is None and found.keys() & _RESULT_KEYS:
        return Record(state=LEGACY, path=path, result=text)
    if kind != _KIND:
        raise ValueError(f"its kind is {kind!r}, not {_KIND!r}")
    return Record(
        # These names become parts of paths and variables, and any program may have written the file: check them again.
        network=check_network_name(found["networkName"][0]),
        container_id=check_container_id(found["containerId"][0]),
        ifname=check_ifname(found["ifName"][0]),
        netns=_environment_text(_text(_value(found, "netns") or "")),
        config=base64.b64decode(_text(_value(found, "config") or "")),
        args=tuple([(_text(key), _text(text)) for key, text in _value(found, "cniArgs") or ()]),
        capability_args=_object_text(found, "capabilityArgs"),
        result=None if _value(found, "result") is None else found["result"][1],
        path=path,
        **(_own_fields(found["libcni"][0]) if "libcni" in found else {}),
    )


def _own_fields(own: Any) -> dict[str, Any]:
    """Return the fields under the key ``libcni``, which Go does not write."""
    if not isinstance(own, dict):
        raise TypeError("libcni is not an object")
    if not own:
        return {}
    boot = _text(own["bootId"][0])
    created, uptime = own["created"][0], _value(own, "uptime")
    state = _text(own["state"][0])
    if state not in _ON_DISK:
        raise ValueError(f"its state is {state!r}")
    pid_namespace, cookie = _value(own, "pidNamespace"), _value(own, "netnsCookie")
    if state == READY and _value(own, "detaching") == 1:
        state = DETACHING
    return {
        "state": STALE_BOOT if boot and boot_id() and boot != boot_id() else state,
        "netns_id": _netns_id(own["netnsId"][0]),
        "version": _text(own["cniVersion"][0]),
        "plugins": _plugins(own["plugins"][0]),
        "network_args": _object_text(own, "networkArgs"),
        "created": None if created is None else float(_number(created)),
        "uptime": None if uptime is None else float(_number(uptime)),
        "boot": boot,
        "pid_namespace": None if pid_namespace is None else int(_number(pid_namespace)),
        "owner": _text(_value(own, "owner") or ""),
        "ifindex": _ifindex(own, state),
        "mac": _text(_value(own, "mac") or ""),
        "netns_cookie": None if cookie is None else int(_number(cookie)),
        "is_refused": _value(own, "refused") is True,
    }


def _plugins(texts: Any) -> tuple[str, ...]:
    if not isinstance(texts, list):
        raise TypeError("plugins is not an array")
    return tuple(texts)


def _value(found: Values, key: str) -> Any:
    return found[key][0] if key in found else None


def _object_text(found: Values, key: str) -> str:
    """Return the text of an object, or "" if it is missing or empty."""
    value = _value(found, key)
    if not value:
        return ""
    if not isinstance(value, dict):
        raise TypeError(f"{key} is not an object")
    return found[key][1]


def _ifindex(own: Values, state: str) -> int | None:
    # 0.2.0 recorded the number of an interface that existed before the ADD.
    if _value(own, "shared") is True:
        return NOT_OURS if state == PENDING else None
    ifindex = _value(own, "ifindex")
    return None if ifindex is None else int(_number(ifindex))


def _netns_id(value: Any) -> tuple[int, int] | None:
    if value is None:
        return None
    device, inode = value
    return int(_number(device)), int(_number(inode))


def _number(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"a number was expected, not {type(value).__name__}")
    if value in {math.inf, -math.inf}:  # from 1e999; JSON cannot express it
        raise ValueError("a number is too large")
    return value


def _environment_text(text: str) -> str:
    if "\0" in text:
        raise ValueError("the namespace's path has a NUL")
    os.fsencode(text)
    return text


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a string was expected, not {type(value).__name__}")
    return value
