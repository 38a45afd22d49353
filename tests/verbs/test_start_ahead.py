"""Plugins that are started ahead: they wait for their configuration, and do nothing before it comes."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest
from helpers import network
from nodes import FakeNode
from processes import children

from libcni import AsyncCNIConfig, CNIConfig, CNIErrorGroup, DelPolicy, Outcome, PluginError, RuntimeConf
from libcni.executor.child import Child
from libcni.executor.process import AsyncPreparedProcess, PreparedProcess
from libcni.observe import Observer
from libcni.options import StartAhead
from libcni.store.records import RecordStore
from libcni.testing import RecordingExecutor, wait_until

RT = RuntimeConf("c1", None, "eth0")
PRINT = """[ $CNI_COMMAND != ADD ] || echo '{"cniVersion":"1.0.0"}'"""


class ReadingNode(FakeNode):
    """A node whose plugins log when they start, when they have read, and when they end."""

    def __init__(self, root: Path, kind: type[CNIConfig | AsyncCNIConfig] = CNIConfig) -> None:
        super().__init__(root, kind, start_ahead="always", durable=True)
        self.log_file = root / "log"

    def plugin(self, name: str, body: str = PRINT, **_: Any) -> Path:
        path = self.bin / name
        path.write_text(
            f"#!/bin/sh\necho {name} $CNI_COMMAND started >> {self.log_file}\n"
            f'config=$(cat)\n[ -n "$config" ] || {{ echo {name} empty >> {self.log_file}; exit 1; }}\n'
            f"echo {name} $CNI_COMMAND read >> {self.log_file}\n{body}\n"
            f"echo {name} $CNI_COMMAND ended >> {self.log_file}\n"
        )
        path.chmod(0o755)
        return path

    @property
    def log(self) -> list[str]:
        return self.log_file.read_text().splitlines() if self.log_file.exists() else []


@pytest.fixture(params=[CNIConfig, AsyncCNIConfig], ids=["blocking", "asyncio"])
def node(tmp_path: Path, request: pytest.FixtureRequest) -> ReadingNode:
    return ReadingNode(tmp_path, request.param)


def wait_until_started(node: ReadingNode, line: str) -> str:
    """Return shell code that waits until another plugin has logged ``line``."""
    return f'until grep -q "{line}" {node.log_file}; do sleep 0.01; done'


def test_the_next_plugin_starts_while_one_runs_and_reads_when_it_has_ended(node: ReadingNode) -> None:
    node.plugin("a", f"{wait_until_started(node, 'b $CNI_COMMAND started')}; {PRINT}")
    node.plugin("b", f"{wait_until_started(node, 'c $CNI_COMMAND started')}; {PRINT}")
    node.plugin("c")
    net = network("a", "b", "c")
    node.cni.add_network_list(net, RT)
    log = node.log
    for one, after in (("a", "b"), ("b", "c")):
        assert log.index(f"{after} ADD started") < log.index(f"{one} ADD ended") < log.index(f"{after} ADD read")
    node.plugin("c", f"{wait_until_started(node, 'b DEL started')}")
    node.plugin("b", f"{wait_until_started(node, 'a DEL started')}")
    node.plugin("a")
    node.cni.del_network_list(net, RT)
    log = node.log
    for one, after in (("c", "b"), ("b", "a")):
        assert log.index(f"{after} DEL started") < log.index(f"{one} DEL ended") < log.index(f"{after} DEL read")


def test_not_a_byte_before_the_record_is_on_the_disk(node: ReadingNode) -> None:
    node.plugin("a", f"ls {node.cache}/results >> {node.log_file}; {PRINT}")
    node.cni.add_network_list(network("a"), RT)
    assert node.log == ["a ADD started", "a ADD read", "net-c1-eth0", "a ADD ended"]


def test_a_record_that_cannot_be_written_leaves_the_first_plugin_unfed(node: ReadingNode) -> None:
    node.plugin("a")
    node.cache.mkdir()
    (node.cache / "results").write_text("a file")
    with pytest.raises(Exception, match="cannot be"):
        node.cni.add_network_list(network("a"), RT)
    assert not any("read" in line or "empty" in line for line in node.log)
    assert children() == []


def test_a_plugin_that_fails_leaves_the_next_one_unfed_and_killed(node: ReadingNode) -> None:
    node.plugin("a", f"[ $CNI_COMMAND = DEL ] || {{ {wait_until_started(node, 'b ADD started')}; exit 1; }}")
    node.plugin("b")
    descriptors = sorted(os.listdir("/proc/self/fd"))
    with pytest.raises(PluginError):
        node.cni.add_network_list(network("a", "b"), RT)
    assert [line for line in node.log if line.startswith("b ADD")] == ["b ADD started"]
    assert [line for line in node.log if "DEL read" in line] == ["b DEL read", "a DEL read"]
    assert children() == []
    assert sorted(os.listdir("/proc/self/fd")) == descriptors


@pytest.mark.parametrize("mode", ["auto", "never"])
def test_a_plugin_that_is_not_known_to_read_first_is_not_started_ahead(node: ReadingNode, mode: StartAhead) -> None:
    node.plugin("a", f"sleep 0.2; {PRINT}")
    node.plugin("b")
    node.client(start_ahead=mode).add_network_list(network("a", "b"), RT)
    assert node.log.index("a ADD ended") < node.log.index("b ADD started")


class InterruptedByProgramError(BaseException):
    """An exception of a signal handler."""


@pytest.mark.parametrize("error", [KeyboardInterrupt, asyncio.CancelledError])
def test_an_interrupt_while_a_plugin_waits_unfed_kills_it(node: ReadingNode, error: type[BaseException]) -> None:
    node.plugin("a")
    node.plugin("b")
    if node.kind is AsyncCNIConfig and error is KeyboardInterrupt:
        error = InterruptedByProgramError  # asyncio.run has its own handler of KeyboardInterrupt

    class Interrupting(Observer):
        def after_call(self, *_: object) -> None:
            raise error

    descriptors = sorted(os.listdir("/proc/self/fd"))
    with pytest.raises(error):
        node.client(observer=Interrupting()).add_network_list(network("a", "b"), RT)
    assert "b ADD read" not in node.log
    assert children() == []
    assert sorted(os.listdir("/proc/self/fd")) == descriptors


class Prepared:
    """A process of an executor of one's own, which may have no finaliser that kills it."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def discard(self) -> None:
        self.events.append("discarded")

    def feed(self, stdin: bytes, timeout: float | None) -> Outcome:
        self.events.append("fed")
        return Outcome(stdout=b'{"cniVersion":"1.0.0"}')


class Preparing(RecordingExecutor):
    """An executor that reports no start: ``on_started`` is optional."""

    def __init__(self) -> None:
        super().__init__()
        self.prepared: list[Prepared] = []

    def prepare(self, *_: object) -> Prepared:
        self.prepared.append(Prepared())
        return self.prepared[-1]


def test_the_blocking_client_discards_a_prepared_plugin_of_any_executor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(RecordStore, "begin", interrupted)
    executor = Preparing()
    with pytest.raises(KeyboardInterrupt):
        CNIConfig(["/bin"], tmp_path, executor=executor, start_ahead="always").add_network_list(network("a"), RT)
    assert [one.events for one in executor.prepared] == [["discarded"]]


def test_a_process_is_fed_once_although_its_executor_reports_no_start(tmp_path: Path) -> None:
    """The second plugin is the same call but for its configuration."""
    executor = Preparing()
    CNIConfig(["/bin"], tmp_path, executor=executor, start_ahead="always").add_network_list(network("a", "a"), RT)
    assert [one.events.count("fed") for one in executor.prepared].count(1) == 1
    assert len(executor.calls) == 1


def test_a_process_gets_no_other_plugins_configuration(node: ReadingNode) -> None:
    """While b's DEL runs, a's process starts. Then b fails, and is called again with the current configuration."""
    node.plugin("a")
    fails = f"{wait_until_started(node, 'a $CNI_COMMAND started')}; exit 1"
    node.plugin("b", f'[ $CNI_COMMAND = DEL ] || exit 1; case "$config" in *corrected*) ;; *) {fails} ;; esac')
    with pytest.raises(PluginError):
        node.cni.add_network_list(network("a", "b"), RT, rollback=False)
    node.cni.del_network_list(network("a", {"type": "b", "corrected": True}), RT)
    assert [line for line in node.log if line.endswith("DEL read")] == ["b DEL read", "b DEL read", "a DEL read"]
    assert children() == []


def test_a_process_whose_feed_failed_is_not_fed_for_the_next_call(
    node: ReadingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both calls have the same executable and variables."""
    node.plugin("a")
    net = network("a", "a")
    node.cni.add_network_list(net, RT)

    def full(*_: object) -> bool:
        raise OSError(errno.EMFILE, "no descriptor is free")

    monkeypatch.setattr(Child, "feed", full)
    with pytest.raises(CNIErrorGroup) as caught:
        node.cni.del_network_list(net, RT, policy=DelPolicy(keep_going=True))
    assert [report.state for report in caught.value.report.plugins] == ["failed", "done"]
    wait_until(lambda: children() == [])  # a thread reaps what has not ended at once


def test_a_second_ctrl_c_while_a_waiting_plugin_is_killed_keeps_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = ReadingNode(tmp_path)
    node.plugin("a")
    node.plugin("b", f"[ $CNI_COMMAND != DEL ] || exit 1; {PRINT}")
    net = network("a", "b")
    node.cni.add_network_list(net, RT)

    discard = PreparedProcess.discard

    def interrupted(plugin: PreparedProcess) -> None:
        discard(plugin)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(PreparedProcess, "discard", interrupted)
        with pytest.raises(KeyboardInterrupt) as kept:
            node.cni.del_network_list(net, RT)
    node.plugin("b")
    node.client(timeout=5.0).del_network_list(net, RT)
    assert kept.value is not None  # its traceback holds the first verb
    assert children() == []


def test_a_second_cancellation_while_a_waiting_plugin_is_killed_stops_no_roll_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = ReadingNode(tmp_path, AsyncCNIConfig)
    node.plugin("a", f"[ $CNI_COMMAND = DEL ] || {{ {wait_until_started(node, 'b ADD started')}; sleep 60; }}")
    node.plugin("b")
    discard = AsyncPreparedProcess.discard
    adding: list[asyncio.Task[object]] = []

    async def cancelled(plugin: AsyncPreparedProcess) -> None:
        adding[0].cancel()
        await discard(plugin)

    monkeypatch.setattr(AsyncPreparedProcess, "discard", cancelled)

    async def main() -> None:
        cni = node.async_client()
        adding.append(asyncio.create_task(cni.add_network_list(network("a", "b"), RT, on_cancel="rollback")))
        await asyncio.to_thread(wait_until, lambda: "b ADD started" in node.log)
        adding[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await adding[0]

    asyncio.run(main())
    assert [line for line in node.log if line.endswith("DEL read")] == ["b DEL read", "a DEL read"]
    assert node.states() == []
    assert children() == []


def test_a_plugins_time_counts_from_its_configuration(node: ReadingNode) -> None:
    node.plugin("a", f"sleep 0.8; {PRINT}")
    node.plugin("b", f"sleep 0.8; {PRINT}")
    node.client(plugin_timeout=1.4).add_network_list(network("a", "b"), RT)


def test_another_word_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="auto, always, never"):
        CNIConfig([], tmp_path, start_ahead="allways")  # type: ignore[arg-type]
