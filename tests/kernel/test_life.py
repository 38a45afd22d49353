"""Each sign of life decides alone, with real namespaces: asked of the kernel by a handle, and without that."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from nodes import Namespace

import libcni.kernel.system as system
from libcni.kernel import life as life_module
from libcni.kernel.foreign import Space, read_space
from libcni.kernel.life import Answer, Life, Subject
from libcni.kernel.namespace import NamespaceId, cookie_of, namespace_identity
from libcni.kernel.namespace_holders import Walk, _cover_of, _unescaped
from libcni.kernel.netlink import links, open_netlink
from libcni.testing import wait_until

pytestmark = pytest.mark.real

ADDRESS, FREE = (f"10.77.{os.getpid() % 250}.{number}" for number in (2, 3))  # other workers have their own
Start = Callable[..., "subprocess.Popen[bytes]"]


def knows_handles() -> bool:
    """Return whether this kernel finds namespaces by handles."""
    with open_netlink() as own:
        subject = Subject("/none", namespace_identity("/proc/thread-self/ns/net"), cookie_of(own))
    return Life().of(subject, walk=False).sign == "kernel"


@pytest.fixture(params=[True, False], ids=["handle", "no handle"])
def by_handle(request: pytest.FixtureRequest) -> bool:
    if request.param and not knows_handles():
        pytest.skip("this kernel knows no handles of namespaces (Linux 6.18)")
    return bool(request.param)


@pytest.fixture
def start() -> Iterator[Start]:
    """Return a function that starts a program and waits for its first line; all are killed."""
    with ExitStack() as stack:

        def begin(*command: str, **options: object) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, **options)  # type: ignore[call-overload]
            stack.enter_context(process)
            stack.callback(process.kill)
            assert process.stdout.readline() == b"ready\n"
            return process  # type: ignore[no-any-return]

        yield begin


def subject_of(namespace: Namespace, **changed: object) -> Subject:
    """Return what a record of a container in a namespace says: old, and with a path that is lost soon."""
    with open_netlink(namespace.path) as inside:
        cookie = cookie_of(inside)
    own = os.stat("/proc/self/ns/pid").st_ino
    known = Subject(namespace.path, namespace_identity(namespace.path), cookie, pid_namespace=own, age=1000.0)
    return replace(known, **changed)  # type: ignore[arg-type]


def lose_path(namespace: Namespace) -> None:
    subprocess.run(["umount", "--lazy", namespace.path], check=True)


def ends(subject: Subject) -> bool:
    """Return whether the namespace has ended; the kernel ends it some time after its last holder."""
    return Life().of(subject).is_dead


@contextmanager
def lost(namespace: Namespace, **changed: object) -> Iterator[Subject]:
    """Lose the namespace's path in the block; it ends with the block's holder."""
    subject = subject_of(namespace, **changed)
    lose_path(namespace)
    yield subject


def answered(subject: Subject, by_handle: bool, verdict: str, *signs: str) -> Answer:
    """Return the answer with this verdict and one of these signs.

    Wait for it: a walk sees the whole machine, and other tests hold, cover and open namespaces meanwhile.
    """
    last: list[Answer] = []

    def ask() -> Answer | None:
        last.append(Life(by_handle=by_handle).of(subject))
        return last[-1] if last[-1].verdict == verdict and last[-1].sign in signs else None

    try:
        answer = wait_until(ask)
    except TimeoutError as error:
        raise AssertionError(str(last[-1])) from error
    assert answer is not None
    return answer


@pytest.mark.parametrize(("inode", "cookie"), [(1 << 40, 5), (-1, 5), (5, -5), (5, 1 << 64)])
def test_a_number_that_no_namespace_can_have_is_an_error_of_the_system(inode: int, cookie: int) -> None:
    """A damaged record may have it, and must not end the listing of all others."""
    with pytest.raises(OSError, match="Invalid argument"):
        system.open_namespace_by_handle(inode, cookie)


def expect(subject: Subject, by_handle: bool, sign: str) -> None:
    answered(subject, by_handle, "alive", "kernel" if by_handle and subject.cookie else sign)


def expect_dead(subject: Subject, by_handle: bool) -> None:
    """Another namespace may have its number now."""
    answered(subject, by_handle, "dead", "inode", "kernel" if by_handle and subject.cookie else "walk")


SLEEP = ["sh", "-c", "echo ready; exec sleep 1000"]


def test_the_path(container: Namespace, by_handle: bool) -> None:
    answer = Life(by_handle=by_handle).of(subject_of(container))
    assert (answer.verdict, answer.sign, answer.path) == ("alive", "path", container.path)


def test_an_inode_that_another_namespace_has_now(container: Namespace, by_handle: bool) -> None:
    subject = subject_of(container)
    with open_netlink(container.path) as inside:
        earlier = replace(subject, cookie=cookie_of(inside) + 1_000_000)
    answer = Life(by_handle=by_handle).of(earlier)
    assert (answer.verdict, answer.sign) == ("dead", "inode")
    assert not Life(by_handle=by_handle).is_held(replace(earlier, path="/none")), "a walk finds the number alone"
    assert Life(by_handle=by_handle).is_held(replace(subject, path="/none"))


def test_no_sign_at_all(container: Namespace, by_handle: bool) -> None:
    with lost(container) as subject:
        wait_until(lambda: ends(subject))
        expect_dead(subject, by_handle)
        young = Life(by_handle=by_handle).of(replace(subject, age=1.0))
        assert (young.verdict == "dead") == (young.sign in {"kernel", "inode"})


def test_a_process(container: Namespace, start: Start, by_handle: bool) -> None:
    process = start("nsenter", f"--net={container.path}", *SLEEP)
    with lost(container) as subject:
        expect(subject, by_handle, "thread")
    process.kill()
    wait_until(lambda: ends(subject))


_THREAD = """
import ctypes, threading, time
print("ready", flush=True)
threading.Thread(target=time.sleep, args=(1000,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_thread_whose_first_thread_has_ended(container: Namespace, start: Start, by_handle: bool) -> None:
    process = start("nsenter", f"--net={container.path}", sys.executable, "-c", _THREAD)
    wait_until(lambda: not Path(f"/proc/{process.pid}/ns/net").exists())
    with lost(container) as subject:
        expect(subject, by_handle, "thread")


@pytest.mark.parametrize(
    ("call", "file"),
    [("stat", "ns/net"), ("readlink", "root"), ("open", "mountinfo"), ("readlink", "fd/0")],
)
def test_a_process_that_ends_while_it_is_looked_at_hides_nothing(
    start: Start, monkeypatch: pytest.MonkeyPatch, call: str, file: str
) -> None:
    process = start("unshare", "--mount", *SLEEP)
    listdir, really = system.listdir, getattr(system, call)
    ended: list[str] = []

    def end_and_ask(path: str, *args: object, **options: object) -> object:
        if path == f"/proc/{process.pid}/{file}" and not ended:
            ended.append(path)
            process.kill()
            if call == "open":  # it has left its namespaces, and is not reaped: EINVAL
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            else:  # what the kernel answers for a link that it found before the end
                process.wait()
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return really(path, *args, **options)

    of_two = [str(os.getpid()), str(process.pid)]
    monkeypatch.setattr(system, "listdir", lambda path: of_two if path == "/proc" else listdir(path))
    monkeypatch.setattr(system, call, end_and_ask)
    walk = Walk()
    assert ended
    assert (walk.blind, walk.outside) == ("", "")


def test_a_mount_in_another_mount_namespace(container: Namespace, start: Start, by_handle: bool) -> None:
    # Its copies of all mounts stay: nothing of it spreads, in neither direction.
    process = start("unshare", "--mount", "--propagation", "private", *SLEEP)
    with lost(container) as subject:
        expect(subject, by_handle, "mount")
        descriptor = Life(by_handle=by_handle).open(subject)
        try:
            assert namespace_identity(f"/proc/self/fd/{descriptor}") == subject.netns
        finally:
            os.close(descriptor)
    process.kill()
    wait_until(lambda: ends(subject))


def test_a_mount_that_a_chroot_hides(container: Namespace, start: Start, tmp_path: Path, by_handle: bool) -> None:
    for name in ("bin", "lib", "lib64", "usr", "proc"):
        (tmp_path / name).mkdir()
    binds = "; ".join(
        f"[ -d /{name} ] && mount --bind /{name} {tmp_path}/{name}" for name in ("bin", "lib", "lib64", "usr")
    )
    start(
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        f'{binds}; exec chroot {tmp_path} "$@"',
        "sh",
        *SLEEP,
    )
    with lost(container) as subject:
        expect(subject, by_handle, "mount")


def test_a_mount_namespace_without_a_process(
    container: Namespace, start: Start, tmp_path: Path, by_handle: bool
) -> None:
    (tmp_path / "kept").touch()
    subprocess.run(["mount", "--bind", tmp_path, tmp_path], check=True)
    subprocess.run(["mount", "--make-private", tmp_path], check=True)
    try:
        # Linux 6.18 numbers new namespaces on each processor by itself, and binds only one with a higher number.
        words = ["unshare", f"--mount={tmp_path}/kept", "--propagation", "private", "true"]
        wait_until(lambda: subprocess.run(words, check=False).returncode == 0)
        with lost(container) as subject:
            expect(subject, by_handle, "mount")
        subprocess.run(["umount", "--lazy", tmp_path / "kept"], check=True)  # others may be reading it
        wait_until(lambda: ends(subject))
    finally:
        subprocess.run(["umount", "--lazy", tmp_path], check=True)


def test_a_descriptor(container: Namespace, start: Start, by_handle: bool) -> None:
    with open(container.path, "rb") as file:
        process = start(*SLEEP, pass_fds=[file.fileno()])
    with lost(container) as subject:  # a descriptor of a file whose mount was detached
        expect(subject, by_handle, "descriptor")
    process.kill()
    wait_until(lambda: ends(subject))


def test_a_descriptor_that_was_opened_by_a_name(container: Namespace, start: Start) -> None:
    """Its link in /proc has the name, as long as that is mounted."""
    identity = namespace_identity(container.path)
    assert identity is not None
    with open(container.path, "rb") as file:
        start(*SLEEP, pass_fds=[file.fileno()])
    assert Life().inhabitant(identity, [container.path]).sign == "descriptor"


_FUSE = """
import os, struct, sys, ctypes
fuse = os.open("/dev/fuse", os.O_RDWR)
data = f"fd={fuse},rootmode=40000,user_id=0,group_id=0".encode()
libc = ctypes.CDLL(None, use_errno=True)
os.mkdir(sys.argv[1])
if libc.mount(b"none", sys.argv[1].encode(), b"fuse", 0, data):
    print("none", flush=True)
    sys.exit()
request = os.read(fuse, 1 << 17)
unique = struct.unpack_from("=Q", request, 8)[0]
answer = struct.pack("=IiQIIIIHHIIHHI", 16 + 64, 0, unique, 7, 31, 0, 0, 0, 0, 4096, 0, 0, 0, 0)
os.write(fuse, answer.ljust(80, b"\\0"))
kept = os.open(sys.argv[1], os.O_PATH)
libc.umount2(sys.argv[1].encode(), 2)
assert os.readlink(f"/proc/self/fd/{kept}") == "/"
print("ready", flush=True)
import time
time.sleep(1000)
"""


def test_a_file_system_that_never_answers_does_not_hang_the_walk(start: Start, tmp_path: Path) -> None:
    if not os.path.exists("/dev/fuse"):
        pytest.skip("this machine has no FUSE")
    start("unshare", "--mount", "--propagation", "private", sys.executable, "-c", _FUSE, str(tmp_path / "fuse"))
    begun = time.monotonic()
    assert Walk().held
    assert time.monotonic() - begun < 20.0


def test_a_descriptor_that_is_another_file_when_it_is_opened(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner may put a file of such a file system there, behind the walk."""
    with open("/dev/null", "rb") as file:
        user, number = start(*SLEEP, pass_fds=[file.fileno()]), file.fileno()
    path, flags = f"/proc/{user.pid}/fd/{number}", list[int]()
    readlink, opened = os.readlink, os.open

    def seen_before(where: str) -> str:
        return "mnt:[4026530000]" if where == path else readlink(where)

    def noted(where: Any, flag: int, *rest: Any, **more: Any) -> int:
        if where == path:
            flags.append(flag)
        return opened(where, flag, *rest, **more)

    monkeypatch.setattr(system, "readlink", seen_before)
    monkeypatch.setattr(system, "open", noted)
    blind = Walk().blind
    assert flags
    assert all(flag & os.O_PATH for flag in flags), "an open without O_PATH may wait for ever"
    assert path not in blind


def test_a_descriptor_of_the_namespace_itself(container: Namespace, start: Start, by_handle: bool) -> None:
    first = start("nsenter", f"--net={container.path}", *SLEEP)
    with open(f"/proc/{first.pid}/ns/net", "rb") as file:
        start(*SLEEP, pass_fds=[file.fileno()])
    first.kill()
    first.wait()
    with lost(container) as subject:
        expect(subject, by_handle, "descriptor")


_IN_FLIGHT = """
import os, socket, sys, time
ours, theirs = socket.socketpair()
descriptor = os.open(sys.argv[1], os.O_RDONLY)
socket.send_fds(ours, [b"x"], [descriptor])
os.close(descriptor)
print("ready", flush=True)
time.sleep(1000)
"""
_SOCKET = """
import os, socket, sys, time
from libcni.kernel.netlink import open_netlink
kept = open_netlink(sys.argv[1])
print("ready", flush=True)
time.sleep(1000)
"""
UNSEEN = pytest.mark.parametrize("program", [_IN_FLIGHT, _SOCKET], ids=["descriptor in flight", "socket"])


def veth(host: Namespace, container: Namespace, name: str = "veth77") -> Subject:
    """Connect a namespace with the host; return what a record of it says."""
    host.run("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", container.name)
    host.run("ip", "link", "set", name, "up")
    container.run("ip", "address", "add", f"{ADDRESS}/24", "dev", "eth0")
    mac = links()[name].mac
    return subject_of(container, index=links(container.path)["eth0"].index, host_ends=((name, mac),))


def test_a_renamed_host_end_is_known_by_its_hardware_address_only_with_the_number_of_its_peer(host: Namespace) -> None:
    """Some plugins give all their interfaces one hardware address."""
    host.run("ip", "link", "add", "veth76", "type", "veth", "peer", "name", "peer76")
    present = links()
    subject = Subject(host_ends=(("none76", present["veth76"].mac),), index=present["peer76"].index)
    assert not Life().has_lost_host_end(subject)
    assert Life().has_lost_host_end(replace(subject, index=0))
    assert Life().has_lost_host_end(replace(subject, index=subject.index + 1000))


@UNSEEN
def test_what_no_walk_sees_is_known_by_the_host_end(
    host: Namespace, container: Namespace, start: Start, program: str, by_handle: bool
) -> None:
    subject = veth(host, container)
    process = start(sys.executable, "-c", program, container.path)
    lose_path(container)
    expect(subject, by_handle, "host end")
    # Go records no number of the interface, and may record no host end: an interface of the host that leads nowhere is
    # left. Then nobody knows.
    assert Life(by_handle=by_handle).of(replace(subject, index=0)).is_alive
    blank = replace(subject, netns=None, cookie=0, index=0, host_ends=(), addresses=(ADDRESS,))
    answered(blank, by_handle, "unknown", "port")
    host.run("ip", "link", "set", "veth77", "name", "renamed")
    expect(subject, by_handle, "host end")
    process.kill()
    wait_until(lambda: "renamed" not in links())
    expect_dead(replace(subject, age=1.0), by_handle)


@UNSEEN
def test_the_kernel_sees_what_has_no_host_end(container: Namespace, start: Start, program: str) -> None:
    if not knows_handles():
        pytest.skip("this kernel knows no handles of namespaces (Linux 6.18)")
    start(sys.executable, "-c", program, container.path)
    with lost(container) as subject:
        assert Life().of(subject).sign == "kernel"
        assert not Life(by_handle=False).of(replace(subject, age=1.0)).is_dead


def test_a_name_of_a_host_end_that_another_container_has_now(
    host: Namespace, container: Namespace, other: Namespace
) -> None:
    """Some plugins give the interfaces of one pod the same name and hardware address again and again."""
    subject = veth(host, container)
    mac = subject.host_ends[0][1]
    lose_path(container)
    wait_until(lambda: "veth77" not in links())
    veth(host, other)
    host.run("ip", "link", "set", "veth77", "address", mac)
    expect_dead(subject, by_handle=False)


def test_an_address_proves_life_of_a_reservation(host: Namespace, container: Namespace, by_handle: bool) -> None:
    veth(host, container)
    reserved = Subject(addresses=(ADDRESS,), age=1000.0)
    assert answered(reserved, by_handle, "alive", "address").path == container.path
    mac = next(link.mac for _, link in Life().addresses[ADDRESS])
    answered(Subject(addresses=(ADDRESS,), macs=(mac,), age=1000.0), by_handle, "alive", "address")
    # Another container may have it by now, or one of another node on this machine.
    answered(Subject(addresses=(ADDRESS,), macs=("02:00:00:00:00:99",), age=1000.0), by_handle, "unknown", "address")
    answered(Subject(addresses=(FREE,), age=1000.0), by_handle, "dead", "walk")
    answered(Subject(addresses=(FREE,), age=1.0), by_handle, "unknown", "young")
    answered(Subject(addresses=(FREE,)), by_handle, "unknown", "young")
    assert Life().of(Subject(age=1000.0)).verdict == "unknown"


_OWN = """
ip link set lo up; ip address add {0}/32 dev lo; ip link add d0 type veth peer name d1; ip link set d0 up
ip address add {0}/24 dev d0; ip link add m0 link d0 type macvlan; ip address add {0}/16 dev m0; ip link set m0 up
echo ready; exec sleep 1000
"""
AS_USER = [
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "unshare",
    "--user",
    "--map-root-user",
    "--net",
]


def test_what_a_user_can_make_by_himself_proves_nothing(host: Namespace, start: Start, by_handle: bool) -> None:
    start(*AS_USER, "sh", "-c", _OWN.format(ADDRESS))
    assert ADDRESS in str([space.network for space in Life().spaces.values()]), "the test has its address"
    answered(Subject(addresses=(ADDRESS,), age=1000.0), by_handle, "dead", "walk")


@pytest.mark.parametrize("kind", ["veth", "macvlan"])
def test_a_pod_with_a_user_namespace_of_its_own_lives(
    host: Namespace, start: Start, kind: str, by_handle: bool
) -> None:
    pod = start(*AS_USER, *SLEEP)
    if kind == "veth":
        host.run("ip", "link", "add", "veth78", "type", "veth", "peer", "name", "eth0", "netns", str(pod.pid))
    else:
        host.run("ip", "link", "add", "d0", "type", "veth", "peer", "name", "d1")
        host.run("ip", "link", "add", "eth0", "link", "d0", "netns", str(pod.pid), "type", "macvlan")
    host.run("nsenter", f"--net=/proc/{pod.pid}/ns/net", "ip", "address", "add", f"{ADDRESS}/24", "dev", "eth0")
    answered(Subject(addresses=(ADDRESS,), age=1000.0), by_handle, "alive", "address")
    # On record, its namespace counts like any other.
    identity = namespace_identity(f"/proc/{pod.pid}/ns/net")
    with open_netlink(f"/proc/{pod.pid}/ns/net") as inside:
        subject = Subject("/run/netns/none", identity, cookie_of(inside), age=1000.0)
    expect(subject, by_handle, "thread")


def test_a_tie_to_another_namespace_that_root_made(
    host: Namespace, container: Namespace, start: Start, by_handle: bool
) -> None:
    pod = start(*AS_USER, *SLEEP)
    container.run("ip", "link", "add", "veth78", "type", "veth", "peer", "name", "eth0", "netns", str(pod.pid))
    host.run("nsenter", f"--net=/proc/{pod.pid}/ns/net", "ip", "address", "add", f"{ADDRESS}/24", "dev", "eth0")
    answered(Subject(addresses=(ADDRESS,), age=1000.0), by_handle, "alive", "address")


def test_who_is_in_a_namespace_that_this_library_keeps(container: Namespace, start: Start) -> None:
    identity = namespace_identity(container.path)
    assert identity is not None
    start("unshare", "--mount", "--propagation", "private", *SLEEP)  # has a copy of the mount
    wait_until(lambda: Life().inhabitant(identity, [container.path]).is_dead)
    wait_until(lambda: Life().inhabitant(identity).sign == "mount")
    process = start("nsenter", f"--net={container.path}", *SLEEP)
    assert Life().inhabitant(identity, [container.path]).sign == "thread"
    process.kill()
    process.wait()
    wait_until(lambda: Life().inhabitant(identity, [container.path]).is_dead)


_ASK = """
import json, sys
from libcni.kernel.life import Life, Subject
known = json.loads(sys.argv[2])
known["netns"] = known["netns"] and tuple(known["netns"])
for name in ("addresses", "bridges", "host_ends"):
    known[name] = tuple(map(tuple, known[name])) if name == "host_ends" else tuple(known[name])
answer = Life(by_handle=json.loads(sys.argv[1])).of(Subject(**known))
print(json.dumps([answer.verdict, answer.sign, answer.reason]))
"""

BLIND = {
    "in a PID namespace of its own": ["unshare", "--pid", "--fork", "--mount-proc"],
    "without CAP_SYS_PTRACE": ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-all"],
    "with subset=pid": [
        *("unshare", "--mount", "--propagation", "private", "sh", "-c"),
        'mount -t proc -o subset=pid proc /proc && exec "$@"',
        "sh",
    ],
    "with hidepid": [
        *("unshare", "--mount", "--propagation", "private", "sh", "-c"),
        'mount -t proc -o hidepid=2 proc /proc && exec setpriv --bounding-set=-sys_ptrace --inh-caps=-all "$@"',
        "sh",
    ],
    "as another user": ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"],
    "as root of a user namespace": ["unshare", "--user", "--map-root-user"],
}


def ask_elsewhere(way: list[str], subject: Subject, by_handle: bool) -> list[str]:
    command = [*way, sys.executable, "-c", _ASK, json.dumps(by_handle), json.dumps(asdict(subject))]
    return list(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


@pytest.mark.parametrize("way", BLIND)
def test_without_sight_of_all_processes_nothing_is_dead(
    container: Namespace, start: Start, way: str, by_handle: bool
) -> None:
    process = start("nsenter", f"--net={container.path}", *SLEEP)
    with lost(container) as subject:
        assert ask_elsewhere(BLIND[way], subject, by_handle)[0] != "dead"
        process.kill()
        process.wait()
        wait_until(lambda: ends(subject))
        verdict, sign, reason = ask_elsewhere(BLIND[way], subject, by_handle)
        # Root in another PID namespace may ask the kernel. Another namespace may have the number now.
        assert verdict != "dead" or sign == "inode" or (by_handle and sign == "kernel")
        assert reason
        reserved = Subject(addresses=(ADDRESS,), age=1000.0)
        assert ask_elsewhere(BLIND[way], reserved, by_handle)[:2] == ["unknown", "blind"]


def test_proc_of_the_machine_shows_all_processes_from_any_pid_namespace(container: Namespace, start: Start) -> None:
    process, way = start("nsenter", f"--net={container.path}", *SLEEP), ["unshare", "--pid", "--fork"]
    with lost(container) as subject:
        assert ask_elsewhere(way, subject, by_handle=False)[:2] == ["alive", "thread"]
        process.kill()
        process.wait()
        wait_until(lambda: ends(subject))
        wait_until(lambda: ask_elsewhere(way, subject, by_handle=False)[0] == "dead")


def test_a_node_in_a_container_sees_its_containers(container: Namespace, start: Start) -> None:
    """As with kind: its processes are in a PID namespace below the machine's, and its pods' below that."""
    node = ["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c"]
    script = "echo ready; unshare --pid --fork nsenter --net={} sleep 1000"
    inside = start(*node, script.format(container.path))
    children = Path(f"/proc/{inside.pid}/task/{inside.pid}/children")
    init = wait_until(lambda: children.read_text().split())[0]
    wait_until(lambda: len(Walk().held[namespace_identity(container.path)[1]].paths) > 1)  # type: ignore[index]
    way = ["nsenter", f"--target={init}", "--pid", "--mount"]
    gone = Subject("/run/netns/gone", addresses=(FREE,), age=1000.0)  # recorded by Go
    assert ask_elsewhere(way, gone, by_handle=False)[:2] == ["dead", "walk"]
    with lost(container) as subject:
        assert ask_elsewhere(way, subject, by_handle=False)[0] == "alive"


_LIKE_A_CONTAINER = """
mount -t tmpfs t /mnt; touch /mnt/n; mount --bind /proc/self/ns/net /mnt/n && echo ready; exec sleep 1000
"""


def test_what_a_user_runs_does_not_show_that_a_runtimes_containers_are_seen(start: Start) -> None:
    """In a PID namespace of its own, repair would take all containers outside of that for dead."""
    node = ["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", '"$@" & wait', "sh"]
    inside = start(*node, *AS_USER, "--mount", "--pid", "--fork", "sh", "-c", _LIKE_A_CONTAINER)
    children = Path(f"/proc/{inside.pid}/task/{inside.pid}/children")
    init = wait_until(lambda: children.read_text().split())[0]
    way = ["nsenter", f"--target={init}", "--pid", "--mount"]
    reserved = Subject(addresses=(FREE,), age=1000.0)
    assert ask_elsewhere(way, reserved, by_handle=False)[:2] == ["unknown", "blind"]


def test_a_machine_on_which_threads_cannot_be_compared(
    container: Namespace, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system call has another number on each architecture, and some forbid it."""
    monkeypatch.setattr("libcni.kernel.system.shares_descriptors", lambda *_: False)
    with open(container.path, "rb") as file:
        start(*SLEEP, pass_fds=[file.fileno()])
    with lost(container) as subject:
        expect(subject, by_handle=False, sign="descriptor")


@pytest.mark.parametrize("covered", [True, False])
def test_a_mount_that_another_one_covers(host: Namespace, container: Namespace, tmp_path: Path, covered: bool) -> None:
    """Its address may be in use, and nobody can look."""
    name = tmp_path / "covered"
    subprocess.run(["mount", "-t", "tmpfs", "none", tmp_path], check=True)
    try:
        subprocess.run(["mount", "--make-private", tmp_path], check=True)
        name.touch()
        subprocess.run(["mount", "--bind", container.path, name], check=True)
        if covered:
            subprocess.run(["mount", "-t", "tmpfs", "none", tmp_path], check=True)
        lose_path(container)
        expected = ("unknown", "unread") if covered else ("dead", "walk")
        answered(Subject(addresses=(FREE,), age=1000.0), bool(covered), *expected)
    finally:
        for _ in range(2 if covered else 1):
            subprocess.run(["umount", "--lazy", tmp_path], check=True)


def test_a_zombie_hides_nothing_from_a_rootless_walk() -> None:
    """It may not ask for the zombie's namespaces, and the kernel has no mountinfo of it."""
    code = "from libcni.kernel.namespace_holders import Walk; print(Walk().blind or 'sees all')"
    with subprocess.Popen(["true"]) as zombie:
        os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
        command = ["unshare", "--user", "--map-root-user", sys.executable, "-c", code]
        wait_until(lambda: subprocess.run(command, check=True, capture_output=True).stdout == b"sees all\n")


def test_a_walk_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    walk = Walk(seconds=-1.0)
    assert "too long" in walk.blind
    assert time.monotonic()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a list of the seconds by which the clock is fast; a test appends more."""
    ahead, real = [0.0], time.monotonic
    monkeypatch.setattr(system, "monotonic", lambda: real() + sum(ahead))
    return ahead


def test_a_process_with_very_many_descriptors_is_named_and_does_not_hold_the_walk_up(
    start: Start, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any user can have millions of them."""
    with ExitStack() as stack:
        files = [stack.enter_context(open("/dev/null", "rb")) for _ in range(200)]
        user = start(*SLEEP, pass_fds=[file.fileno() for file in files])
    real = os.readlink

    def slow(path: str) -> str:
        clock.append(float(path.startswith(f"/proc/{user.pid}/fd/")))
        return real(path)

    monkeypatch.setattr(system, "readlink", slow)
    walk = Walk(seconds=100.0)
    assert f"too long, longest for process {user.pid}" in walk.blind
    assert sum(clock) < 110


_MOUNT_NAMESPACES = """
import ctypes, os, time
kept = []
for _ in range(20):
    assert not ctypes.CDLL(None).unshare(0x20000)
    kept.append(os.open("/proc/self/ns/mnt", os.O_RDONLY))
print("ready", flush=True)
time.sleep(1000)
"""


def test_very_many_mount_namespaces_do_not_hold_the_walk_up(
    start: Start, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    start("unshare", "--user", "--map-root-user", sys.executable, "-c", _MOUNT_NAMESPACES)
    entered: list[str] = []

    def slow(_walk: Walk, _descriptor: int, _inode: int, where: str) -> None:
        entered.append(where)
        clock.append(40.0)

    monkeypatch.setattr(Walk, "_by_entering", slow)
    assert "too long" in Walk(seconds=100.0).blind
    assert len(entered) == 3


_NETWORKS = """
ip link set lo up; ip address add {0}/32 dev lo
echo ready; exec sleep 1000
"""


def test_very_many_namespaces_of_users_hold_nothing_up(
    host: Namespace, container: Namespace, start: Start, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each can take seconds. Those that root connected with the node come first, and the rest blocks nothing."""
    users = [start(*AS_USER, "sh", "-c", _NETWORKS.format(FREE)) for _ in range(6)]
    pod = start(*AS_USER, *SLEEP)
    host.run("ip", "link", "add", "veth78", "type", "veth", "peer", "name", "eth0", "netns", str(pod.pid))
    host.run("nsenter", f"--net=/proc/{pod.pid}/ns/net", "ip", "address", "add", f"{ADDRESS}/24", "dev", "eth0")
    of_users = {namespace_identity(f"/proc/{user.pid}/ns/net") for user in users}
    read = list[str]()

    def slow(identity: NamespaceId, *rest: Any) -> Space | None:
        if identity in of_users:
            clock.append(3.0)
            read.append(rest[0])
        return read_space(identity, *rest)

    monkeypatch.setattr(life_module, "read_space", slow)
    life = Life()
    answers = [life.of(Subject(addresses=(one,), age=1000.0)) for one in (ADDRESS, FREE)]
    assert [(one.verdict, one.sign) for one in answers] == [("alive", "address"), ("dead", "walk")]
    assert len(read) <= 2
    assert sum("were not read" in space.problem for space in life.spaces.values()) == 1
    assert namespace_identity(container.path) in life.spaces


def test_paths_of_mountinfo() -> None:
    assert _unescaped(rb"/run/a\040b\134c\011") == "/run/a b\\c\t"
    assert _unescaped(rb"/run/\q") == "/run/\\q"


def test_which_mounts_are_covered() -> None:
    lines = (
        b"45 44 254:0 / / rw",
        b"65 45 254:0 /run/netns /run/netns rw",  # /run covers it, so it covers nothing
        b"90 65 0:4 net:[4] /run/netns/hidden rw",
        b"66 45 0:41 / /run rw",
        b"72 66 0:41 /netns /run/netns rw",
        b"73 72 0:4 net:[1] /run/netns/seen rw",
        b"74 72 0:4 net:[2] /run/netns/twice rw",
        b"75 74 0:4 net:[3] /run/netns/twice rw",
    )
    mounts = {line.split()[0]: line.split() for line in lines}
    is_covered = _cover_of(mounts)
    assert [number for number, words in mounts.items() if is_covered(words)] == [b"65", b"90", b"74"]


def test_the_first_mount_of_a_machine_is_its_own_parent() -> None:
    lines = (b"1 1 0:2 / / rw", b"20 1 0:20 / /run rw", b"30 20 0:4 net:[1] /run/netns/seen rw")
    mounts = {line.split()[0]: line.split() for line in lines}
    assert not any(map(_cover_of(mounts), mounts.values()))


def test_a_socket_is_no_walk(container: Namespace) -> None:
    """This program's own descriptors prove nothing: it may have opened them to look."""
    with open(container.path, "rb"), socket.socket(), lost(container) as subject:
        expect_dead(subject, by_handle=False)


def test_a_covered_mount_is_read_by_its_path_in_another_mount_namespace(
    host: Namespace, container: Namespace, start: Start
) -> None:
    container.run("ip", "link", "add", "d0", "type", "veth", "peer", "name", "d1")
    container.run("ip", "address", "add", f"{ADDRESS}/24", "dev", "d0")
    cover = 'mount -t tmpfs none /run/netns && exec "$@"'
    way = ["unshare", "--mount", "--propagation", "private", "sh", "-c", cover, "sh"]
    for _ in range(10):  # more programs that have covered it
        start(*way, *SLEEP)
    reserved = Subject(addresses=(ADDRESS,), age=1000.0)
    assert ask_elsewhere(way, reserved, by_handle=False)[:2] == ["alive", "address"]
