"""The verbs of the driver, over fake plugins: what plugins receive, what podman gets, and what is refused."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest
from processes import fork, wait

from libcni import RuntimeConf
from libcni.cli import main

from .conftest import CAPABILITIES, ID, RESULT, DriverNode, network, request

# create


def test_podman_stores_the_network_with_the_cni_networks_name_and_without_a_name_server(node: DriverNode) -> None:
    node.configure("front", "bridge")
    asked = network(labels={"x": "y"}, options={"args": "A=1"})
    expected = {**asked, "dns_enabled": False, "options": {"args": "A=1", "conf": "front"}}
    assert node.answer("create", asked) == expected
    stored = node.answer("create", network("web", options={"conf": "front"}))
    assert (stored["name"], stored["options"]) == ("web", {"conf": "front"})


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"subnets": [{"subnet": "10.1.0.0/16"}]}, "--subnet, --gateway and --ip-range cannot be used"),
        ({"routes": [{"destination": "10.9.0.0/16"}]}, "--route cannot be used"),
        ({"network_interface": "br0"}, "--interface-name cannot be used"),
        ({"network_dns_servers": ["10.1.0.1"]}, "--dns cannot be used"),
        ({"internal": True}, "--internal cannot be used"),
        ({"ipv6_enabled": True}, "--ipv6 cannot be used"),
        ({"ipam_options": {"driver": "none"}}, "--ipam-driver cannot be used"),
    ],
)
def test_what_cni_cannot_be_told_is_refused_with_the_way_out(
    node: DriverNode, members: dict[str, Any], said: str
) -> None:
    file = node.configure("front", "bridge")
    text = node.error("create", network(**members))
    assert said in text
    assert f"in {file}: " in text


def test_a_missing_network_is_named_with_those_that_exist(node: DriverNode) -> None:
    assert node.error("create", network("nowhere")) == (
        f"no CNI network nowhere in {node.conf_dir} (the directory has none; --opt conf=NAME names another)"
    )
    node.configure("front", "bridge")
    assert "(there are: front; " in node.error("create", network("nowhere"))


@pytest.mark.parametrize("plugin", [{"type": "absent"}, {"type": "bridge", "ipam": {"type": "absent"}}])
def test_a_missing_plugin_is_named(node: DriverNode, plugin: dict[str, Any]) -> None:
    node.plugin("bridge")
    node.write("front.conflist", {"cniVersion": "1.0.0", "name": "front", "plugins": [plugin]})
    assert node.error("create", network()) == f"the CNI plugin absent is not in {node.bin}"


def test_a_network_whose_plugin_does_not_know_its_version_is_refused(node: DriverNode) -> None:
    node.plugin("old", versions=["0.4.0"])
    node.configure("front", "old", cniVersion="1.0.0")
    assert "1.0.0" in node.error("create", network())


def test_an_argument_that_no_plugin_reads_is_refused(node: DriverNode) -> None:
    node.configure("front", "bridge")
    limits = {"bandwidth": "ingressRate=9;ingressBurst=8"}
    assert 'declares the capability "bandwidth"' in node.error("create", network(options=limits))
    node.configure_capable("bandwidth")
    node.answer("create", network(options=limits))


# setup


def test_podman_gets_the_interfaces_in_the_container_and_the_name_servers(node: DriverNode) -> None:
    node.configure("front", "bridge")
    assert node.answer("setup", request()) == {
        "dns_search_domains": ["front.test", "test"],
        "dns_server_ips": ["10.1.0.1"],
        "interfaces": {
            "eth0": {
                "mac_address": "C2:11:22:33:44:55",
                "subnets": [
                    {"ipnet": "10.1.0.5/16", "gateway": "10.1.0.1"},
                    {"ipnet": "fd00::5/64", "gateway": None},
                ],
            }
        },
    }
    assert node.attached == [("podman", "front", "eth0", "ready")]
    env = node.last_call("bridge", "ADD").env
    assert (env["CNI_CONTAINERID"], env["CNI_NETNS"], env["CNI_IFNAME"]) == (ID, node.netns_path, "eth0")


def test_capabilities_carry_what_the_container_asks_for(node: DriverNode) -> None:
    node.configure_capable(*CAPABILITIES)
    port = {"container_port": 80, "host_ip": "", "host_port": 8080, "protocol": "tcp", "range": 1}
    own: dict[str, Any] = {"static_ips": ["10.1.0.5", "fd00::5"], "static_mac": "c2:11:22:33:44:55", "aliases": ["db"]}
    limits = {"bandwidth": "ingressRate=9;ingressBurst=8"}
    node.answer("setup", request(ports=[port], options=limits, **own))
    args, config = node.received()
    assert args == {"IgnoreUnknown": "1", "K8S_POD_NAME": "web"}
    assert config["runtimeConfig"] == {
        "ips": ["10.1.0.5", "fd00::5"],
        "mac": "c2:11:22:33:44:55",
        "aliases": ["db"],
        "bandwidth": {"ingressRate": 9, "ingressBurst": 8},
        "portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}],
    }


def test_a_network_of_podman_4_without_capabilities_gets_cni_args(node: DriverNode) -> None:
    node.configure("front", "bridge")
    asked: dict[str, Any] = {"static_ips": ["10.1.0.5"], "static_mac": "c2:11:22:33:44:55"}
    # Podman gives the beginning of the ID as an alias in each request. No plugin takes it here.
    node.answer("setup", request(aliases=["752947ff91f9"], options={"args": "A=1"}, **asked))
    args, config = node.received()
    assert args == {"IgnoreUnknown": "1", "K8S_POD_NAME": "web", "A": "1", "IP": "10.1.0.5", "MAC": "c2:11:22:33:44:55"}
    assert "runtimeConfig" not in config
    node.answer("setup", request(static_ips=["10.1.0.5", "fd00::5"]))
    assert node.received()[1]["args"] == {"cni": {"ips": ["10.1.0.5", "fd00::5"]}}


def test_dnsname_of_podman_4_gets_aliases_by_network(node: DriverNode) -> None:
    node.plugin("dnsname", "cat >/dev/null")
    node.configure_capable("aliases", plugin="dnsname")
    node.answer("setup", request(aliases=["db"]))
    assert node.received("dnsname")[1]["runtimeConfig"] == {"aliases": {"front": ["db"]}}


def test_a_port_that_no_plugin_publishes_is_refused_and_nothing_is_run(node: DriverNode) -> None:
    node.configure("front", "bridge")
    port = {"container_port": 80, "host_ip": "", "host_port": 8080, "protocol": "tcp", "range": 1}
    assert "no plugin of CNI network front publishes ports" in node.error("setup", request(ports=[port]))
    assert node.calls() == []
    node.answer("setup", request(ports=[port], options={"ports": "ignore"}))


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"static_ips": ["10.1.0.9"]}, "--ip 10.1.0.9: CNI network front did not give this address"),
        ({"static_mac": "c2:00:00:00:00:09"}, "--mac-address c2:00:00:00:00:09: CNI network front gave C2:11"),
        ({"static_ips": ["nonsense"]}, 'the address "nonsense" is not an IP address'),
    ],
)
def test_an_attachment_without_what_was_asked_for_is_detached(node: DriverNode, own: dict[str, Any], said: str) -> None:
    node.configure("front", "bridge")
    assert said in node.error("setup", request(**own))
    assert node.verbs() == ["ADD bridge", "DEL bridge"]
    assert node.attached == []


def test_a_name_server_that_netavark_cannot_read_is_refused_and_the_attachment_detached(node: DriverNode) -> None:
    node.plugin("bridge", result={**RESULT, "dns": {"nameservers": ["fe80::1%eth0"]}})
    node.configure("front", "bridge")
    assert 'the name server "fe80::1%eth0" is not an IP address' in node.error("setup", request())
    assert node.attached == []


ETH0 = {"name": "eth0", "sandbox": "/ns"}
SEVEN = "c2:00:00:00:00:01:02"


@pytest.mark.parametrize(
    "interfaces", [[], [{"name": "veth1"}, ETH0], *([{**ETH0, "mac": mac}] for mac in ("", "nonsense", SEVEN))]
)
def test_an_interface_without_a_hardware_address_gets_one_that_podman_reads(node: DriverNode, interfaces: Any) -> None:
    node.plugin("bridge", result={"cniVersion": "1.0.0", "interfaces": interfaces, "ips": [{"address": "10.1.0.5/16"}]})
    node.configure("front", "bridge")
    [(name, interface)] = node.answer("setup", request())["interfaces"].items()
    assert (name, interface["mac_address"]) == ("eth0", "00:00:00:00:00:00")


def test_a_failed_roll_back_says_what_to_type(node: DriverNode) -> None:
    busy = {"error": {"code": 7, "msg": "busy"}}
    node.fakes.scenario("bad", {"ADD": busy, "DEL": busy})
    node.configure("front", "bad")
    text = node.error("setup", request())
    assert "busy" in text
    assert "the roll-back failed" in text
    assert f"libcni del {ID} -i eth0" in text
    assert node.attached == [("podman", "front", "eth0", "pending")]


def test_a_set_up_that_podman_repeats_replaces_the_first(node: DriverNode) -> None:
    node.configure("front", "bridge")
    node.answer("setup", request())
    node.answer("setup", request())  # podman was killed before it stored the first answer
    assert node.verbs() == ["ADD bridge", "DEL bridge", "ADD bridge"]
    assert node.attached == [("podman", "front", "eth0", "ready")]


@pytest.mark.parametrize(("owner", "whose"), [("oci-hook", "the owner oci-hook"), ("", "another program")])
def test_an_interface_of_another_owner_is_refused_and_stays(
    node: DriverNode, owner: str, whose: str, caplog: pytest.LogCaptureFixture
) -> None:
    node.configure("front", "bridge")
    node.configure("back", "bridge")
    node.client(owner=owner).add_network_list("back", RuntimeConf(ID, node.netns_path, "eth0"))
    node.forget_calls()
    remedy = "if that program no longer uses the interface, detach the container from its network"
    remedy += f": libcni del {ID} -i eth0"
    refused = node.error("setup", request())
    assert f"interface eth0: {whose} has already attached this interface to network back ({remedy} " in refused
    assert f"--cache-dir {node.cache}" in refused
    node.answer("teardown", request())
    assert f"eth0 stays: another owner attached it ({remedy})" in caplog.text
    assert (node.calls(), node.attached) == ([], [(owner, "back", "eth0", "ready")])


def test_another_owners_other_interface_is_no_matter(node: DriverNode) -> None:
    node.configure("front", "bridge")
    node.client(owner="me").add_network_list("front", RuntimeConf(ID, node.netns_path, "eth1"))
    node.answer("setup", request())
    node.answer("teardown", request())
    assert node.attached == [("me", "front", "eth1", "ready")]


def test_what_podman_4_left_of_an_ended_container_is_detached(node: DriverNode) -> None:
    node.configure("front", "bridge")
    node.client(owner="").add_network_list("front", RuntimeConf(ID, node.netns_path, "eth0"))
    node.strip_record(ID, "front", "eth0")
    assert "another program has already attached" in node.error("setup", request())  # podman 4 still runs it
    os.unlink(node.netns_path)
    node.netns_path = node.netns("new")
    node.answer("setup", request())
    assert node.attached == [("podman", "front", "eth0", "ready")]


# teardown


def test_a_container_is_detached_by_its_record_alone(node: DriverNode) -> None:
    file = node.configure("front", "bridge")
    node.answer("setup", request())
    file.unlink()
    assert node.answer("teardown", request()) is None
    assert (node.verbs(), node.attached) == (["ADD bridge", "DEL bridge"], [])
    assert node.answer("teardown", request()) is None  # no record, no configuration: nothing to do


@pytest.mark.parametrize("harm", ["lost", "torn"])
def test_without_a_record_todays_configuration_detaches(node: DriverNode, harm: str) -> None:
    node.configure("front", "bridge")
    node.answer("setup", request())
    record = node.record(ID, "front")
    record.unlink() if harm == "lost" else os.truncate(record, 10)
    node.answer("teardown", request())
    assert node.verbs() == ["ADD bridge", "DEL bridge"]
    assert node.attached == []


def test_a_detach_that_fails_stays_on_record_and_podman_is_told(node: DriverNode) -> None:
    node.fakes.scenario("bad", {"ADD": {"result": RESULT}, "DEL": [{"error": {"code": 7, "msg": "busy"}}] * 2 + [{}]})
    node.configure("front", "bad")
    node.answer("setup", request())
    assert "busy" in node.error("teardown", request())
    assert node.attached == [("podman", "front", "eth0", "detaching")]
    node.answer("teardown", request())
    assert node.attached == []


def test_a_network_is_detached_and_the_containers_other_networks_stay(node: DriverNode) -> None:
    node.configure("front", "bridge")
    node.configure("back", "bridge")
    node.answer("setup", request())
    node.answer("setup", request(name="back", interface_name="eth1"))
    node.answer("teardown", request())
    assert node.attached == [("podman", "back", "eth1", "ready")]


# what podman does not call


def repair(node: DriverNode) -> int:
    return main(["repair", *node.words, "--owner", "podman", "--yes"])


@pytest.mark.parametrize("is_namespace_gone", [True, pytest.param(False, marks=pytest.mark.root)])
def test_repair_frees_what_a_killed_set_up_left(node: DriverNode, *, is_namespace_gone: bool) -> None:
    """The driver is killed while a plugin runs, and podman never tears down what it did not set up."""
    node.plugin("killing", "[ $CNI_COMMAND = ADD ] && kill -9 $PPID")
    node.configure("front", "bridge", "killing")
    assert wait(fork(lambda: node.run("setup", request()))) == -signal.SIGKILL
    left = [("podman", "front", "eth0", "pending")]
    assert node.attached == left
    assert main(["repair", *node.words, "--yes", "--pending-after", "0"]) == 0
    assert node.attached == left, "it is podman's"
    if is_namespace_gone:
        os.unlink(node.netns_path)
    else:
        assert repair(node) == 0
        assert node.attached == left, "it may still run"
        long_ago = time.time() - 400, time.clock_gettime(time.CLOCK_BOOTTIME) - 400
        node.change_record(ID, "front", created=long_ago[0], uptime=long_ago[1])
    assert repair(node) == 0
    assert (node.attached, node.verbs().count("DEL bridge")) == ([], 1)
