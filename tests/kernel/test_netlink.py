"""The links, addresses and routes of a namespace, read from the kernel."""

from __future__ import annotations

import errno
import itertools
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from nodes import Namespace

from kernel import answers
from kernel.answers import GOOD, READS, Kernel
from libcni.kernel import netlink
from libcni.kernel.netlink import IPRoute, Neighbour, RouteQuestion, open_netlink, read_network
from libcni.kernel.netlink_messages import (
    MOST_BYTES,
    NLM_F_DUMP_INTR,
    NLMSG_DONE,
    NLMSG_ERROR,
    NLMSG_OVERRUN,
    TRIES,
    attribute,
)
from libcni.testing import wait_until


def test_a_file_that_is_no_namespace_is_not_entered(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="it is no network namespace") as caught:
        read_network(str(tmp_path / "file"))
    assert caught.value.filename == str(tmp_path / "file")


def conversation(*datagrams: bytes, senders: Sequence[int] = (), **options: Any) -> netlink.Conversation:
    return netlink.Conversation(cast("socket.socket", Kernel(*datagrams, senders=senders)), **options)


def test_an_error_of_the_kernel_ends_a_list() -> None:
    with pytest.raises(PermissionError):
        conversation(answers.error(errno.EPERM)).links()
    with pytest.raises(PermissionError):  # some lists fail at their end
        conversation(answers.link(), answers.message(NLMSG_DONE, struct.pack("=i", -errno.EPERM))).links()


@pytest.mark.parametrize("name", READS)
def test_an_answer_counts_only_from_the_kernel_and_with_the_number_of_the_request(name: str) -> None:
    forged = answers.link(9, "forged") + answers.address("10.9.9.9") + answers.DONE
    others = answers.message(netlink._RTM_NEWLINK, bytes(16), serial=2)
    good = GOOD[name]
    expected = READS[name](conversation(*good))
    found = READS[name](conversation(forged, others, *good, senders=[4711]))
    assert found == expected
    assert "forged" not in repr(found)


def test_each_request_has_another_number() -> None:
    kernel = Kernel(*GOOD["links"] * 20)
    talk = netlink.Conversation(cast("socket.socket", kernel))
    for _ in range(20):
        talk.links()
    assert len({after - before for before, after in itertools.pairwise(kernel.serials)}) > 10  # no counter


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("rest", [bytes(64), bytes(8), b"\x0f" + bytes(63), b"\xff" * 64], ids=len)
def test_a_wrong_length_is_an_error_of_the_namespace(name: str, rest: bytes) -> None:
    for good in (b"", GOOD["links"][0]):
        with pytest.raises(OSError, match="malformed") as caught:
            READS[name](conversation(good + rest if name in {"links", "addresses", "routes"} else rest))
        assert caught.value.errno == errno.EBADMSG


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("links", answers.message(netlink._RTM_NEWLINK, bytes(15))),
        ("links", answers.message(netlink._RTM_NEWLINK, bytes(16) + b"\x03\0\x01\0")),
        ("links", answers.message(netlink._RTM_NEWLINK, bytes(16) + b"\xff\0\x01\0")),
        ("links", answers.message(netlink._RTM_NEWLINK, bytes(16) + attribute(netlink._IFLA_MASTER, b"1"))),
        ("addresses", answers.message(netlink._RTM_NEWADDR, b"\x02\x18" + bytes(6) + attribute(1, b"10."))),
        ("addresses", answers.message(netlink._RTM_NEWADDR, b"\x02\x40" + bytes(6) + attribute(1, b"10.1"))),
        ("change", answers.message(NLMSG_ERROR, b"\0")),
        ("change", answers.error(-5)),
        ("change", answers.error(5000)),
        ("change", answers.message(NLMSG_ERROR, struct.pack("=i", -(1 << 31)) + bytes(16))),
    ],
)
def test_a_malformed_message_is_an_error_of_the_namespace(name: str, bad: bytes) -> None:
    with pytest.raises(OSError, match="malformed netlink answer"):
        READS[name](conversation(bad, answers.DONE))


def test_a_kind_of_interface_that_is_no_text_is_read() -> None:
    kind = attribute(netlink._IFLA_LINKINFO, attribute(netlink._IFLA_INFO_KIND, b"\xff\0"))
    [found] = conversation(answers.message(netlink._RTM_NEWLINK, bytes(16) + kind) + answers.DONE).links()
    assert found.kind == "\ufffd"


def test_a_lost_part_of_a_list_is_an_error() -> None:
    with pytest.raises(OSError, match="lost a part"):
        conversation(answers.link(), answers.message(NLMSG_OVERRUN)).links()


def test_a_list_that_changed_meanwhile_is_read_again() -> None:
    changed = answers.message(NLMSG_DONE, bytes(4), flags=2 | NLM_F_DUMP_INTR)
    [found] = conversation(answers.link(), changed, answers.link(4), answers.DONE).links()
    assert found.index == 4
    for_ever = [answers.link(), changed] * TRIES
    with pytest.raises(OSError, match="change while they are read"):
        conversation(*for_ever).links()
    assert conversation(*for_ever, is_own=True).links()


@pytest.mark.slow
def test_a_namespace_that_is_too_large_is_an_error() -> None:
    large = [answers.link() * 600] * (MOST_BYTES // len(answers.link() * 600) + 1)
    with pytest.raises(OSError, match="more than 16 MiB"):
        conversation(*large, answers.DONE).links()
    assert conversation(*large, answers.DONE, is_own=True).links()


class Flood(Kernel):
    """A kernel that never answers, beside a program that sends for ever."""

    def recvfrom_into(self, buffer: bytearray) -> tuple[int, tuple[int, int]]:
        link = answers.link()
        buffer[: len(link)] = link
        return len(link), (4711, 0)


@pytest.mark.parametrize("name", READS)
def test_no_flood_goes_on_past_the_deadline(name: str) -> None:
    with pytest.raises(TimeoutError, match="take too long"):
        READS[name](netlink.Conversation(cast("socket.socket", Flood()), seconds=0.05))


def test_an_answer_that_the_kernel_gave_late_counts() -> None:
    # The kernel changes interfaces one after another on the whole machine: a list can wait in it for seconds.
    assert conversation(*GOOD["links"], seconds=-1.0).links()


@pytest.mark.unmeasured
@pytest.mark.parametrize("name", READS)
def test_inputs_near_to_good_ones(name: str) -> None:
    """No hang, and no error but OSError, whatever comes."""
    seed = int(os.environ.get("LIBCNI_SEED", "1"))
    chance, good = random.Random(f"{name} {seed}"), 0
    for _ in range(int(os.environ.get("LIBCNI_FUZZ_CASES", "2000"))):
        datagrams = list(answers.near(chance, GOOD[name]))
        senders = [chance.choice([0, 0, 0, 4711]) for _ in datagrams]
        try:
            READS[name](conversation(*datagrams, senders=senders))
            good += 1
        except OSError:
            pass
        except BaseException as error:
            raise AssertionError(f"LIBCNI_SEED={seed}: {datagrams!r} from {senders}") from error
    assert good


_ATTACK = """
import os, re, socket, sys
ours = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
ours.bind((0, 0))
print(flush=True)
while True:
    for line in open("/proc/net/netlink").readlines()[1:]:
        port = int(line.split()[2])
        if line.split()[1] == "0" and port not in (0, ours.getsockname()[0]):
            for data in (bytes(64), bytes(8)):
                try:
                    ours.sendto(data, socket.MSG_DONTWAIT, (port, 0))
                except OSError:
                    pass
"""


@pytest.mark.real
def test_a_container_that_sends_messages_to_every_socket_in_its_namespace(container: Namespace) -> None:
    for number in range(1, 200):  # a list of several datagrams
        container.run("ip", "address", "add", f"10.9.0.{number}/32", "dev", "lo")
    command = ["nsenter", f"--net={container.path}", sys.executable, "-c", _ATTACK]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as attack:
        try:
            assert attack.stdout is not None
            attack.stdout.readline()
            for _ in range(200):
                found = read_network(container.path)
                assert len(found.links["lo"].addresses) >= 199
        finally:
            attack.kill()


def succeeds(container: Namespace, *command: str) -> bool:
    try:
        container.run(*command)
    except subprocess.CalledProcessError:
        return False
    return True


@pytest.mark.real
def test_what_ip_has_set_is_read(container: Namespace) -> None:
    for command in (
        "ip link add br0 address 02:00:00:00:00:07 type bridge",
        "ip link add eth0 type veth peer name end",
        "ip link set eth0 master br0",
        "ip link set br0 up",
        "ip address add 10.9.0.2/24 dev br0",
        "ip address add fd09::2/64 dev br0 nodad",
        "ip route add default via 10.9.0.1",
        "ip route add 10.10.0.0/16 dev br0",
        "ip -6 route add fd0a::/32 via fd09::1",
        "ip link set br0 arp off",
        "bridge link set dev eth0 isolated on hairpin on",
        "bridge link set dev eth0 locked on flood off bcast_flood off",
        "tc qdisc add dev eth0 root tbf rate 8bit burst 10 latency 1ms",
        "ip neigh add 10.9.0.9 lladdr 02:00:00:00:00:09 dev br0 nud permanent",
        "ip neigh add 10.9.0.8 lladdr 02:00:00:00:00:08 dev br0 nud stale",
        "ip neigh add fd09::9 lladdr 02:00:00:00:00:09 dev br0 nud permanent",
        "sysctl -qw net.ipv4.conf.br0.forwarding=0 net.ipv4.conf.br0.rp_filter=1 net.ipv4.conf.br0.arp_ignore=8",
        "sysctl -qw net.ipv4.conf.br0.route_localnet=1",
        "bridge fdb replace 02:00:00:00:00:44 dev eth0 master static",
        "sysctl -qw net.ipv6.conf.end.disable_ipv6=1",
        "ip rule add from 10.9.0.0/26 lookup 100 pref 100",
        "ip rule add iif br0 blackhole pref 101",
        "ip rule add fwmark 7 lookup 100 pref 102",
        "ip rule add to 10.9.0.0/16 lookup 100 pref 103",
        "ip rule add not from 10.9.0.0/16 lookup 100 pref 104",
        "ip -6 rule add from fd09::/64 prohibit pref 105",
        "ip rule add from all lookup main suppress_prefixlength 0 pref 106",
        "ip rule add dport 25 lookup 100 pref 107",
    ):
        program, *words = command.split()
        # With the newest plugins their directory is on PATH, and one of them is called as iproute2's bridge.
        container.run(shutil.which(program, path="/usr/sbin:/sbin:/usr/bin:/bin") or program, *words)
    found = read_network(container.path)
    bridge, end = found.links["br0"], found.links["eth0"]
    assert bridge.settings == ("arp off", "forwarding 0", "rp_filter 1", "arp_ignore 8", "route_localnet 1")
    assert set(end.settings) >= {
        "hairpin on", "flood off", "bcast_flood off", "isolated on", "locked on", "qdisc tbf",
    }  # fmt: skip
    assert "disable_ipv6 1" in found.links["end"].settings
    assert found.bridge_entries == (), "only of the reader's own bridges"
    with open_netlink(container.path) as kernel:
        talk = netlink.Conversation(kernel)
        by_hand = ("02:00:00:00:00:44", end.index, False)
        assert [entry for entry in talk.bridge_entries() if not entry.is_learned] == [by_hand]
        container.run("ip", "link", "set", "eth0", "up")
        container.run("ip", "link", "set", "end", "up")
        fdb = shutil.which("bridge", path="/usr/sbin:/sbin:/usr/bin:/bin") or "bridge"
        learned = (fdb, "fdb", "replace", "02:00:00:00:00:45", "dev", "eth0", "master", "dynamic")
        wait_until(lambda: succeeds(container, *learned))  # the kernel refuses it until the port forwards
        entries = talk.bridge_entries()
        assert {*entries} >= {by_hand, ("02:00:00:00:00:45", end.index, True)}
        assert end.mac not in {entry.mac for entry in entries}
        own = {(4, 0, 255), (4, 32766, 254), (4, 32767, 253), (6, 0, 255), (6, 32766, 254)}
        rules = [rule for rule in talk.routing_rules() if (rule.version, rule.priority, rule.table) not in own]
        made = netlink.RoutingRule
        assert [rule for rule in rules if rule.is_whole] == [
            made(4, 100, "10.9.0.0/26", "", 100, drops=False), made(4, 101, "", "br0", 0, drops=True),
            made(4, 102, "", "", 100, drops=False, mark=(7, 0xFFFFFFFF)),
            made(4, 103, "", "", 100, drops=False, destination="10.9.0.0/16"),
            made(4, 104, "10.9.0.0/16", "", 100, drops=False, is_negated=True),
            made(4, 106, "", "", netlink.MAIN_TABLE, drops=False), made(6, 105, "fd09::/64", "", 0, drops=True),
        ]  # fmt: skip
        assert [rule.priority for rule in rules if not rule.is_whole] == [107], "a port"
        asked = [
            RouteQuestion("10.9.0.7"), RouteQuestion("10.9.0.2"), RouteQuestion("192.0.2.1", "10.9.0.7", bridge.index),
            RouteQuestion("fd0a::7"), RouteQuestion("198.51.100.1"),
        ]  # fmt: skip
        ways = talk.ways(asked)
        assert [way.error for way in ways] == [0, 0, errno.EHOSTUNREACH, 0, 0], "br0 forwards nothing"
        assert (ways[0].destination, ways[0].ifindex, ways[1].kind) == ("10.9.0.0/24", bridge.index, "local")
        assert (ways[3].destination, ways[3].gateway, ways[4].gateway) == ("fd0a::/32", "fd09::1", "10.9.0.1")
        assert talk.ways(asked * 50) == ways * 50, "more than one message has room for"
    assert found.learned == (Neighbour("10.9.0.8", "02:00:00:00:00:08", bridge.index, is_learned=True),)
    assert set(found.neighbours) == {
        Neighbour("10.9.0.9", "02:00:00:00:00:09", bridge.index),
        Neighbour("fd09::9", "02:00:00:00:00:09", bridge.index),
    }  # fmt: skip
    assert (bridge.is_up, bridge.mac, end.is_up, end.master) == (True, "02:00:00:00:00:07", False, bridge.index)
    assert {"10.9.0.2/24", "fd09::2/64"} <= set(bridge.addresses)
    assert bridge.has_address("10.9.0.2")
    assert not bridge.has_address("10.9.0.20")
    assert {
        IPRoute("0.0.0.0/0", "10.9.0.1", bridge.index),
        IPRoute("10.10.0.0/16", "", bridge.index),
        IPRoute("10.9.0.0/24", "", bridge.index),
        IPRoute("fd0a::/32", "fd09::1", bridge.index, metric=1024),
    } <= set(found.routes)


def test_the_vlan_of_a_port_is_that_of_its_packets_without_a_tag() -> None:
    """The kernel of a test's machine may have no VLANs in its bridges."""
    vlans = b"".join(
        attribute(netlink._BRIDGE_VLAN_INFO, struct.pack("=HH", flags, vlan))
        for flags, vlan in [(4, 1), (2 | 4, 100), (0, 7)]
    )
    port = netlink._LINK.pack(socket.AF_BRIDGE, 0, 5, 0, 0) + attribute(netlink._IFLA_AF_SPEC, vlans)
    bridge = netlink._LINK.pack(socket.AF_BRIDGE, 0, 2, 0, 0)
    answer = [answers.message(netlink._RTM_NEWLINK, one) for one in (port, bridge)]
    assert conversation(*answer, answers.DONE).vlans() == [(5, 100), (2, 0)]
    info = attribute(netlink._IFLA_INFO_KIND, b"bridge\0") + attribute(netlink._IFLA_INFO_DATA, attribute(7, b"\1"))
    body = netlink._LINK.pack(0, 0, 2, 0, 0) + attribute(netlink._IFLA_LINKINFO, info)
    [link] = conversation(answers.message(netlink._RTM_NEWLINK, body), answers.DONE).links()
    assert link.settings == ("vlan_filtering 1",)
