"""What an ADD meets on a node, with real plugins: mistakes of the caller, addresses and ports that others have."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from nodes import Namespace, NewNamespace, RealNode

from libcni import NetworkConfigList, RuntimeConf
from libcni.errors import AttachmentExistsError, CNIError, ConfigError, NamespaceMismatchError, PluginError
from libcni.protocol.result import Result

pytestmark = pytest.mark.real


@pytest.fixture
def net(real_node: RealNode) -> NetworkConfigList:
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    return real_node.network(real_node.bridge("10.77.0.0/24", ipMasq=True), portmap)


@pytest.fixture(autouse=True)
def time_to_find_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process of a socket is searched for a quarter of a second, which a busy machine may need for one of them."""
    monkeypatch.setattr("libcni.kernel.sockets._SECONDS", 60.0)


def rt(container: str, netns: str, ifname: str = "eth0", **more: Any) -> RuntimeConf:
    return RuntimeConf(container, netns, ifname, **more)


def port(number: int, protocol: str = "tcp", **more: Any) -> dict[str, Any]:
    return {"portMappings": [{"hostPort": number, "containerPort": 80, "protocol": protocol, **more}]}


def test_another_file_at_the_path_is_refused_before_anything_runs(
    real_node: RealNode, net: NetworkConfigList, tmp_path: Path
) -> None:
    (tmp_path / "plain").touch()
    for path in (str(tmp_path / "plain"), str(tmp_path), "/proc/self/ns/mnt"):
        with pytest.raises(ConfigError, match="is a file, but not a network namespace"):
            real_node.cni.add_network_list(net, rt("c1", path))
    assert real_node.states() == []


def test_a_roll_back_gives_no_namespace_where_a_later_del_gives_none(real_node: RealNode, tmp_path: Path) -> None:
    """The plugin refuses a FIFO in its DEL, too: one slip would have two errors, and the record would stay."""
    bridge = real_node.network(real_node.bridge("10.77.0.0/24"))  # portmap 1.9 would wait for a writer of the FIFO
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(PluginError, match="unknown FS magic") as caught:
        real_node.cni.add_network_list(bridge, rt("c1", str(tmp_path / "fifo")))
    assert caught.value.rollback_errors == ()
    assert real_node.states() == []


def test_one_container_in_two_namespaces_is_refused(
    real_node: RealNode, net: NetworkConfigList, container: Namespace, other: Namespace
) -> None:
    real_node.cni.add_network_list(net, rt("c1", container.path))
    real_node.cni.add_network_list(net, rt("c1", container.path, "eth1"))
    with pytest.raises(NamespaceMismatchError, match=f"attached in the namespace {container.path}, but {other.path}"):
        real_node.cni.add_network_list(net, rt("c1", other.path, "eth2"))
    with pytest.raises(AttachmentExistsError):
        real_node.cni.add_network_list(net, rt("c1", other.path))
    with pytest.raises(NamespaceMismatchError):
        real_node.cni.add_network_list(net, rt("c1", other.path), on_existing="allow")
    assert len(real_node.states()) == 2
    assert other.links() == ["lo"]
    real_node.cni.add_network_list(net, rt("c1", other.path, "eth2"), on_existing="allow")


def test_an_add_does_not_list_the_records(
    real_node: RealNode, net: NetworkConfigList, container: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would cost as much as there are attachments on the node."""
    real_node.cni.add_network_list(net, rt("c1", container.path))
    for name in ("scandir", "listdir"):
        monkeypatch.setattr(f"libcni.kernel.system.{name}", lambda *_: pytest.fail("a directory is listed"))
    real_node.cni.add_network_list(net, rt("c2", container.path, "eth1"))


def test_a_restart_in_a_new_namespace_says_what_is_left_of_the_old_one(
    real_node: RealNode, net: NetworkConfigList, new_namespace: NewNamespace, container: Namespace
) -> None:
    subprocess.run(["ip", "netns", "add", "next-gone"], check=True)
    try:
        first = real_node.cni.add_network_list(net, rt("c1", "/run/netns/next-gone"))
    finally:
        subprocess.run(["ip", "netns", "del", "next-gone"], check=True)
    _, note = real_node.cni.add_network_list(net, rt("c1", container.path)).notes
    address = first.ips[0].address.partition("/")[0]
    assert note.startswith(f"bridge did not remove the masquerade rules of {address} ")


def test_the_hint_names_who_has_a_static_address(
    real_node: RealNode, net: NetworkConfigList, container: Namespace, other: Namespace
) -> None:
    taken = real_node.cni.add_network_list(net, rt("c1", container.path)).ips[0].address.partition("/")[0]
    stranger = "10.77.0.99"
    (real_node.leases / "net" / stranger).write_text("stranger\r\neth0")
    for address, whose, command in (
        (taken, f"{taken} is reserved for container c1, interface eth0 (ready)", "del"),
        (stranger, f"{stranger} is reserved for container stranger, interface eth0, which has no record", "doctor"),
    ):
        args = (("IgnoreUnknown", "1"), ("IP", address))
        with pytest.raises(PluginError, match="is not available in range set") as caught:
            real_node.cni.add_network_list(net, rt("c2", other.path, args=args))
        assert caught.value.hint is not None
        assert caught.value.hint.text.startswith(whose)
        assert caught.value.hint.command == command


def test_the_hint_says_that_a_static_address_is_outside_the_ranges(
    real_node: RealNode, net: NetworkConfigList, container: Namespace
) -> None:
    wanted = rt("c1", container.path, args=(("IgnoreUnknown", "1"), ("IP", "10.99.0.5")))
    with pytest.raises(PluginError, match=r"no range of the network could give 10\.99\.0\.5"):
        real_node.cni.add_network_list(net, wanted)


@pytest.mark.parametrize(
    ("bound", "protocol", "mapping", "is_told"),
    [
        (("127.0.0.1", 8099), "tcp", {}, True),
        (("::", 8099), "tcp", {}, True),
        (("127.0.0.1", 8099), "udp", {}, True),
        (("127.0.0.1", 8099), "udp", {"protocol": "tcp"}, False),
        (("127.0.0.1", 8099), "tcp", {"hostIP": "10.1.1.1"}, False),
        (("127.0.0.1", 8098), "tcp", {}, False),
    ],
)
def test_a_program_that_listens_on_the_port_is_named_and_with_strict_refused(
    real_node: RealNode,
    net: NetworkConfigList,
    container: Namespace,
    bound: tuple[str, int],
    protocol: str,
    mapping: dict[str, str],
    *,
    is_told: bool,
) -> None:
    family = socket.AF_INET6 if ":" in bound[0] else socket.AF_INET
    kind = socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM
    with socket.socket(family, kind) as program:
        program.bind(bound)
        if protocol == "tcp":
            program.listen()
        args = port(8099, **{"protocol": protocol, **mapping})
        wanted = rt("c1", container.path, capability_args=args)
        if is_told:
            with pytest.raises(AttachmentExistsError, match=rf"process {os.getpid()}\) listens on host port"):
                real_node.cni.add_network_list(net, wanted, strict=True)
            assert real_node.states() == []
        notes = real_node.cni.add_network_list(net, wanted).notes
        assert [f"(process {os.getpid()}) listens on host port" in note for note in notes] == [True] * is_told


@pytest.mark.parametrize(
    ("rule", "protocol", "is_refused"),
    [
        ("-p tcp --dport 8000:8100 -j DNAT --to-destination 10.9.9.9:80", "tcp", True),
        ("-p sctp --dport 8099 -j DNAT --to-destination 10.9.9.9:80", "sctp", True),
        ("-p tcp --dport 8099 -j REDIRECT --to-ports 99", "tcp", True),
        ("-p tcp --dport 8099 -j DNAT --to-destination 10.9.9.9:80", "sctp", False),
        ("-s 192.0.2.0/24 -p tcp --dport 8099 -j DNAT --to-destination 10.9.9.9:80", "tcp", False),
        ("-p tcp --dport 8098 -j DNAT --to-destination 10.9.9.9:80", "tcp", False),
    ],
)
def test_with_strict_an_older_rule_for_the_port_is_refused(
    real_node: RealNode, net: NetworkConfigList, container: Namespace, rule: str, protocol: str, *, is_refused: bool
) -> None:
    real_node.host.run("iptables", "-t", "nat", "-A", "PREROUTING", *rule.split())
    wanted = rt("c1", container.path, capability_args=port(8099, protocol))
    if is_refused:
        text = f"host port 8099/{protocol} is already forwarded to (10.9.9.9|this host) by the rule"
        with pytest.raises(AttachmentExistsError, match=text):
            real_node.cni.add_network_list(net, wanted, strict=True)
        assert real_node.states() == []
    real_node.cni.add_network_list(net, wanted, strict=not is_refused)


def test_a_port_on_two_networks_of_one_container_is_one_port(
    real_node: RealNode, net: NetworkConfigList, container: Namespace
) -> None:
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    second = real_node.network(real_node.bridge("10.78.0.0/24", bridge="br-two"), portmap, name="second")
    for network, ifname in ((net, "eth0"), (second, "eth1")):
        wanted = rt("c1", container.path, ifname, capability_args=port(8099))
        assert real_node.cni.add_network_list(network, wanted, strict=True).notes == ()
    with pytest.raises(AttachmentExistsError, match="already published by container c1"):
        real_node.cni.add_network_list(net, rt("c2", "", capability_args=port(8099)))


def test_a_process_of_the_container_itself_keeps_its_port(
    real_node: RealNode, net: NetworkConfigList, container: Namespace
) -> None:
    """podman does that with conmon, which has the container's ID as an argument."""
    script = "import socket, sys; s = socket.create_server(('', 8099)); print(flush=True); sys.stdin.read()"
    command = ["python3", "-c", script, "the-container"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as keeper:
        assert keeper.stdout is not None
        keeper.stdout.readline()
        wanted = rt("the-container", container.path, capability_args=port(8099))
        assert real_node.cni.add_network_list(net, wanted, strict=True).notes == ()


@pytest.mark.slow
def test_forty_first_adds_at_once_on_a_fresh_node_lose_no_container(
    real_node: RealNode, new_namespace: Callable[[], Namespace]
) -> None:
    """Ten rounds: plugins make the bridge and the chains of iptables at the same time."""
    containers = [new_namespace().path for _ in range(40)]
    client = real_node.client(timeout=300, cleanup_timeout=300, durable=False)
    for number in range(10):
        portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
        bridge = real_node.bridge(f"10.77.{number}.0/24", bridge=f"br-{number}", ipMasq=True)
        net = real_node.network(bridge, portmap, "firewall", name=f"net{number}")
        for table in ("nat", "filter"):
            real_node.host.run("iptables", "-t", table, "-F")
            real_node.host.run("iptables", "-t", table, "-X")

        def attach(index: int, net: NetworkConfigList = net) -> Result | CNIError:
            wanted = rt(f"c{index}", containers[index], capability_args=port(20000 + index))
            try:
                return client.add_network_list(net, wanted)
            except CNIError as error:
                return error

        with ThreadPoolExecutor(len(containers)) as pool:
            outcomes = list(pool.map(attach, range(len(containers))))
        assert [str(outcome) for outcome in outcomes if isinstance(outcome, CNIError)] == []
        client.del_attachments(client.get_cached_attachments())
        real_node.host.run("ip", "link", "del", f"br-{number}")
