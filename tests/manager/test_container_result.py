"""What a container's networks came to: one view of results of all versions."""

from __future__ import annotations

from typing import Any

from libcni import IPConfig, Result
from libcni.config.jsontext import dumps
from libcni.manager import AttachmentResult, ContainerResult


def result_of(**keys: Any) -> Result:
    return Result.from_bytes(dumps({"cniVersion": "1.1.0", **keys}))


def attached(network: str, ifname: str, **keys: Any) -> AttachmentResult:
    return AttachmentResult(network, ifname, result_of(**keys))


def container(*rows: AttachmentResult) -> ContainerResult:
    return ContainerResult("c1", "/ns", rows)


BRIDGE = attached(
    "front",
    "eth0",
    interfaces=[
        {"name": "cni0", "mac": "02:00:00:00:00:01"},
        {"name": "veth1", "mac": "02:00:00:00:00:02"},
        {"name": "eth0", "mac": "02:00:00:00:00:03", "mtu": 1450, "sandbox": "/ns", "pciID": "p", "socketPath": "s"},
    ],
    ips=[{"address": "10.1.0.5/24", "gateway": "10.1.0.1", "interface": 2}, {"address": "fd00::5/64", "interface": 2}],
    routes=[{"dst": "0.0.0.0/0", "gw": "10.1.0.1"}],
    dns={"nameservers": ["10.1.0.1"], "domain": "front.example", "search": ["a.example"], "options": ["ndots:5"]},
)
SECOND = attached(
    "back",
    "net1",
    interfaces=[{"name": "net1", "sandbox": "/ns"}],
    ips=[{"address": "fd01::9/64", "interface": 0}, {"address": "10.2.0.9/24", "interface": 0}],
    routes=[{"dst": "10.9.0.0/16"}],
    dns={"nameservers": ["10.1.0.1", "10.2.0.1"], "search": ["a.example", "b.example"]},
)
LO = attached("cni-loopback", "lo", interfaces=[{"name": "lo", "sandbox": "/ns"}], ips=[{"address": "127.0.0.1/8"}])
ALL = container(LO, BRIDGE, SECOND)


def test_each_interface_has_its_addresses_and_the_plugins_view_of_it() -> None:
    eth0 = ALL.interfaces["eth0"]
    v4 = IPConfig("10.1.0.5/24", "10.1.0.1", 2)
    assert eth0.addresses == (v4, IPConfig("fd00::5/64", interface=2))
    assert (eth0.network, eth0.interface) == ("front", BRIDGE.result.interfaces[2])
    assert list(ALL.interfaces) == ["lo", "eth0", "net1"]


def test_an_address_without_interface_belongs_to_the_containers_own() -> None:
    keys = {"interfaces": [{"name": "br0"}, {"name": "eth0", "sandbox": "/ns"}, {"name": "veth1"}]}
    for index in ({}, {"interface": 7}, {"interface": -1}):
        one = attached("n", "eth0", ips=[{"address": "10.0.0.2/24", **index}], **keys)
        assert [ip.address for ip in one.own.addresses] == ["10.0.0.2/24"]


def test_a_result_without_interfaces_has_the_one_that_was_asked_for() -> None:
    one = attached("n", "eth3", ips=[{"address": "10.0.0.2/24"}])
    assert container(one).interfaces["eth3"].addresses[0].address == "10.0.0.2/24"


def test_a_plugin_that_names_the_interface_itself_is_followed_into_the_sandbox() -> None:
    one = attached("n", "eth0", interfaces=[{"name": "br0"}, {"name": "ib0", "sandbox": "/ns"}])
    assert one.own.interface.name == "ib0"


def test_of_two_interfaces_of_one_name_the_one_in_the_sandbox_is_the_containers() -> None:
    keys = {"interfaces": [{"name": "eth0", "mac": "host"}, {"name": "eth0", "mac": "inside", "sandbox": "/ns"}]}
    one = container(attached("n", "eth0", ips=[{"address": "10.0.0.2/24"}], **keys))
    assert one.interfaces["eth0"].interface.mac == "inside"
    assert len(one.interfaces["eth0"].addresses) == 1


def test_old_results_are_seen_alike() -> None:
    text = '{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.2/24","gateway":"10.0.0.1"}}'
    one = AttachmentResult("n", "eth0", Result.from_bytes(text))
    assert one.own.addresses[0].gateway == "10.0.0.1"


def test_resolv_conf_has_everything_once_in_order() -> None:
    assert ALL.resolv_conf == (
        "nameserver 10.1.0.1\nnameserver 10.2.0.1\nsearch front.example a.example b.example\noptions ndots:5\n"
    )
    assert container(LO).resolv_conf == ""
    assert [ip.address for ip in ALL.addresses] == ["10.1.0.5/24", "fd00::5/64", "fd01::9/64", "10.2.0.9/24"]
