"""Several attachments detached by one call, of which two share a rule that cannot be removed with the first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from nodes import FakeNode

import libcni
from libcni import AsyncCNIConfig, Attachment, BatchItem, CNIConfig, DelReport, PluginError, RecordError, RuntimeConf

OnItem = Callable[[BatchItem[DelReport]], object]


@pytest.fixture(params=[CNIConfig, AsyncCNIConfig], ids=["blocking", "asyncio"])
def node(tmp_path: Path, request: pytest.FixtureRequest) -> FakeNode:
    return FakeNode(tmp_path, request.param)


@pytest.fixture
def attachments(node: FakeNode) -> list[Attachment]:
    """Attach c1 with net1 and eth0. DEL of net1 fails until that of eth0 has run."""
    gone = node.root / "eth0-is-gone"
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
    seen: list[int] = []
    batch = node.cni.del_attachments(attachments, on_item=lambda item: seen.append(item.index))
    batch.raise_errors()
    assert node.calls("DEL") == ["DEL net c1 net1", "DEL net c1 eth0", "DEL net c1 net1"]
    assert [(one.net, one.rt.container_id, one.rt.ifname) for one in batch.items] == [
        ("net", "c1", "net1"),
        ("net", "c1", "eth0"),
    ]
    assert seen == [1, 0], "when their outcomes were known"
    assert node.cni.get_cached_attachments() == []


def test_it_goes_on_over_errors(node: FakeNode, attachments: list[Attachment]) -> None:
    node.record("c2").write_bytes(b"")
    [torn] = [one for one in node.cni.get_cached_attachments() if one.state == "corrupt"]
    seen: list[int] = []
    batch = node.cni.del_attachments([torn, attachments[0]], on_item=lambda item: seen.append(item.index))
    assert [type(error) for error in batch.errors] == [RecordError, PluginError]
    assert seen == [0, 1]
    assert node.states() == ["ready", "detaching", "corrupt"]
    assert node.cni.del_attachments([]).items == ()


@pytest.mark.parametrize("is_batch", [False, True], ids=["attachments", "batch"])
def test_another_container_is_no_reason_to_repeat(
    node: FakeNode, attachments: list[Attachment], *, is_batch: bool
) -> None:
    node.cni.add_network_list("net", RuntimeConf("c2", "/none", "eth0"))
    given = [attachments[0], *node.cni.get_cached_attachments("c2")]
    if is_batch:
        requests = [("net", RuntimeConf(one.container_id, None, one.ifname)) for one in given]
        batch = asyncio.run(node.async_client().del_many(requests, parallel=1))
    else:
        batch = node.cni.del_attachments(given)
    assert len(batch.errors) == 1
    assert node.calls("DEL") == ["DEL net c1 net1", "DEL net c2 eth0"]


def test_an_error_of_the_caller_ends_it(node: FakeNode, attachments: list[Attachment]) -> None:
    def stop(_: object) -> None:
        raise libcni.ConfigError("the caller's own")

    with pytest.raises(libcni.ConfigError):
        node.cni.del_attachments(attachments[::-1], on_item=stop)
    assert node.calls("DEL") == ["DEL net c1 eth0"]


@pytest.mark.parametrize("parallel", [1, 64])
def test_a_batch_repeats_at_its_end(node: FakeNode, attachments: list[Attachment], parallel: int) -> None:
    node.plugin("slow", "sleep 0.3")
    node.configure("slow")
    seen: list[int] = []
    requests = [("slow", RuntimeConf("c2", "/none", "eth0")), ("net", conf("net1")), ("net", conf("eth0"))]
    del_many = node.async_client().del_many(requests, parallel=parallel, on_item=lambda item: seen.append(item.index))
    batch = asyncio.run(del_many)
    batch.raise_errors()
    assert [item.index for item in batch.items] == [0, 1, 2]
    assert seen == ([0, 2, 1] if parallel == 1 else [2, 0, 1])
    assert [call for call in node.calls("DEL") if "slow" not in call] == [
        "DEL net c1 net1",
        "DEL net c1 eth0",
        "DEL net c1 net1",
    ]
    assert node.cni.get_cached_attachments() == []


def test_a_batch_that_fails_twice_has_both_errors(node: FakeNode, attachments: list[Attachment]) -> None:
    count = node.root / "count"
    node.plugin(
        "net",
        f'if [ "$CNI_COMMAND$CNI_IFNAME" = DELnet1 ]; then echo >> {count}; wc -l < {count} >&2; exit 1; fi',
    )
    requests = [("net", conf("net1")), ("net", conf("eth0"))]
    [error] = asyncio.run(node.async_client().del_many(requests)).errors
    assert isinstance(error, PluginError)
    assert error.stderr.strip() == "2"
    [note] = error.__notes__
    assert note.startswith("at the first attempt: ")
    assert "stderr: '1'" in note


def test_an_iterator_yields_each_outcome_at_its_verb_s_end(node: FakeNode, attachments: list[Attachment]) -> None:
    async def main() -> list[bool]:
        requests = [("net", conf("net1")), ("net", conf("eth0"))]
        return [item.error is None async for item in node.async_client().del_each(requests)]

    assert asyncio.run(main()) == [False, True]
    assert node.calls("DEL") == ["DEL net c1 net1", "DEL net c1 eth0"]


@pytest.mark.parametrize("is_batch", [False, True], ids=["attachments", "batch"])
def test_what_was_attached_since_the_first_attempt_stays(
    node: FakeNode, attachments: list[Attachment], *, is_batch: bool
) -> None:
    def attach_again(item: BatchItem[DelReport]) -> None:
        if item.rt.ifname == "eth0":
            CNIConfig([node.bin], node.cache, conf_dir=node.conf_dir).add_network_list("net", conf("net1"))

    if is_batch:
        requests = [("net", conf("net1")), ("net", conf("eth0"))]
        batch = asyncio.run(node.async_client().del_many(requests, on_item=attach_again))
    else:
        batch = node.cni.del_attachments(attachments, on_item=attach_again)
    [error] = batch.errors
    assert isinstance(error, RecordError)
    assert "shared" in error.__notes__[0]
    assert node.states() == ["ready"]
