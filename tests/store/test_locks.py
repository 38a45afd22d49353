"""Byte-range locks: who may stand beside whom, in which order they are taken, and when they end."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from libcni.errors import LockTimeoutError, RecordError
from libcni.store import locks
from libcni.store.locks import LockRequest, LockSet

Make = Callable[..., LockSet]


@pytest.fixture
def hold(tmp_path: Path) -> Iterator[Make]:
    """Make holds in one cache directory; all are closed at the end."""
    made: list[LockSet] = []

    def make(
        *networks: str, container: str = "", exclusive: bool = False, token: str = "", every: bool = False
    ) -> LockSet:
        request = LockRequest(networks, container, exclusive=exclusive, all_containers=every)
        made.append(LockSet(str(tmp_path), request, token))
        return made[-1]

    yield make
    for one in made:
        one.close()


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


def test_a_waiting_gc_closes_the_door_behind_it(hold: Make) -> None:
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


def test_locks_are_between_processes_and_end_with_them(hold: Make, tmp_path: Path) -> None:
    code = f"""
from libcni.store.locks import LockSet, LockRequest
hold = LockSet({str(tmp_path)!r}, LockRequest(("n",), "c1"))
assert hold.try_acquire()
print("held", flush=True)
input()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        mine = hold(container="c1")
        assert not mine.try_acquire()
        other.kill()
        other.wait()
        assert mine.try_acquire()


def test_a_caller_that_holds_the_locks_is_not_waited_for(hold: Make) -> None:
    caller = hold("n", container="c1")
    assert caller.try_acquire()
    nested = hold("n", container="c1", token=caller.token)
    assert nested.try_acquire()
    assert nested.plugin_descriptor("ADD") == -1
    assert not nested.has_running_plugin("ADD")
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
    assert (second.has_running_plugin("ADD"), second.has_running_plugin("DEL")) == (True, False)
    assert not hold(container="c2").has_running_plugin("ADD")
    second.plugin_descriptor("ADD")
    assert second.has_running_plugin("ADD")
    os.close(plugin)
    assert not second.has_running_plugin("ADD")
    assert not hold("n").has_running_plugin("ADD")


def test_verbs_other_than_add_share_a_region(hold: Make) -> None:
    first = hold(container="c1")
    assert first.try_acquire()
    plugin = os.dup(first.plugin_descriptor("CHECK"))
    first.close()
    second = hold(container="c1")
    assert (second.has_running_plugin("ADD"), second.has_running_plugin("DEL")) == (False, True)
    os.close(plugin)


def test_the_file_is_made_for_this_user_alone(tmp_path: Path) -> None:
    one = LockSet(str(tmp_path / "a" / "b"), LockRequest((), "c1"))
    assert one.path == str(tmp_path / "a" / "b" / "locks")
    assert stat.S_IMODE(os.stat(one.path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(tmp_path / "a" / "b").st_mode) == 0o700
    assert os.stat(one.path).st_size == 0
    one.close()
    one.close()
    assert os.listdir(tmp_path / "a" / "b") == ["locks"]


def test_a_removed_file_is_noticed(hold: Make, tmp_path: Path) -> None:
    one = hold(container="c1")
    assert one.is_current()
    (tmp_path / "locks").unlink()
    assert not one.is_current()
    other = hold(container="c1")
    assert other.is_current()
    assert not one.is_current()


def test_nothing_is_left_open(hold: Make) -> None:
    before = len(os.listdir("/proc/self/fd"))
    one = hold("n", container="c1")
    one.plugin_descriptor("ADD")
    one.plugin_descriptor("DEL")
    one.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_hold_that_is_forgotten_lets_go(hold: Make, tmp_path: Path) -> None:
    lost = LockSet(str(tmp_path), LockRequest((), "c1"))
    assert lost.try_acquire()
    del lost
    assert hold(container="c1").try_acquire()


def test_a_timeout_says_what_and_where(hold: Make) -> None:
    error = hold("n", "m", container="c1").timeout(2.0)
    assert isinstance(error, LockTimeoutError)
    assert (error.what, error.seconds) == ("network n, network m, container c1", 2.0)
    assert error.path.endswith("/locks")
    assert "2.0 s" in str(error)
    assert hold("n").timeout(0).what == "network n"
    assert hold(every=True).timeout(0).what == "all containers"


def test_a_cache_directory_that_cannot_be_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="cannot be opened: Not a directory") as caught:
        LockSet(str(tmp_path / "file" / "cache"), LockRequest((), "c1"))
    assert caught.value.path == str(tmp_path / "file" / "cache" / "locks")
    assert caught.value.errno == errno.ENOTDIR


def test_a_link_in_the_files_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "locks").symlink_to("elsewhere")
    with pytest.raises(RecordError, match="cannot be opened"):
        LockSet(str(tmp_path), LockRequest((), "c1"))
    assert not (tmp_path / "elsewhere").exists()


def test_a_lock_that_the_system_refuses_is_an_error(
    hold: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = len(os.listdir("/proc/self/fd"))

    def failing(*_args: Any) -> Any:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "fcntl", failing)
        with pytest.raises(RecordError, match="cannot be locked") as caught:
            hold(container="c1")
    assert caught.value.errno == errno.EIO
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.fixture
def no_range_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the kernel have no open-file-description locks."""
    real = fcntl.fcntl

    def without(descriptor: Any, command: int, *args: Any) -> Any:
        if command in {locks._SETLK, locks._GETLK}:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(descriptor, command, *args)

    monkeypatch.setattr(fcntl, "fcntl", without)


@pytest.mark.usefixtures("no_range_locks")
def test_without_range_locks_there_is_one_for_all(hold: Make, tmp_path: Path) -> None:
    one = hold("n", container="c1")
    assert one.try_acquire()
    assert (tmp_path / "locks.whole").exists()
    other = hold("m", container="c2")
    assert not other.try_acquire()
    assert (one.plugin_descriptor("ADD"), one.has_running_plugin("ADD")) == (-1, False)
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


def test_a_forked_child_holds_nothing(hold: Make, tmp_path: Path) -> None:
    code = f"""
import os, sys
from libcni.store.locks import LockSet, LockRequest
hold = LockSet({str(tmp_path)!r}, LockRequest(("n",), "c1"))
assert hold.try_acquire()
pid = os.fork()
if pid == 0:
    hold.close()
    sys.stdin.read()
    os._exit(0)
print("forked", flush=True)
os._exit(0)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"forked\n"
        parent.wait()
        one = hold("n", container="c1")
        deadline = time.monotonic() + 20
        while not one.try_acquire():  # the child lives on, but has to come to run first
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_descriptor_below_3_is_moved(tmp_path: Path) -> None:
    code = f"""
import os
from libcni.store.locks import LockSet, LockRequest
os.close(0)
hold = LockSet({str(tmp_path)!r}, LockRequest((), "c1"))
assert hold.try_acquire()
assert hold._file.fileno() > 2 and hold.plugin_descriptor("ADD") > 2
os.fstat(1)
try:
    os.fstat(0)
except OSError:
    print("closed")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "closed\n"
