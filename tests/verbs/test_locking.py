"""What a verb waits for: plugins of killed runtimes, and locks."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from typing import NoReturn

import pytest
from helpers import network
from nodes import FakeNode

from libcni import CNIConfig
from libcni.errors import PluginError, RecordError
from libcni.executor import CallOptions
from libcni.protocol.invocation import Invocation, Outcome
from libcni.store.locks import LockRequest, LockSet
from libcni.testing import RecordingExecutor
from verbs.conftest import RT


@pytest.fixture
def orphan(node: FakeNode) -> Iterator[int]:
    """Be a plugin of a verb whose runtime is gone: hold what it has inherited."""
    hold = LockSet(str(node.cache), LockRequest((), "c1"))
    assert hold.try_acquire()
    descriptor = os.dup(hold.plugin_descriptor("ADD"))
    hold.close()
    yield descriptor
    try:
        os.close(descriptor)
    except OSError:
        return  # the test has closed it


def test_an_add_that_outlived_its_runtime_is_waited_for_where_its_record_is_pending(
    node: FakeNode, cni: CNIConfig, orphan: int, caplog: pytest.LogCaptureFixture
) -> None:
    node.plugin("a", "[ $CNI_COMMAND != ADD ] || exit 1")
    with pytest.raises(PluginError):
        cni.add_network_list(network("a"), RT, rollback=False)
    started = time.monotonic()
    with caplog.at_level(logging.WARNING, "libcni"):
        cni.del_network_list(network("a"), RT, timeout=3.0)
    assert time.monotonic() - started > 0.15
    assert "a plugin of an earlier verb is still running" in caplog.text
    assert cni.get_cached_attachments() == []
    os.fstat(orphan)


def test_a_daemon_that_keeps_the_descriptor_of_a_completed_verb_is_not_waited_for(
    node: FakeNode, cni: CNIConfig, orphan: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "libcni"):
        cni.add_network_list(network("a"), RT, timeout=3.0)
        cni.del_network_list(network("a"), RT, timeout=3.0)
    assert caplog.messages == []
    os.fstat(orphan)


def test_only_an_add_fails_for_want_of_a_lock(
    node: FakeNode, cni: CNIConfig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def none_left(*_: object) -> NoReturn:
        raise RecordError("Too many open files")

    monkeypatch.setattr(LockSet, "_open_inherited", none_left)
    with caplog.at_level(logging.WARNING, "libcni"), pytest.raises(RecordError):
        cni.add_network_list(network("a"), RT)
    cni.del_network_list(network("a"), RT)
    assert node.verbs() == ["DEL a", "DEL a"]
    assert "will not wait for these plugins: Too many open files" in caplog.text


def test_a_lock_file_that_is_removed_again_and_again(
    node: FakeNode, cni: CNIConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LockSet, "is_current", lambda _hold: False)
    with pytest.raises(RecordError, match="another program removes the lock file"):
        cni.add_network_list(network("a"), RT)
    assert node.verbs() == []


def test_the_descriptor_for_a_plugin_is_opened_when_an_executor_reads_it(node: FakeNode) -> None:
    """A thousand verbs that wait for their start must not have a thousand descriptors of the lock file."""
    kept: list[CallOptions] = []
    opened: list[int] = []

    def lock_files() -> int:
        links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
        return sum(os.path.lexists(link) and os.readlink(link).startswith(f"{node.cache}/locks") for link in links)

    class Reading(RecordingExecutor):
        def execute(self, invocation: Invocation, options: CallOptions) -> Outcome:
            kept.append(options)
            assert options.inherit is not None
            opened.extend((lock_files(), options.inherit(), lock_files()))
            return super().execute(invocation, options)

    CNIConfig([], str(node.cache), executor=Reading()).add_network_list(network("a"), RT)
    before, descriptor, after = opened
    assert (before, after) == (1, 2)
    assert descriptor > 2
    assert kept[0].inherit is not None
    assert kept[0].inherit() == -1, "the verb has ended: nothing would close it"
