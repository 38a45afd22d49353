"""Several attachments detached by one call, of which two share a rule that cannot be removed with the first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers import network
from nodes import FakeNode

from libcni import AsyncCNIConfig, Attachment, CNIConfig, CNIErrorGroup, PluginError, RecordError, RuntimeConf
from libcni.observe import LoggingObserver, Operation
from libcni.reports import DelReport
from libcni.testing import RecordingExecutor


@pytest.fixture(params=[CNIConfig, AsyncCNIConfig], ids=["blocking", "asyncio"])
def node(tmp_path: Path, request: pytest.FixtureRequest) -> FakeNode:
    return FakeNode(tmp_path, request.param)


@pytest.fixture
def attachments(node: FakeNode) -> list[Attachment]:
    """Attach c1 with net1 and eth0. DEL of net1 fails until that of eth0 has run."""
    gone = f"{node.root}/$CNI_CONTAINERID-has-no-eth0"
    node.plugin(
        "net",
        f'[ "$CNI_COMMAND$CNI_IFNAME" != DELeth0 ] || touch {gone}\n'
        f'if [ "$CNI_COMMAND$CNI_IFNAME" = DELnet1 ] && [ ! -e {gone} ]; then echo shared >&2; exit 1; fi',
    )
    node.configure("net")
    for ifname in ("net1", "eth0"):
        node.cni.add_network_list("net", conf(ifname))
    return sorted(node.cni.get_cached_attachments(), key=lambda one: one.ifname, reverse=True)


def conf(ifname: str) -> RuntimeConf:
    return RuntimeConf("c1", "/none", ifname)


def test_the_first_of_two_is_repeated(node: FakeNode, attachments: list[Attachment]) -> None:
    outcomes = node.cni.del_attachments(one for one in attachments)
    assert [type(outcome) for outcome in outcomes] == [DelReport, DelReport]
    assert node.calls("DEL") == ["DEL net c1 net1", "DEL net c1 eth0", "DEL net c1 net1"]
    assert node.cni.get_cached_attachments() == []


def test_another_program_has_detached_them_meanwhile(node: FakeNode, attachments: list[Attachment]) -> None:
    node.cni.del_attachments(attachments)
    calls = node.calls("DEL")
    assert node.cni.del_attachments(attachments) == [DelReport((), record="missing")] * 2
    assert node.calls("DEL") == calls


def test_a_record_that_another_program_has_damaged_meanwhile(node: FakeNode, attachments: list[Attachment]) -> None:
    node.record().write_bytes(b"")
    with pytest.raises(CNIErrorGroup) as caught:
        node.cni.del_attachments(attachments[1:])
    (error,) = caught.value.exceptions
    assert isinstance(error, RecordError)
    assert "the record cannot be read, so the namespace of the attachment is not known" in str(error)


def test_it_goes_on_over_errors(node: FakeNode, attachments: list[Attachment]) -> None:
    node.record("c2").write_bytes(b"")
    [torn] = [one for one in node.cni.get_cached_attachments() if one.state == "corrupt"]
    with pytest.raises(CNIErrorGroup, match="2 of 2 attachments could not be detached") as caught:
        node.cni.del_attachments([torn, attachments[0]])
    assert [type(error) for error in caught.value.exceptions] == [RecordError, PluginError]
    assert node.states() == ["ready", "detaching", "corrupt"]
    assert node.cni.del_attachments([]) == []


def test_names_are_no_attachments(node: FakeNode) -> None:
    names: Any = ["c1"]
    for call in (node.cni.del_attachments, node.cni.reload_attachments):
        with pytest.raises(TypeError, match="attachments must be an Attachment, not 'c1'"):
            call(names)


def test_containers_are_detached_side_by_side_up_to_half_of_the_turns(node: FakeNode) -> None:
    running = f"ls {node.root} | grep -c '^[0-9]'"
    all_are_there = (
        f"until [ -e {node.root}/full ] || [ $({running}) -ge 3 ]; do sleep 0.01; done; touch {node.root}/full"
    )
    count = f"mkdir {node.root}/$$; {all_are_there}; {running} >> {node.root}/seen; rmdir {node.root}/$$"
    node.plugin("slow", f"[ $CNI_COMMAND = ADD ] || {{ {count}; }}")
    node.configure("slow")
    cni = node.client(max_verbs=6)
    for number in range(9):
        cni.add_network_list("slow", RuntimeConf(f"c{number}", "/none", "eth0"))
    outcomes = cni.del_attachments(cni.get_cached_attachments())
    assert {type(outcome) for outcome in outcomes} == {DelReport}
    seen = [int(line) for line in (node.root / "seen").read_text().split()]
    assert (len(seen), max(seen)) == (9, 3)


def test_an_error_of_another_kind_ends_it(tmp_path: Path) -> None:
    """The DELs that run end, and those that wait do not begin."""

    class StoppedError(BaseException):
        """Like KeyboardInterrupt, of which each thread has its own handling."""

    class Broken(LoggingObserver):
        def after_call(self, operation: Operation, *_: object) -> None:
            if operation.container_id == "c0":
                raise StoppedError

    executor = RecordingExecutor()
    cni = CNIConfig(["/bin"], tmp_path, executor=executor, max_verbs=2)
    for number in range(5):
        cni.add_network_list(network("p"), RuntimeConf(f"c{number}", None, "eth0"))
    executor.calls.clear()
    broken = CNIConfig(["/bin"], tmp_path, executor=executor, max_verbs=2, observer=Broken())
    with pytest.raises(StoppedError):
        broken.del_attachments(cni.get_cached_attachments())
    assert len(executor.calls) < 5


def test_what_was_attached_since_the_first_attempt_stays(node: FakeNode, attachments: list[Attachment]) -> None:
    class AttachAgain(LoggingObserver):
        def end(self, operation: Operation, error: BaseException | None) -> None:
            del error
            if operation.ifname == "eth0":
                CNIConfig([node.bin], node.cache, conf_dir=node.conf_dir).add_network_list("net", conf("net1"))

    with pytest.raises(CNIErrorGroup) as caught:
        node.client(observer=AttachAgain()).del_attachments(attachments)
    [error] = caught.value.exceptions
    assert isinstance(error, RecordError)
    assert "shared" in error.__notes__[0]
    assert node.states() == ["ready"]
