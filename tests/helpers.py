"""What the tests of the core share: documents, and a node without processes or disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

from libcni.client import CNIConfig
from libcni.config.network import NetworkConfigList
from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import CNIError, PluginNotFoundError
from libcni.executor.interface import CallOptions
from libcni.executor.process import ProcessExecutor, run_to_end
from libcni.observe.observer import Operation
from libcni.protocol.invocation import Invocation, Outcome
from libcni.store.journal import Journal
from libcni.store.locks import LockSet
from libcni.store.model import READY, Event, Identity, MadeByGo, Record
from libcni.store.place import ABSENT, Known, Place, is_other_mac
from libcni.store.present_interfaces import Sight
from libcni.store.record_index import RecordIndex, View
from libcni.store.records import RecordStore
from libcni.verbs.add import add
from libcni.verbs.verb_run import VerbRun

RESULT = {"cniVersion": "1.0.0", "ips": [{"address": "192.0.2.77/24"}]}
RT = RuntimeConf("c1", "/run/netns/blue", "eth0")


def document(*plugins: str | dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a configuration list as decoded JSON: plugins by type or whole."""
    wanted = [{"type": one} if isinstance(one, str) else one for one in plugins or ("a",)]
    return {"cniVersion": "1.0.0", "name": "net", **more, "plugins": wanted}


def network(*plugins: str | dict[str, Any], **more: Any) -> NetworkConfigList:
    """Return a configuration list, ready to use."""
    return NetworkConfigList.from_dict(document(*plugins, **more))


def printed(**more: Any) -> Outcome:
    """Return the outcome of a plugin that printed a result."""
    return Outcome(stdout=json.dumps({**RESULT, **more}).encode())


def a_call(verb: str = "ADD", plugin: str = "", **fields: Any) -> Invocation:
    """Return the call of a plugin, for an error."""
    return Invocation(verb, plugin, fields.pop("path", ""), b"", {}, **fields)


def failed(code: int = 7, msg: str = "no", stderr: str = "") -> Outcome:
    """Return the outcome of a plugin that printed an error document."""
    return Outcome(1, json.dumps({"code": code, "msg": msg}).encode(), stderr.encode())


class RecordingRun(VerbRun):
    """A VerbRun without processes, disk and clock. ``log`` has one line for each thing that a verb does.

    ``answers``: what plugins do, by (verb, type), or an error of one of the node's own operations, by the first word
    of its line in the log. Every other plugin succeeds. ``namespaces``: the identities at namespaces' paths.
    ``cookies``: the kernel's numbers of these namespaces. ``macs``: the hardware addresses of ``interfaces``.
    ``recorded``: the records on "disk". ``carriers``: the interfaces that have an address now.
    ``held``: a path of a namespace to which no recorded path leads.
    """

    def __init__(
        self,
        answers: Mapping[Any, Outcome | CNIError] | None = None,
        *,
        records: Iterable[Record] = (),
        missing: Iterable[str] = (),
        namespaces: Mapping[str, tuple[int, int]] | None = None,
        interfaces: Iterable[tuple[str, str]] | Mapping[tuple[str, str], int] = (),
        cookies: Mapping[str, int] | None = None,
        macs: Mapping[tuple[str, str], str] | None = None,
        own_netns: str = "",
        not_namespaces: Iterable[str] = (),
        owner: str = "",
        path: Sequence[str] = ("/opt/cni/bin", "/usr/lib/cni"),
        configured: Iterable[NetworkConfigList] = (),
    ) -> None:
        self.log: list[str] = []
        self.answers = dict(answers or {})
        self.recorded = {record.identity: record for record in records}
        client, store = CNIConfig(path, owner=owner, env={}, durable=False)._state, _Records(self)
        settings = replace(client.settings, cache_dir="", conf_dir="", start_ahead="never")
        one_by_one = partial(CNIConfig._side_by_side, 1)
        state = replace(client, settings=settings, records=store, side_by_side=one_by_one)
        super().__init__(state, ProcessExecutor(), None, Operation("ADD"))
        self.sight = _Sight(self)
        self.missing = set(missing)
        self.namespaces = dict(namespaces or {})
        self.cookies = dict(cookies or {})
        self.macs = dict(macs or {})
        self.interfaces = dict(interfaces) if isinstance(interfaces, Mapping) else dict.fromkeys(interfaces, 2)
        self.own_netns = own_netns
        self.not_namespaces = set(not_namespaces)
        self.networks = {net.name: net for net in configured}
        self.calls: list[Invocation] = []
        self.looks = 0
        self.carriers: dict[str, str] = {}
        self.held = ""

    def run(self, verb: Callable[..., Coroutine[Any, Any, Any]], *args: Any, **options: Any) -> Any:
        """Run a verb to its end; return its value or raise its error."""
        return run_to_end(verb(self, *args, **options))

    def stdin(self, verb: str, plugin: str) -> dict[str, Any]:
        """Return what the last call of a plugin with a verb received, decoded."""
        found = [call for call in self.calls if (call.verb, call.plugin) == (verb, plugin)]
        decoded: dict[str, Any] = json.loads(found[-1].stdin)
        return decoded

    def verbs(self) -> list[str]:
        """Return the plugin calls, such as ``ADD a``."""
        return [f"{call.verb} {call.plugin}" for call in self.calls]

    def note(self, line: str) -> None:
        """Write a line to the log; raise the error that is the answer to it, if there is one."""
        self.log.append(line)
        error = self.answers.get(line.split(maxsplit=1)[0])
        if isinstance(error, CNIError):
            raise error

    async def run_plugin(self, invocation: Invocation, options: CallOptions) -> Outcome:
        self.calls.append(invocation)
        self.log.append(f"{invocation.verb} {invocation.plugin}")
        canned = self.answers.get((invocation.verb, invocation.plugin))
        if isinstance(canned, CNIError):
            raise canned
        return canned or (printed() if invocation.verb == "ADD" else Outcome())

    def find(self, plugin: str) -> str:
        if plugin in self.missing:
            raise PluginNotFoundError(plugin, self.settings.path)
        return f"{self.settings.path[0]}/{plugin}"

    def find_all(self, net: NetworkConfigList, *, skip_missing: bool = False) -> tuple[str, ...]:
        self.log.append(f"find {' '.join(plugin.type for plugin in net.plugins)}")
        return super().find_all(net, skip_missing=skip_missing)

    async def wait_for_turn(self) -> None:
        return

    def part(self, operation: Operation) -> RecordingRun:
        return copy(self)

    async def lock(
        self, networks: Sequence[str], container_id: str = "", *, exclusive: bool = False, seconds: float = 0.0
    ) -> None:
        self.note(f"lock {'exclusive ' if exclusive else ''}{' '.join([*networks, container_id]).strip()}")

    async def lock_host_ports(self, numbers: Iterable[object]) -> LockSet:
        self.note(f"lock ports {' '.join(sorted(map(str, numbers)))}")
        return mock.create_autospec(LockSet, instance=True)  # type: ignore[no-any-return]

    async def lock_container(self, container_id: str, seconds: float) -> None:
        self.note(f"lock-container {container_id}")

    def start_cleanup(self) -> None:
        self.note("start-cleanup")

    def configured(self, network: str) -> NetworkConfigList | None:
        return self.networks.get(network)

    async def begin(self, record: Record, changed: Record | None, event: str = "", *, take_back: bool) -> Journal:
        if event != "reload":  # there is no clock
            record = record.with_fields(created=None, uptime=None, boot="", pid_namespace=None)
        return self.records.begin(record, event)


class _Sight(Sight):
    """The namespaces of a RecordingRun."""

    def __init__(self, node: RecordingRun) -> None:
        super().__init__(node.others)
        self._world = node

    def is_own_namespace(self, netns: str) -> bool:
        return netns == self._world.own_netns

    def is_no_namespace(self, netns: str) -> bool:
        return netns in self._world.not_namespaces

    def is_other_file(self, netns: str) -> bool:
        return netns in self._world.not_namespaces

    def namespace(self, netns: str) -> Place:
        return Place(self._world.namespaces.get(netns), self._world.cookies.get(netns, 0))

    def look(self, netns: str, ifname: str) -> Place:
        world, key = self._world, (netns, ifname)
        world.looks += 1
        there = self.namespace(netns)
        if there.netns is None:
            return there
        if key not in world.interfaces:
            return there.with_interface(ABSENT)
        return there.with_interface(Known(world.interfaces[key], world.macs.get(key, "")))

    def carrier(self, netns: str, addresses: Collection[str]) -> str:
        return next((self._world.carriers[one] for one in addresses if one in self._world.carriers), "")

    def reach(self, record: Record) -> str:
        path = self._world.held
        return path if (path and self.namespace(path).netns == record.netns_id) else ""

    def _is_held(self, record: Record) -> bool:
        return bool(self.reach(record))

    def _has_lost_host_end(self, _record: Record) -> bool:
        return False

    def remove(self, netns: str, recorded: Place) -> None:
        named = [key for key, one in self._world.interfaces.items() if (key[0], one) == (netns, recorded.number)]
        for key in named:
            del self._world.interfaces[key]

    def _candidates(self, netns: str, made: Place, *, everywhere: bool) -> Iterator[Place]:
        for (path, name), index in self._world.interfaces.items():
            mac = self._world.macs.get((path, name), "")
            if path != netns and everywhere and made.mac and made.mac == mac:
                yield replace(self.look(path, name), found_as=f"{name} in {path}")
            is_it = made.number == index if made.number else made.mac == mac
            if path == netns and is_it and not is_other_mac(made.mac, mac):
                yield replace(self.look(path, name), found_as=name)


class _Journal(Journal):
    """The journal of a record of a RecordingRun."""

    def __init__(self, node: RecordingRun, record: Record) -> None:
        super().__init__(record, -1, size=0)
        self._node = node

    def write(self, event: Event, **told: Any) -> None:
        self._node.note(f"{event} {self.record.network}")
        told.pop("plugin", None)
        self.record = self.record.after(event, **told)
        self._node.recorded[self.record.identity] = self.record

    def has_name(self) -> bool:
        return True


class _Index(RecordIndex):
    """An index in which each record may mention anything: only reading a record tells."""

    def __init__(self, node: RecordingRun) -> None:
        super().__init__("")
        self._world = node

    def is_quick(self) -> bool:
        return False

    def look(self) -> View:
        if isinstance(error := self._world.answers.get("list"), CNIError):
            raise error
        view = View("", (0, 0, 0))
        for identity in self._world.recorded:
            view._by_word.add([b""], "-".join(identity))
        return view


class _Records(RecordStore):
    """The records of a RecordingRun."""

    def __init__(self, node: RecordingRun) -> None:
        super().__init__("", durable=False)
        self._world = node
        self.index = _Index(node)

    def find(self, identity: Identity) -> Record | None:
        self._world.note("lookup")
        return self._world.recorded.get(identity)

    def iter_records(self, container_id: str | None = None) -> Iterator[Record]:
        self._world.note("list")
        yield from list(self._world.recorded.values())

    def candidates(self, *identities: Identity) -> list[Record]:
        self._world.note("siblings")
        return [record for one, record in self._world.recorded.items() if one in identities]

    def read(self, name: str) -> Record | None:
        return next(one for identity, one in self._world.recorded.items() if "-".join(identity) == name)

    def of_interface(self, container_id: str, ifname: str) -> list[Record]:
        self._world.note("siblings")
        wanted = (container_id, ifname)
        return [one for one in self._world.recorded.values() if (one.container_id, one.ifname) == wanted]

    def ensure_writable(self, record: Record) -> None:
        self._world.note(f"ensure-writable {record.network}")

    def begin(self, record: Record, event: str = "") -> Journal:
        self._world.note(f"{event or 'begin'} {record.network}")
        placed = replace(record, path="/cache/" + "-".join(record.identity))
        self._world.recorded[record.identity] = placed
        return _Journal(self._world, placed)

    def open(self, record: Record) -> Journal:
        return _Journal(self._world, record)

    def forget(self, record: Record) -> None:
        self._world.note(f"forget {record.network}")
        del self._world.recorded[record.identity]

    def set_aside(self, record: Record) -> str:
        self._world.note(f"set-aside {record.network}")
        del self._world.recorded[record.identity]
        return "/cache/corrupt/x"


def attached(net: NetworkConfigList | None = None, rt: RuntimeConf = RT, **more: Any) -> Record:
    """Return the record of an attachment as a RecordingRun's ADD leaves it, with ``more`` replaced in it.

    Without a version it is a record of Go's. Without a result, no plugin has printed one.
    """
    node = RecordingRun()
    used = net or network("a", "b")
    node.run(add, used, rt)
    identity: Identity = (used.name, rt.container_id, rt.ifname)
    record = node.recorded[identity]
    assert record.state == READY
    if "result" in more:
        more = {"partial": None, **more}
    record = replace(record, **more)
    return record if record.version else MadeByGo(**vars(record))
