"""Random sequences of verbs, faults, edits and restarts, against a model that is as simple as can be."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from libcni import (
    AttachmentExistsError,
    CallOptions,
    CNIConfig,
    CNIErrorGroup,
    Invocation,
    NetworkConfigList,
    NotAttachedError,
    Outcome,
    PluginError,
    PluginNotFoundError,
    RecordError,
    RuntimeConf,
)
from libcni.store import record
from libcni.testing import error_outcome
from libcni.verbs import node as verbs_node

CONTAINERS = ["c1", "c2", "b-c1"]
NETWORKS = ["net", "net-b"]  # with these containers, two attachments have the same file name
IFNAMES = ["eth0", "eth1"]
Key = tuple[str, str, str]


class CrashError(BaseException):
    """The end of the runtime, at a plugin call."""


class Prepared:
    """A plugin that was started ahead."""

    def __init__(self, plugins: Plugins, invocation: Invocation, options: CallOptions) -> None:
        self._plugins, self._invocation, self._options = plugins, invocation, options
        plugins.waiting.append(self)

    def feed(self, stdin: bytes, timeout: float | None) -> Outcome:
        assert self in self._plugins.waiting, "it was fed or discarded before"
        self.discard()
        options = replace(self._options, timeout=timeout)
        return self._plugins.execute(replace(self._invocation, stdin=stdin), options)

    def discard(self) -> None:
        if self in self._plugins.waiting:
            self._plugins.waiting.remove(self)


class Plugins:
    """Two plugins, what they hold, and what they were told."""

    def __init__(self) -> None:
        self.waiting: list[Prepared] = []
        self.held: dict[tuple[Key, str], int] = {}  # (attachment, type) -> the generation of its configuration
        self.fault: Callable[[Invocation], str] = lambda _: ""

    def find(self, plugin: str, path: Sequence[str]) -> str:
        if self.fault(Invocation("FIND", plugin, "", b"", {})) == "missing":
            raise PluginNotFoundError(plugin, tuple(path))
        return f"/{plugin}"

    def prepare(self, invocation: Invocation, options: CallOptions) -> Prepared:
        assert not self.waiting, "one plugin at a time is started ahead"
        return Prepared(self, invocation, options)

    def execute(self, invocation: Invocation, options: CallOptions) -> Outcome:
        if options.on_started is not None:
            options.on_started()
        fault = self.fault(invocation)
        if fault == "crash-before":
            raise CrashError
        if fault == "fail-before":
            return error_outcome(100, "before")
        self._work(invocation)
        if fault == "crash-after":
            raise CrashError
        if fault == "fail-after":
            return error_outcome(100, "after")
        if fault == "garbage":
            return Outcome(stdout=b"garbage")
        return Outcome(stdout=b'{"cniVersion": "1.1.0"}' if invocation.verb == "ADD" else b"")

    def _work(self, invocation: Invocation) -> None:
        key = ((invocation.network, invocation.container_id, invocation.ifname), invocation.plugin)
        generation = json.loads(invocation.stdin)["generation"]
        if invocation.verb == "ADD":
            assert key not in self.held, "a second ADD without a DEL"
            self.held[key] = generation
        if invocation.verb == "DEL":
            assert self.held.pop(key, generation) == generation, "DEL with another configuration than ADD"
        if invocation.verb == "CHECK":
            assert self.held.get(key) == generation, "CHECK of an attachment that the plugin does not hold"


class Model(RuleBasedStateMachine):
    """The model: for each attachment, whether it is ready or pending."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.plugins = Plugins()
        self.states: dict[Key, str] = {}
        self.half_undone: set[Key] = set()
        self.generation = 0
        self.boot = 0

    @initialize()
    def start(self) -> None:
        for module in (record, verbs_node):
            module.boot_id = lambda: f"boot{self.boot}"  # type: ignore[attr-defined]
        self.edit()
        self.restart("always")

    modes = st.sampled_from(["never", "always"])

    @rule(start_ahead=modes)
    def restart(self, start_ahead: Any) -> None:
        self.cni = CNIConfig(
            ["/nowhere"], self.directory / "cache", conf_dir=self.directory, executor=self.plugins, durable=False,
            start_ahead=start_ahead, max_verbs=2,  # so that GC detaches one after the other
        )  # fmt: skip

    @rule()
    def edit(self) -> None:
        """Change every configuration."""
        self.generation += 1
        for name in NETWORKS:
            plugins = [{"type": kind, "generation": self.generation} for kind in ("first", "second")]
            document = {"cniVersion": "1.1.0", "name": name, "plugins": plugins}
            (self.directory / f"{name}.conflist").write_text(json.dumps(document))

    @rule()
    def reboot(self) -> None:
        """Everything that plugins hold goes; the records stay, and are those of an earlier boot."""
        self.boot += 1
        self.plugins.held.clear()
        self.states = dict.fromkeys(self.states, "stale-boot")

    verbs = st.sampled_from(["ADD", "ADD", "DEL", "CHECK", "GC"])  # what follows an ADD has something to do
    faults = st.sampled_from(
        ["", "", "", "crash-before", "crash-after", "fail-before", "fail-after", "garbage", "missing"]
    )

    @rule(
        verb=verbs,
        network=st.sampled_from(NETWORKS),
        container=st.sampled_from(CONTAINERS),
        ifname=st.sampled_from(IFNAMES),
        fault=faults,
        in_del=st.booleans(),  # every verb but CHECK may run DEL
        plugin=st.sampled_from(["first", "second"]),
        on_existing=st.sampled_from(["refuse", "replace"]),
    )
    def verb(self, verb: str, fault: str, in_del: bool, plugin: str, on_existing: Any, **key: str) -> None:
        attachment = (key["network"], key["container"], key["ifname"])
        wrong = {"missing"} if fault == "missing" else {fault}

        def injected(call: Invocation) -> str:
            if fault == "missing":
                return fault if call.verb == "FIND" and call.plugin == plugin else ""
            return fault if (call.verb, call.plugin) == ("DEL" if in_del else verb, plugin) else ""

        self.plugins.fault = injected
        rt = RuntimeConf(attachment[1], None, attachment[2])
        try:
            if verb == "ADD":
                self.add(attachment, rt, on_existing)
            elif verb == "DEL":
                self.cni.del_network_list(attachment[0], rt)
                self.states.pop(attachment, None)
            elif verb == "CHECK":
                self.check(attachment, rt)
            else:
                self.gc(attachment)
        except CrashError:
            self.after_a_crash(verb, attachment)
        except (PluginError, PluginNotFoundError, CNIErrorGroup):
            assert wrong != {""}, "an error without an injected fault"
            self.after_a_crash(verb, attachment)
        finally:
            self.plugins.fault = lambda _: ""

    def add(self, attachment: Key, rt: RuntimeConf, on_existing: Any) -> None:
        same = [key for key in self.states if key[1:] == attachment[1:]]
        ready = [key for key in same if self.states[key] == "ready"]
        try:
            self.cni.add_network_list(attachment[0], rt, on_existing=on_existing)
        except AttachmentExistsError:
            assert ready
            assert on_existing == "refuse"
            return
        assert not ready or on_existing == "replace"
        for key in same:
            del self.states[key]
        self.states[attachment] = "ready"
        self.half_undone -= {attachment, *same}

    def check(self, attachment: Key, rt: RuntimeConf) -> None:
        if self.states.get(attachment) == "stale-boot" or attachment in self.half_undone:
            return  # its plugins hold nothing any more: their answer is theirs
        try:
            self.cni.check_network_list(attachment[0], rt)
            assert self.states[attachment] == "ready"
        except NotAttachedError:
            assert self.states.get(attachment) != "ready"

    def gc(self, attachment: Key) -> None:
        self.cni.gc_network_list(attachment[0], [attachment[1:]])
        self.states = {
            key: state for key, state in self.states.items() if key[0] != attachment[0] or key[1:] == attachment[1:]
        }

    def after_a_crash(self, verb: str, attachment: Key) -> None:
        """Take what is listed for true, within what the library promises.

        What was to be detached is still recorded as it was, for the next DEL, and some of its plugins have undone it.
        """
        listed = self.listed()
        in_question = 1 if verb == "GC" else 3
        self.half_undone |= {
            key for key in listed if key[:in_question] == attachment[:in_question] or key[1:] == attachment[1:]
        }
        for key, state in listed.items():
            before = self.states.get(key)
            assert before == state or (before in {None, "stale-boot"} and state == "pending") or before is not None, key
        self.states = listed

    def listed(self) -> dict[Key, str]:
        found = self.cni.get_cached_attachments()
        return {(one.network, one.container_id, one.ifname): one.state for one in found}

    @precondition(lambda self: self.states)
    @rule(data=st.data(), damage=st.sampled_from([b"", b"\0\0", b"{"]))
    def damage(self, data: st.DataObject, damage: bytes) -> None:
        """Another writer tears a record; the runtime detaches what it knows, with the configuration that it used."""
        key = data.draw(st.sampled_from(sorted(self.states)))
        listed = self.cni.get_cached_attachments()
        one = next(one for one in listed if (one.network, one.container_id, one.ifname) == key)
        net_then = record.decode(Path(one.path).read_bytes(), one.path)
        Path(one.path).write_bytes(damage)
        rt = RuntimeConf(key[1], None, key[2])
        with pytest.raises(RecordError):
            self.cni.check_network_list(key[0], rt)
        net = NetworkConfigList.from_bytes(net_then.config)
        with pytest.raises(RecordError, match="the namespace of the attachment is not known"):
            self.cni.del_network_list(net, rt)
        assert self.cni.del_network_list(net, rt.with_netns("")).record == "unreadable"
        del self.states[key]

    @rule()
    def the_end_is_empty(self) -> None:
        """Whatever was before: GC with nothing valid brings everything to zero."""
        for name in NETWORKS:
            self.cni.gc_network_list(name, [])
        self.states = {}
        assert self.plugins.held == {}

    @invariant()
    def the_list_is_the_model(self) -> None:
        if hasattr(self, "cni"):
            assert self.listed() == self.states
            assert self.plugins.waiting == [], "a plugin that was started ahead outlives its verb"
            assert {key for key, _ in self.plugins.held} <= self.states.keys(), (
                "a plugin holds an attachment that is not listed"
            )
            for key, state in self.states.items():
                if state == "ready" and key not in self.half_undone:
                    assert {(key, "first"), (key, "second")} <= self.plugins.held.keys()

    def teardown(self) -> None:
        shutil.rmtree(self.directory)


def run(examples: int, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (record, verbs_node):
        monkeypatch.setattr(module, "boot_id", lambda: "")  # restored afterwards
    monkeypatch.setattr(verbs_node, "can_start_ahead", lambda: True)
    run_state_machine_as_test(
        Model,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )


def test_model(monkeypatch: pytest.MonkeyPatch) -> None:
    run(60, 30, monkeypatch)


@pytest.mark.slow
def test_model_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    run(200, 50, monkeypatch)
