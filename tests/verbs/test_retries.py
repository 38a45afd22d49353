"""An ADD that fails by a known fault which does not happen twice: rolled back, and tried once more, if that is safe."""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from helpers import RT, RecordingRun, failed, network, printed
from nodes import FakeNode, both_clients

from libcni._known_faults import FAULTS, fault_of
from libcni.errors import CNIError, InterfaceExistsError, NamespaceMismatchError, PluginError, PluginTimeoutError
from libcni.executor.interface import CallOptions
from libcni.protocol.invocation import Invocation, Outcome
from libcni.store.model import CORRUPT, PENDING, Unreadable
from libcni.verbs.add import add as add_verb

CHAIN = (
    "running [/usr/sbin/iptables -t nat -N CNI-HOSTPORT-DNAT --wait]: exit status 1: iptables: Chain already exists."
)
RACE = failed(999, CHAIN)


class Unlucky(RecordingRun):
    """A node whose plugin b fails as often as ``times``, and then works."""

    def __init__(self, outcome: Outcome | CNIError = RACE, times: int = 1, retries: int = 1, **more: Any) -> None:
        super().__init__(**more)
        self.left, self.outcome = times, outcome
        self.settings = replace(self.settings, retries=retries)

    async def run_plugin(self, invocation: Invocation, options: CallOptions) -> Outcome:
        outcome = await super().run_plugin(invocation, options)
        if (invocation.verb, invocation.plugin) != ("ADD", "b") or self.left == 0:
            return outcome
        self.left -= 1
        if isinstance(self.outcome, CNIError):
            raise self.outcome
        return self.outcome


TRY, UNDONE = ["ADD a", "ADD b"], ["DEL b", "DEL a"]


def test_the_second_try_begins_after_the_roll_back_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    node = Unlucky()
    result = node.run(add_verb, network("a", "b"), RT)
    assert node.verbs() == [*TRY, *UNDONE, *TRY]
    begun = [line for line in node.log if line.split()[0] in {"lock", "begin", "forget", "complete"}]
    assert begun == ["lock net c1", "begin net", "forget net", "begin net", "complete net"], "under the same locks"
    [note] = result.notes
    assert "is repeated" in note
    assert CHAIN in note
    assert any(note in message for message in caplog.messages)
    assert result.text == printed().stdout.decode()


@pytest.mark.parametrize(("times", "retries", "tries"), [(1, 0, 1), (2, 1, 2), (2, 2, 3), (9, 2, 3)])
def test_how_often_it_is_tried(times: int, retries: int, tries: int) -> None:
    node, error = Unlucky(times=times, retries=retries), None
    try:
        node.run(add_verb, network("a", "b"), RT)
    except PluginError as caught:
        error = caught
    assert (error is None) is (tries > times)
    assert node.verbs().count("ADD b") == tries
    if error is not None:
        assert (error.retryable, node.recorded) == (True, {})
        assert any("before this try" in note for note in error.__notes__) == (tries > 1)


def test_what_is_not_tried_again() -> None:
    slow = PluginTimeoutError("it was stopped", Invocation("ADD", "b", "", b"", {}), RACE)
    twice = failed(999, "10.1.0.3 has been allocated to c1, duplicate allocation is not allowed")
    for outcome in (failed(11, "later"), failed(7, "no"), twice, slow, Outcome(0, b"", CHAIN.encode())):
        node = Unlucky(outcome)
        with pytest.raises(PluginError):
            node.run(add_verb, network("a", "b"), RT)
        assert node.verbs().count("ADD b") == 1, outcome


def test_without_a_complete_roll_back_there_is_no_second_try() -> None:
    node = Unlucky(answers={("DEL", "a"): failed()})
    with pytest.raises(PluginError) as caught:
        node.run(add_verb, network("a", "b"), RT)
    assert node.verbs() == [*TRY, *UNDONE, *UNDONE], "the roll-back is repeated once"
    assert caught.value.rollback_errors
    node = Unlucky()
    with pytest.raises(PluginError):
        node.run(add_verb, network("a", "b"), RT, rollback=False)
    assert node.verbs() == TRY


def test_a_roll_back_whose_second_del_succeeds_leaves_nothing() -> None:
    class Node(Unlucky):
        async def run_plugin(self, invocation: Invocation, options: CallOptions) -> Outcome:
            outcome = await super().run_plugin(invocation, options)
            is_first = self.verbs().count("DEL a") == 1 and (invocation.verb, invocation.plugin) == ("DEL", "a")
            return failed() if is_first else outcome

    node = Node()
    assert node.run(add_verb, network("a", "b"), RT).notes
    assert node.verbs() == [*TRY, *UNDONE, *UNDONE, *TRY]


@pytest.mark.parametrize(("seconds", "given"), [(25.0, [25.0, 20.0, 15.0, 10.0]), (15.0, [15.0, 10.0])])
def test_the_second_try_has_the_rest_of_the_timeout_and_needs_as_much_as_the_first(
    seconds: float, given: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    now, timeouts = [0.0], []

    class Slow(Unlucky):
        async def run_plugin(self, invocation: Invocation, options: CallOptions) -> Outcome:
            if invocation.verb == "ADD":
                timeouts.append(options.timeout)
                now[0] += 5
            return await super().run_plugin(invocation, options)

    monkeypatch.setattr("libcni.kernel.system.monotonic", lambda: now[0])
    node = Slow()
    node._deadline = seconds
    node._before_cleanup = (seconds, seconds)
    with suppress(PluginError):
        node.run(add_verb, network("a", "b"), RT)
    assert timeouts == given


def test_a_namespace_that_was_replaced_meanwhile_is_left_alone() -> None:
    class Node(Unlucky):
        async def run_plugin(self, invocation: Invocation, options: CallOptions) -> Outcome:
            if (invocation.verb, invocation.plugin) == ("DEL", "a"):
                self.namespaces[RT.netns or ""] = (4, 9)
            return await super().run_plugin(invocation, options)

    node = Node(namespaces={RT.netns: (4, 1)})
    with pytest.raises(NamespaceMismatchError) as caught:
        node.run(add_verb, network("a", "b"), RT)
    assert node.verbs() == [*TRY, *UNDONE]
    assert CHAIN in caught.value.__notes__[-1]


def test_a_refused_second_try_beside_a_damaged_record_leaves_the_plugins_to_a_later_del() -> None:
    """The damaged record may be of this attachment. The state "refused" would let that DEL run nothing."""

    class Node(Unlucky):
        async def run_plugin(self, invocation: Invocation, options: CallOptions) -> Outcome:
            if (invocation.verb, invocation.plugin) == ("DEL", "a"):
                self.interfaces[RT.netns or "", RT.ifname] = 9
            return await super().run_plugin(invocation, options)

    damaged = Unreadable("other", "c1", "eth0", state=CORRUPT, path="/cache/other-c1-eth0")
    node = Node(namespaces={RT.netns: (4, 1)}, records=[damaged])
    with pytest.raises(InterfaceExistsError):
        node.run(add_verb, network("a", "b"), RT, on_existing="replace")
    assert node.verbs() == [*TRY, *UNDONE]
    assert node.recorded["net", "c1", "eth0"].state == PENDING


@both_clients
def test_a_container_is_attached_though_a_plugin_fails_once(node: FakeNode, caplog: pytest.LogCaptureFixture) -> None:
    node.fakes.scenario("b", {"ADD": [{"error": {"code": 999, "msg": CHAIN}}, {"result": node.result}]})
    net = node.network("a", "b")
    with caplog.at_level(logging.WARNING, "libcni"):
        result = node.cni.add_network_list(net, replace(RT, netns=node.netns("c1")))
    assert node.verbs() == [*TRY, *UNDONE, *TRY]
    assert (len(result.notes), len(caplog.messages), node.states()) == (1, 1, ["ready"])
    node.client(retries=0)
    node.cni.del_network_list(net, RT)


def test_the_setting_is_checked(node: FakeNode) -> None:
    with pytest.raises(ValueError, match="retries must be 0 or more, not -1"):
        node.client(retries=-1)
    for wrong in ("1", True, 1.0):
        with pytest.raises(TypeError, match="retries"):
            node.client(retries=wrong)


REPORTED = (
    (
        "firewall ADD again",
        "exit status 4: iptables v1.8.9 (nf_tables):  CHAIN_USER_ADD failed (File exists): chain X\n",
    ),
    ("portmap ADD again", CHAIN),
    (
        "egress-cni ADD again",
        "iptables -t nat -N POSTROUTING --wait]: exit status 1: iptables: Chain already exists.\n",
    ),
    ("bridge ADD again", "failed to set bridge addr: could not set bridge's mac: invalid argument"),
    ("bridge ADD again", 'failed to set bridge addr: could not add IP address to "cni0": file exists'),
    (
        "portmap DEL again",
        "exit status 4: Another app is currently holding the xtables lock. Perhaps you want to use -w?",
    ),
    ("bridge ADD again", "exit status 4: iptables: Resource temporarily unavailable.\n"),
    ("loopback ADD again", "interrupted system call"),
    ("ptp ADD again", "failed to list addresses: results may be incomplete or inconsistent"),
    ("bridge ADD again", "fork/exec /opt/cni/bin/host-local: text file busy"),
    ("bridge ADD caller", "10.61.0.3 has been allocated to c2, duplicate allocation is not allowed"),
    ("bridge ADD doctor", "requested IP address 10.88.0.101 is not available in range set 10.88.0.1-10.88.255.254"),
    ("ptp ADD doctor", "failed to allocate for range 0: no IP addresses available in range set: 10.1.0.1-10.1.0.254"),
    ("bridge ADD doctor", 'failed to set bridge addr: "cni0" already has an IP address different from 10.4.0.1/24'),
    ("bridge CHECK none", "bridge interface br0 mac doesn't match"),
    ("bridge ADD -", "container veth name provided (eth0) already exists"),
    ("portmap CHECK -", CHAIN),
)
"""What plugins were reported to say, and what helps."""


@pytest.mark.parametrize(("what", "text"), REPORTED)
def test_what_is_known_of_a_reported_text(what: str, text: str) -> None:
    plugin, verb, cure = what.split()
    error = PluginError(text, Invocation(verb, plugin, "", b"", {}), msg=text, code=999)
    fault = fault_of(error)
    assert (fault.cure if fault else "-") == cure
    assert error.retryable is (cure == "again")
    assert bool(error.known_fault) is (cure == "none")
    if fault is not None:
        assert error.hint is not None
        assert fault.meaning in str(error.hint)
        assert ("may be healthy" in str(error.hint)) is (cure == "none")
        assert (error.hint.command == "doctor") is (cure == "doctor")


def test_each_known_fault_says_where_it_comes_from() -> None:
    assert all(fault.source and fault.meaning for fault in FAULTS)
    patterns = [re.sub(r"\\.", "", fault.text) for fault in FAULTS]
    assert patterns == [pattern.lower() for pattern in patterns]
