"""Byte-range locks: who may stand beside whom, in which order they are taken, and when they end."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from processes import fork, wait

from libcni.errors import LockTimeoutError, RecordError
from libcni.kernel import system
from libcni.store import locks
from libcni.store.locks import LockRequest, LockSet
from store.canned import opened
from store.conftest import Make


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        ({"container": "c1"}, {"container": "c1"}, False),
        ({"container": "c1"}, {"container": "c2"}, True),
        ({"networks": "n", "container": "c1"}, {"networks": "n", "container": "c2"}, True),
        ({"networks": "n", "exclusive": True}, {"networks": "n", "container": "c1"}, False),
        ({"networks": "n", "exclusive": True}, {"networks": "n", "exclusive": True}, False),
        ({"networks": "n", "exclusive": True}, {"networks": "m", "container": "c1"}, True),
        ({"networks": "n", "exclusive": True}, {"container": "n"}, True),
        ({"networks": "n"}, {"container": "n"}, True),
        ({"every": True}, {"container": "c1"}, False),
        ({"every": True}, {"networks": "n"}, True),
    ],
)
def test_who_may_stand_beside_whom(hold: Make, first: Any, second: Any, together: bool) -> None:
    def take(request: Any) -> LockSet:
        rest = dict(request)
        networks = [rest.pop("networks")] if "networks" in rest else []
        return hold(*networks, **rest)

    for one, other in ((first, second), (second, first)):
        a = take(one)
        assert a.try_acquire()
        b = take(other)
        assert b.try_acquire() is together
        a.close()
        assert b.try_acquire()
        b.close()


def test_a_shared_lock_stays_until_its_last_holder_releases_it(hold: Make) -> None:
    first, second, collector = hold("n", container="c1"), hold("n", container="c2"), hold("n", exclusive=True)
    assert first.try_acquire()
    assert second.try_acquire()
    first.close()
    assert not collector.try_acquire()
    assert hold(container="c1").try_acquire()
    second.close()
    assert collector.try_acquire()


def test_locks_are_taken_network_first_and_one_by_one(hold: Make) -> None:
    container = hold(container="c1")
    assert container.try_acquire()
    waiting = hold("n", "m", container="c1")
    assert not waiting.try_acquire()
    collector = hold("n", exclusive=True)
    assert not collector.try_acquire()
    container.close()
    assert waiting.try_acquire()
    waiting.close()
    assert collector.try_acquire()


def test_a_waiting_gc_blocks_new_shared_lockers(hold: Make) -> None:
    adding = hold("n", container="c1")
    assert adding.try_acquire()
    collector = hold("n", exclusive=True)
    assert not collector.try_acquire()
    later = hold("n", container="c2")
    assert not later.try_acquire()
    adding.close()
    assert not later.try_acquire()
    assert collector.try_acquire()
    collector.close()
    assert later.try_acquire()


def test_a_caller_that_holds_the_locks_is_not_waited_for(hold: Make) -> None:
    caller = hold("n", container="c1")
    assert caller.try_acquire()
    nested = hold("n", container="c1", token=caller.token)
    assert nested.try_acquire()
    assert nested.plugin_descriptor("ADD") == -1
    assert not nested.has_running_plugin()
    more = hold("m", container="c1", token=nested.token)
    assert more.try_acquire()
    other = hold(container="c2", token=caller.token)
    assert other.try_acquire()
    assert other.plugin_descriptor("ADD") >= 0
    nested.close()
    assert not hold(container="c1").try_acquire()


def test_a_plugin_of_gc_may_use_its_callers_network_and_has_to_ask_for_others(hold: Make) -> None:
    collector = hold("n", exclusive=True)
    assert collector.try_acquire()
    nested = hold("n", container="c1", token=collector.token)
    assert nested.try_acquire()
    assert hold("m", exclusive=True).try_acquire()
    assert not hold("n", "m", container="c2", token=collector.token).try_acquire()


def test_a_token_ends_with_its_verb(hold: Make) -> None:
    caller = hold("n", container="c1")
    assert caller.try_acquire()
    token = caller.token
    caller.close()
    other = hold(container="c1")
    assert other.try_acquire()
    assert not hold(container="c1", token=token).try_acquire()


@pytest.mark.parametrize("token", ["", "x", "a:b:c", "1:2:3:4", "1:2:-5:1,2", f"1:2:{10**30}:1", "\0::"])
def test_a_bad_token_is_no_token(hold: Make, token: str) -> None:
    first = hold(container="c1")
    assert first.try_acquire()
    own = first.token.rsplit(":", 2)[0]
    for bad in (token, f"{own}:{token}", f"{own}:5:x", f"{own}:{10**30}:1", f"{own}:-1:1"):
        assert not hold(container="c1", token=bad).try_acquire()


def test_a_token_is_of_one_file(hold: Make, tmp_path: Path) -> None:
    elsewhere = LockSet(str(tmp_path / "elsewhere"), LockRequest((), "c1"))
    assert elsewhere.try_acquire()
    assert hold(container="c1").try_acquire()
    assert not hold(container="c1", token=elsewhere.token).try_acquire()
    elsewhere.close()


def test_a_plugin_that_outlives_its_runtime_is_seen(hold: Make) -> None:
    first = hold(container="c1")
    assert first.try_acquire()
    plugin = os.dup(first.plugin_descriptor("ADD"))
    assert first.plugin_descriptor("ADD") == first.plugin_descriptor("ADD")
    first.close()
    second = hold(container="c1")
    assert second.try_acquire()
    assert second.has_running_plugin()
    assert not hold(container="c2").has_running_plugin()
    second.plugin_descriptor("ADD")
    assert second.has_running_plugin()
    os.close(plugin)
    assert not second.has_running_plugin()
    assert not hold("n").has_running_plugin()


def test_a_removed_file_is_noticed(hold: Make, tmp_path: Path) -> None:
    one = hold(container="c1")
    assert one.is_current()
    (tmp_path / "locks").unlink()
    assert not one.is_current()
    other = hold(container="c1")
    assert other.is_current()
    assert not one.is_current()


def test_a_hold_that_is_forgotten_lets_go(hold: Make, tmp_path: Path) -> None:
    lost = LockSet(str(tmp_path), LockRequest((), "c1"))
    assert lost.try_acquire()
    del lost
    assert hold(container="c1").try_acquire()


def test_threads_exclude_each_other(tmp_path: Path) -> None:
    inside: list[int] = []
    worst: list[int] = []

    def work() -> None:
        for _ in range(50):
            one = LockSet(str(tmp_path), LockRequest(("n",), "c1"))
            for delay in one.retry_delays(time.monotonic() + 60):
                time.sleep(delay)
            inside.append(1)
            worst.append(len(inside))
            time.sleep(0)
            inside.pop()
            one.close()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(worst), max(worst)) == (400, 1)


@pytest.fixture
def no_range_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the kernel have no open-file-description locks."""
    real = fcntl.fcntl

    def without(descriptor: Any, command: int, *args: Any) -> Any:
        if command in {locks._SETLK, locks._GETLK}:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(descriptor, command, *args)

    monkeypatch.setattr(system, "fcntl", without)


@pytest.mark.usefixtures("no_range_locks")
def test_without_range_locks_there_is_one_for_all(hold: Make, tmp_path: Path) -> None:
    one = hold("n", container="c1")
    assert one.try_acquire()
    assert (tmp_path / "locks.whole").exists()
    other = hold("m", container="c2")
    assert not other.try_acquire()
    assert (one.plugin_descriptor("ADD"), one.has_running_plugin()) == (-1, False)
    nested = hold("n", container="c1", token=one.token)
    assert nested.try_acquire()
    nested.close()
    assert not other.try_acquire()
    one.close()
    assert other.try_acquire()


@pytest.mark.usefixtures("no_range_locks")
def test_the_one_for_all_can_be_refused(hold: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from filelock import FileLock

    def failing(*_args: Any, **_more: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(FileLock, "acquire", failing)
    with pytest.raises(RecordError, match="cannot be locked"):
        hold(container="c1").try_acquire()


def test_a_descriptor_below_3_is_moved(tmp_path: Path) -> None:
    def work() -> None:
        os.close(0)
        one = LockSet(str(tmp_path), LockRequest((), "c1"))
        assert one.try_acquire()
        assert min(one._file.descriptor, one.plugin_descriptor("ADD")) > 2
        assert not os.path.exists("/proc/self/fd/0")

    assert wait(fork(work)) == 0


def test_the_callers_own_plugin_is_not_waited_for(hold: Make) -> None:
    """It is this process."""
    caller = hold(container="c1")
    assert caller.try_acquire()
    inherited = os.dup(caller.plugin_descriptor("ADD"))
    try:
        assert not hold(container="c1", token=caller.token).has_running_plugin()
    finally:
        os.close(inherited)


# tokens and descriptors that others could misuse


@pytest.mark.parametrize("region", [locks.CONTAINER, locks.NETWORK, locks.ENTRANCE, locks.PLUGIN])
def test_only_a_byte_of_the_token_region_is_proof(hold: Make, region: int) -> None:
    """Whoever sets the environment could else name any byte that somebody holds."""
    first = hold("n", container="c1")
    assert first.try_acquire()
    container = locks.CONTAINER + locks.offset_of("c1")
    descriptor = first.plugin_descriptor("ADD")
    assert descriptor >= 0
    name = "n" if region in {locks.NETWORK, locks.ENTRANCE} else "c1"
    forged = f"{first.token.rsplit(':', 2)[0]}:{region + locks.offset_of(name)}:{container}"
    assert not hold(container="c1", token=forged).try_acquire()


def test_a_plugin_that_locks_all_with_its_descriptor_stops_nobody(hold: Make) -> None:
    """A daemon keeps the descriptor, and drops its rights. A read-only descriptor can lock bytes as a reader does."""
    first = hold("n", container="c1")
    assert first.try_acquire()
    descriptor = os.dup(first.plugin_descriptor("ADD"))
    first.close()
    everything = locks._FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
    fcntl.fcntl(descriptor, locks._SETLK, everything)
    for one in (hold("n", container="c1"), hold("m", container="c2"), hold("n", exclusive=True)):
        assert one.try_acquire()
        one.close()
    assert fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(descriptor, b"x")


# plugins that still run


def test_a_plugin_keeps_its_byte_when_the_verb_closes_its_copy(hold: Make, tmp_path: Path) -> None:
    one = hold(container="c1")
    assert one.try_acquire()
    with subprocess.Popen(["sleep", "60"], pass_fds=[one.plugin_descriptor("ADD")]) as plugin:
        one.close_plugin_descriptor()
        assert (opened(tmp_path / "locks"), opened(tmp_path / "locks.plugins")) == (1, 0)
        assert one.has_running_plugin()
        plugin.kill()
        plugin.wait()
    assert not one.has_running_plugin()


# what the system refuses


@pytest.mark.parametrize("code", [errno.EMFILE, errno.EIO, errno.ENOLCK, errno.EINTR, errno.EACCES])
@pytest.mark.parametrize("call", ["open", "fcntl", "fstat", "stat"])
def test_each_refusal_is_a_record_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    """Let each call of a verb's life fail once, one after the other."""
    before = len(os.listdir("/proc/self/fd"))
    refusals: list[int | None] = []
    for failing in range(30):
        calls = 0
        module = fcntl if call == "fcntl" else os
        real = getattr(module, call)

        def fail(*args: Any, _real: Any = real, _failing: int = failing, **more: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == _failing + 1:
                raise OSError(code, os.strerror(code))
            return _real(*args, **more)

        with monkeypatch.context() as patch:
            patch.setattr(module, call, fail)
            one = None
            try:
                one = LockSet(str(tmp_path), LockRequest(("n",), "c1"))
                one.try_acquire()
                one.plugin_descriptor("ADD")
                one.has_running_plugin()
                one.is_current()
            except RecordError as error:
                refusals.append(error.errno)
            finally:
                if one is not None:
                    one.close()
        after = LockSet(str(tmp_path), LockRequest(("n",), "c1"))
        assert after.try_acquire()
        after.close()
        assert len(os.listdir("/proc/self/fd")) == before
        if calls <= failing:
            assert set(refusals) <= {code}
            return
    raise AssertionError("the calls do not end")


# requests for many locks


def test_the_deadline_holds_while_thousands_of_locks_are_taken(hold: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel compares each lock of a file with all others, so their number must not decide over the time."""
    one = hold(*(f"n{number}" for number in range(3000)), exclusive=True)
    moments = iter(range(1_000_000))
    monkeypatch.setattr(system, "monotonic", lambda: float(next(moments)))
    with pytest.raises(LockTimeoutError):
        list(one.retry_delays(10.0))
    assert len(one._todo) > 8000, "some are taken between two looks at the clock, and not all"
    monkeypatch.undo()
    assert one.try_acquire()
