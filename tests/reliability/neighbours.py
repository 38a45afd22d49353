"""Two runtimes and a person on one machine, at random, and who made what: nobody loses what is theirs.

Every step names what its actor may change. All else is compared before and after: interfaces by number and MAC, their
addresses, host-local's reservations, and the records byte for byte.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from helpers import network
from nodes import Blocking, Namespace, RealNode
from processes import fork, kill_after

from libcni import Attachment, CNIError, DelPolicy, NetworkConfigList, RuntimeConf
from libcni.executor import CallOptions, ProcessExecutor
from libcni.executor.async_process import AsyncProcessExecutor
from libcni.protocol.invocation import Invocation, Outcome
from libcni.store.place import EnteredNamespace

_PR_SET_CHILD_SUBREAPER = 36
PERSON = ("a person", "")
INTERFACES = ["eth0", "net1"]

Pair = tuple[str, str]
Key = tuple[int, int, str]
"""An interface: the cookie of its namespace, its number, its MAC."""


@dataclass(frozen=True)
class Picture:
    """All that somebody could lose."""

    interfaces: dict[Key, str]
    reservations: dict[str, str]
    records: dict[str, bytes]
    namespaces: dict[str, int]

    def recorded(self) -> Iterator[tuple[int, str, str]]:
        """Return (namespace's cookie, interface, container) of each readable record whose ADD may have made it."""
        for data in self.records.values():
            with suppress(ValueError, KeyError):  # torn, or of an ADD that found no namespace
                record = json.loads(data)
                if record["libcni"].get("refused") is not True:
                    yield record["libcni"]["netnsCookie"], record["ifName"], record["containerId"]


@dataclass
class May:
    """What a step may change: attachments by (container, interface), records by name, the inside of a namespace.

    ``target``: the namespace that an ADD attaches to. ``namespaces``: the paths of those that it may remove.
    """

    pairs: set[Pair] = field(default_factory=set)
    records: set[str] = field(default_factory=set)
    person: int = 0
    target: int = 0
    namespaces: set[str] = field(default_factory=set)


Step = Callable[[Picture], May | None]


class Intruded(ProcessExecutor):
    """An executor after whose plugins a neighbour may come, as while a slow plugin runs."""

    def __init__(self, intrude: Callable[[], None]) -> None:
        super().__init__()
        self._intrude = intrude

    def execute(self, invocation: Invocation, options: CallOptions) -> Outcome:
        outcome = super().execute(invocation, options)
        if outcome.exit_status == 0:  # what appears while a plugin runs that fails is taken for its own
            self._intrude()
        return outcome


class AsyncIntruded(AsyncProcessExecutor):
    """The same on asyncio."""

    def __init__(self, intrude: Callable[[], None]) -> None:
        super().__init__()
        self._intrude = intrude

    async def execute(self, invocation: Invocation, options: CallOptions) -> Outcome:
        outcome = await super().execute(invocation, options)
        if outcome.exit_status == 0:
            self._intrude()
        return outcome


class SharedNode(RealNode):
    """A node with two networks, two runtimes and a person."""

    def __init__(self, root: Path, host: Namespace, seed: int) -> None:
        super().__init__(root, host)
        self.settings |= {"durable": False, "timeout": 30}
        self.chance = random.Random(seed)
        self.mark = uuid4().hex[:6]
        self.paths = [f"/run/netns/rand-{self.mark}-{number}" for number in range(4)]
        self.networks = [
            network(self.bridge("10.91.0.0/24", bridge="rand-1"), name="one"),
            network(self.bridge("10.92.0.0/24", bridge="rand-2"), "firewall", name="two"),
        ]
        self.makers: dict[Key, Pair] = {}
        self.orphan: May | None = None
        self.torn: dict[str, bytes] = {}
        self.counts: dict[str, int] = {}
        self.before = Picture({}, {}, {}, {})
        self.log: list[str] = []
        for path in self.paths:
            self._ip("netns", "add", Path(path).name)

    def close(self) -> None:
        for path in self.paths:
            subprocess.run(["ip", "netns", "del", Path(path).name], check=False, capture_output=True)

    def call(self, owner: str, verb: str, *args: Any, **options: Any) -> Any:
        """Run a verb, blocking or on asyncio, as it comes."""
        is_blocking = self.chance.random() < 0.5
        settings: dict[str, Any] = {"owner": owner}
        if verb.startswith(("add", "del", "gc")) and self.chance.random() < 0.6:
            kind = Intruded if is_blocking else AsyncIntruded
            settings |= {"executor": kind(self._intrude), "start_ahead": "never"}
        client = self.client(**settings) if is_blocking else Blocking(self.async_client(**settings))
        return getattr(client, verb)(*args, **options)

    def _intrude(self) -> None:
        """Let the person come while a verb runs: what they make must stay, and what they remove is not the verb's."""
        if self.chance.random() < 0.5:
            return
        self.counts["_intruded"] = self.counts.get("_intruded", 0) + 1
        earlier = self.picture()
        log = self.log[-1]
        work = self.chance.choice([self._person_link, self._person_link, self._person_namespace])
        work(earlier)
        self.log[-1] = f"{log} (and meanwhile: {work.__name__}{self.log[-1].removeprefix(log)})"
        later = self.picture()
        for key in earlier.interfaces.keys() - later.interfaces.keys():
            self.before.interfaces.pop(key, None)
        for key in later.interfaces.keys() - earlier.interfaces.keys():
            self.before.interfaces[key] = later.interfaces[key]
            self.makers[key] = PERSON
        self.before.namespaces.clear()
        self.before.namespaces.update(later.namespaces)

    def _ip(self, *words: str) -> str:
        return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout

    # what there is

    def attachments(self) -> list[Attachment]:
        return self.cni.get_cached_attachments()

    def picture(self) -> Picture:
        interfaces: dict[Key, str] = {}
        namespaces = {path: place for path in self.paths if (place := identity(path))}
        for path, place in namespaces.items():
            for link in json.loads(self._ip("-n", Path(path).name, "-j", "address", "show") or "[]"):
                if link.get("ifname") in INTERFACES:
                    addresses = sorted(one["local"] for one in link["addr_info"] if one["scope"] == "global")
                    interfaces[place, link["ifindex"], link["address"]] = f"{link['ifname']} {addresses}"
        reservations = {str(path): path.read_text() for path in self.leases.glob("*/10.*")}
        records = {path.name: path.read_bytes() for path in self.results.glob("*")}
        return Picture(interfaces, reservations, records, namespaces)

    # the steps

    def weights(self) -> dict[Step, int]:
        """Return the steps, with how often each is done."""
        return {
            self._add: 30,
            self._del: 22,
            self._check: 6,
            self._gc: 10,
            self._forget: 3,
            self._take_over: 3,
            self._killed: 12,
            self._person_link: 6,
            self._person_namespace: 5,
            self._tear: 3,
        }

    def step(self) -> None:
        """Do one thing, and compare."""
        weights = self.weights()
        work = self.chance.choices(list(weights), list(weights.values()))[0]
        before = self.before = self.picture()
        self.log.append(work.__name__)
        may = work(before)
        was_killed = work.__name__.startswith("_killed")
        if was_killed and may is not None and self.orphan is None and self.chance.random() < 0.4:
            self.orphan = may  # the next step meets the plugin that has no runtime any more
            return
        settle()
        if may is None and self.orphan is not None:
            may = May()
        if may is not None:
            self.counts[work.__name__] = self.counts.get(work.__name__, 0) + 1
            self._compare(before, self.picture(), may)

    def _compare(self, before: Picture, after: Picture, may: May) -> None:
        orphan, self.orphan = self.orphan or May(), None
        makers = {(one.target, pair[1]): pair for one in (orphan, may) for pair in one.pairs if one.target}
        may.pairs |= orphan.pairs
        self._make_known(before, makers)  # the orphan made it before this step
        lost = [
            *self._lost_namespaces(before, after, may),
            *self._lost_interfaces(before, after, may),
            *self._lost_files(before, after, may),
        ]
        records = {name: data.decode(errors="replace") for name, data in before.records.items()}
        state = [before.interfaces, self.makers, before.reservations, records]
        told = "\n".join(map(str, ["\n".join(self.log[-12:]), *state]))
        assert not lost, f"lost: {lost}, after {told}"
        self._make_known(after, makers)

    def _await_orphan(self) -> None:
        """Wait for the orphan, if there is one, and note what it made. Two at once could not be told apart."""
        if self.orphan is not None:
            settle()
            self._make_known(self.picture(), {(self.orphan.target, pair[1]): pair for pair in self.orphan.pairs})
            self.orphan.target = 0

    def _make_known(self, picture: Picture, makers: dict[tuple[int, str], Pair]) -> None:
        for key, what in picture.interfaces.items():
            self.makers.setdefault(key, makers.get((key[0], what.split()[0]), _leased_to(what, picture) or PERSON))

    @staticmethod
    def _lost_namespaces(before: Picture, after: Picture, may: May) -> Iterator[str]:
        for path, place in before.namespaces.items():
            if path not in may.namespaces and place != may.person and after.namespaces.get(path) != place:
                yield f"the namespace {path}"

    def _lost_interfaces(self, before: Picture, after: Picture, may: May) -> Iterator[str]:
        # A manager that removes its container's namespace removes what is in it and on no other container's record.
        removable = {place: Path(path).name for path, place in before.namespaces.items() if path in may.namespaces}
        recorded = list(before.recorded())
        for key, what in before.interfaces.items():
            maker, name = self.makers[key], what.split()[0]
            others = [one for one in recorded if one[:2] == (key[0], name) and one[2] != removable.get(key[0])]
            is_free = maker in may.pairs or key[0] == may.person or (key[0] in removable and not others)
            if not is_free and after.interfaces.get(key) != what:
                yield f"{what} of {self.makers[key]}"

    @staticmethod
    def _lost_files(before: Picture, after: Picture, may: May) -> Iterator[str]:
        for path, text in before.reservations.items():
            container, ifname = text.split()
            if (container, ifname) not in may.pairs and after.reservations.get(path) != text:
                yield f"{path} of {container} {ifname}"
        for name, data in before.records.items():
            is_free = name in may.records or any(name.endswith(f"-{one}-{two}") for one, two in may.pairs)
            if not is_free and after.records.get(name) != data:
                yield f"the record {name}"

    def _someone(self) -> tuple[str, str, NetworkConfigList, str, str]:
        owner = self.chance.choice("ab")
        container = f"{owner}{self.chance.randrange(4)}"
        ifname = self.chance.choices(INTERFACES, [4, 1])[0]
        return owner, container, self.chance.choice(self.networks), ifname, self.chance.choice(self.paths)

    def _tell(self, *words: object) -> None:
        self.log[-1] = f"{self.log[-1]} {' '.join(str(word) for word in words)}"

    def _add(self, before: Picture) -> May | None:
        owner, container, net, ifname, path = self._someone()
        if not self._is_known(container, ifname, before):
            return None
        how = self.chance.choices(["refuse", "replace", "allow"], [6, 3, 1])[0]
        options: dict[str, Any] = {"on_existing": how}
        listed = [one for one in self.attachments() if (one.container_id, one.ifname) == (container, ifname)]
        if how == "allow" and listed:
            return None  # the same attachment twice is what "allow" means
        if self.chance.random() < 0.1:
            options["rollback"] = False
        rt = RuntimeConf(container, path, ifname, args={"IP": "192.168.1.1"} if self.chance.random() < 0.1 else None)
        self._tell(owner, container, ifname, net.name, path, options, rt.args)
        if self.orphan is not None and self.orphan.target == identity(path):
            self._await_orphan()
        with suppress(CNIError):
            self.call(owner, "add_network_list", net, rt, **options)
            self.counts["attached"] = self.counts.get("attached", 0) + 1
        return May({(container, ifname)}, target=identity(path))

    def _is_known(self, container: str, ifname: str, before: Picture) -> bool:
        """Return whether the records say whose the interface is that a verb of this attachment could remove.

        An ADD that was killed does not say whether it had made its interface. A person who makes one of that name in
        the same namespace after that cannot be told from it.
        """
        for one in self.attachments():
            if (one.container_id, one.ifname) == (container, ifname) and one.record.ifindex is None:
                theirs = [
                    key
                    for key, what in before.interfaces.items()
                    if key[0] == identity(one.netns)
                    and what.startswith(f"{ifname} ")
                    and self.makers.get(key) != (container, ifname)
                ]
                if theirs and any(self._unrecorded(key, ifname) for key in theirs):
                    return False
        return True

    def _unrecorded(self, key: Key, _ifname: str) -> bool:
        made = [one.record for one in self.attachments() if not one.record.is_refused]
        return (key[0], key[1]) not in {(record.netns_cookie, record.ifindex) for record in made}

    def _del(self, before: Picture) -> May | None:
        owner, container, net, ifname, path = self._someone()
        if not self._is_known(container, ifname, before):
            return None
        recorded = {(one.network, one.container_id, one.ifname): one for one in self.attachments()}
        given = self.chance.choice([path, None, ""])
        is_recorded = (net.name, container, ifname) in recorded
        unreadable = f"{net.name}-{container}-{ifname}" in before.records and not is_recorded
        here = [key for key, what in before.interfaces.items() if key[0] == identity(path) and what.startswith(ifname)]
        if given and unreadable and any(self._unrecorded(key, ifname) for key in here):
            return None  # the torn record says that there is an attachment, and the caller where: DEL has to believe it
        self._tell(owner, container, ifname, net.name, given)
        policy = DelPolicy(keep_going=self.chance.random() < 0.2)
        with suppress(CNIError):
            if is_recorded and self.chance.random() < 0.3:
                one = recorded[net.name, container, ifname]
                self.call(owner, "del_attachment", one, policy=policy)
            else:
                self.call(owner, "del_network_list", net, RuntimeConf(container, given, ifname), policy=policy)
        return May({(container, ifname)})

    def _check(self, _: Picture) -> May:
        owner, container, net, ifname, path = self._someone()
        self._tell(owner, container, ifname, net.name, path)
        with suppress(CNIError):
            rt = RuntimeConf(container, self.chance.choice([path, None]), ifname)
            self.call(owner, "check_network_list", net, rt)
        return May()

    def _gc(self, before: Picture) -> May | None:
        owner, _, net, _, _ = self._someone()
        mine = [one for one in self.attachments() if one.owner == owner and one.network == net.name]
        valid = [(one.container_id, one.ifname) for one in mine if self.chance.random() < 0.6]
        if self.chance.random() < 0.3:
            valid = []
        gone = {(one.container_id, one.ifname) for one in mine} - set(valid)
        if not all(self._is_known(*pair, before) for pair in gone):
            return None
        self._tell(owner, net.name, valid)
        with suppress(CNIError):
            self.call(owner, "gc_network_list", net, valid)
        names = {Path(one.path).name for one in mine if (one.container_id, one.ifname) in gone}
        return May(gone, names)

    def _forget(self, _: Picture) -> May | None:
        owner = self.chance.choice("ab")
        listed = self.attachments()
        if not listed:
            return None
        one = self.chance.choice(listed)
        self._tell(owner, one.path)
        with suppress(CNIError):
            self.call(owner, "forget_attachment", one)
        self.torn.pop(Path(one.path).name, None)
        return May(records={Path(one.path).name})

    def _take_over(self, _: Picture) -> May | None:
        owner = self.chance.choice("ab")
        listed = self.attachments()
        if not listed:
            return None
        one = self.chance.choice(listed)
        self._tell(owner, one.path)
        with suppress(CNIError):
            self.call(owner, "take_over_attachment", one)
        return May(records={Path(one.path).name})

    def _killed(self, before: Picture) -> May | None:
        owner, container, net, ifname, path = self._someone()
        if not self._is_known(container, ifname, before):
            return None
        is_add = self.chance.random() < 0.6
        self._tell(owner, container, ifname, net.name, path, "ADD" if is_add else "DEL")
        rt = RuntimeConf(container, path if is_add else None, ifname)

        def work() -> None:
            logging.disable()
            with suppress(CNIError):
                client = self.client(owner=owner)
                client.add_network_list(net, rt) if is_add else client.del_network_list(net, rt)

        self._await_orphan()
        kill_after(fork(work), self.chance.uniform(0.001, 0.12))
        return May({(container, ifname)}, target=identity(path) if is_add else 0)

    def _person_link(self, before: Picture) -> May | None:
        path, ifname = self.chance.choice(self.paths), self.chance.choice(INTERFACES)
        place, name = identity(path), Path(path).name
        if not place:
            return None
        exists = any(key[0] == place and what.startswith(f"{ifname} ") for key, what in before.interfaces.items())
        self._tell(path, ifname, "del" if exists else "add")
        if exists:
            self._ip("-n", name, "link", "del", ifname)
        else:
            peer = f"p{self.chance.randrange(10**6)}"
            self._ip("-n", name, "link", "add", ifname, "type", "veth", "peer", peer)
        return May(person=place)

    def _person_namespace(self, _: Picture) -> May:
        path = self.chance.choice(self.paths)
        place = identity(path)
        self._tell(path)
        if not place:
            self._ip("netns", "add", Path(path).name)
        else:
            self._ip("netns", "del", Path(path).name)
            if self.chance.random() < 0.8:
                time.sleep(0.05)  # the kernel gives the same inode to the next one
                self._ip("netns", "add", Path(path).name)
            for key in [key for key in self.makers if key[0] == place]:
                del self.makers[key]
        return May(person=place)

    def _tear(self, before: Picture) -> May | None:
        """Tear a record, or mend the torn one: a disk that lost a block, and a person with a backup."""
        results = self.results
        if self.torn:
            name, data = self.torn.popitem()
            if name in before.records and len(before.records[name]) == len(data) // 2:
                (results / name).write_bytes(data)
            return May(records={name})
        if not before.records:
            return None
        name = self.chance.choice(sorted(before.records))
        self.torn[name] = before.records[name]
        (results / name).write_bytes(before.records[name][: len(before.records[name]) // 2])
        self._tell(name)
        return May(records={name})


def _leased_to(interface: str, picture: Picture) -> Pair | None:
    """Return who has reserved the address of an interface: a person gives theirs none."""
    for path, text in picture.reservations.items():
        if f"'{Path(path).name}'" in interface:
            container, ifname = text.split()
            return container, ifname
    return None


def identity(path: str) -> int:
    """Return the kernel's cookie of a namespace, or 0 if there is none at the path. Inode numbers recur at once."""
    entered = EnteredNamespace.enter(path)
    if entered is None:
        return 0
    entered.close()
    return entered.namespace.cookie


def adopt_orphans(*, wanted: bool) -> None:
    """Make this process the parent of plugins whose runtime was killed; undo it when called with False."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0)


def settle() -> None:
    """Wait for the plugins that outlived their runtime."""
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
