"""Locks between processes and threads: who waits for whom, for how long, and who does not."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from pathlib import Path

import pytest
from helpers import RT
from nodes import FakeNode
from processes import fork, wait

from libcni import LockTimeoutError, NetworkConfigList, RecordError
from libcni.store import locks
from libcni.store.locks import LockRequest, LockSet
from libcni.testing import wait_until

META = f"""#!{sys.executable}
import json, os, sys
sys.path[:0] = {sys.path!r}
import libcni
document = json.load(sys.stdin)
inner = libcni.NetworkConfigList.from_dict({{"cniVersion": "1.0.0", "name": "inner", "plugins": [{{"type": "quick"}}]}})
rt = libcni.RuntimeConf(os.environ["CNI_CONTAINERID"], None, "eth9")
cni = libcni.CNIConfig(os.environ["CNI_PATH"], document["cache"], timeout=3, durable=False)
if os.environ["CNI_COMMAND"] == "ADD":
    print(cni.add_network_list(inner, rt).text)
elif os.environ["CNI_COMMAND"] == "DEL":
    cni.del_network_list(inner, rt)
"""


@pytest.fixture(params=["range locks", "filelock"])
def either_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test with both kinds of locks: the second is for systems without open-file-description locks."""
    if request.param == "filelock":
        monkeypatch.setattr(locks, "_SETLK", 4095)  # no such command: EINVAL, as an old kernel would say
        monkeypatch.setattr(locks, "_GETLK", 4095)
    return str(request.param)


def take(cache: Path, request: LockRequest) -> LockSet:
    cache.mkdir(exist_ok=True)
    hold = LockSet(str(cache), request)
    assert hold.try_acquire()
    return hold


def is_free(cache: Path, request: LockRequest, token: str = "") -> bool:
    hold = LockSet(str(cache), request, token)
    try:
        return hold.try_acquire()
    finally:
        hold.close()


@pytest.mark.usefixtures("either_kind")
def test_waiting_has_a_timeout_with_a_named_error(node: FakeNode) -> None:
    hold = take(node.root, LockRequest())
    hold.close()
    node.cache.mkdir()
    hold = take(node.cache, LockRequest(("net",), "c1"))
    started = time.monotonic()
    with pytest.raises(LockTimeoutError, match="network net, container c1") as raised:
        node.client().add_network_list(node.network("quick"), RT, timeout=0.3)
    assert time.monotonic() - started >= 0.3
    assert (raised.value.what, raised.value.path) == ("network net, container c1", f"{node.cache}/locks")
    assert node.verbs() == []
    hold.close()


def meta_network(node: FakeNode, script: str) -> NetworkConfigList:
    path = node.bin / "meta"
    path.write_text(script)
    path.chmod(0o755)
    return node.network({"type": "meta", "cache": str(node.cache)})


@pytest.mark.usefixtures("either_kind")
def test_a_meta_plugin_with_the_same_records_does_not_wait_for_its_own_caller(node: FakeNode) -> None:
    node.plugin("quick")
    cni, net = node.client(), meta_network(node, META.replace("import libcni\n", _same_locks()))
    cni.add_network_list(net, RT)
    assert sorted(one.ifname for one in cni.get_cached_attachments("c1")) == ["eth0", "eth9"]
    cni.del_network_list(net, RT)
    assert cni.get_cached_attachments() == []


def test_a_meta_plugin_with_the_same_interface_leaves_the_record_of_its_caller(node: FakeNode) -> None:
    node.plugin("quick", f"ls {node.results} >> {node.root}/seen")
    cni, net = node.client(), meta_network(node, META.replace('"eth9"', '"eth0"'))
    cni.add_network_list(net, RT)
    assert node.verbs() == ["ADD quick"], "the outer ADD was detached while it ran"
    assert (node.root / "seen").read_text().split() == ["inner-c1-eth0", "net-c1-eth0"]
    cni.del_network_list(net, RT)
    assert cni.get_cached_attachments() == []


def _same_locks() -> str:
    numbers = f"{locks._SETLK}, {locks._GETLK}"
    return f"import libcni\nfrom libcni.store import locks\nlocks._SETLK, locks._GETLK = {numbers}\n"


@pytest.mark.usefixtures("either_kind")
def test_the_holder_s_death_releases_the_lock(tmp_path: Path) -> None:
    def die() -> None:
        take(tmp_path, LockRequest(("net",), "c1"))
        os.kill(os.getpid(), 9)

    assert wait(fork(die)) == -9
    assert is_free(tmp_path, LockRequest(("net",), "c1"))


def opens(path: Path) -> int:
    """Return how many descriptors of this process are open at a path."""
    return sum(os.path.realpath(f"/proc/self/fd/{name}") == str(path) for name in os.listdir("/proc/self/fd"))


def test_a_lock_file_that_is_removed_while_somebody_waits(node: FakeNode) -> None:
    """Who waited for the removed file must not believe that it excludes those who lock the new one."""
    node.plugin("slow", f"until [ -e {node.root}/$CNI_COMMAND ]; do sleep 0.02; done")
    net = node.network("slow")
    holder = threading.Thread(target=lambda: node.client().add_network_list(net, RT))
    holder.start()
    wait_until(node.verbs)
    opened = opens(node.cache / "locks")
    waiter = threading.Thread(target=lambda: node.client().del_network_list(net, RT))
    waiter.start()
    wait_until(lambda: opens(node.cache / "locks") > opened)
    (node.cache / "locks").unlink()
    assert is_free(node.cache, LockRequest((), "c9")), "this makes a new lock file"
    (node.root / "ADD").touch()
    holder.join()
    wait_until(lambda: len(node.verbs()) != 1)
    assert not is_free(node.cache, LockRequest((), "c1")), "the DEL runs, and holds the lock of the new file"
    (node.root / "DEL").touch()
    waiter.join()
    assert node.verbs() == ["ADD slow", "DEL slow"]


def test_field_12_no_lock_is_held_on_the_configuration_directory(node: FakeNode) -> None:
    node.plugin("slow", f"until [ -e {node.root}/seen ]; do sleep 0.02; done")
    node.configure("net", "slow")
    cni = node.cni
    verb = threading.Thread(target=lambda: cni.add_network_list("net", RT))
    verb.start()
    wait_until(node.verbs)
    assert [net.name for net in cni.networks()] == ["net"]
    assert cni.get_cached_attachments()[0].state == "pending"
    (node.root / "seen").touch()
    verb.join()


@pytest.mark.parametrize("make", [os.mkdir, lambda path: os.symlink("/etc/passwd", path)])
def test_a_lock_file_that_is_none_stops_an_add(node: FakeNode, make: object) -> None:
    assert callable(make)
    node.cache.mkdir(parents=True)
    make(node.cache / "locks")
    before = Path("/etc/passwd").read_bytes()
    with pytest.raises(RecordError, match="locks: the lock file cannot be opened"):
        node.client().add_network_list(node.network("quick"), RT)
    assert node.verbs() == []
    node.client().del_network_list(node.network("quick"), RT)
    assert node.verbs() == ["DEL quick"]
    assert Path("/etc/passwd").read_bytes() == before
    shutil.rmtree(node.cache)
