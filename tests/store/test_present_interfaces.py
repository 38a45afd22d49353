"""Looks into namespaces, and paths of namespaces."""

from __future__ import annotations

import _socket
import contextlib
import ctypes
import errno
import gc
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any
from uuid import uuid4

import pytest
from processes import fork, wait

from libcni.kernel import system
from libcni.kernel.namespace import enter_namespace, netlink_socket, new_namespace
from libcni.kernel.netlink import Link, links
from libcni.store import present_interfaces
from libcni.store.boot import pid_namespace
from libcni.store.other_records import OtherRecords
from libcni.store.place import ABSENT, UNKNOWN, Known, Place
from libcni.store.present_interfaces import (
    EnteredNamespace,
    Sight,
    is_no_namespace,
    is_own_namespace,
    lasting_path,
    path_for_plugins,
)
from libcni.store.records import RecordStore
from libcni.testing import NetworkNamespace, network_namespace, wait_until

_CLONE_NEWPID = 0x20000000
MAC, OTHER_MAC = "0a:58:0a:00:00:02", "0a:58:0a:00:00:03"


# paths


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "file").touch()
    descriptor = os.open(tmp_path / "file", os.O_RDONLY | os.O_CLOEXEC)
    yield descriptor
    os.close(descriptor)


@pytest.mark.parametrize("alias", ["/proc/self/fd/{}", "/dev/fd/{}", "link", "link to a link", "directory"])
def test_an_alias_of_this_process_leads_plugins_to_the_same_file(opened: int, tmp_path: Path, alias: str) -> None:
    given = alias.format(opened)
    if alias in {"link", "link to a link"}:
        (tmp_path / "link").symlink_to(f"/proc/self/fd/{opened}")
        (tmp_path / "link to a link").symlink_to("link")
        given = str(tmp_path / alias)
    elif alias == "directory":
        (tmp_path / "directory").symlink_to("/proc/self/fd")
        given = f"{tmp_path}/directory/{opened}"
    path = path_for_plugins(given)
    assert path == f"/proc/{os.getpid()}/fd/{opened}"
    seen = status_of(path)
    assert wait(fork(lambda: os._exit(int(status_of(path) != seen)))) == 0


def test_the_own_namespace_has_a_path_that_outlives_a_process(tmp_path: Path) -> None:
    own = f"/proc/{os.getpid()}/ns/net"
    assert lasting_path(own) == lasting_path(f"/proc/{os.getppid()}/ns/net") == "/proc/self/ns/net"
    (tmp_path / "name").symlink_to(own)
    assert lasting_path(str(tmp_path / "name")) == str(tmp_path / "name")
    assert lasting_path("/proc/self/ns/user") == "/proc/self/ns/user"


def test_the_calling_threads_namespace_leads_plugins_there() -> None:
    paths: list[str] = []
    thread = threading.Thread(target=lambda: paths.append(path_for_plugins("/proc/thread-self/ns/net")))
    thread.start()
    number = thread.native_id
    thread.join()
    assert paths == [f"/proc/{os.getpid()}/task/{number}/ns/net"]
    assert path_for_plugins("/proc/self/ns/net") == f"/proc/{os.getpid()}/ns/net"


def test_a_relative_path_leads_to_the_same_file_in_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "netns").touch()
    monkeypatch.chdir(tmp_path)
    assert path_for_plugins("netns") == f"{tmp_path}/netns"
    monkeypatch.chdir(tmp_path / "sub")
    path = path_for_plugins("../netns")
    monkeypatch.chdir("/")
    assert os.path.samefile(path, tmp_path / "netns")


@pytest.mark.parametrize("path", ["", "opaque", "/none/at/all", "/run/netns/blue", "/var/run/netns/blue", "\0"])
def test_a_path_without_a_file_stays(path: str) -> None:
    assert path_for_plugins(path) == path


def test_a_link_that_leads_to_the_same_file_everywhere_stays(tmp_path: Path) -> None:
    (tmp_path / "netns").touch()
    (tmp_path / "link").symlink_to("netns")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("netns", "link", "loop"):
        assert path_for_plugins(f"{tmp_path}/{name}") == f"{tmp_path}/{name}"
    assert path_for_plugins(f"/proc/{os.getppid()}/ns/net") == f"/proc/{os.getppid()}/ns/net"


def test_what_is_no_namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "fifo")
    for path in (f"{tmp_path}/file", f"{tmp_path}/fifo", str(tmp_path), f"{tmp_path}/none", f"{tmp_path}/file/x"):
        assert is_no_namespace(path), path
    assert is_no_namespace("/proc/self/ns/mnt")
    assert not is_no_namespace("/proc/self/ns/net")
    assert not is_no_namespace("\0")

    def refused(_path: str) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(present_interfaces, "open_namespace", refused)
    assert not is_no_namespace(f"{tmp_path}/file"), "it is not known"


@pytest.mark.root
def test_a_forked_child_may_be_in_another_pid_namespace() -> None:
    def look() -> None:
        before = pid_namespace()
        assert ctypes.CDLL(None).unshare(_CLONE_NEWPID) == 0
        assert pid_namespace() == before
        assert wait(fork(lambda: os._exit(int(pid_namespace() == before)))) == 0

    assert wait(fork(look)) == 0


def test_a_pid_namespace_that_was_unknown_once_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(system, "stat", lambda _: os.lstat("/none"))
        assert pid_namespace() is None
    assert pid_namespace() == os.stat("/proc/self/ns/pid").st_ino


# looks


@pytest.fixture
def namespace() -> Iterator[NetworkNamespace]:
    with network_namespace() as made:
        yield made


@pytest.fixture
def entered(namespace: NetworkNamespace) -> Iterator[EnteredNamespace]:
    found = enter(namespace.path)
    yield found
    found.close()


def enter(path: str) -> EnteredNamespace:
    found = EnteredNamespace.enter(path)
    assert found is not None
    return found


def add_link(namespace: NetworkNamespace, name: str, *more: str) -> None:
    namespace.run("ip", "link", "add", name, *more, "type", "veth", "peer", "name", "peer0")


def status_of(path: str) -> tuple[int, int]:
    return os.stat(path).st_dev, os.stat(path).st_ino


def namespaces_of_threads() -> set[str]:
    found = set()
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # a thread that has ended meanwhile
            found.add(os.readlink(f"/proc/self/task/{task}/ns/net"))
    return found


@pytest.fixture(params=[True, False], ids=["returns", "cannot return"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Enter from the calling thread, or as a rootless program from a thread of its own."""
    if not request.param:
        setns, socket = system.functions_without_release()
        home = os.stat("/proc/thread-self/ns/net")

        def enter_others(descriptor: int, kind: int) -> int:
            return -1 if descriptor >= 0 and os.path.samestat(os.fstat(descriptor), home) else setns(descriptor, kind)

        monkeypatch.setattr(system, "functions_without_release", lambda: (enter_others, socket))
    return bool(request.param)


@pytest.mark.real
@pytest.mark.usefixtures("both_ways")
def test_each_look_sees_the_interfaces_of_that_moment(namespace: NetworkNamespace) -> None:
    entered = enter(namespace.path)
    there = entered.namespace
    assert (there.netns, there.interface) == (status_of(namespace.path), UNKNOWN)
    assert there.cookie
    assert entered.look("lo") == there
    assert entered.look("one0") == replace(there, interface=ABSENT)
    assert entered.look("n" * 40) == replace(there, interface=ABSENT)
    add_link(namespace, "one0", "address", MAC)
    first = entered.look("one0")
    assert first == replace(there, interface=Known(first.number, MAC))
    assert first.number > 0
    namespace.run("ip", "link", "del", "one0")
    add_link(namespace, "one0")
    second = entered.look("one0")
    assert second.number > first.number
    assert second.mac not in {"", MAC}
    entered.close()


@pytest.mark.real
@pytest.mark.usefixtures("both_ways")
def test_a_look_leaves_the_thread_at_home_and_no_descriptor_open(namespace: NetworkNamespace) -> None:
    own, descriptors = os.readlink("/proc/thread-self/ns/net"), sorted(os.listdir("/proc/self/fd"))
    entered = enter(namespace.path)
    entered.look("eth0")
    assert len(os.listdir("/proc/self/fd")) == len(descriptors) + 1, "the socket alone is kept"
    entered.close()
    for wrong in (f"{namespace.path}-none", "/dev/null", "/proc/self/ns/mnt", "\0"):
        assert EnteredNamespace.enter(wrong) is None
    assert os.readlink("/proc/thread-self/ns/net") == own
    wait_until(lambda: namespaces_of_threads() == {own})  # a thread ends some time after join()
    assert sorted(os.listdir("/proc/self/fd")) == descriptors
    assert not [thread for thread in threading.enumerate() if thread.name == "libcni-namespace"]


@pytest.mark.real
@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("is_enabled", [True, False])
def test_the_garbage_collector_is_as_it_was_before(namespace: NetworkNamespace, *, is_enabled: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if is_enabled else gc.disable)()
        enter(namespace.path).close()
        assert EnteredNamespace.enter("/dev/null") is None
        assert gc.isenabled() is is_enabled
    finally:
        (gc.enable if before else gc.disable)()


@pytest.mark.real
def test_only_a_program_that_cannot_return_has_a_thread_for_it(
    namespace: NetworkNamespace, both_ways: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    start = threading.Thread.start

    def note(thread: threading.Thread) -> None:
        started.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", note)
    enter(namespace.path).close()
    # From Python 3.14 on a signal handler could run between two steps in any program.
    assert started == ([] if both_ways and sys.version_info < (3, 14) else ["libcni-namespace"])


@pytest.mark.real
def test_no_other_python_code_runs_in_the_namespace(namespace: NetworkNamespace) -> None:
    """Neither a signal handler nor another thread: each would be in the container's namespace."""
    own, seen = os.readlink("/proc/self/ns/net"), set()

    def note(_number: int, _frame: FrameType | None) -> None:
        seen.add(os.readlink("/proc/thread-self/ns/net"))

    previous = signal.signal(signal.SIGALRM, note)
    signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
    try:
        for _ in range(300):
            enter(namespace.path).close()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert seen == {own}


@pytest.mark.real
def test_a_program_that_enters_a_user_namespace_between_two_looks_comes_back(namespace: NetworkNamespace) -> None:
    """It may enter the network namespaces of its user namespace then, and not its own."""
    enter(namespace.path).close()
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        status = 1
        try:
            own = status_of("/proc/thread-self/ns/net")
            system.call_libc("unshare", 0x10000000)  # CLONE_NEWUSER
            descriptor = new_namespace(lo_up=False)
            enter(f"/proc/self/fd/{descriptor}")
            status = int(status_of("/proc/thread-self/ns/net") != own)
        except Exception:  # noqa: BLE001 - the parent shows it
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.real
def test_a_socket_is_not_made_where_the_thread_is_lost(
    namespace: NetworkNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The way back was open when the program began, and is not now. Going on would run plugins in the wrong place."""
    calls = []
    setns, socket = system.functions_without_release()

    def fails_to_return(descriptor: int, kind: int) -> int:
        calls.append(descriptor)
        return setns(descriptor, kind) if len(calls) < 3 else -1

    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    there = os.open(namespace.path, os.O_RDONLY | os.O_CLOEXEC)
    monkeypatch.setattr(system, "functions_without_release", lambda: (fails_to_return, socket))
    monkeypatch.setattr(sys, "version_info", (3, 13))  # from 3.14 on the caller's thread does not leave
    try:
        with pytest.raises(AssertionError, match="cannot return"):
            netlink_socket(there)
    finally:
        enter_namespace(home)
        os.close(home)
        os.close(there)


@pytest.mark.real
def test_another_namespace_at_the_path_is_noticed(entered: EnteredNamespace, namespace: NetworkNamespace) -> None:
    assert entered.is_at(namespace.path)
    assert not entered.is_at("/proc/self/ns/net")
    assert not entered.is_at(f"{namespace.path}-none")


class SocketWithoutNetRaw(_socket.socket):
    """The socket of a program without CAP_NET_RAW: it can be bound to an interface once."""

    def setsockopt(self, *_: Any) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")


@pytest.mark.real
@pytest.mark.parametrize("reason", ["the address is no Ethernet address", "the socket cannot be bound again"])
def test_a_look_reads_all_interfaces_if_it_must(
    reason: str, entered: EnteredNamespace, namespace: NetworkNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_link(namespace, "one0")
    namespace.run("ip", "link", "property", "add", "dev", "one0", "altname", "alias0")
    looked = ("one0", "peer0", "two0", "alias0")
    expected = [entered.look(name) for name in looked]
    if reason.startswith("the address"):
        monkeypatch.setattr(present_interfaces, "_ARPHRD_ETHER", -1)
    else:
        entered._socket = SocketWithoutNetRaw(fileno=entered._socket.detach())
    assert [entered.look(name) for name in looked] == expected
    assert expected[0].mac
    assert expected[2].interface is ABSENT
    assert expected[3] == expected[0]  # plugins delete an interface by such a name, too


@pytest.mark.real
def test_a_look_during_which_an_interface_is_replaced_shows_one_of_the_two(
    entered: EnteredNamespace, namespace: NetworkNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never the number of the first with the hardware address of the second."""
    add_link(namespace, "one0", "address", MAC)
    first, ioctl = entered.look("one0"), system.ioctl

    def replace_after_the_first_number(socket: Any, number: int, request: bytes) -> Any:
        answer = ioctl(socket, number, request)
        monkeypatch.undo()
        namespace.run("ip", "link", "del", "one0")
        add_link(namespace, "one0", "address", OTHER_MAC)
        return answer

    monkeypatch.setattr(system, "ioctl", replace_after_the_first_number)
    seen = entered.look("one0")
    assert seen == entered.look("one0")
    assert (seen.mac, seen.number != first.number) == (OTHER_MAC, True)


@pytest.mark.real
def test_an_interface_that_took_the_name_before_all_were_listed_is_found(
    entered: EnteredNamespace, namespace: NetworkNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its index is not that of the first one. Without it the name would count as free."""
    add_link(namespace, "one0")
    first = entered.look("one0")
    links = [Link("two0", first.number + 7, mac=MAC), Link("one0", first.number + 8, mac=OTHER_MAC)]
    monkeypatch.setattr(present_interfaces, "_ARPHRD_ETHER", -1)
    monkeypatch.setattr(entered, "_links", lambda: links)
    assert entered.look("one0").interface == Known(first.number + 8, OTHER_MAC)
    monkeypatch.setattr(entered, "_links", lambda: links[:1])
    assert entered.look("one0").interface is ABSENT


@pytest.mark.real
def test_a_name_that_the_kernel_would_cut_is_no_interfaces(
    entered: EnteredNamespace, namespace: NetworkNamespace
) -> None:
    add_link(namespace, "n" * 15)
    assert entered.look("n" * 15).number > 0
    assert entered.look("n" * 16).interface is ABSENT


@pytest.mark.real
def test_a_forked_worker_does_not_keep_the_namespace(entered: EnteredNamespace) -> None:
    descriptor = entered._socket.fileno()

    def is_closed() -> None:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)

    assert wait(fork(is_closed)) == 0
    assert entered.look("eth0").interface is ABSENT


def names(entered: EnteredNamespace, made: Place) -> list[str]:
    return [place.found_as for place in entered.find(made)]


@pytest.mark.real
def test_an_interface_is_found_under_another_name(entered: EnteredNamespace, namespace: NetworkNamespace) -> None:
    add_link(namespace, "one0", "address", MAC)
    made = entered.look("one0")
    namespace.run("ip", "link", "set", "one0", "name", "two0")
    assert names(entered, made) == ["two0"]
    assert names(entered, made.with_interface(Known(made.number))) == ["two0"]
    assert names(entered, made.with_interface(Known(mac=MAC))) == ["two0"], (
        "a record of Go has the hardware address alone"
    )
    changed = made.with_interface(Known(made.number, OTHER_MAC))
    assert names(entered, changed) == ["two0"], "the cookie and the index name it; users change hardware addresses"
    assert names(entered, replace(changed, cookie=0)) == []
    assert names(entered, replace(made, interface=Known(999, ""))) == []
    assert entered.look("two0").number == made.number, "the list of interfaces was read to its end"


@pytest.mark.real
def test_an_interface_is_removed_from_the_recorded_namespace_alone(
    entered: EnteredNamespace, namespace: NetworkNamespace, tmp_path: Path
) -> None:
    """Another namespace that is at the path by now has an interface with the same index."""
    add_link(namespace, "one0")
    made = entered.look("one0")
    sight = Sight(OtherRecords(RecordStore(str(tmp_path))))
    with network_namespace() as other:
        while not other_has(other, made.number):
            add_link(other, f"x{uuid4().hex[:8]}")
        for path in (other.path, f"{other.path}-none"):
            with pytest.raises(OSError, match="another namespace is at the path"):
                sight.remove(path, made)
        assert other_has(other, made.number)
    sight.remove(namespace.path, made)
    sight.close()
    assert entered.look("one0").interface is ABSENT


def other_has(other: NetworkNamespace, number: int) -> bool:
    return any(link.index == number for link in links(other.path).values())


@pytest.mark.real
@pytest.mark.parametrize("remembers", [False, True])
def test_an_interface_is_found_in_another_namespace(
    entered: EnteredNamespace, namespace: NetworkNamespace, tmp_path: Path, *, remembers: bool
) -> None:
    mac = f"0a:58:{os.getpid() & 255:02x}:{os.getpid() >> 8 & 255:02x}:77:01"
    add_link(namespace, "one0", "address", mac)
    made = entered.look("one0")
    with network_namespace() as other:
        descriptor = os.open(other.path, os.O_RDONLY)
        try:
            namespace.run("ip", "link", "set", "one0", "netns", f"/proc/{os.getpid()}/fd/{descriptor}")
        finally:
            os.close(descriptor)
        assert names(entered, made) == []
        sight = Sight(OtherRecords(RecordStore(str(tmp_path))), remembers=remembers)
        found = sight.find(None, made, namespace.path, "one0", everywhere=True).found_as
        assert found.startswith("one0 in ")
        assert status_of(found.removeprefix("one0 in ")) == status_of(other.path)
        without = made.with_interface(Known(made.number))
        assert not sight.find(None, without, namespace.path, "one0", everywhere=True).found_as
        another = made.with_interface(Known(made.number + 50, mac))  # users can choose hardware addresses
        assert not sight.find(None, another, namespace.path, "one0", everywhere=True).found_as
        sight.close()


@pytest.mark.real
def test_a_hardware_address_in_a_users_namespace_is_no_moved_interface(
    entered: EnteredNamespace, namespace: NetworkNamespace, tmp_path: Path
) -> None:
    """Neither in DEL, which would be refused; nor if the user gives it the recorded index, too."""
    mac = f"0a:58:{os.getpid() & 255:02x}:{os.getpid() >> 8 & 255:02x}:77:02"
    add_link(namespace, "one0", "address", mac)
    made = entered.look("one0")
    namespace.run("ip", "link", "del", "one0")
    script = "ip link add one0 index $0 address $1 type veth peer name peer0; echo ready; exec cat"
    command = ["unshare", "--user", "--map-root-user", "--net", "sh", "-c", script, str(made.number), mac]
    sight = Sight(OtherRecords(RecordStore(str(tmp_path))))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as user:
        assert user.stdout is not None
        assert user.stdout.readline() == b"ready\n"
        inside = enter(f"/proc/{user.pid}/ns/net")
        assert inside.look("one0").interface == made.interface
        inside.close()
        for recorded in (made, Place(made.netns, 0, Known(mac=mac))):  # this library's record, and Go's
            assert not sight.find(None, recorded, namespace.path, "one0", everywhere=True).found_as
        user.communicate()
    sight.close()


@pytest.mark.real
def test_the_namespaces_of_this_thread_and_of_the_process_are_its_own(namespace: NetworkNamespace) -> None:
    host = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    there = os.open(namespace.path, os.O_RDONLY | os.O_CLOEXEC)
    answers = []

    def look_from(descriptor: int) -> None:
        enter_namespace(descriptor)
        answers.append([is_own_namespace(path) for path in (namespace.path, f"/proc/{os.getppid()}/ns/net")])

    def look() -> None:
        look_from(host)
        for descriptor in (there, host):  # other threads, while the main thread is in either
            for main in (host, there):
                enter_namespace(main)
                thread = threading.Thread(target=look_from, args=(descriptor,))
                thread.start()
                thread.join()
        look_from(there)
        assert answers == [[False, True], [True, True], [True, False], [False, True], [True, True], [True, False]]

    assert wait(fork(look)) == 0
    assert not is_own_namespace(f"{namespace.path}-none")
