"""Two containers that publish one port of the host: the second one is refused from the records, unless asked."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from helpers import RecordingRun, network
from nodes import FakeNode, both_clients

import libcni
from libcni import AsyncCNIConfig, NetworkConfigList, RuntimeConf
from libcni.config.port_mappings import HostPort
from libcni.errors import AttachmentExistsError, ConfigError, LockTimeoutError, PluginError
from libcni.executor import baton
from libcni.kernel import system
from libcni.kernel.life import Answer
from libcni.store.attachments import new_record
from libcni.store.boot import boot_id
from libcni.store.locks import LockRequest, LockSet
from libcni.store.other_records import OtherRecords
from libcni.store.records import RecordStore
from libcni.verbs.add import add
from libcni.verbs.verb_run import VerbRun


def rt(container: str, *ports: dict[str, Any], netns: str | None = None) -> RuntimeConf:
    mappings = [{"containerPort": 80, "protocol": "tcp", **port} for port in ports]
    return RuntimeConf(container, netns, "eth0", capability_args={"portMappings": mappings} if ports else None)


WEB = {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}


@pytest.fixture
def net(node: FakeNode) -> NetworkConfigList:
    return node.network({"type": "portmap", "capabilities": {"portMappings": True}})


@both_clients
def test_a_host_port_of_another_container_is_refused_before_anything_runs(
    node: FakeNode, net: NetworkConfigList
) -> None:
    node.cni.add_network_list(net, rt("c1", WEB, netns=node.netns("c1")))
    with pytest.raises(AttachmentExistsError, match="8080/tcp is already published by container c1") as caught:
        node.cni.add_network_list(net, rt("c2", {"hostPort": 8080}))
    assert (caught.value.container_id, caught.value.network) == ("c1", "net")
    assert str(caught.value.hint) == "publish another port, or detach container c1"
    assert node.verbs() == ["ADD portmap"]
    node.cni.add_network_list(net, rt("c2", WEB), on_existing="allow")
    node.cni.add_network_list(net, rt("c3", {"hostPort": 8081}))


@both_clients
@pytest.mark.parametrize(("held", "free"), [(8080, 8081), (8081, 8080)])
def test_an_add_that_waits_in_vain_for_a_port_keeps_the_lock_of_no_other(
    node: FakeNode, net: NetworkConfigList, held: int, free: int
) -> None:
    """A program may keep the error, and with its traceback the objects of the verb."""
    holder, asking = (LockSet(str(node.cache), LockRequest((f"//host-ports/{port}",), exclusive=True))
                      for port in (held, free))  # fmt: skip
    assert holder.try_acquire()
    with pytest.raises(LockTimeoutError) as caught:
        node.cni.add_network_list(net, rt("c1", {"hostPort": held}, {"hostPort": free}), timeout=0.05)
    assert caught.value.__traceback__ is not None
    assert asking.try_acquire()
    holder.close()
    asking.close()


@both_clients
def test_the_look_at_the_ports_of_few_records_lets_no_other_verb_run(
    node: FakeNode, net: NetworkConfigList, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file's system call would let the threads of 64 verbs compete for the interpreter."""
    looks: list[tuple[bool, bool]] = []
    read = OtherRecords.read

    def look(others: OtherRecords) -> Any:
        looks.append((threading.current_thread() is threading.main_thread(), baton._mine.held is not None))
        return read(others)

    monkeypatch.setattr(OtherRecords, "read", look)
    is_asyncio = node.kind is AsyncCNIConfig
    for number in range(3):
        node.cni.add_network_list(net, rt(f"c{number}", {"hostPort": 8080 + number}))
    # How long the first one takes is unknown. The second one finds no record of before.
    assert looks[0] == looks[1] == (not is_asyncio, False)
    assert looks[2] == (True, not is_asyncio)


@pytest.mark.parametrize("key", ["HostPort", "hostport"])
def test_the_keys_of_a_mapping_are_read_without_regard_to_case(
    node: FakeNode, net: NetworkConfigList, key: str
) -> None:
    """containerd writes Go's own names, and Go's encoding/json reads any case."""
    mapping = {key: 8080, "ContainerPort": 80, "Protocol": "TCP", "HostIP": ""}
    for first, second in (("c1", "c2"), ("c3", "c4")):
        args: dict[str, Any] = {"portMappings": [{**mapping, key: 8080 + len(node.verbs())}]}
        spelt = {"portMappings": [{**WEB, "hostPort": args["portMappings"][0][key]}]}
        one, other = (args, spelt) if first == "c1" else (spelt, args)
        node.cni.add_network_list(net, RuntimeConf(first, node.netns(first), "eth0", capability_args=one))
        assert node.last_call("portmap", "ADD").config["runtimeConfig"] == one, "unchanged"
        with pytest.raises(AttachmentExistsError, match=f"already published by container {first}"):
            node.cni.add_network_list(net, RuntimeConf(second, None, "eth0", capability_args=other))


def test_thousands_of_ports_take_a_bounded_number_of_system_calls(
    node: FakeNode, net: NetworkConfigList, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[HostPort] = []
    locked: list[int] = []
    collides, fcntl = HostPort.collides, system.fcntl

    def compare(one: HostPort, other: HostPort) -> bool:
        compared.append(one)
        return collides(one, other)

    def lock(file: int, command: int, argument: Any) -> Any:
        locked.append(command)
        return fcntl(file, command, argument)

    monkeypatch.setattr(HostPort, "collides", compare)
    monkeypatch.setattr(system, "fcntl", lock)

    def ports(start: int, number: int) -> list[dict[str, int]]:
        return [{"hostPort": start + one} for one in range(number)]

    node.cni.add_network_list(net, rt("c1", {"hostPort": 5000, "hostIP": "127.0.0.1"}, *ports(10_000, 1000)))
    node.cni.add_network_list(
        net, rt("c2", {"hostPort": 5000, "hostIP": "127.0.0.2"}, *ports(20_000, 1000)), timeout=20
    )
    assert len(compared) <= 2
    assert len(locked) < 3 * 2 * 1001 + 100
    locked.clear()
    with pytest.raises(ConfigError, match="at most 4,096"):
        node.cni.add_network_list(net, rt("c3", *ports(1, 40_000)), timeout=5)
    assert len(locked) < 100
    assert node.verbs() == ["ADD portmap", "ADD portmap"]


def test_a_refused_replacement_detaches_nothing(node: FakeNode, net: NetworkConfigList) -> None:
    node.cni.add_network_list(net, rt("c1", WEB))
    node.cni.add_network_list(net, rt("c2"))
    with pytest.raises(AttachmentExistsError, match="8080"):
        node.cni.add_network_list(net, rt("c2", WEB), on_existing="replace")
    assert node.verbs() == ["ADD portmap", "ADD portmap"]
    node.cni.add_network_list(net, rt("c1", WEB), on_existing="replace")
    assert node.verbs()[2:] == ["DEL portmap", "ADD portmap"], "its own port does not refuse it"


def test_ended_containers_and_those_that_publish_nothing_have_no_port(
    node: FakeNode, net: NetworkConfigList, caplog: pytest.LogCaptureFixture
) -> None:
    netns = node.netns("gone")
    node.cni.add_network_list(net, rt("gone", WEB, netns=netns))
    Path(netns).unlink()
    node.cni.add_network_list(node.network("plain", name="plain"), rt("undeclared", WEB))
    caplog.clear()
    node.cni.add_network_list(net, rt("c1", WEB))
    warning = caplog.messages[0]
    assert "net-gone-eth0: detaching this attachment before the ADD: it publishes host port 8080/tcp" in warning
    assert [one.container_id for one in node.cni.get_cached_attachments() if one.container_id == "gone"] == []
    assert node.last_call("portmap", "DEL").env["CNI_CONTAINERID"] == "gone", "its rules came first"
    with pytest.raises(AttachmentExistsError):
        node.cni.add_network_list(net, rt("c3", WEB))
    node.cni.del_network_list(net, rt("c1"))
    node.cni.add_network_list(net, rt("c3", WEB))


def test_a_port_of_a_container_that_may_live_is_refused(
    node: FakeNode, net: NetworkConfigList, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.cni.add_network_list(net, rt("lost", WEB, netns=node.netns("lost")))
    answer = Answer("unknown", "blind", "nobody could look")
    monkeypatch.setattr("libcni.store.life_of_record.life_of", lambda *_: answer)
    with pytest.raises(AttachmentExistsError, match="; nobody knows whether it lives: nobody could look"):
        node.cni.add_network_list(net, rt("c1", WEB))
    assert node.verbs() == ["ADD portmap"]


def test_a_dead_container_of_another_program_is_not_detached_for_an_add(node: FakeNode, net: NetworkConfigList) -> None:
    netns = node.netns("gone")
    node.client(owner="theirs").add_network_list(net, rt("gone", WEB, netns=netns))
    Path(netns).unlink()
    with pytest.raises(AttachmentExistsError, match=r"published by container gone .*; it is dead: "):
        node.cni.add_network_list(net, rt("c1", WEB))
    assert node.verbs() == ["ADD portmap"]


def test_of_two_owners_the_dead_one_is_not_detached_if_the_other_lives(node: FakeNode, net: NetworkConfigList) -> None:
    netns = node.netns("gone")
    node.cni.add_network_list(net, rt("gone", WEB, netns=netns))
    node.cni.add_network_list(net, rt("lives", {"hostPort": 8081}, netns=node.netns("lives")))
    Path(netns).unlink()
    with pytest.raises(AttachmentExistsError, match=r"8081/tcp is already published by container lives"):
        node.cni.add_network_list(net, rt("c1", WEB, {"hostPort": 8081}))
    assert node.verbs() == ["ADD portmap", "ADD portmap"]


def test_a_dead_owner_that_cannot_be_detached_stops_the_add(node: FakeNode, net: NetworkConfigList) -> None:
    netns = node.netns("gone")
    node.cni.add_network_list(net, rt("gone", WEB, netns=netns))
    Path(netns).unlink()
    node.plugin("portmap", "[ $CNI_COMMAND != DEL ] || exit 1")
    with pytest.raises(PluginError) as caught:
        node.cni.add_network_list(net, rt("c1", WEB))
    assert "is dead and publishes host port 8080/tcp" in caught.value.__notes__[-1]
    assert [one.container_id for one in node.cni.get_cached_attachments()] == ["gone"]


@pytest.mark.parametrize("change", ["lives again", "taken over"])
def test_a_dead_owner_is_asked_once_more_under_its_lock(
    node: FakeNode, net: NetworkConfigList, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    node.cni.add_network_list(net, rt("gone", WEB, netns=node.netns("gone")))
    lock, store = VerbRun.lock, RecordStore(str(node.cache))
    verdicts = [Answer("dead", "path", "")]
    monkeypatch.setattr("libcni.store.life_of_record.life_of", lambda *_: verdicts[-1])

    async def lock_and_change(self: VerbRun, networks: Any, container_id: str = "", **options: Any) -> None:
        await lock(self, networks, container_id, **options)
        if container_id == "gone" and change == "lives again":
            verdicts.append(Answer("alive", "path", ""))
        elif container_id == "gone":
            (record,) = store.records()
            store.rewrite(record.with_fields(owner="theirs"), "taken over")

    monkeypatch.setattr(VerbRun, "lock", lock_and_change)
    with pytest.raises(AttachmentExistsError, match="published by container gone"):
        node.cni.add_network_list(net, rt("c1", WEB))
    assert node.verbs() == ["ADD portmap"]


def test_a_refused_add_has_no_port(node: FakeNode, net: NetworkConfigList) -> None:
    refused = new_record(net, rt("refused", WEB)).with_fields(boot=boot_id())
    with RecordStore(str(node.cache)).begin(refused) as journal:
        journal.write("refused")
    node.cni.add_network_list(net, rt("c1", WEB))


def test_of_two_at_the_same_time_one_is_refused(
    node: FakeNode, net: NetworkConfigList, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, both = VerbRun.begin, threading.Barrier(2)

    async def late(self: VerbRun, *args: Any, **options: Any) -> Any:
        with suppress(threading.BrokenBarrierError):
            both.wait(1.0)  # both have looked, if they can
        return await begin(self, *args, **options)

    monkeypatch.setattr(VerbRun, "begin", late)

    def add(name: str) -> bool:
        try:
            node.client().add_network_list(net, rt(name, WEB))
        except AttachmentExistsError:
            return False
        return True

    with ThreadPoolExecutor() as pool:
        assert sorted(pool.map(add, ["c1", "c2"])) == [False, True]


@pytest.mark.parametrize(
    ("one", "other", "collides"),
    [
        ((8080, "tcp", "fd00::A"), (8080, "tcp", "fd00:0::a"), True),
        ((8080, "tcp", "0:0:0:0:0:0:0:0"), (8080, "tcp", "::1"), True),
        ((80, "tcp", ""), (80, "tcp", "10.0.0.1"), True),
        ((80, "tcp", ""), (80, "udp", ""), False),
        ((80, "tcp", "0.0.0.0"), (80, "tcp", "10.0.0.1"), True),
        ((80, "tcp", "0.0.0.0"), (80, "tcp", "fd00::1"), False),
        ((80, "tcp", "::"), (80, "tcp", "fd00::1"), True),
        ((80, "tcp", "10.0.0.1"), (80, "tcp", "10.0.0.2"), False),
        ((80, "tcp", "host"), (80, "tcp", "host"), True),
        ((80, "tcp", "host"), (80, "tcp", "10.0.0.2"), False),
    ],
)
def test_which_ports_collide(one: Any, other: Any, collides: bool) -> None:
    assert HostPort(*one).collides(HostPort(*other)) is collides
    assert HostPort(*other).collides(HostPort(*one)) is collides


@pytest.mark.parametrize(
    ("mappings", "problem"),
    [
        (
            [WEB, WEB],
            "host port 8080/tcp is mapped twice",
        ),
        ([{**WEB, "hostIP": "10.0.0.1"}, WEB], "twice"),
        ([{**WEB, "hostPort": number} for number in range(1, 5000)], "4,999 host ports are mapped"),
    ],
)
@pytest.mark.parametrize("on_existing", ["refuse", "allow"])
def test_a_request_that_no_add_can_publish_is_refused_before_anything_runs(
    mappings: list[dict[str, Any]], problem: str, on_existing: Any
) -> None:
    world = RecordingRun()
    net = network({"type": "portmap", "capabilities": {"portMappings": True}})
    rt = RuntimeConf("c1", "", "eth0", capability_args={"portMappings": mappings})
    with pytest.raises(ConfigError, match=problem):
        world.run(add, net, rt, on_existing=on_existing)
    assert (world.calls, world.recorded) == ([], {})


def test_one_number_for_two_protocols_or_addresses_is_one_request() -> None:
    mappings = [
        {**WEB, "hostIP": "10.0.0.1"},
        {**WEB, "hostIP": "10.0.0.2"},
        {**WEB, "protocol": "udp"},
    ]
    world = RecordingRun()
    net = network({"type": "portmap", "capabilities": {"portMappings": True}})
    world.run(add, net, RuntimeConf("c1", "", "eth0", capability_args={"portMappings": mappings}))
    assert world.verbs() == ["ADD portmap"]


@pytest.mark.parametrize(("program", "is_told"), [("podman", False), ("other", True)])
def test_the_podman_that_has_started_this_program_keeps_the_port_for_the_container(
    tmp_path: Path, program: str, *, is_told: bool
) -> None:
    asks = """
import sys
from libcni.verbs.host_ports import HostPort, PortUser, port_holders
from libcni.verbs.port_rules import PortRules
users = [PortUser("c1", (HostPort(int(sys.argv[1]), "tcp", ""),))]
print(*port_holders(users, PortRules({})).listeners, end="")
"""
    listens = """
import socket, subprocess, sys
with socket.create_server(("127.0.0.1", 0)) as kept:
    subprocess.run([*sys.argv[1:], str(kept.getsockname()[1])], check=True)
"""
    (tmp_path / program).symlink_to(sys.executable)
    environment = {**os.environ, "PYTHONPATH": str(Path(libcni.__file__).parent.parent)}
    # A shell stands between, as netavark does.
    words = ["sh", "-c", 'python=$1 code=$2; shift 2; "$python" -c "$code" "$@"; exit $?', "", sys.executable, asks]
    command = [str(tmp_path / program), "-c", listens, *words]
    printed = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    assert printed.startswith(f"{program} (process ") == is_told
    assert is_told or not printed
