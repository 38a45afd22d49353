"""Locks when another process has the same open file descriptions: after a fork, or with an inherited descriptor."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from processes import fork, wait

from libcni import CNIConfig, Invocation, NetworkConfigList, RuntimeConf
from libcni.testing import RecordingExecutor

NET = NetworkConfigList.from_dict({"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "a"}]})
RT = RuntimeConf("c1", None, "eth0")


def client(cache: Path, executor: RecordingExecutor | None = None) -> CNIConfig:
    return CNIConfig(["/bin"], cache, executor=executor or RecordingExecutor(), durable=False, cleanup_timeout=1)


def test_a_child_that_was_forked_within_a_verb_keeps_no_lock_when_the_verb_is_killed(tmp_path: Path) -> None:
    """The hook after a fork releases them: nobody calls anything in the child, and its parent dies with the locks."""
    read_end, write_end = os.pipe()  # the child lives until the test closes the write end

    def fork_and_die(_: Invocation) -> None:
        if os.fork() == 0:
            os.close(write_end)
            os.read(read_end, 1)
        os._exit(7)

    parent = fork(lambda: client(tmp_path, RecordingExecutor({("a", "ADD"): fork_and_die})).add_network_list(NET, RT))
    try:
        assert wait(parent) == 7
        assert [one.state for one in client(tmp_path).get_cached_attachments()] == ["pending"]
        client(tmp_path).del_network_list(NET, RT, timeout=1)
    finally:
        os.close(write_end)
        os.close(read_end)


def test_a_verb_that_ends_releases_locks_that_another_process_could_keep(tmp_path: Path) -> None:
    """A duplicate of the descriptor stands for a process that inherited it without Python's knowledge."""
    copies: list[int] = []

    def duplicate(_: Invocation) -> None:
        copies.extend(os.dup(descriptor) for descriptor in write_locked(tmp_path))

    try:
        client(tmp_path, RecordingExecutor({("a", "ADD"): duplicate})).add_network_list(NET, RT)
        assert copies
        client(tmp_path).del_network_list(NET, RT, timeout=1)
    finally:
        for descriptor in copies:
            os.close(descriptor)


def write_locked(cache: Path) -> list[int]:
    """Return this process's descriptors of the lock file that hold an exclusive lock."""
    found: list[int] = []
    for name in os.listdir("/proc/self/fd"):
        try:
            target, info = os.readlink(f"/proc/self/fd/{name}"), Path(f"/proc/self/fdinfo/{name}").read_text()
        except OSError:  # the descriptor of the directory itself
            continue
        if target == f"{cache}/locks" and "WRITE" in info:
            found.append(int(name))
    return found


@pytest.mark.parametrize("verb", ["DEL", "CHECK"])
def test_a_fork_does_not_release_the_parents_locks(tmp_path: Path, verb: str) -> None:
    """The forked child only closes its descriptors; the parent's verb still excludes others."""
    client(tmp_path).add_network_list(NET, RT)
    seen: list[bool] = []

    def fork_and_look(_: Invocation) -> None:
        assert wait(fork(lambda: None)) == 0
        seen.append(bool(write_locked(tmp_path)))

    cni = client(tmp_path, RecordingExecutor({("a", verb): fork_and_look}))
    (cni.del_network_list if verb == "DEL" else cni.check_network_list)(NET, RT)
    assert seen == [True]
