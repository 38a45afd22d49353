"""Is it mine, now? One test for each row of the tables, and the question before each plugin, without processes."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from helpers import RESULT, RecordingRun, attached, failed, network, printed

from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import (
    AttachmentExistsError,
    CNIError,
    CNIErrorGroup,
    InterfaceExistsError,
    NamespaceMismatchError,
    NotAttachedError,
    PluginError,
    RecordError,
)
from libcni.executor.interface import CallOptions
from libcni.kernel import rules, system
from libcni.kernel.life import Answer
from libcni.options import DelPolicy
from libcni.protocol.invocation import Invocation, Outcome
from libcni.protocol.result import Result, read_result
from libcni.store import life_of_record
from libcni.store.attachments import Attachment
from libcni.store.model import (
    BEGUN,
    CORRUPT,
    DETACHING,
    PENDING,
    READY,
    REFUSED,
    STALE_BOOT,
    STATES,
    Record,
    Row,
    State,
    Unreadable,
)
from libcni.store.other_records import OtherRecord, OtherRecords
from libcni.store.place import ABSENT, ANY, NOT_OURS, NOWHERE, UNKNOWN, Known, Place, taken
from libcni.store.recorded_interface import own_addresses, place_of, reported_macs
from libcni.verbs import claim, leftovers
from libcni.verbs.add import add as add_verb
from libcni.verbs.check import check
from libcni.verbs.claim import Claim
from libcni.verbs.delete import delete as delete_verb
from libcni.verbs.gc import gc as gc_verb
from libcni.verbs.path_to_use import path_to_use
from libcni.verbs.reload import reload as reload_verb
from verbs.test_delete import CHAIN, delete

MAC, OTHER_MAC = "0a:58:0a:00:00:02", "0a:58:0a:00:00:03"
HERE = RuntimeConf("c1", "/here", "eth0")
BARE = RuntimeConf("c1", None, "eth0")
ETH0 = ("/here", "eth0")
NAMESPACES = {"/here": (4, 7), "/alias": (4, 7), "/other": (4, 8)}
COOKIES = {"/here": 70, "/alias": 70, "/other": 80}
WITH_MAC = {**RESULT, "interfaces": [{"name": "eth0", "mac": MAC.upper(), "sandbox": "/here"}]}


def made_of(document: dict[str, Any]) -> Result:
    """Return a plugin's result."""
    return read_result(json.dumps(document), "1.0.0")


def recorded(**more: Any) -> Record:
    """Return the record of an attachment in /here, with interface number 2."""
    fields = {"netns_id": (4, 7), "netns_cookie": 70, "interface": Known(2, MAC), "path": "/cache/net-c1-eth0", **more}
    return attached(CHAIN, HERE, **fields)


def of_go(**more: Any) -> Record:
    """Return a record of Go libcni: no identity of the namespace and no number of the interface."""
    return attached(CHAIN, HERE, version="", plugins=(), path="/cache/net-c1-eth0", **more)


class World(RecordingRun):
    """A node whose kernel changes while a verb runs: ``after`` has what happens after a line of the log."""

    def __init__(self, *args: Any, after: dict[str, Callable[[World], object]] | None = None, **more: Any) -> None:
        defaults = {"namespaces": NAMESPACES, "cookies": COOKIES, "interfaces": {ETH0: 2}, "macs": {ETH0: MAC}}
        super().__init__(*args, **{**defaults, **more})
        self.after = after or {}

    def note(self, line: str) -> None:
        super().note(line)
        self._change(line)

    async def run_plugin(self, invocation: Invocation, options: CallOptions) -> Outcome:
        outcome = await super().run_plugin(invocation, options)
        self._change(self.log[-1])
        return outcome

    def _change(self, line: str) -> None:
        if line in self.after:
            self.after[line](self)

    def netns_of(self, verb: str) -> list[str]:
        return [call.env["CNI_NETNS"] for call in self.calls if call.verb == verb]


def replace_interface(world: World) -> None:
    """Let a neighbour's interface have the name."""
    world.interfaces[ETH0] = 9
    world.macs[ETH0] = OTHER_MAC


def replace_namespace(world: World) -> None:
    """Let another namespace have the path, with the inode number of the first one."""
    world.cookies["/here"] = 71


def lose_path(world: World) -> None:
    """Unmount the namespace, in which a process lives."""
    del world.namespaces["/here"]
    world.held = "/alias"
    world.interfaces = {("/alias", "eth0"): 2}
    world.macs = {("/alias", "eth0"): MAC}


def replace_path(world: World) -> None:
    """Mount another namespace over it."""
    lose_path(world)
    world.namespaces["/here"] = (4, 9)


def make_interface(world: World) -> None:
    """Let a plugin make its interface."""
    world.interfaces[ETH0] = 2
    world.macs[ETH0] = MAC


def remove_interface(world: World) -> None:
    """Remove the interface."""
    world.interfaces.pop(ETH0, None)
    world.macs.pop(ETH0, None)


def rename_interface(world: World) -> None:
    """Give the interface another name."""
    world.interfaces["/here", "net1"] = world.interfaces.pop(ETH0)
    world.macs["/here", "net1"] = world.macs.pop(ETH0)


# the place of a record


@pytest.mark.parametrize(
    ("record", "place"),
    [
        (recorded(), Place((4, 7), 70, Known(2, MAC))),
        (recorded(netns_id=None, netns_cookie=None, interface=UNKNOWN), Place(NOWHERE)),
        (recorded(interface=Known(2), result=made_of(WITH_MAC).text), Place((4, 7), 70, Known(2, MAC))),
        (recorded(interface=NOT_OURS, result=made_of(WITH_MAC).text), Place((4, 7), 70, NOT_OURS)),
        (recorded(interface=ABSENT, result=made_of(WITH_MAC).text), Place((4, 7), 70, ABSENT)),
        (of_go(result=made_of(WITH_MAC).text), Place(ANY, 0, Known(mac=MAC))),
        (of_go(), Place(ANY)),
        (of_go(netns="opaque"), Place()),
        (of_go(result=None), Place(ANY)),
        (of_go(result="[]"), Place(ANY)),
    ],
    ids=[
        "place",
        "no namespace",
        "number alone",
        "not ours",
        "no interface",
        "Go",
        "Go, no mac",
        "Go, no path",
        "Go, pending",
        "Go, broken",
    ],
)
def test_the_place_of_a_record(record: Record, place: Place) -> None:
    assert place_of(record) == place


@pytest.mark.parametrize(
    "interfaces",
    [
        [{"name": "eth0", "mac": MAC}],
        [{"name": "eth1", "mac": MAC, "sandbox": "/here"}],
        [{"name": "eth0", "mac": one, "sandbox": "/here"} for one in (MAC, OTHER_MAC)],
    ],
    ids=["on the host", "another name", "two"],
)
def test_a_result_that_does_not_say_which_hardware_address(interfaces: list[dict[str, str]]) -> None:
    text = made_of({**RESULT, "interfaces": interfaces}).text
    assert place_of(of_go(result=text)) == Place(ANY)


# after each plugin of an ADD

EMPTY = Place((4, 7), 70)
NONE = Place((4, 7), 70, ABSENT)
OURS = Place((4, 7), 70, Known(2, MAC))
THEIRS = Place((4, 7), 70, Known(9, OTHER_MAC))
CHANGED = Place((4, 7), 70, Known(2, OTHER_MAC))
AGAIN = Place((4, 7), 70, Known(9, MAC))
SIMPLE = made_of(RESULT)
REPORTED = made_of(WITH_MAC)
UNREPORTED = made_of({**RESULT, "interfaces": [{"name": "br0", "mac": MAC}]})
WITHOUT_MAC = made_of({**RESULT, "interfaces": [{"name": "eth0", "sandbox": "/here"}]})


@pytest.mark.parametrize(
    ("made", "now", "result", "is_last", "place"),
    [
        (EMPTY, Place(), SIMPLE, True, EMPTY),  # the namespace is gone
        (EMPTY, replace(OURS, cookie=71), REPORTED, True, EMPTY),  # it was replaced
        (Place(NOWHERE), OURS, REPORTED, True, Place(NOWHERE)),  # it has come
        (OURS, CHANGED, UNREPORTED, False, CHANGED),  # tuning changed it
        (OURS, AGAIN, REPORTED, False, AGAIN),  # made again, and reported
        (OURS, THEIRS, REPORTED, True, OURS),  # a neighbour's
        (OURS, NONE, REPORTED, True, OURS),
        (EMPTY, NONE, SIMPLE, True, NONE),  # a chain that makes no interface
        (EMPTY, NONE, SIMPLE, False, EMPTY),
        (EMPTY, OURS, REPORTED, False, OURS),
        (EMPTY, OURS, WITHOUT_MAC, False, OURS),
        (EMPTY, OURS, SIMPLE, False, OURS),  # it reports addresses only
        (EMPTY, OURS, UNREPORTED, True, OURS),
        (EMPTY, THEIRS, REPORTED, False, EMPTY.with_interface(NOT_OURS)),
        (EMPTY, OURS, UNREPORTED, False, EMPTY.with_interface(NOT_OURS)),
        (EMPTY, OURS, made_of({"cniVersion": "1.0.0"}), False, EMPTY.with_interface(NOT_OURS)),
    ],
)
def test_taken(made: Place, now: Place, result: Result, is_last: bool, place: Place) -> None:
    macs, only_addresses = reported_macs(result, "eth0"), bool(result.ips and not result.interfaces)
    assert taken(made, now, reported=macs, only_addresses=only_addresses, is_last=is_last) == place


# the path


@pytest.mark.parametrize(
    ("record", "given", "use_given", "path"),
    [
        (Unreadable(state=CORRUPT), None, False, ""),
        (recorded(), "/other", True, "/other"),
        (recorded(), "", True, ""),
        (recorded(), None, True, "/here"),
        (recorded(), None, False, "/here"),
        (recorded(), "/here", False, "/here"),
        (recorded(netns="/gone"), None, False, "/gone"),
        (recorded(), "", False, "/here"),  # the recorded one lives
        (recorded(netns="/gone"), "", False, ""),
        (of_go(result=made_of(WITH_MAC).text), "", False, "/here"),
        (of_go(netns="/gone"), "", False, ""),
        (of_go(), "", False, ""),
        (recorded(netns="/gone", netns_id=None), "/none", False, "/none"),  # it found no namespace
        (recorded(netns="/gone", netns_id=None), "/here", False, ""),
        (recorded(), "/none", False, "/here"),  # the given one does not exist
        (recorded(netns="/gone"), "/none", False, "/none"),
        (of_go(result=made_of(WITH_MAC).text), "/none", False, "/here"),
        (of_go(), "/none", False, "/none"),
        (recorded(), "/alias", False, "/here"),  # the recorded one under another path
        (recorded(netns="/gone"), "/alias", False, "/alias"),
        (recorded(netns="/other"), "/alias", False, "/alias"),
        (of_go(), "/alias", False, "/here"),
        (of_go(netns="/gone"), "/alias", False, "/alias"),
        (recorded(netns="/gone"), "/other", False, ""),  # the recorded one no longer exists
        (recorded(netns_cookie=69), "/other", False, ""),
        (recorded(netns="/file", netns_id=(1, 1), netns_cookie=None, result=None), "/other", False, ""),
    ],
)
def test_path_to_use(record: Record, given: str | None, use_given: bool, path: str) -> None:
    node = World(namespaces={**NAMESPACES, "/file": (1, 1)}, not_namespaces=["/file"])
    assert path_to_use(node, record, given, use_given=use_given) == path


def test_path_to_use_is_the_given_path_if_the_recorded_one_is_lost_and_both_are_of_one_namespace() -> None:
    world = World(records=[recorded()])
    lose_path(world)
    assert path_to_use(world, recorded(), "/alias") == "/alias"


@pytest.mark.parametrize("record", [recorded(), of_go(), recorded(state=PENDING, result=None)])
def test_path_to_use_of_two_namespaces_that_both_exist(record: Record) -> None:
    with pytest.raises(NamespaceMismatchError, match="was attached in the namespace /here, but /other") as caught:
        path_to_use(World(), record, "/other")
    error = caught.value
    assert (error.container_id, error.ifname, error.network) == ("c1", "eth0", "net")
    assert (error.netns, error.recorded_netns) == ("/other", "/here")


# the table of states

PLACES: list[tuple[State, Record, Callable[[World], object] | None]] = [
    ("corrupt", Unreadable("net", "c1", "eth0", state=CORRUPT, path="/cache/x", problem="it is empty"), None),
    ("stale-boot", recorded(state=STALE_BOOT), None),
    ("detaching", recorded(state=DETACHING), None),
    ("pending", recorded(state=PENDING, result=None), None),
    ("pending", of_go(state=PENDING, result=None), None),
    ("ready", recorded(), None),
    ("ready", recorded(), lambda world: world.macs.update({ETH0: OTHER_MAC})),
    ("ready", recorded(netns_id=None, interface=UNKNOWN), lambda world: world.namespaces.pop("/here")),
    ("ready", recorded(interface=ABSENT), remove_interface),
    ("begun", recorded(state=BEGUN, result=None), None),
    ("refused", recorded(state=REFUSED, result=None), None),
    ("lost", recorded(), replace_interface),
    ("lost", recorded(), remove_interface),
    ("lost", of_go(result=REPORTED.text), replace_interface),
    ("lost-path", recorded(), lose_path),
    ("lost-path", recorded(), replace_path),
    ("gone", recorded(), replace_namespace),
    ("gone", recorded(), lambda world: world.namespaces.pop("/here")),
    ("gone", of_go(), lambda world: world.namespaces.pop("/here")),
    ("unknown", of_go(netns=""), None),
    ("renamed", recorded(), rename_interface),
    ("renamed", of_go(result=REPORTED.text), rename_interface),
]


@pytest.mark.parametrize(("state", "record", "change"), PLACES)
def test_state_of(state: State, record: Record, change: Callable[[World], object] | None) -> None:
    world = World()
    if change is not None:
        change(world)
    assert world.sight.state_of(record) == state


@pytest.mark.parametrize("given", [None, "", "/none", "/here"])
@pytest.mark.parametrize("change", [lose_path, replace_path])
def test_del_uses_another_path_to_a_living_namespace(
    change: Callable[[World], object], given: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """With an empty CNI_NETNS the plugins would free an address that is in use."""
    world = World(records=[recorded()])
    change(world)
    assert delete(world, CHAIN, replace(BARE, netns=given)).netns == "/alias"
    assert "/here no longer leads to the namespace, but the namespace exists: DEL uses the path /alias" in caplog.text


def test_del_of_a_lost_path_is_refused_for_another_namespace() -> None:
    world = World(records=[recorded()])
    lose_path(world)
    with pytest.raises(NamespaceMismatchError, match="was attached in the namespace /here, but /other is another"):
        delete(world, CHAIN, replace(BARE, netns="/other"))
    assert (world.calls, list(world.recorded)) == ([], [("net", "c1", "eth0")])


def test_state_of_in_the_namespace_of_another_path() -> None:
    assert World().sight.state_of(recorded(), "/other") == "gone"


def test_an_interface_that_was_moved_is_renamed() -> None:
    world = World(interfaces={("/other", "eth9"): 5}, macs={("/other", "eth9"): MAC})
    assert world.sight.state_of(recorded()) == "renamed"
    assert (
        world.sight.find(recorded(), place_of(recorded()), "/here", "eth0", everywhere=True).found_as
        == "eth9 in /other"
    )
    assert world.sight.find(recorded(), place_of(recorded()), "/here", "eth0").found_as == ""


def test_an_interface_whose_name_another_one_has_is_not_searched_on_the_whole_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The walk takes a second on a large node. But the path that Go recorded may lead to another container by now."""
    moved = World(interfaces={ETH0: 9, ("/other", "eth9"): 2}, macs={ETH0: OTHER_MAC, ("/other", "eth9"): MAC}).sight
    assert moved.find(recorded(), place_of(recorded()), "/here", "eth0", everywhere=True).found_as == ""
    made_by_go = of_go(result=json.dumps(WITH_MAC))
    assert moved.find(made_by_go, place_of(made_by_go), "/here", "eth0", everywhere=True).found_as == "eth9 in /other"
    monkeypatch.setattr(moved, "_has_lost_host_end", lambda _: True)
    assert moved.find(made_by_go, place_of(made_by_go), "/here", "eth0", everywhere=True).found_as == ""
    assert moved.find(None, place_of(made_by_go), "/here", "eth0", everywhere=True).found_as == "eth9 in /other"


def test_each_state_is_in_the_tests_of_the_table() -> None:
    assert {state for state, _, _ in PLACES} == set(STATES)


@pytest.mark.parametrize(("state", "record", "change"), PLACES)
def test_what_add_does_in_each_state(state: State, record: Record, change: Callable[[World], object] | None) -> None:
    world = World(records=[record])
    if change is not None:
        change(world)
    refuses = STATES[state].add == "refuse"
    if state == "corrupt":
        remove_interface(world)
    if refuses:
        with pytest.raises(AttachmentExistsError):
            world.run(add_verb, CHAIN, HERE)
        assert (world.calls, list(world.recorded.values())) == ([], [record])
        return
    world.after["DEL a"] = remove_interface
    if change in {replace_interface, replace_namespace}:  # what is there is a neighbour's
        with pytest.raises(InterfaceExistsError):
            world.run(add_verb, CHAIN, HERE)
        assert "ADD a" not in world.verbs()
        return
    if state in {"stale-boot", "begun", "refused"}:
        remove_interface(world)
    world.run(add_verb, CHAIN, HERE)
    detached = ["DEL b", "DEL a"] if state not in {"corrupt", "begun", "refused"} else []
    assert world.verbs() == [*detached, "ADD a", "ADD b"]
    assert [one.state for one in world.recorded.values()] == [READY]


@pytest.mark.parametrize(("state", "record", "change"), PLACES)
def test_what_check_does_in_each_state(state: State, record: Record, change: Callable[[World], object] | None) -> None:
    world = World(records=[record])
    if change is not None:
        change(world)
    row: Row = STATES[state]
    if state == "unknown":
        with pytest.raises(RecordError, match="Go libcni recorded no namespace"):
            world.run(check, "net", CHAIN, BARE)
        world.run(check, "net", CHAIN, HERE)
        assert world.verbs() == ["CHECK a", "CHECK b"]
        return
    if state == "ready":
        world.run(check, "net", CHAIN, BARE)
        assert world.verbs() == ["CHECK a", "CHECK b"]
        return
    with pytest.raises(RecordError if state == "corrupt" else NotAttachedError) as caught:
        world.run(check, "net", CHAIN, BARE)
    assert not row.check
    problem = "the interface eth0 is now net1" if state == "renamed" else row.meaning
    assert state == "corrupt" or problem in str(caught.value)
    assert world.calls == []
    # A living container is not to be detached.
    advice = {"lost-path": "doctor", "renamed": ""}.get(state, "del")
    assert state == "corrupt" or (caught.value.hint is not None and caught.value.hint.command == advice)


@pytest.mark.parametrize(("state", "record", "change"), PLACES)
@pytest.mark.parametrize("netns", ["/here", "/alias", "/other", "/none", ""])
def test_check_with_use_given_runs_in_the_given_namespace_if_the_record_says_attached(
    netns: str, state: State, record: Record, change: Callable[[World], object] | None
) -> None:
    """The caller has decided: it does not matter what is at the recorded path, or whether its namespace lives."""
    world = World(records=[record])
    if change is not None:
        change(world)
    given = replace(HERE, netns=netns)
    if record.state == READY:
        world.run(check, "net", CHAIN, given, use_given=True)
        assert world.netns_of("CHECK") == [netns, netns]
        return
    with pytest.raises(RecordError if state == "corrupt" else NotAttachedError):
        world.run(check, "net", CHAIN, given, use_given=True)
    assert world.calls == []


@pytest.mark.parametrize(("is_reload", "command"), [(True, "reload"), (False, "del")])
def test_check_of_an_unfinished_attachment_names_the_command_that_helps(is_reload: bool, command: str) -> None:
    world = World(records=[recorded(state=PENDING, result=None, partial=REPORTED, is_reload=is_reload)])
    with pytest.raises(NotAttachedError) as caught:
        world.run(check, "net", CHAIN, BARE)
    assert caught.value.hint is not None
    assert (caught.value.hint.command, caught.value.hint.container_id) == (command, "c1")


@pytest.mark.parametrize(
    ("state", "record", "change", "netns"),
    [
        ("stale-boot", recorded(state=STALE_BOOT), None, ""),
        ("detaching", recorded(state=DETACHING), None, "/here"),
        ("pending", recorded(state=PENDING, result=None), None, "/here"),
        ("ready", recorded(), None, "/here"),
        ("lost", recorded(), remove_interface, "/here"),
        ("lost", recorded(), replace_interface, ""),
        ("lost-path", recorded(), lose_path, "/alias"),
        ("lost-path", recorded(), replace_path, "/alias"),
        ("gone", recorded(), replace_namespace, ""),
        ("gone", recorded(), lambda world: world.namespaces.pop("/here"), ""),
        ("ready", recorded(), lambda world: world.macs.update({ETH0: OTHER_MAC}), "/here"),
        ("lost", of_go(result=REPORTED.text), replace_interface, ""),
        ("gone", of_go(), lambda world: world.namespaces.pop("/here"), ""),
        ("ready", of_go(netns="opaque"), None, "opaque"),
        ("detaching", recorded(state=DETACHING), replace_interface, ""),
        ("detaching", recorded(state=DETACHING), lambda world: world.macs.update({ETH0: OTHER_MAC}), "/here"),
        ("pending", recorded(state=PENDING, result=None), replace_interface, ""),
        ("pending", recorded(state=PENDING, result=None, interface=NOT_OURS), None, ""),
    ],
)
def test_what_del_and_gc_do_in_each_state(
    state: State, record: Record, change: Callable[[World], object] | None, netns: str
) -> None:
    for verb in ("DEL", "GC"):
        world = World(records=[record])
        if change is not None:
            change(world)
        if verb == "DEL":
            assert delete(world, CHAIN, BARE).netns == netns
        else:
            world.run(gc_verb, "net", CHAIN, [], DelPolicy(), include_go=True)
        assert world.netns_of("DEL") == [netns, netns], state
        assert world.recorded == {}


def move_interface(world: World) -> None:
    """Move the interface to another namespace, where it gets another number."""
    remove_interface(world)
    world.interfaces["/other", "x"] = 3
    world.macs["/other", "x"] = MAC


def rename_and_create(world: World) -> None:
    """Rename the interface, and create another one with its name."""
    rename_interface(world)
    replace_interface(world)


def test_a_renamed_interface_keeps_its_record_and_its_address() -> None:
    for change, problem in (
        (rename_interface, "the interface eth0 is now net1"),
        (rename_and_create, "the interface eth0 is now net1"),
        (move_interface, "the interface eth0 is now x in /other"),
    ):
        world = World(records=[recorded()])
        change(world)
        with pytest.raises(NamespaceMismatchError, match=problem) as caught:
            delete(world, CHAIN, BARE)
        assert "use_given=True" in str(caught.value)
        with pytest.raises(CNIErrorGroup) as collected:
            world.run(gc_verb, "net", CHAIN, [], DelPolicy())
        assert isinstance(collected.value.exceptions[0], NamespaceMismatchError)
        assert (world.calls, list(world.recorded.values())) == ([], [recorded()])
        for word in ("replace", "allow"):
            with pytest.raises(NamespaceMismatchError, match=problem):
                world.run(add_verb, CHAIN, HERE, on_existing=word)
        assert (world.calls, list(world.recorded.values())) == ([], [recorded()])
        delete(world, CHAIN, HERE, use_given=True)
        assert world.netns_of("DEL") == ["/here", "/here"]
        assert world.recorded == {}


# the question before each plugin


@pytest.mark.parametrize("change", [replace_interface, replace_namespace])
def test_what_comes_while_a_del_runs_is_left_alone(
    change: Callable[[World], object], caplog: pytest.LogCaptureFixture
) -> None:
    world = World(records=[recorded()], after={"DEL b": change})
    with caplog.at_level(logging.WARNING, "libcni"):
        delete(world, network("a", "x", "b"), BARE, use_given=False)
    assert world.netns_of("DEL") == ["/here", ""]
    assert [line for line in caplog.messages if "does not belong to this attachment" in line] == [
        "eth0 in /here does not belong to this attachment: DEL leaves it alone"
    ]


def test_a_hardware_address_that_a_plugin_puts_back_is_no_other_interface() -> None:
    """The plugin tuning puts the earlier address back at its DEL, before bridge runs."""
    world = World(records=[recorded()], after={"DEL b": lambda one: one.macs.update({ETH0: OTHER_MAC})})
    delete(world, CHAIN, BARE)
    assert world.netns_of("DEL") == ["/here", "/here"]


def test_an_interface_that_is_renamed_while_a_del_runs_stops_it() -> None:
    world = World(records=[recorded()], after={"DEL b": rename_interface})
    with pytest.raises(NamespaceMismatchError, match="is now net1"):
        delete(world, CHAIN, BARE)
    assert world.verbs() == ["DEL b"]
    assert [one.state for one in world.recorded.values()] == [DETACHING]


def test_a_namespace_of_this_program_is_never_entered() -> None:
    world = World(records=[of_go()], own_netns="/here")
    assert delete(world, CHAIN, BARE).netns == ""
    assert delete(World(own_netns="/here"), CHAIN, HERE).netns == ""
    assert delete(World(records=[recorded()], own_netns="/here"), CHAIN, BARE).netns == "/here", "allow_own_netns=True"


def test_without_a_record_an_interface_is_left_alone() -> None:
    world = World()
    assert delete(world, CHAIN, HERE).netns == ""
    remove_interface(world)
    assert delete(world, CHAIN, HERE).netns == "/here", "there is nothing to lose, and plugins may need the namespace"
    make_interface(world)
    assert delete(world, CHAIN, HERE, use_given=True).netns == "/here"


@pytest.mark.parametrize("records", [(), ("corrupt",)])
def test_del_without_a_usable_record_refuses_an_interface_if_asked(records: tuple[str, ...]) -> None:
    world = World(records=[CORRUPT_RECORD] if records else [])
    with pytest.raises(InterfaceExistsError, match="DEL would free the interface's address") as caught:
        delete(world, CHAIN, HERE, refuse_unrecorded=True)
    assert (caught.value.container_id, caught.value.network, caught.value.netns) == ("c1", "net", "/here")
    assert (world.calls, len(world.recorded)) == ([], len(records))
    assert delete(world, CHAIN, replace(HERE, netns=""), refuse_unrecorded=True).netns == ""
    world = World(records=[CORRUPT_RECORD] if records else [])
    assert delete(world, CHAIN, HERE, refuse_unrecorded=True, use_given=True).netns == "/here"
    remove_interface(world)
    assert delete(world, CHAIN, HERE, refuse_unrecorded=True).netns == "/here"
    world = World(records=[recorded()])
    assert delete(world, CHAIN, HERE, refuse_unrecorded=True).netns == "/here"


CORRUPT_RECORD = Unreadable("net", "c1", "eth0", state=CORRUPT, path="/cache/net-c1-eth0", problem="it is empty")


def test_a_del_of_a_record_that_cannot_be_read_needs_the_namespace_in_words() -> None:
    world = World(records=[CORRUPT_RECORD])
    with pytest.raises(RecordError, match="the namespace of the attachment is not known") as caught:
        delete(world, CHAIN, BARE)
    assert (caught.value.missing, caught.value.path) == ("namespace", CORRUPT_RECORD.path)
    assert (world.calls, list(world.recorded.values())) == ([], [CORRUPT_RECORD])
    for given in ("/here", ""):
        world = World(records=[CORRUPT_RECORD])
        assert delete(world, CHAIN, replace(HERE, netns=given)).netns == given
        assert world.recorded == {}


@pytest.mark.parametrize(
    ("theirs", "netns"),
    [
        (recorded(container_id="c2"), ""),
        (recorded(container_id="c2", ifname="eth1"), ""),
        (recorded(container_id="c2", interface=Known(3, MAC)), "/here"),
        (recorded(container_id="c2", netns_id=(4, 8)), "/here"),
        (replace(of_go(), container_id="c2"), "/here"),
    ],
    ids=["the same", "another name", "another number", "another namespace", "Go's"],
)
@pytest.mark.parametrize("mine", [CORRUPT_RECORD, of_go()], ids=["unreadable", "Go's"])
def test_an_interface_of_another_record_is_left_alone(mine: Record, theirs: Record, netns: str) -> None:
    world = World(records=[mine, theirs])
    assert delete(world, CHAIN, HERE).netns == netns


def test_records_that_cannot_be_listed_never_stop_a_del(caplog: pytest.LogCaptureFixture) -> None:
    world = World({"list": RecordError("no")}, records=[CORRUPT_RECORD])
    with caplog.at_level(logging.WARNING, "libcni"):
        report = delete(world, CHAIN, HERE)
    assert [one.state for one in report.plugins] == ["done", "done"]
    assert "the interfaces, addresses and ports of other attachments are unknown: no" in caplog.text


def test_a_path_that_is_no_namespace_is_no_dead_end() -> None:
    """Plugins refuse such a path. The last try has none."""
    wrong = attached(CHAIN, RuntimeConf("c1", "/wrong", "eth0"), state=PENDING, result=None, netns_id=(1, 2))
    namespaces = {"/wrong": (1, 2), "/right": (3, 4)}
    node = RecordingRun({("DEL", "b"): failed()}, records=[wrong], namespaces=namespaces, not_namespaces=["/wrong"])
    with pytest.raises(PluginError):
        delete(node, CHAIN, BARE)
    assert [call.env["CNI_NETNS"] for call in node.calls][-2:] == ["/wrong", ""]
    node = RecordingRun(records=[wrong], namespaces=namespaces, not_namespaces=["/wrong"])
    delete(node, CHAIN, RuntimeConf("c1", "/right", "eth0"))
    assert {call.env["CNI_NETNS"] for call in node.calls} == {""}
    assert node.recorded == {}


# an ADD

THREE = network("a", "b", "c")


def empty_world(*args: Any, **more: Any) -> World:
    return World(*args, **{"interfaces": {}, "macs": {}, **more})


def test_an_add_looks_twice_before_the_first_plugin_and_once_before_and_after_each_further_one() -> None:
    world = empty_world({("ADD", "a"): printed(interfaces=WITH_MAC["interfaces"])}, after={"ADD a": make_interface})
    world.run(add_verb, THREE, HERE)
    assert world.looks <= 2 * len(THREE.plugins) + 2
    (record,) = world.recorded.values()
    assert (record.netns_id, record.netns_cookie, record.interface) == ((4, 7), 70, Known(2, MAC))


@pytest.mark.parametrize(
    ("change", "kind", "problem"),
    [
        (make_interface, InterfaceExistsError, "already has an interface eth0"),
        (replace_namespace, NamespaceMismatchError, "the namespace at /here was replaced during the ADD"),
    ],
)
@pytest.mark.parametrize("moment", ["begin net", "started net"])
@pytest.mark.parametrize("way", ["DEL", "GC", "ADD"])
def test_what_comes_while_the_record_is_written_refuses_the_add(
    change: Callable[[World], object], kind: type[CNIError], problem: str, way: str, moment: str
) -> None:
    """The refused ADD owns neither the interface nor an address; when the interface has gone, ADD succeeds."""
    world = empty_world(after={moment: change})
    with pytest.raises(kind, match=problem):
        world.run(add_verb, CHAIN, HERE)
    assert world.calls == []
    world.after.clear()
    (record,) = world.recorded.values()
    assert record.state == REFUSED
    if way == "DEL":
        delete(world, CHAIN, HERE)
    elif way == "GC":
        world.run(gc_verb, "net", CHAIN, [], DelPolicy())
    else:
        remove_interface(world)
        world.run(add_verb, CHAIN, HERE)
    verbs = ["ADD a", "ADD b"] if way == "ADD" else []
    assert world.verbs() == verbs, "no plugin of the first ADD has run, so none has anything to remove"
    assert [one.state for one in world.recorded.values()] == [READY] * (way == "ADD")


def test_an_attachment_that_is_replaced_on_its_network_always_has_a_record() -> None:
    """After a kill between its DEL and the ADD a reload can restore it."""
    world = World(records=[recorded()], after={"DEL a": remove_interface})
    world.run(add_verb, CHAIN, HERE, on_existing="replace")
    assert world.verbs() == ["DEL b", "DEL a", "ADD a", "ADD b"]
    assert "forget net" not in world.log


def test_a_refusal_after_a_corrupt_record_runs_the_plugins_at_del() -> None:
    """An earlier ADD may have run: its address must not stay reserved for ever."""
    world = World(records=[CORRUPT_RECORD])
    with pytest.raises(InterfaceExistsError):
        world.run(add_verb, CHAIN, HERE)
    (record,) = world.recorded.values()
    assert (record.state, world.calls) == (PENDING, [])
    delete(world, CHAIN, HERE)
    assert world.verbs() == ["DEL b", "DEL a"]


@pytest.mark.parametrize("change", [replace_interface, replace_namespace])
def test_a_roll_back_leaves_a_neighbours_interface_alone(change: Callable[[World], object]) -> None:
    reporting = {("ADD", "a"): printed(interfaces=WITH_MAC["interfaces"]), ("ADD", "b"): failed()}
    world = empty_world(reporting, after={"ADD a": make_interface, "ADD b": change})
    with pytest.raises(PluginError):
        world.run(add_verb, CHAIN, HERE)
    assert world.netns_of("DEL") == ["", ""]
    assert world.recorded == {}


def test_a_roll_back_removes_what_the_add_has_made() -> None:
    for plugin in ("a", "b"):
        world = empty_world({("ADD", plugin): failed()}, after={"ADD a": make_interface})
        with pytest.raises(PluginError):
            world.run(add_verb, CHAIN, HERE)
        assert world.netns_of("DEL") == ["/here", "/here"]


def test_what_came_before_the_plugin_that_makes_the_interface_is_left_alone() -> None:
    """A first plugin that makes no interface, and a neighbour who comes while it runs."""
    quiet = Outcome(stdout=b'{"cniVersion":"1.0.0"}')
    world = empty_world({("ADD", "a"): quiet, ("ADD", "b"): failed()}, after={"ADD a": make_interface})
    with pytest.raises(PluginError):
        world.run(add_verb, CHAIN, HERE)
    assert world.netns_of("DEL") == ["", ""]


@pytest.mark.parametrize("netns", ["", "/here"])
def test_what_a_killed_add_had_made_is_known(netns: str) -> None:
    """The place is kept beside the result: with it the next DEL tells a neighbour's interface from this ADD's."""
    world = empty_world({("ADD", "b"): failed()}, after={"ADD a": make_interface})
    with pytest.raises(PluginError):
        world.run(add_verb, CHAIN, HERE, rollback=False)
    if not netns:
        replace_interface(world)
    assert delete(world, CHAIN, BARE).netns == netns
    assert world.stdin("DEL", "a")["prevResult"] == RESULT


@pytest.mark.parametrize(
    "other",
    [
        recorded(network="inner"),
        recorded(container_id="c2", state=STALE_BOOT),
        recorded(container_id="c2", interface=Known(3), result='{"cniVersion":"1.0.0"}'),
    ],
    ids=["a meta-plugin's, of the same interface", "of an earlier boot", "without addresses"],
)
def test_an_address_that_nobody_else_has_is_handed_to_plugins(other: Record) -> None:
    """Otherwise the plugin firewall leaves its rules, and nothing says so."""
    world = World(records=[recorded(), other])
    delete(world, CHAIN, BARE)
    assert world.stdin("DEL", "a")["prevResult"]["ips"] == RESULT["ips"]
    assert world.netns_of("DEL") == ["/here", "/here"]


def test_a_new_namespace_at_the_path_is_no_reason_to_refuse() -> None:
    """A container that was restarted under its name; the kernel gave the inode number again."""
    world = empty_world(records=[recorded(netns_cookie=69)])
    world.run(add_verb, CHAIN, HERE)
    assert (world.netns_of("DEL"), world.netns_of("ADD")) == (["", ""], ["/here", "/here"])


@pytest.mark.parametrize(
    ("interface", "is_asked"), [(ABSENT, False), (NOT_OURS, False), (Known(2, MAC), False), (UNKNOWN, True)]
)
def test_the_records_of_all_are_read_only_if_the_kernel_does_not_know(interface: Any, is_asked: bool) -> None:
    """That takes 58 ms beside 10,000 attachments."""
    record = recorded(is_original=True, interface=interface, result=None)
    assert Claim.of(World(), record, "/here").asks_others() is is_asked
    assert not Claim.of(World(interfaces={}), record, "/here").asks_others()


def test_the_del_of_a_container_that_has_ended_warns_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    world = World(records=[recorded()], namespaces={}, cookies={}, interfaces={})
    assert delete(world, CHAIN, BARE).netns == ""
    assert caplog.messages == []


def test_the_question_of_a_claim_without_a_path() -> None:
    assert Claim(World(), None, Place(), "", "eth0").prepare_del() == ""


def test_a_first_plugin_that_fails_and_leaves_nothing_has_made_nothing() -> None:
    """A neighbour who comes during the roll-back, or before a later DEL."""
    world = empty_world({("ADD", "a"): failed()}, after={"DEL b": make_interface})
    with pytest.raises(PluginError):
        world.run(add_verb, CHAIN, HERE)
    assert world.netns_of("DEL") == ["/here", ""]
    world = empty_world({("ADD", "a"): failed()})
    with pytest.raises(PluginError):
        world.run(add_verb, CHAIN, HERE, rollback=False)
    make_interface(world)
    assert delete(world, CHAIN, BARE).netns == ""


def test_what_a_failed_plugin_leaves_is_recorded_with_the_result_of_the_one_before() -> None:
    """A later DEL gives it to the plugins: firewall finds the address only there."""
    world = empty_world({("ADD", "b"): failed()}, after={"ADD b": make_interface})
    with pytest.raises(PluginError):
        world.run(add_verb, CHAIN, HERE, rollback=False)
    (record,) = world.recorded.values()
    assert (record.interface, json.loads(record.last_result or "{}")["ips"]) == (Known(2, MAC), RESULT["ips"])


@pytest.mark.parametrize("still", [True, RecordError("the lock file cannot be read")])
def test_a_failed_plugin_that_still_runs_may_make_its_interface_later(
    still: bool | RecordError, monkeypatch: pytest.MonkeyPatch
) -> None:
    def has_running_plugin() -> bool:
        if isinstance(still, RecordError):
            raise still
        return still

    world = empty_world({("ADD", "a"): failed()})
    monkeypatch.setattr(world, "has_running_plugin", has_running_plugin)
    with pytest.raises(PluginError):
        world.run(add_verb, CHAIN, HERE, rollback=False)
    make_interface(world)
    assert delete(world, CHAIN, BARE).netns == "/here"


# what others have


@pytest.mark.parametrize("state", [READY, DETACHING])
@pytest.mark.parametrize("change", [None, remove_interface, replace_namespace])
def test_an_address_that_was_given_away_is_left_out_in_every_state(
    state: State, change: Callable[[World], object] | None
) -> None:
    """A DEL has freed it, or somebody. The plugin firewall would delete the rules of the new owner."""
    world = World(records=[recorded(state=state), recorded(container_id="c2", interface=Known(3), netns_id=(4, 8))])
    if change is not None:
        change(world)
    delete(world, CHAIN, BARE)
    assert [world.stdin("DEL", plugin)["prevResult"]["ips"] for plugin in ("a", "b")] == [[], []]


def test_a_copied_record_stops_its_own_del() -> None:
    """Somebody copied a file and edited the names in it, so its seal does not fit. The error names both records."""
    mine, copied = recorded(), recorded(container_id="c2", path="/cache/net-c2-eth0", is_original=False)
    world = World(records=[mine, copied])
    with pytest.raises(NamespaceMismatchError, match="net-c2-eth0 and /cache/net-c1-eth0"):
        delete(world, CHAIN, RuntimeConf("c2", None, "eth0"))
    with pytest.raises(CNIErrorGroup) as caught:
        world.run(gc_verb, "net", CHAIN, [("c1", "eth0")], DelPolicy())
    assert isinstance(caught.value.exceptions[0], NamespaceMismatchError)
    assert [call.verb for call in world.calls if call.verb == "DEL"] == []
    assert list(world.recorded.values()) == [mine, copied]


def test_a_copied_record_does_not_stop_the_del_of_the_original() -> None:
    """The index under the cookie is the original's, so no other record is asked."""
    mine, copied = recorded(), recorded(container_id="c2", path="/cache/net-c2-eth0", is_original=False)
    world = World(records=[mine, copied])
    assert delete(world, CHAIN, BARE).netns == "/here"
    assert list(world.recorded.values()) == [copied]


@pytest.mark.parametrize("given", [None, "0"])
def test_the_plugins_of_an_attachment_in_the_programs_own_namespace_are_told_so(given: str | None) -> None:
    """Plugins since 1.2 refuse their own namespace otherwise: at ADD, at CHECK, and at the DEL of a later program."""
    world = empty_world(own_netns="/here")
    if given is not None:
        world.settings = replace(world.settings, env={"CNI_NETNS_OVERRIDE": given})
    world.run(add_verb, CHAIN, HERE, allow_own_netns=True)
    assert [record.is_own_netns for record in world.recorded.values()] == [True]
    again = World(records=[recorded(is_own_netns=True)])
    again.settings = world.settings
    again.run(check, "net", CHAIN, HERE)
    delete(again, CHAIN, BARE)
    sent = {call.env.get("CNI_NETNS_OVERRIDE") for call in (*world.calls, *again.calls)}
    assert sent == {None if given else "1"}, "a user's own value is in the environment already"
    other = World(records=[recorded()])
    delete(other, CHAIN, BARE)
    assert {call.env.get("CNI_NETNS_OVERRIDE") for call in other.calls} == {None}


@pytest.mark.parametrize(("verdict", "is_refused"), [("alive", True), ("unknown", True), ("dead", False)])
def test_the_del_of_another_programs_own_namespace_from_elsewhere(
    verdict: Any, is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its path leads to the own namespace of each program. The interface keeps its address."""
    monkeypatch.setattr(life_of_record, "life_of", lambda record: Answer(verdict, "kernel", ""))
    record = recorded(is_own_netns=True)
    world = World(records=[record], cookies={**COOKIES, "/here": 99})
    if is_refused:
        with pytest.raises(NamespaceMismatchError, match="this program is in another one"):
            delete(world, CHAIN, BARE)
        assert (world.calls, list(world.recorded.values())) == ([], [record])
    else:
        assert delete(world, CHAIN, BARE).netns == ""
    assert delete(World(records=[record]), CHAIN, BARE).netns == "/here"


def reload(world: World) -> list[Any]:
    record = next(iter(world.recorded.values()))
    listed = Attachment("c1", "eth0", "net", "/here", "ready", None, record.path, record=record)
    return list(world.run(reload_verb, listed).values())


@pytest.mark.parametrize("on_existing", ["replace", "allow"])
def test_an_add_that_fails_for_a_full_disk_has_removed_no_renamed_interface(
    on_existing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim, "is_abandoned", lambda *_: True)
    full = RecordError("the disk is full")
    world = World({"ensure-writable": full, "again": full}, records=[recorded()])
    world.interfaces, world.macs = {("/here", "e"): 2}, {("/here", "e"): MAC}
    with pytest.raises(RecordError, match="full"):
        world.run(add_verb, CHAIN, HERE, on_existing=on_existing)
    assert (list(world.interfaces), world.calls) == ([("/here", "e")], [])


def test_to_ask_whether_an_interface_may_be_removed_changes_and_says_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    lose_path(world)
    asked = Claim.of(world, recorded(), "/here")
    assert asked.may_remove()
    assert (asked.path, asked.seen, caplog.messages) == ("/here", None, [])
    assert asked.prepare_del() == asked.path == "/alias"
    replaced = World()
    replace_interface(replaced)
    assert not Claim.of(replaced, recorded(), "/here").may_remove()
    assert Claim.to_any(replaced, recorded(), "/here", "eth0").may_remove()
    assert not Claim.of(World(), recorded(), "").may_remove()


@pytest.mark.parametrize("verb", ["reload", "replace"])
def test_an_event_loop_does_not_wait_while_the_records_of_all_are_read(verb: str) -> None:
    """On an asyncio client ``on_disk`` is a thread."""
    reads = []

    class Watched(World):
        is_in_thread = False

        async def on_disk(self, work: Callable[[], Any], *, is_short: bool = False) -> Any:
            self.is_in_thread = True
            try:
                return await super().on_disk(work, is_short=is_short)
            finally:
                self.is_in_thread = False

    class Watching(OtherRecords):
        def with_interface(self, seen: Place, but: Record | None) -> Iterator[OtherRecord]:
            reads.append(world.is_in_thread)
            return super().with_interface(seen, but)

    world = Watched(records=[of_go(result=json.dumps(WITH_MAC))], after={"DEL a": remove_interface})
    world.others = Watching(world.records)
    if verb == "reload":
        reload(world)
    else:
        world.run(add_verb, CHAIN, HERE, on_existing="replace")
    assert reads[0]


def test_attachments_that_share_rules_are_attached_again_in_the_order_of_their_adds() -> None:
    """The default route and the first address are those of the first network."""
    later = recorded(created=2.0)
    first = attached(CHAIN, replace(HERE, ifname="eth1"), netns_id=(4, 7), netns_cookie=70, created=1.0)
    world = World(records=[later, first.with_fields(interface=Known(3, OTHER_MAC), path="/cache/net-c1-eth1")])
    world.interfaces["/here", "eth1"], world.macs["/here", "eth1"] = 3, OTHER_MAC
    world.after = {"DEL a": lambda world: world.interfaces.clear()}
    reload(world)
    assert [(call.verb, call.ifname) for call in world.calls if call.plugin == "a"] == [
        *[("DEL", "eth0"), ("DEL", "eth1")],
        *[("ADD", "eth1"), ("ADD", "eth0")],
    ]


def test_an_attachment_that_shares_rules_and_cannot_be_reloaded_stops_no_reload() -> None:
    """Its ADD was killed before any plugin ended, so nobody uses it."""
    killed = attached(CHAIN, replace(HERE, ifname="eth1"), state=PENDING, result=None, path="/cache/net-c1-eth1")
    world = World(records=[recorded(), killed], after={"DEL a": remove_interface})
    assert [type(outcome) for outcome in reload(world)] == [Result]


def test_a_reload_is_refused_if_another_interface_has_the_address() -> None:
    record = recorded(result=REPORTED.text)
    world = World(records=[record])
    remove_interface(world)
    world.carriers = dict.fromkeys(own_addresses(record), "br0")
    with pytest.raises(NamespaceMismatchError, match="br0 has its address"):
        reload(world)
    assert (world.calls, list(world.recorded.values())) == ([], [record])


def test_what_a_failed_plugin_of_a_reload_did_not_make_is_not_removed() -> None:
    def come(world: World) -> None:
        if "ADD a" in world.verbs():  # a neighbour comes during the roll-back
            make_interface(world)

    world = World({("ADD", "a"): failed()}, records=[recorded()], after={"DEL a": remove_interface, "DEL b": come})
    assert isinstance(reload(world)[0], PluginError)
    netns = world.netns_of("DEL")
    assert (netns[:2], netns[3]) == (["/here", "/here"], ""), netns


@pytest.mark.parametrize(
    ("change", "problem"),
    [(replace_interface, "appeared during the reload"), (replace_namespace, "was replaced during")],
)
def test_what_comes_between_the_del_and_the_add_of_a_reload_is_left_alone(
    change: Callable[[World], object], problem: str
) -> None:
    world = World(records=[recorded()], after={"DEL a": change})
    (error,) = reload(world)
    assert isinstance(error, NamespaceMismatchError)
    assert problem in str(error)
    assert (world.netns_of("ADD"), world.recorded) == ([], {})


def test_a_reload_whose_roll_back_failed_keeps_the_record() -> None:
    """A later DEL repeats it. Without the record nobody would know what the plugins have left."""

    def replace_and_fail(world: World) -> None:
        replace_namespace(world)
        world.answers["DEL", "b"] = failed()

    world = World(records=[recorded()], after={"DEL a": remove_interface, "ADD a": replace_and_fail})
    (error,) = reload(world)
    assert isinstance(error, NamespaceMismatchError)
    assert [note.partition(":")[0] for note in error.__notes__] == ["when it was rolled back"]
    assert [one.state for one in world.recorded.values()] == [PENDING]


def test_after_a_kill_the_interface_of_a_reload_is_not_the_earlier_one() -> None:
    """Otherwise a DEL would leave the new one alone."""

    def interrupt(_world: World) -> None:
        raise KeyboardInterrupt

    world = World(records=[recorded()], after={"DEL a": remove_interface, "ADD a": interrupt})
    with pytest.raises(KeyboardInterrupt):
        reload(world)
    assert [record.interface for record in world.recorded.values()] == [UNKNOWN]


def test_a_failed_reload_keeps_the_earlier_result_on_record() -> None:
    """The next reload requests the addresses that the attachment had, not those of the failed ADD."""
    answers = {("ADD", "a"): printed(ips=[{"address": "10.0.0.9/24"}]), ("ADD", "b"): failed()}
    world = World(answers, records=[recorded()], after={"DEL a": remove_interface})
    (error,) = reload(world)
    assert isinstance(error, PluginError)
    assert [(one.last_result, one.interface) for one in world.recorded.values()] == [(recorded().result, UNKNOWN)]


def restore_address(world: World) -> None:
    """Let a plugin's DEL give the interface the hardware address from before the ADD, as tuning does."""
    world.macs[ETH0] = OTHER_MAC


@pytest.mark.parametrize("record", [recorded(netns_cookie=None), of_go(result=json.dumps(WITH_MAC))])
def test_a_hardware_address_that_changes_during_del_is_no_other_interface(record: Record) -> None:
    """Without a cookie the address counts, but only at the first look."""
    world = World(records=[record], cookies={}, after={"DEL b": restore_address})
    delete(world, CHAIN, BARE)
    assert world.netns_of("DEL") == ["/here", "/here"]


@pytest.mark.parametrize("is_moved", [False, True])
def test_a_renamed_interface_that_nobody_uses_is_removed_by_its_index(
    is_moved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container renames its eth0 and ends, and only the hook's pin keeps its namespace."""
    asked: list[str] = []

    def is_abandoned(cache_dir: str, path: str) -> bool:
        asked.append(path)
        return not is_moved

    monkeypatch.setattr(claim, "is_abandoned", is_abandoned)
    world = World(records=[recorded()], interfaces={("/here", "e"): 2}, macs={("/here", "e"): MAC})
    if is_moved:
        with pytest.raises(NamespaceMismatchError, match="is now e"):
            delete(world, CHAIN, BARE)
        assert (len(world.recorded), list(world.interfaces)) == (1, [("/here", "e")])
    else:
        assert delete(world, CHAIN, BARE).netns == "/here"
        assert (world.recorded, world.interfaces) == ({}, {})
    assert asked == ["/here"]


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(recorded(netns_cookie=None), id="no cookie"),
        pytest.param(recorded(interface=UNKNOWN, result=json.dumps(WITH_MAC)), id="no index"),
    ],
)
def test_an_index_or_a_cookie_alone_removes_no_renamed_interface(
    record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim, "is_abandoned", lambda *_: True)
    world = World(records=[record], interfaces={("/here", "e"): 2}, macs={("/here", "e"): MAC})
    with pytest.raises(NamespaceMismatchError, match="is now e"):
        delete(world, CHAIN, BARE)
    assert list(world.interfaces) == [("/here", "e")]


@pytest.mark.parametrize("change", [remove_interface, replace_interface])
def test_an_address_that_another_interface_of_the_namespace_has_is_not_freed(
    change: Callable[[World], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    record = recorded(result=REPORTED.text)
    (address,) = own_addresses(record)
    world = World(records=[record])
    change(world)
    world.carriers = {address: "br0"}
    with pytest.raises(NamespaceMismatchError, match=f"br0 has its address {address}"):
        delete(world, CHAIN, BARE)
    assert (world.verbs(), list(world.recorded.values())) == ([], [record])
    assert world.run(delete_verb, "net", CHAIN, HERE, DelPolicy(use_given=True)).plugins
    world = World(records=[record])
    change(world)
    world.carriers = {address: "br0"}
    monkeypatch.setattr(claim, "is_abandoned", lambda *_: True)
    assert delete(world, CHAIN, BARE).plugins


def test_the_address_of_an_interface_that_is_there_is_not_searched_elsewhere() -> None:
    """A virtual machine's bridge in the namespace has the address too, for example. The DEL removes the interface."""
    world = World(records=[recorded(result=REPORTED.text)])
    world.carriers = dict.fromkeys(own_addresses(recorded(result=REPORTED.text)), "br0")
    assert delete(world, CHAIN, BARE).netns == "/here"


def test_a_meta_plugin_has_its_interface_on_two_networks() -> None:
    world = World(records=[recorded(), recorded(network="inner", path="/cache/inner-c1-eth0")])
    assert delete(world, CHAIN, BARE).netns == "/here"


# what is left


MASKED = network({"type": "bridge", "ipMasq": True}, {"type": "b"})
DEVICE = network({"type": "host-device", "ipam": {"type": "host-local"}})


@pytest.mark.parametrize(
    ("state", "change", "kinds"),
    [
        ("ready", None, []),
        ("ready", remove_interface, ["masquerade"]),
        ("ready", replace_namespace, ["masquerade"]),
        ("stale-boot", replace_namespace, []),  # no rule survives a reboot
    ],
)
def test_del_says_which_rules_stay(
    state: State, change: Callable[[World], object] | None, kinds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """bridge reads the addresses of its masquerade rules from the interface."""
    monkeypatch.setattr(leftovers, "_may_be_masqueraded", lambda *_: True)
    record = attached(MASKED, HERE, netns_id=(4, 7), netns_cookie=70, interface=Known(2, MAC), state=state)
    world = World(records=[record])
    if change is not None:
        change(world)
    left = delete(world, None, BARE).left
    assert [one.kind for one in left] == kinds
    for one in left:
        assert (one.plugin, one.network, one.container_id, one.ifname) == ("bridge", "net", "c1", "eth0")
        assert one.addresses == ("192.0.2.77",)
        assert str(one) == "bridge did not remove the masquerade rules of 192.0.2.77"


OWN_CHAIN = rules.masquerade_chain("net", "c1")


@pytest.mark.parametrize(
    ("saved", "kinds"),
    [
        ({"iptables": ("nat", "POSTROUTING", f"-A POSTROUTING -s 192.0.2.77/32 -j {OWN_CHAIN}")}, ["masquerade"]),
        ({"iptables": ("nat", "POSTROUTING", f"-A POSTROUTING -s 192.0.2.78/32 -j {OWN_CHAIN}")}, []),
        ({"iptables": ("nat", "POSTROUTING", "-A POSTROUTING -s 192.0.2.77/32 -j CNI-OTHER")}, []),
        ({"nft": (rules.MASQUERADE, "masq_checks", "marked")}, ["masquerade"]),
        ({"iptables": FileNotFoundError(), "nft": FileNotFoundError()}, []),
        ({"nft": PermissionError()}, ["masquerade"]),
        ({}, []),
    ],
    ids=["there", "of its other interface", "another container's", "nftables", "no program", "unreadable", "removed"],
)
def test_a_repeated_del_asks_for_the_rules(
    saved: dict[str, Any], kinds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """bridge removes link and rules and then fails, if its chain was flushed. Or it was killed between the two."""

    def saved_rules(program: str, _env: object, **_about: object) -> dict[str, rules.Table]:
        found = saved.get(program, ())
        if isinstance(found, OSError):
            raise found
        tables = {name: rules.Table() for name in ("nat", rules.MASQUERADE)}
        if found:
            mark = rules.masquerade_mark("net", "c1", "eth0")
            words = f"add rule {rules.MASQUERADE} masq_checks comment {mark}" if found[2] == "marked" else found[2]
            tables[found[0]].add(found[1], tuple(words.split()))
        return tables

    monkeypatch.setattr(rules, "saved_rules", saved_rules)

    class Repeated(World):
        async def run_plugin(self, invocation: Invocation, options: CallOptions) -> Outcome:
            await super().run_plugin(invocation, options)
            remove_interface(self)
            return failed() if len(self.calls) == 1 else Outcome()

    record = attached(MASKED, HERE, netns_id=(4, 7), netns_cookie=70, interface=Known(2, MAC))
    world = World(records=[record.with_fields(state="detaching")])
    remove_interface(world)
    assert [one.kind for one in delete(world, None, BARE).left] == kinds
    world = Repeated(records=[record])
    with pytest.raises(PluginError):
        delete(world, None, BARE)
    assert [one.kind for one in delete(world, None, BARE).left] == kinds


def test_a_bridge_without_ip_masq_leaves_nothing() -> None:
    chain = network({"type": "bridge"}, {"type": "b"})
    world = World(records=[attached(chain, HERE, netns_id=(4, 7), netns_cookie=70, interface=Known(2, MAC))])
    remove_interface(world)
    assert delete(world, None, BARE).left == ()


def test_plugins_that_have_made_nothing_of_a_kind_leave_nothing_of_it() -> None:
    """An ADD without any result has created no rule, and a device without IPAM has no address."""
    fields = {"netns_id": (4, 7), "netns_cookie": 70, "interface": Known(2, MAC)}
    killed = attached(MASKED, HERE, state=PENDING, result=None, **fields)
    bare = attached(network({"type": "host-device"}), HERE, state=STALE_BOOT, **fields)
    for record in (killed, bare):
        world = World(records=[record])
        remove_interface(world)
        assert delete(world, None, BARE).left == ()


@pytest.mark.parametrize(("state", "kinds"), [("ready", []), ("stale-boot", ["reservation"])])
def test_del_says_which_reservation_stays(state: State, kinds: list[str]) -> None:
    """host-device does not call its IPAM plugin without a namespace."""
    record = attached(DEVICE, HERE, netns_id=(4, 7), netns_cookie=70, interface=Known(2, MAC), state=state)
    world = World(records=[record])
    report = delete(world, None, BARE)
    text = "host-device did not remove the reservation of 192.0.2.77"
    assert [str(one) for one in report.left] == [text for _ in kinds]
    assert world.recorded == {}


# after a reboot


def test_a_plugin_that_fails_after_a_reboot_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """sbr needs its namespace, and nothing of it can exist."""
    chain = network({"type": "bridge", "ipam": {"type": "host-local"}}, {"type": "sbr"})
    for verb in ("DEL", "GC", "ADD"):
        world = empty_world({("DEL", "sbr"): failed()}, records=[attached(chain, HERE, state=STALE_BOOT)])
        if verb == "DEL":
            report = delete(world, chain, BARE)
            assert [one.state for one in report.plugins] == ["failed", "done"]
        elif verb == "GC":
            world.run(gc_verb, "net", chain, [], DelPolicy())
        else:
            world.run(add_verb, chain, HERE)
        assert world.verbs()[:2] == ["DEL sbr", "DEL bridge"]
        assert [one.state for one in world.recorded.values()] == [READY] * (verb == "ADD")
    assert "DEL goes on, because the attachment is of an earlier boot" in caplog.text


def test_an_address_that_an_ipam_plugin_cannot_release_after_a_reboot_keeps_the_record() -> None:
    chain = network({"type": "bridge", "ipam": {"type": "host-local"}}, {"type": "sbr"})
    world = World({("DEL", "bridge"): failed(), ("DEL", "sbr"): failed()}, records=[attached(chain, state=STALE_BOOT)])
    with pytest.raises(CNIErrorGroup) as caught:
        delete(world, chain, BARE)
    assert len(caught.value.exceptions) == 1
    assert len(world.recorded) == 1


def test_use_given_is_honoured_after_a_reboot() -> None:
    world = World(records=[recorded(state=STALE_BOOT)])
    assert delete(world, network("x"), HERE, use_given=True).netns == "/here"
    assert world.verbs() == ["DEL x"]


# records of Go


def test_a_record_of_go_without_a_namespace_needs_one_in_words() -> None:
    go = of_go(netns="")
    for options in ({}, {"keep_going": True}):
        world = World(records=[go])
        with pytest.raises(RecordError, match='path, or "" if the namespace no longer exists') as caught:
            delete(world, CHAIN, BARE, **options)
        assert caught.value.missing == "namespace"
        assert (world.calls, list(world.recorded.values())) == ([], [go])
    with pytest.raises(CNIErrorGroup):
        world.run(gc_verb, "net", CHAIN, [], DelPolicy(), include_go=True)
    assert "DEL a" not in world.verbs()
    for netns in ("/here", ""):
        world = World(records=[go])
        assert delete(world, CHAIN, RuntimeConf("c1", netns, "eth0")).netns == netns
        assert world.recorded == {}


# an ADD that loses its namespace


@pytest.mark.parametrize("plugin", ["a", "b"])
def test_an_add_whose_namespace_is_replaced_runs_no_further_plugin(plugin: str) -> None:
    world = empty_world(after={"ADD a": make_interface, f"ADD {plugin}": replace_namespace})
    with pytest.raises(NamespaceMismatchError, match="the namespace at /here was replaced during the ADD"):
        world.run(add_verb, THREE, HERE)
    assert [line for line in world.verbs() if line.startswith("ADD")] == ["ADD a", "ADD b"][: 1 + (plugin == "b")]
    assert world.netns_of("DEL") == ["", "", ""]
    assert world.recorded == {}


def test_an_add_whose_interface_is_replaced_runs_no_further_plugin() -> None:
    reported = printed(interfaces=WITH_MAC["interfaces"])
    world = empty_world({("ADD", "a"): reported}, after={"ADD a": make_interface, "ADD b": replace_interface})
    with pytest.raises(NamespaceMismatchError, match="eth0 in /here was replaced during the ADD"):
        world.run(add_verb, THREE, HERE)
    assert [line for line in world.verbs() if line.startswith("ADD")] == ["ADD a", "ADD b"]
    assert world.netns_of("DEL") == ["", "", ""]
    assert world.recorded == {}


def test_a_plugin_may_make_the_interface_of_an_add_anew() -> None:
    def make_anew(world: World) -> None:
        world.interfaces[ETH0] = 9

    reported = printed(interfaces=WITH_MAC["interfaces"])
    world = empty_world(
        {("ADD", name): reported for name in "abc"}, after={"ADD a": make_interface, "ADD b": make_anew}
    )
    world.run(add_verb, THREE, HERE)
    (record,) = world.recorded.values()
    assert (record.state, record.interface) == (READY, Known(9, MAC))


def test_an_add_that_replaces_stays_in_its_namespace() -> None:
    """The namespace is replaced while the DEL of the earlier attachment runs."""
    world = World(records=[recorded()], after={"DEL a": replace_namespace})
    with pytest.raises(NamespaceMismatchError, match="was replaced during the ADD") as caught:
        world.run(add_verb, CHAIN, HERE, on_existing="replace")
    # No "libcni del": it would free the address of the attachment that the next ADD makes.
    assert str(caught.value.hint) == "if the new namespace is the container's, attach the container again"
    assert "ADD a" not in world.verbs()


# time


def test_a_plugin_that_hangs_leaves_time_for_the_corrected_configuration() -> None:
    class Timed(World):
        timeouts: ClassVar[list[float]] = []

        async def run_plugin(self, invocation: Invocation, options: CallOptions) -> Outcome:
            assert options.timeout is not None
            self.timeouts.append(options.timeout)
            return await super().run_plugin(invocation, options)

    node = Timed({("DEL", "b"): failed()}, records=[recorded(state=PENDING, result=None)])
    node._deadline = system.monotonic() + 60
    delete(node, network("x"), BARE)
    assert node.verbs() == ["DEL b", "DEL x"]
    assert [round(seconds, -1) for seconds in node.timeouts] == [30, 60]
