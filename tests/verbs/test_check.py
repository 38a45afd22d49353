"""CHECK without a process or a disk."""

from __future__ import annotations

import pytest
from helpers import RESULT, RT, RecordingRun, attached, network

from libcni.config.network import NetworkConfigList
from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import NotAttachedError, RecordError, VersionError
from libcni.store.model import DETACHING, PENDING, READY, STALE_BOOT, State
from libcni.verbs.check import CheckReport
from libcni.verbs.check import check as check_verb

CHAIN = network({"type": "a", "capabilities": {"mac": True}}, "b")
OTHER = network({"type": "x", "capabilities": {"mac": True}})
RECORDED = RuntimeConf("c1", "/recorded", "eth0", args=[("K", "1")], capability_args={"mac": "02:00:00:00:00:01"})
GIVEN = RuntimeConf("c1", "/given", "eth0", args=[("K", "2")], capability_args={"mac": "02:00:00:00:00:02"})
BARE = RuntimeConf("c1", None, "eth0")


def check(
    node: RecordingRun, net: NetworkConfigList | None = CHAIN, rt: RuntimeConf = RT, *, use_given: bool = False
) -> CheckReport:
    report: CheckReport = node.run(check_verb, "net", net, rt, use_given=use_given)
    return report


def test_the_order_of_things() -> None:
    node = RecordingRun(records=[attached(CHAIN)])
    assert check(node) == CheckReport(("a", "b"))
    assert node.log == ["lock net c1", "lookup", "find a b", "CHECK a", "CHECK b"]
    assert node.stdin("CHECK", "a")["prevResult"] == node.stdin("CHECK", "b")["prevResult"] == RESULT
    assert len(node.recorded) == 1


@pytest.mark.parametrize("state", ["", PENDING, DETACHING])
@pytest.mark.parametrize("use_given", [False, True])
def test_what_is_not_attached_is_not_checked(state: str, use_given: bool) -> None:
    node = RecordingRun(records=[attached(CHAIN, state=state, result=None)] if state else [])
    with pytest.raises(NotAttachedError) as caught:
        check(node, use_given=use_given)
    error = caught.value
    assert (error.container_id, error.ifname, error.network) == ("c1", "eth0", "net")
    assert error.state == state
    assert ("detach the container" in str(error)) == (state != "")
    assert node.calls == []


def test_a_recorded_version_that_nobody_knows() -> None:
    node = RecordingRun(records=[attached(CHAIN, version="bogus")])
    with pytest.raises(VersionError, match="bogus"):
        check(node)
    assert node.calls == []


def test_a_recorded_result_that_is_none_is_an_error() -> None:
    node = RecordingRun(records=[attached(CHAIN, result="[]")])
    with pytest.raises(RecordError, match="recorded result cannot be read"):
        check(node)
    assert node.calls == []


def test_a_disk_without_room_for_locks_stops_no_check() -> None:
    node = RecordingRun({"lock": RecordError("read-only")}, records=[attached(CHAIN)])
    check(node)
    assert node.verbs() == ["CHECK a", "CHECK b"]


@pytest.mark.parametrize("netns", [None, "/recorded"])
@pytest.mark.parametrize(
    ("state", "there", "shown", "problem"),
    [
        (READY, (1, 2), "gone", "the namespace no longer exists"),  # the inode number again
        (STALE_BOOT, (1, 3), STALE_BOOT, "the attachment is from before the last reboot"),
    ],
)
def test_a_namespace_that_has_gone_is_not_checked_nor_another_one_in_its_place(
    netns: str | None, state: State, there: tuple[int, int] | None, shown: str, problem: str
) -> None:
    record = attached(CHAIN, RECORDED, netns_id=(1, 2), netns_cookie=7, state=state)
    namespaces = {"/recorded": there} if there else {}
    node = RecordingRun(records=[record], namespaces=namespaces, cookies={"/recorded": 8})
    with pytest.raises(NotAttachedError, match=problem) as caught:
        check(node, CHAIN, RuntimeConf("c1", netns, "eth0"))
    assert caught.value.state == shown
    assert caught.value.hint is not None
    assert (caught.value.hint.command, caught.value.hint.container_id) == ("del", "c1")
    assert node.calls == []


def test_use_given_checks_a_namespace_that_is_not_the_recorded_one() -> None:
    record = attached(CHAIN, RECORDED, netns_id=(1, 2))
    node = RecordingRun(records=[record], namespaces={"/given": (1, 3)})
    check(node, OTHER, GIVEN, use_given=True)
    assert [call.env["CNI_NETNS"] for call in node.calls] == ["/given"]
