"""GC without a process or a disk."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from helpers import RecordingRun, attached, failed, network

from libcni.config.network import NetworkConfigList
from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import (
    CNIError,
    CNIErrorGroup,
    InvalidIdentifierError,
    LockTimeoutError,
    PluginError,
    PluginNotFoundError,
    PluginTimeoutError,
    RecordError,
)
from libcni.executor.interface import CallOptions
from libcni.options import DelPolicy
from libcni.protocol.invocation import Invocation, Outcome
from libcni.store.attachments import attachments_of
from libcni.store.model import CORRUPT, PENDING, STALE_BOOT, Record, Unreadable
from libcni.store.records import RecordStore
from libcni.verbs.gc import GCReport
from libcni.verbs.gc import gc as gc_verb

NET = network("a", "b", cniVersion="1.1.0")


def record(container_id: str, net: NetworkConfigList = NET, **more: Any) -> Record:
    return attached(net, RuntimeConf(container_id, f"/ns/{container_id}", "eth0"), **more)


def collect(node: RecordingRun, valid: Any = (), net: NetworkConfigList = NET, *, dry_run: bool = False) -> GCReport:
    report: GCReport = node.run(gc_verb, net.name, net, valid, DelPolicy(), dry_run=dry_run)
    return report


def collect_with_errors(node: RecordingRun) -> GCReport:
    with pytest.raises(CNIErrorGroup) as caught:
        collect(node)
    report = caught.value.report
    assert isinstance(report, GCReport)
    assert caught.value.exceptions == report.errors
    assert f"GC of network net: {len(report.errors)} failed" in str(caught.value)
    return report


def test_the_order_of_things() -> None:
    node = RecordingRun(records=[record("c1"), record("c2"), record("c3", state=PENDING, result=None)])
    report = collect(node, [("c2", "eth0")])
    assert node.log == [
        *["lock net", "list"],
        *["lock net c1", "lookup", "find a b", "detach net", "DEL b", "DEL a", "forget net"],
        *["lock net c3", "lookup", "find a b", "find a b", "detach net", "DEL b", "DEL a", "forget net"],
        *["lock exclusive net", "list", "GC a"],
        *["lock exclusive net", "list", "GC b"],
    ]
    assert [one.container_id for one in report.stale] == [one.container_id for one in report.detached] == ["c1", "c3"]
    assert report.plugins == ("a", "b")
    assert (report.errors, report.corrupt, report.disabled) == ((), (), False)
    assert list(node.recorded) == [("net", "c2", "eth0")]
    assert node.stdin("GC", "b") == {
        "cniVersion": "1.1.0",
        "name": "net",
        "type": "b",
        "cni.dev/valid-attachments": [{"containerID": "c2", "ifname": "eth0"}],
        "cni.dev/attachments": [{"containerID": "c2", "ifname": "eth0"}],
    }
    assert node.calls[0].env["CNI_NETNS"] == "/ns/c1"
    assert node.calls[-1].env["CNI_CONTAINERID"] == ""


def test_attachments_may_be_given_as_such() -> None:
    kept = record("c1")
    node = RecordingRun(records=[kept])
    report = collect(node, [*attachments_of([kept], RecordStore("/none"))])
    assert report.stale == ()
    assert node.verbs() == ["GC a", "GC b"]


@pytest.mark.parametrize(
    "valid",
    [None, "c1", b"c1", ["c1"], ["web-1"], [b"c1"], [("net", "c1", "eth0")], [("c1",)], [7], iter([]), map(str, [])],
)
def test_what_could_only_mean_everything_is_refused(valid: Any) -> None:
    node = RecordingRun(records=[record("c1")])
    with pytest.raises(TypeError, match=r"valid (must be|is an iterator)"):
        collect(node, valid)
    assert node.log == []


@pytest.mark.parametrize("pair", [("a/b", "eth0"), ("c1", "a b"), ("", "eth0"), ("c1", "")])
def test_bad_names_are_refused(pair: tuple[str, str]) -> None:
    node = RecordingRun(records=[record("c1")])
    with pytest.raises(InvalidIdentifierError):
        collect(node, [pair])
    assert node.log == []


def test_the_order_is_that_of_the_file_names() -> None:
    """A file system lists its files in any order."""
    listed = [record(one, path=f"/cache/results/net-{one}-eth0") for one in ("c2", "c3", "c1")]
    report = collect(RecordingRun(records=listed))
    for attachments in (report.stale, report.detached):
        assert [one.container_id for one in attachments] == ["c1", "c2", "c3"]


def test_attachments_of_another_owner_stay_and_are_valid() -> None:
    node = RecordingRun(records=[record("c1", owner="ours"), record("c2", owner="theirs"), record("c3")], owner="ours")
    report = collect(node)
    assert [one.container_id for one in report.detached] == ["c1"]
    assert {container_id for _, container_id, _ in node.recorded} == {"c2", "c3"}
    valid = node.stdin("GC", "a")["cni.dev/valid-attachments"]
    assert [one["containerID"] for one in valid] == ["c2", "c3"]


def test_the_containers_of_unfinished_verbs_are_locked_while_the_plugins_collect() -> None:
    """A plugin of a killed runtime may still run. Other verbs lock containers, too, so the order is always the same."""
    names = ["c5", "c3", "c1", "c4", "c2"]
    node = RecordingRun(records=[record(one, state=PENDING, result=None, owner="theirs") for one in names])
    collect(node, net=network("a", cniVersion="1.1.0"))
    locked = [f"lock-container {one}" for one in sorted(names)]
    assert node.log[2:] == ["lock exclusive net", "list", *locked, "GC a"]


def test_an_attachment_that_began_later_than_the_list_of_the_valid_ones_stays() -> None:
    """Its time is that of the boot: of an earlier boot, or of a version without it, it is older."""
    records = [
        record("before", uptime=5.0),
        record("later", uptime=15.0),
        record("unknown", uptime=None),
        record("rebooted", uptime=15.0, state=STALE_BOOT),
    ]
    node = RecordingRun(records=records)
    report = node.run(gc_verb, "net", NET, [], before=10.0)
    assert {one.container_id for one in report.detached} == {"before", "unknown", "rebooted"}


UNREADABLE = [
    Unreadable(state=CORRUPT, path="/cache/results/net-c9-eth0", problem="it is empty"),
    Unreadable(state=CORRUPT, path="/cache/results/~0123456789abcdef0123456789abcdef", problem="it is empty"),
]


@pytest.mark.parametrize("net", [NET, network("a", "b", cniVersion="1.0.0")], ids=["1.1.0", "without GC"])
@pytest.mark.parametrize("unreadable", UNREADABLE, ids=["corrupt", "any network's"])
def test_a_record_that_cannot_be_read_is_an_error_and_keeps_the_plugins_from_gc_and_nothing_else(
    unreadable: Record, net: NetworkConfigList
) -> None:
    """Its container may live, and the plugins would free its address."""
    node = RecordingRun(records=[record("c1"), record("c2"), unreadable])
    with pytest.raises(CNIErrorGroup) as caught:
        collect(node, [("c2", "eth0")], net)
    report = caught.value.report
    assert isinstance(report, GCReport)
    assert node.verbs() == ["DEL b", "DEL a"]
    assert [one.container_id for one in report.detached] == ["c1"]
    assert [one.path for one in report.corrupt] == [unreadable.path]
    (error,) = report.errors
    assert isinstance(error, RecordError)
    assert error.path == unreadable.path
    assert "the plugins' own GC was not called" in str(error)
    assert unreadable in node.recorded.values()


def test_a_record_of_another_network_that_cannot_be_read_does_not_matter() -> None:
    other = Unreadable(state=CORRUPT, path="/cache/results/other-c2-eth0", problem="it is empty")
    node = RecordingRun(records=[other])
    assert collect(node).corrupt == ()
    assert node.verbs() == ["GC a", "GC b"]


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("include_go", [False, True])
def test_records_of_go_are_detached_only_if_asked(*, include_go: bool, dry_run: bool) -> None:
    node = RecordingRun(records=[record("c1"), record("c2", version="", plugins=()), record("c3", version="")])
    report = node.run(gc_verb, "net", NET, [("c3", "eth0")], DelPolicy(), include_go=include_go, dry_run=dry_run)
    assert [one.container_id for one in report.stale] == (["c1", "c2"] if include_go else ["c1"])
    assert [one.container_id for one in report.made_by_go] == ([] if include_go else ["c2"])
    assert report.detached == (() if dry_run else report.stale)
    if not dry_run:
        valid = node.stdin("GC", "a")["cni.dev/valid-attachments"]
        assert [one["containerID"] for one in valid] == (["c3"] if include_go else ["c3", "c2"])


def test_a_client_with_an_owner_never_detaches_records_of_go() -> None:
    node = RecordingRun(records=[record("c1", version="")], owner="me")
    report = node.run(gc_verb, "net", NET, [], DelPolicy(), include_go=True)
    assert (report.stale, report.made_by_go) == ((), ())
    assert len(node.recorded) == 1


def test_it_goes_on_over_errors() -> None:
    node = RecordingRun(
        {("DEL", "x"): failed(7, "busy"), ("GC", "a"): failed(50, "not ready")},
        records=[record("c1", network("x")), record("c2"), record("c3", network("gone"))],
        missing=["gone"],
    )
    report = collect_with_errors(node)
    assert [one.container_id for one in report.detached] == ["c2"]
    assert report.plugins == ("b",)
    kinds = [type(error) for error in report.errors]
    assert kinds == [PluginError, PluginNotFoundError, PluginError]
    assert report.errors[0].__notes__ == ["while detaching the stale attachment of container c1, interface eth0"]
    assert [(attachment.container_id, error) for attachment, error in report.failed] == [
        ("c1", report.errors[0]),
        ("c3", report.errors[1]),
    ]
    assert {identity[1] for identity in node.recorded} == {"c1", "c3"}


class Sharing(RecordingRun):
    """DEL of eth1 fails while eth2 is attached."""

    async def run_plugin(self, invocation: Invocation, options: CallOptions) -> Outcome:
        outcome = await super().run_plugin(invocation, options)
        is_shared = ("net", invocation.env["CNI_CONTAINERID"], "eth2") in self.recorded
        return (
            failed() if invocation.verb == "DEL" and invocation.env["CNI_IFNAME"] == "eth1" and is_shared else outcome
        )


def test_interfaces_that_share_a_rule_are_detached_in_two_attempts() -> None:
    net = network("a", cniVersion="1.1.0")
    first, second = (attached(net, RuntimeConf("c1", "/ns/c1", ifname)) for ifname in ("eth1", "eth2"))
    node = Sharing(records=[first, second, record("c2", net)])
    report = collect(node, net=net)
    assert [(one.container_id, one.ifname) for one in report.detached] == [
        ("c1", "eth1"),
        ("c1", "eth2"),
        ("c2", "eth0"),
    ]
    assert [line for line in node.log if line.startswith(("lock net", "DEL"))] == [
        "lock net",
        *["lock net c1", "DEL a"] * 3,
        *["lock net c2", "DEL a"],
    ]
    assert node.recorded == {}
    assert node.stdin("GC", "a")["cni.dev/valid-attachments"] == []


class Busy(RecordingRun):
    """Another verb holds c1 for longer than GC waits for one container."""

    async def lock(
        self, networks: Sequence[str], container_id: str = "", *, exclusive: bool = False, seconds: float = math.inf
    ) -> None:
        await super().lock(networks, container_id, exclusive=exclusive)
        if container_id == "c1":
            assert seconds == 10.0
            raise LockTimeoutError("held")


def test_a_container_that_is_busy_is_skipped() -> None:
    node = Busy(records=[record("c1"), record("c2")])
    report = collect_with_errors(node)
    assert [type(error) for error in report.errors] == [LockTimeoutError]
    assert node.verbs() == ["DEL b", "DEL a", "GC a", "GC b"]
    valid = node.stdin("GC", "a")["cni.dev/valid-attachments"]
    assert [one["containerID"] for one in valid] == ["c1"]


class Meanwhile(RecordingRun):
    """While GC waits for a container's lock, another program replaces or removes its record."""

    then: Record | None = None

    async def lock(
        self, networks: Sequence[str], container_id: str = "", *, exclusive: bool = False, seconds: float = 0.0
    ) -> None:
        await super().lock(networks, container_id, exclusive=exclusive)
        if container_id == "c1":
            self.recorded.clear()
            if self.then is not None:
                self.recorded[self.then.identity] = self.then


@pytest.mark.parametrize(
    ("listed", "then"),
    [
        (record("c1", created=1.0), None),
        (record("c1", created=1.0), record("c1", created=2.0)),
        (record("c1", created=1.0, state=PENDING, result=None), record("c1", created=1.0)),
    ],
    ids=["gone", "attached again", "its ADD has ended"],
)
def test_an_attachment_that_changed_since_the_listing_is_left_alone(listed: Record, then: Record | None) -> None:
    """It is no error: GC runs beside ADDs, and each of them may end between the listing and the lock."""
    node = Meanwhile(records=[listed])
    node.then = then
    report = collect(node)
    assert (len(report.detached), report.errors) == (int(then is None), ())
    assert node.verbs() == ["GC a", "GC b"]
    valid = node.stdin("GC", "a")["cni.dev/valid-attachments"]
    assert [one["containerID"] for one in valid] == ([] if then is None else ["c1"])


def test_a_gc_without_time_stops_and_says_how_many_it_did_not_reach() -> None:
    class ShortNode(RecordingRun):
        def seconds_left(self) -> float | None:
            return 0.0 if "DEL c2" in self.log else None

        async def run_plugin(self, invocation: Invocation, options: CallOptions) -> Outcome:
            if invocation.container_id == "c2":
                self.log.append("DEL c2")
                raise PluginTimeoutError("it did not end", invocation)
            return await super().run_plugin(invocation, options)

    node = ShortNode(records=[record(f"c{number}") for number in range(1, 6)])
    report = collect_with_errors(node)
    assert [one.container_id for one in report.detached] == ["c1"]
    assert [type(error) for error in report.errors] == [PluginTimeoutError, LockTimeoutError]
    assert "the timeout passed before 3 stale attachments were detached; repeat the GC" in str(report.errors[1])
    assert node.log.count("detach net") == 2, "the others' records are as they were"
    assert node.verbs()[-1] != "GC b"


@pytest.mark.parametrize(("step", "error"), [("lock", LockTimeoutError("held")), ("list", RecordError("unreadable"))])
def test_what_fails_before_stops_it(step: str, error: CNIError) -> None:
    node = RecordingRun({step: error}, records=[record("c1")])
    with pytest.raises(type(error)):
        collect(node)
    assert node.calls == []


def test_the_deadline_ends_the_listing() -> None:
    class SlowDisk(RecordingRun):
        def seconds_left(self) -> float | None:
            return 0.0 if "list" in self.log else None

    node = SlowDisk(records=[record("c1")])
    with pytest.raises(RecordError, match="the deadline passed while its records were read"):
        collect(node)
    assert node.calls == []
