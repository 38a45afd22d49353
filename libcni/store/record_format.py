"""The format of a record on disk: Go libcni's file (kind ``cniCacheV1``) that grows by one member for each event.

The head is written once. It has Go's keys, then the key ``libcni`` with values that Go does not record. Each event
replaces the closing brace by one more member, ``libcni.1``, ``libcni.2`` and so on, and the brace. Go's own key
``result`` follows the event of a plugin that printed another result than the one before: Go's DEL sends it to the
plugins, also after an ADD that was killed. An earlier result keeps its place under another key, such as ``r00002``. No
key occurs twice, and Go ignores the keys that it does not know.

A member that is cut off, damaged or zero at the end is ignored: no event is synced, and a kill or a full disk may stop
a write.
"""

from __future__ import annotations

import base64
import math
import os
import re
from collections.abc import Collection, Iterator, Mapping
from itertools import takewhile
from typing import Any, Final, NamedTuple, cast

import libcni.kernel.system as system
from libcni.config import jsontext
from libcni.config.identifiers import validate_container_id, validate_interface_name, validate_network_name
from libcni.config.jsontext import JSONTextError, Member, dumps, quote
from libcni.errors import ConfigError, short_repr, shorten
from libcni.protocol.result import MAX_RESULT_BYTES
from libcni.store.boot import boot_id
from libcni.store.files import MAX_RECORD_BYTES
from libcni.store.locks import offset_of
from libcni.store.model import (
    BEGUN,
    PENDING,
    READY,
    REFUSED,
    STALE_BOOT,
    STATES,
    Event,
    Identity,
    MadeByGo,
    Ours,
    Record,
    Stamp,
    State,
    Texts,
    unreadable,
)
from libcni.store.place import UNKNOWN, Interface, Known, NoInterface

_KIND = "cniCacheV1"
MOST_EVENTS: Final = 1000
_EVENT_KEYS = tuple(f"libcni.{number}" for number in range(1, MOST_EVENTS + 1))
MAX_RECORD_ELEMENTS: Final = 1_000_000
"""The number of elements that the lists and objects of a record may have together."""
_ROOM_BYTES = 4 * MAX_RESULT_BYTES  # for a result: escapes for ASCII make it up to three times as long
_ROOM_ELEMENTS = MAX_RECORD_ELEMENTS // 2

Members = dict[str, Any]

_ADDRESS = re.compile(rb'"address"\s*:\s*"([^"/\\]*)')
_OLD_ADDRESS = re.compile(rb'"ip"\s*:\s*"([^"/\\]*)')
_NETNS = re.compile(rb'"netnsId"\s*:\s*\[[^,\]"]*,\s*(\d+)')
_PUBLISHED = re.compile(rb'"hostport"\s*:\s*([^\s,}]+)')
_OWN_HEAD = re.compile(
    rb',"libcni":\{"created":[^,]+,"uptime":[^,]+,"bootId":"[^"]*","netnsId":(?:null|\[\d+,(\d+)\]),'
)
_OWN_KEY = b',"libcni":{'
_MOST_WORDS = 10_000
"""The largest number of words for which an index is quicker than decoding the file."""

_COPIED: Final = "state"
"""The key with the state, in an event that copies an earlier record into a new file."""
_IS_PARTIAL: Final = "partial"
"""The key, in such an event, that says that the result is a plugin's result and not the ADD's."""
_RESULT_KEY = re.compile(r"r[0-9esult]{5}\Z")
"""``result``, or the key of an earlier result. A half written key, such as ``r00ult``, sorts behind all others."""


def weight(text: str) -> int:
    """Return an upper bound of the number of elements in a JSON text. Commas in strings count, too."""
    return text.count(",") + text.count("[") + text.count("{")


def encode(record: Record, event: str = "") -> bytes:
    """Return the bytes of a new file: the head, and ``event`` if it is not ""."""
    if not event and record.state == BEGUN:
        return f"{_head(record)}}}".encode()
    partial = f',"{_IS_PARTIAL}":true' if record.result is None and record.partial is not None else ""
    text = _event(event or "copy", f',"{_COPIED}":"{record.state}"{partial}', record.interface)
    return f'{_head(record)},"{_EVENT_KEYS[0]}":{text}{_result(record.last_result)}}}'.encode()


def encode_event(serial: int, event: Event, values: Mapping[str, Any]) -> bytes:
    """Return the bytes that replace the closing brace of a record's file to add an event.

    Args:
        serial: how many events the file has.
        event: the event.
        values: the index of the ``plugin`` that has ended, the ``interface``, and the ``result`` of the plugin or of
            the ADD if it differs from the previous one.
    """
    plugin = f',"plugin":{values["plugin"]}' if values.get("plugin") is not None else ""
    text = _event(event, plugin, values.get("interface"))
    # If the result is cut off, the ADD is not complete, even if its event is whole.
    return f',"{_EVENT_KEYS[serial]}":{text}{_result(values.get("result"))}}}'.encode()


def index_of_result(result: str | None, end: int) -> int:
    """Return the index of the last key ``result`` before ``end``; 0 if there is none."""
    return end - len(_result(result).encode()) + len(',"') if result is not None else 0


def earlier_result(serial: int) -> bytes:
    """Return the key of an earlier result. It is as long as the key ``result``, which it replaces in the file."""
    return b"r%05d" % serial


def _event(event: str, extra: str, interface: Interface | None) -> str:
    """Return an event as text, without a JSON encoder: each plugin of an ADD writes an event."""
    interface_text = ""
    if isinstance(interface, Known):
        interface_text = f',"interface":{{"number":{interface.number},"mac":{quote(interface.mac)}}}'
    elif interface is not None:
        interface_text = f',"interface":"{interface.value}"'
    return f'{{"event":{quote(event)},"at":{system.time():.3f}{extra}{interface_text}}}'


def _result(text: str | None) -> str:
    return f',"result":{text}' if text is not None else ""


def _head(record: Record) -> str:
    """Return Go's keys in Go's order, then this library's key, without the closing brace.

    This library's key is the last: it shows a reader that the head is whole.
    """
    config = base64.b64encode(record.config).decode()
    parts = [
        f'"kind":"{_KIND}","containerId":{quote(record.container_id)},"config":"{config}"',
        f'"ifName":{quote(record.ifname)},"networkName":{quote(record.network)}',
        *([f'"netns":{quote(record.netns)}'] if record.netns else ()),
        *([f'"cniArgs":{dumps(record.args)}'] if record.args else ()),
        *([f'"capabilityArgs":{record.capability_args}'] if record.capability_args else ()),
    ]
    if isinstance(record, MadeByGo):
        return f'{{{",".join(parts)},"libcni":{dumps({"owner": record.owner} if record.owner else {})}'
    own = {
        "created": record.created,
        "uptime": record.uptime,
        "bootId": record.boot,
        "netnsId": record.netns_id,
        "netnsCookie": record.netns_cookie,
        "pidNamespace": record.pid_namespace,
        "cniVersion": record.version,
        "owner": record.owner,
        **({"ownNetns": True} if record.is_own_netns else {}),
        **({"seal": _seal(record.identity)} if record.is_original else {}),
    }
    texts = f'"plugins":[{",".join(record.plugins)}],"networkArgs":{record.network_args or "null"}'
    return f'{{{",".join(parts)},"libcni":{{{dumps(own)[1:-1]},{texts}}}'


def _seal(identity: Identity) -> int:
    """Return a check number of the record's names: it shows a copy in which somebody has edited the names."""
    return offset_of("/".join(identity))


def check_readable(record: Ours) -> None:
    """Check that the file of a record's ADD cannot become too large to read back.

    Raises:
        ConfigError: the file would be too large with the largest result that a plugin may print.
    """
    text = "".join((record.capability_args, record.network_args, dumps(record.args), *record.plugins))
    size = len(record.config) * 4 // 3 + len(text.encode(errors="surrogatepass"))
    if size > MAX_RECORD_BYTES - _ROOM_BYTES:
        problem = f"the record of this ADD could not be read back: it would have more than {MAX_RECORD_BYTES:,} bytes"
        raise ConfigError(problem, hint="use a smaller configuration, or smaller arguments")
    if weight(text) > _ROOM_ELEMENTS:
        problem = f"the record of this ADD could not be read back: it would have more than {_ROOM_ELEMENTS:,} elements"
        raise ConfigError(problem, hint="use a smaller configuration, or smaller arguments")


def decode(data: bytes, path: str, stamp: Stamp | None = None) -> Record:
    """Return the record in a file's bytes; Unreadable if they are not a record. Never raises."""
    try:
        members, text, end = _whole_members(data)
        file = {"path": path, "stamp": stamp, "end": end, "source": _Source(text, _object(members, "capabilityArgs"))}
        own = members.get("libcni", {})
        if not isinstance(own, dict):
            raise TypeError("libcni is not an object")
        if "bootId" in own:
            return Ours.of({**file, **_go_fields(members), **_own_fields(members, own)})
        return MadeByGo.of({**file, **_go_fields(members), **_fields_of_go_alone(members, own)})
    except (KeyError, TypeError, ValueError, ArithmeticError, RecursionError, MemoryError) as error:
        problem = f"it is not a record: {shorten(str(error), 300)}"
        if not data.strip(b"\0 \n"):
            problem = "it contains only NUL bytes, as after a power cut" if b"\0" in data else "it is empty"
        return unreadable(path, problem)


def _whole_members(data: bytes) -> tuple[Members, str, int]:
    """Return the whole members of a file, decoded and as text, and the offset of the end of the last member."""
    try:
        text = _checked(jsontext.decode_utf8(data))
        members, end = jsontext.parse(text), data.rfind(b"}")
    except JSONTextError:
        # The last character may be cut off too. The surrogates for its bytes are not in the whole part.
        text, end = jsontext.whole_part(_checked(data.decode(errors="surrogateescape")))
        members, end = jsontext.parse(text), len(text[:end].encode())
        # Events follow only a whole head. A file without a whole head is damaged, or not a record.
        if not members.keys() & {"libcni", "result"}:
            raise
    if not isinstance(members, dict):
        raise TypeError("it is not an object")
    return members, text, end


def _checked(text: str) -> str:
    # A plugin's configuration and a result are nested two or three levels deeper here than in their own documents.
    return jsontext.check_size(text, MAX_RECORD_ELEMENTS + MOST_EVENTS, jsontext.MAX_DEPTH + 10)


def _go_fields(members: Members) -> dict[str, Any]:
    """Return the fields under Go's keys, which all records have."""
    kind = members.get("kind")
    if kind != _KIND:
        raise ValueError(f"its kind is {kind!r}, not {_KIND!r}")
    return {
        # Check these names again: they become parts of paths and variables, and any program may have written the file.
        "network": validate_network_name(members["networkName"]),
        "container_id": validate_container_id(members["containerId"]),
        "ifname": validate_interface_name(members["ifName"]),
        "netns": _environment_text(_text(members.get("netns") or "")),
        "config": base64.b64decode(_text(members.get("config") or "")),
        "args": tuple([(_text(key), _text(text)) for key, text in members.get("cniArgs") or ()]),
    }


def _fields_of_go_alone(members: Members, own: Members) -> dict[str, Any]:
    """Return the other fields of a record that Go wrote. ``own`` may have an owner, who has taken it over."""
    is_complete = _is_complete(members)
    netns = {} if members.get("netns") else {"netns": _sandbox(members.get("result"), members["ifName"])}
    events = _events(members, READY if is_complete else PENDING)
    return {"owner": _text(own.get("owner") or ""), **netns, **events}


class _Source(NamedTuple):
    """The text of a record's file, and its capability arguments."""

    text: str
    capability_args: Mapping[str, Any]

    def texts(self) -> Texts:
        """Return the texts of the record's fields."""
        members = jsontext.last_members(self.text)
        own = jsontext.last_members(members["libcni"].text) if "libcni" in members else {}
        is_complete = _is_complete({key: member.value for key, member in members.items()})
        return {
            "plugins": tuple(jsontext.elements(own["plugins"].text)) if "plugins" in own else (),
            "capability_args": _object_text(members, "capabilityArgs"),
            "network_args": _object_text(own, "networkArgs"),
            "result": members["result"].text if is_complete else None,
            "partial": None if is_complete else _last_result(members),
        }


def _last_result(members: Mapping[str, Member]) -> str | None:
    """Return the text of the result of the last plugin that ended, or None."""
    # Between the change of the key and the next event, the last result is the last earlier one.
    if name := max(filter(_RESULT_KEY.match, members), default=""):
        return members[name].text if members[name].value is not None else None
    # Versions before 1.0.0rc2 wrote it into the event.
    events = [members[key] for key in _keys_of_events(members)]
    texts = [event.text for event in events if "result" in event.value]
    return jsontext.last_members(texts[-1])["result"].text if texts else None


def _keys_of_events(members: Collection[str]) -> Iterator[str]:
    return takewhile(members.__contains__, _EVENT_KEYS)


def _is_complete(members: Members) -> bool:
    """Return whether the key ``result`` is the ADD's result, not that of one of its plugins."""
    is_partial = False
    for key in _keys_of_events(members):
        event = members[key]["event"]
        is_partial = event == "step" or (event != "complete" and (is_partial or _IS_PARTIAL in members[key]))
    return members.get("result") is not None and not is_partial


def _events(members: Members, state: State) -> dict[str, Any]:
    """Return the fields of a record after its events; ``state``: its state before them."""
    is_complete = _is_complete(members)
    facts: dict[str, Any] = {"interface": UNKNOWN}
    serial = 0
    for key in _keys_of_events(members):
        content = members[key]
        event = _text(content["event"])
        if _COPIED in content:
            state = _state(content[_COPIED])
            facts["is_reload"] = event == "reload"
        # If the event is whole but the result after it is cut off, the interface in the event is still used.
        elif event != "complete" or is_complete:
            state = STATES[state].after[cast("Event", event)]
        if "interface" in content:
            facts["interface"] = content["interface"]
        serial += 1
    if facts["interface"] is not UNKNOWN:
        facts["interface"] = _interface(facts["interface"])
    if state == BEGUN and members.get("result") is not None:
        # An event is damaged: plugins have run. In state BEGUN a DEL would run none and report success.
        state = PENDING
    return {**facts, "serial": serial, "state": PENDING if state == READY and not is_complete else state}


class Gist(NamedTuple):
    """The addresses, namespaces and ports that a record's file may hold, found 20 times faster than by ``decode``.

    Attributes:
        stamp: the file's Stamp; None if a further change may keep it.
        words: the addresses, the inodes of namespaces and the ports of the host that the file may record, the ports
            each after a ``#``; None if only ``decode`` finds them. Other texts that have the same keys, such as a
            plugin's configuration, are mentioned too.
    """

    stamp: Stamp | None
    words: tuple[bytes, ...] | None


def gist_of(data: bytes, stamp: Stamp | None) -> Gist:
    """Return the Gist of a file's bytes."""
    # Only these escape sequences can stand for a character of an address, of a key or of a number.
    if b"\\" in data and b"\\u00" in data:
        return Gist(stamp, None)
    # In a file of this library the results follow the key ``libcni``, and the capability arguments precede it.
    own = _OWN_HEAD.search(data)
    if own is not None and data.find(_OWN_KEY, own.end()) >= 0:  # the first one may be in a capability argument
        own = None
    start, end = own.span() if own is not None else (len(data), 0)
    words = _ADDRESS.findall(data, end)
    if data.find(b'"ip"', end) >= 0:  # results before 0.3.0
        words += _OLD_ADDRESS.findall(data, end)
    words += filter(None, own.groups()) if own is not None else _NETNS.findall(data)
    at = data.find(b'"capabilityArgs"', 0, start)
    if at >= 0:
        # Go accepts the key of a port in capital and small letters.
        for port in _PUBLISHED.findall(data[at:start].lower()):
            if not port.isdigit():  # another form of a number, such as 808e1
                return Gist(stamp, None)
            words.append(b"#" + port)
    return Gist(stamp, tuple(dict.fromkeys(words)) if len(words) <= _MOST_WORDS else None)


def events_of(data: bytes) -> Iterator[tuple[float, str, int | None]]:
    """Return the events in a record's file: seconds since 1970, the event, and the index of the plugin that ended.

    The file must be one that ``decode`` accepts. Raises KeyError, TypeError or ValueError if an event is damaged.
    """
    members = _whole_members(data)[0]
    for key in _keys_of_events(members):
        content = members[key]
        yield float(_number(content["at"])), _text(content["event"]), content.get("plugin")


def _own_fields(members: Members, own: Members) -> dict[str, Any]:
    """Return the other fields of a record of this library; ``own`` is its member ``libcni``."""
    created, uptime, pid_namespace, cookie = own["created"], own["uptime"], own["pidNamespace"], own["netnsCookie"]
    if not isinstance(own["plugins"], list):
        raise TypeError("plugins is not an array")
    _object(own, "networkArgs")
    boot = _text(own["bootId"])
    events = _events(members, BEGUN)
    if boot and boot_id() and boot != boot_id():
        events["state"] = REFUSED if events["state"] == REFUSED else STALE_BOOT
    elif events["state"] == BEGUN and not boot:
        # Without a boot ID a power cut looks like a kill, and events that were not synced may be lost.
        events["state"] = PENDING
    return {
        "netns_id": _netns_id(own["netnsId"]),
        "netns_cookie": None if cookie is None else _natural(cookie),
        "version": _text(own["cniVersion"]),
        "created": None if created is None else float(_number(created)),
        "uptime": None if uptime is None else float(_number(uptime)),
        "boot": boot,
        "pid_namespace": None if pid_namespace is None else _natural(pid_namespace),
        "owner": _text(own["owner"]),
        "is_own_netns": own.get("ownNetns") is True,
        "is_original": own.get("seal") == _seal((members["networkName"], members["containerId"], members["ifName"])),
        **events,
    }


def _sandbox(result: Any, ifname: str) -> str:
    """Return the namespace's path in a result that Go 1.1 recorded, which stores it nowhere else; "" if none."""
    interfaces = result.get("interfaces") if isinstance(result, dict) else None
    if not isinstance(interfaces, list):
        return ""
    sandboxes: dict[str, str] = {}
    for interface in interfaces:
        if isinstance(interface, dict) and interface.get("sandbox"):
            sandboxes[_environment_text(_text(interface["sandbox"]))] = _text(interface.get("name"))
    named = [path for path, name in sandboxes.items() if name == ifname] or list(sandboxes)
    return named[0] if len(named) == 1 else ""


def _object(members: Members, key: str) -> Mapping[str, Any]:
    value = members.get(key) or {}
    if not isinstance(value, dict):
        raise TypeError(f"{key} is not an object")
    return value


def _object_text(members: Mapping[str, Member], key: str) -> str:
    """Return the text of an object, or "" if it is missing or empty."""
    return members[key].text if key in members and members[key].value else ""


def _interface(value: Any) -> Interface:
    if isinstance(value, dict):
        return Known(_natural(value["number"]), _text(value["mac"]))
    return NoInterface(value)


def _state(value: Any) -> State:
    if value not in STATES:
        raise ValueError(f"its state is {value!r}")
    return cast("State", value)


def _netns_id(value: Any) -> tuple[int, int] | None:
    if value is None:
        return None
    device, inode = value
    return _natural(device), _natural(inode)


def _natural(value: Any) -> int:
    """Return a number that the kernel may have given to an object. No call of the kernel accepts another one."""
    number = int(_number(value))
    if not 0 <= number < 1 << 64:
        raise ValueError(f"the number {short_repr(value)} is out of range")
    return number


def _number(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{short_repr(value)} is not a number")
    if value in {math.inf, -math.inf}:  # Python decodes 1e999 as infinity, which JSON cannot express
        raise ValueError(f"the number {value} is too large")
    return value


def _environment_text(text: str) -> str:
    if "\0" in text:
        raise ValueError(f"the namespace's path {short_repr(text)} has a NUL")
    os.fsencode(text)
    return text


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{short_repr(value)} is not a string")
    return value
