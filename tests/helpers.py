"""What the tests of the core share: documents, a driver without processes or disk, and small plugins of shell."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from libcni.config.network import NetworkConfigList
from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import CNIError, PluginNotFoundError
from libcni.protocol.invocation import Invocation, Outcome
from libcni.store.record import READY, Identity, Record
from libcni.testing import FakePlugins
from libcni.verbs import add_flow
from libcni.verbs.steps import (
    AllRecords,
    AwaitOrphan,
    Begin,
    Complete,
    Find,
    Flow,
    Forget,
    Lock,
    Lookup,
    NamespaceOf,
    Pause,
    Recall,
    Remember,
    SetAside,
    Siblings,
    StartCleanup,
    Sweep,
)

RESULT = {"cniVersion": "1.0.0", "ips": [{"address": "10.0.0.2/24"}]}
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


def failed(code: int = 7, msg: str = "no", stderr: str = "") -> Outcome:
    """Return the outcome of a plugin that printed an error document."""
    return Outcome(1, json.dumps({"code": code, "msg": msg}).encode(), stderr.encode())


class World:
    """Drive flows with canned answers. What the flow asked for stands in ``log``, one line each.

    ``answers``: what plugins do, by (verb, type) or by step type: an Outcome, or an error to throw. Every other plugin
    succeeds. ``namespaces``: what is at namespaces' paths. ``records``: what is on "disk".
    """

    def __init__(
        self,
        answers: Mapping[Any, Outcome | CNIError] | None = None,
        *,
        records: Iterable[Record] = (),
        missing: Iterable[str] = (),
        namespaces: Mapping[str, tuple[int, int]] | None = None,
        orphans: bool = False,
        time_left: bool = True,
    ) -> None:
        self.answers = dict(answers or {})
        self.records = {record.identity: record for record in records}
        self.missing = set(missing)
        self.namespaces = namespaces or {}
        self.orphans = orphans
        self.time_left = time_left
        self.log: list[str] = []
        self.calls: list[Invocation] = []

    def run(self, flow: Flow[Any]) -> Any:
        """Drive a flow to its end; return its value or raise its error."""
        answer: Any = None
        error: CNIError | None = None
        try:
            while True:
                step = flow.throw(error) if error is not None else flow.send(answer)
                answer, error = None, None
                try:
                    answer = self._answer(step)
                except CNIError as raised:
                    error = raised
        except StopIteration as end:
            return end.value

    def stdin(self, verb: str, plugin: str) -> dict[str, Any]:
        """Return what the last call of a plugin with a verb received, decoded."""
        found = [call for call in self.calls if (call.verb, call.plugin) == (verb, plugin)]
        decoded: dict[str, Any] = json.loads(found[-1].stdin)
        return decoded

    def verbs(self) -> list[str]:
        """Return the plugin calls, such as ``ADD a``."""
        return [f"{call.verb} {call.plugin}" for call in self.calls]

    def _answer(self, step: Any) -> Any:
        if isinstance(step, Invocation):
            self.calls.append(step)
        self.log.append(_line(step))
        key = (step.verb, step.plugin) if isinstance(step, Invocation) else type(step)
        canned = self.answers.get(key)
        if isinstance(canned, CNIError):
            raise canned
        return canned if canned is not None else getattr(self, f"_{type(step).__name__.lower()}")(step)

    def _invocation(self, step: Invocation) -> Outcome:
        return printed() if step.verb == "ADD" else Outcome()

    def _find(self, step: Find) -> tuple[str, ...]:
        for plugin in step.plugins:
            if plugin in self.missing and not step.missing_allowed:
                raise PluginNotFoundError(plugin, ("/opt/cni/bin",))
        return tuple("" if plugin in self.missing else f"/opt/cni/bin/{plugin}" for plugin in step.plugins)

    def _lock(self, _step: Lock) -> None:
        pass

    def _awaitorphan(self, _step: AwaitOrphan) -> bool:
        return not self.orphans

    def _startcleanup(self, _step: StartCleanup) -> None:
        pass

    def _sweep(self, _step: Sweep) -> None:
        pass

    def _pause(self, _step: Pause) -> bool:
        return self.time_left

    def _recall(self, _step: Recall) -> None:
        pass

    def _remember(self, _step: Remember) -> None:
        pass

    def _namespaceof(self, step: NamespaceOf) -> tuple[int, int] | None:
        return self.namespaces.get(step.netns)

    def _lookup(self, step: Lookup) -> Record | None:
        return self.records.get(step.identity)

    def _siblings(self, step: Siblings) -> list[Record]:
        wanted = (step.container_id, step.ifname)
        return [record for record in self.records.values() if (record.container_id, record.ifname) == wanted]

    def _allrecords(self, _step: AllRecords) -> list[Record]:
        return list(self.records.values())

    def _begin(self, step: Begin) -> Record:
        record = replace(step.record, path="/cache/" + "-".join(step.record.identity))
        self.records[record.identity] = record
        return record

    def _complete(self, step: Complete) -> None:
        self.records[step.record.identity] = step.record

    def _forget(self, step: Forget) -> None:
        del self.records[step.record.identity]

    def _setaside(self, step: SetAside) -> str:
        del self.records[step.record.identity]
        return "/cache/corrupt/x"


def _line(step: Any) -> str:
    match step:
        case Invocation():
            return f"{step.verb} {step.plugin}"
        case Find():
            return f"find {' '.join(step.plugins)}"
        case Lock():
            kind = "exclusive " if step.request.exclusive else ""
            return f"lock {kind}{' '.join([*step.request.networks, step.request.container_id]).strip()}"
        case Begin() | Complete() | Forget() | SetAside():
            return f"{type(step).__name__.lower()} {step.record.network}"
        case _:
            return type(step).__name__.lower()


def attached(net: NetworkConfigList | None = None, rt: RuntimeConf = RT, **more: Any) -> Record:
    """Return the record of an attachment as a World's ADD leaves it, with ``more`` replaced in it."""
    world = World()
    used = net or network("a", "b")
    world.run(add_flow(used, rt, ["/opt/cni/bin"]))
    identity: Identity = (used.name, rt.container_id, rt.ifname)
    record = world.records[identity]
    assert record.state == READY
    return replace(record, **more)


class ShellPlugins:
    """Fake plugins of shell, with ``VERB type`` for each call."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "plugins"
        self.directory.mkdir()
        self._fakes = FakePlugins(self.directory)
        (directory / "calls.log").symlink_to(self.directory / ".calls")

    @property
    def path(self) -> str:
        """CNI_PATH."""
        return str(self.directory)

    @property
    def calls(self) -> list[str]:
        """The calls so far, such as ``ADD a``."""
        return [f"{verb} {plugin}" for verb, plugin in self._fakes.verbs]

    def write(self, name: str, body: str | None = None) -> None:
        """Write a plugin; without ``body`` it prints a result to ADD and succeeds at all else."""
        self._fakes.shell(name, body or "", result=RESULT if body is None else None)

    def stdin(self, name: str, verb: str = "ADD") -> bytes:
        """Return what a plugin read at its last call with a verb."""
        return [call.stdin for call in self._fakes.calls if (call.plugin, call.verb) == (name, verb)][-1]

    def env(self, name: str) -> dict[str, str]:
        """Return the environment of a plugin's last call."""
        return dict([call.env for call in self._fakes.calls if call.plugin == name][-1])
