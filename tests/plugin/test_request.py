"""A Request as a plugin's function sees it: arguments, capabilities, the previous result, valid attachments."""

from __future__ import annotations

import json
from ipaddress import IPv4Address
from typing import Any

import pytest

from libcni.plugin import Request, VerbError
from libcni.testing import call_plugin
from plugin.plugins import Recorder, config


def request(args: str = "", verb: str = "ADD", **more: Any) -> Request:
    recorder = Recorder()
    answer = call_plugin(recorder.plugin, verb, config(**more), args=args, path="/opt/cni/bin::/usr/lib/cni")
    assert answer.status == 0, answer
    return recorder.requests[0]


def test_what_the_runtime_sent_is_there() -> None:
    got = request(keyA=["x"])
    assert (got.verb, got.version, got.name) == ("ADD", "1.1.0", "net")
    assert (got.container_id, got.ifname) == ("test-container", "eth0")
    assert got.netns == "/run/netns/test-namespace-that-is-not-there"
    assert got.path == ("/opt/cni/bin", "/usr/lib/cni")
    assert got.config["keyA"] == ["x"]
    assert json.loads(got.stdin) == got.config
    assert got.env["CNI_COMMAND"] == "ADD"


def test_numbers_that_json_can_say_are_kept() -> None:
    assert request(big=9007199254740993).config["big"] == 9007199254740993


def gc(more: dict[str, Any]) -> Request:
    return request(verb="GC", **more)


class Args:
    IP: IPv4Address | None
    Verbose: bool = False
    Count: int = 1
    K8S_POD_NAME: str = ""
    _private: str = "kept"


def test_args_fill_an_object_by_its_annotations() -> None:
    args = request("IP=10.0.0.2;Verbose=TRUE;Count=3;K8S_POD_NAME=").load_args(Args)
    assert str(args.IP) == "10.0.0.2"
    assert isinstance(args.IP, IPv4Address)
    assert (args.Verbose, args.Count, args.K8S_POD_NAME) == (True, 3, "")


@pytest.mark.parametrize(
    ("text", "value"), [("1", True), ("true", True), ("True", True), ("0", False), ("FALSE", False)]
)
def test_a_bool_has_four_forms_in_whatever_case(text: str, value: bool) -> None:
    assert request(f"Verbose={text}").load_args(Args).Verbose is value


def test_args_that_are_not_there_keep_their_defaults() -> None:
    args = request("").load_args(Args)
    assert (args.IP, args.Verbose, args.Count, args._private) == (None, False, 1, "kept")


@pytest.mark.parametrize(
    "text", ["X=1;IgnoreUnknown=1", "IgnoreUnknown=true;X=1;Y=2", "X=1;IgnoreUnknown=TRUE;Count=2"]
)
def test_unknown_args_are_ignored_where_the_runtime_says_so(text: str) -> None:
    assert isinstance(request(text).load_args(Args), Args)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("X=1;Count=2;Y=2", 'unknown args ["X=1" "Y=2"]'),
        ("X=1;IgnoreUnknown=0", 'unknown args ["X=1"]'),
        ("count=1", 'unknown args ["count=1"]'),
        ("_private=1", 'unknown args ["_private=1"]'),
        ("A=b=c", 'invalid pair "A=b=c"'),
        ("Count=2;", 'invalid pair ""'),
        ("Count", 'invalid pair "Count"'),
        ("Count=x", 'error parsing value of pair "Count=x": '),
        ("IP=x", 'error parsing value of pair "IP=x": '),
        ("Verbose=yes", 'error parsing value of pair "Verbose=yes": it must be 1, true, 0 or false'),
        ("IgnoreUnknown=x", 'error parsing value of pair "IgnoreUnknown=x": '),
    ],
)
def test_wrong_args_are_an_invalid_environment(text: str, problem: str) -> None:
    with pytest.raises(VerbError) as caught:
        request(text).load_args(Args)
    assert caught.value.code == 4
    assert caught.value.msg.startswith(f"CNI_ARGS: {problem}")


def test_args_as_they_are() -> None:
    assert request("K8S_POD_NAME=web;FOO=;FOO=bar").args == {"K8S_POD_NAME": "web", "FOO": "bar"}
    assert request("").args == {}
    with pytest.raises(VerbError, match="invalid pair"):
        _ = request("FOO").args


GO = {"hostPort": 8080, "containerPort": 80, "protocol": "udp", "hostIP": "10.0.0.1"}
CONTAINERD = {"HostPort": 8080, "ContainerPort": 80, "Protocol": "udp", "HostIP": "10.0.0.1"}


@pytest.mark.parametrize("sent", [GO, CONTAINERD, {key.lower(): value for key, value in GO.items()}])
@pytest.mark.parametrize("key", ["portMappings", "PortMappings", "portmappings"])
def test_port_mappings_are_read_in_whatever_case(sent: dict[str, Any], key: str) -> None:
    (mapping,) = request(runtimeConfig={key: [{**sent, "vendor": 1}]}).runtime_config.port_mappings
    assert (mapping.host_port, mapping.container_port, mapping.protocol) == (8080, 80, "udp")
    assert (mapping.host_ip, mapping.extra) == ("10.0.0.1", {"vendor": 1})


def test_a_port_mapping_has_defaults() -> None:
    (mapping,) = request(
        runtimeConfig={"portMappings": [{"hostPort": 1, "containerPort": 2}]}
    ).runtime_config.port_mappings
    assert (mapping.protocol, mapping.host_ip, mapping.extra) == ("tcp", "", {})


def test_each_limit_of_the_bandwidth_is_read_and_may_be_left_out() -> None:
    keys = ["ingressRate", "ingressBurst", "egressRate", "egressBurst"]
    sent = dict(zip(keys, range(1, 5), strict=True))
    for whole in (sent, {key.upper(): value for key, value in sent.items()}, {}):
        got = request(runtimeConfig={"bandwidth": whole}).runtime_config.bandwidth
        assert got is not None
        assert got[:4] == (tuple(sent.values()) if whole else (0, 0, 0, 0))
        assert (got.ingress_rate, got.egress_burst) == ((1, 4) if whole else (0, 0))


def test_the_exact_key_wins() -> None:
    got = request(runtimeConfig={"Mac": "wrong", "mac": "c2:11:22:33:44:55"}).runtime_config
    assert got.mac == "c2:11:22:33:44:55"


def test_every_convention_is_known_and_unknown_ones_are_kept() -> None:
    sent = {
        "bandwidth": {"ingressRate": 2048, "IngressBurst": 1600, "new": 1},
        "DNS": {"Servers": ["8.8.8.8"], "searches": ["example.org"], "options": ["a"], "new": 2},
        "ipRanges": [[{"subnet": "10.1.2.0/24", "RangeStart": "10.1.2.3", "gateway": "10.1.2.254", "new": 3}], []],
        "ips": ["10.10.0.1/24", "fd00::1/64"],
        "mac": "c2:11:22:33:44:55",
        "infinibandGUID": "c2:11:22:33:44:55:66:77",
        "deviceID": "0000:04:00.5",
        "aliases": ["primary-db"],
        "cgroupPath": "/kubelet/pod1",
        "io.kubernetes.cri.pod-annotations": {"a": "b"},
    }
    got = request(runtimeConfig=sent).runtime_config
    assert got.bandwidth == (2048, 1600, 0, 0, {"new": 1})
    assert got.dns == (("8.8.8.8",), ("example.org",), ("a",), {"new": 2})
    assert got.ip_ranges == ((("10.1.2.0/24", "10.1.2.3", "", "10.1.2.254", {"new": 3}),), ())
    assert got.ips == ("10.10.0.1/24", "fd00::1/64")
    assert (got.mac, got.infiniband_guid) == ("c2:11:22:33:44:55", "c2:11:22:33:44:55:66:77")
    assert (got.device_id, got.aliases, got.cgroup_path) == ("0000:04:00.5", ("primary-db",), "/kubelet/pod1")
    assert got.document == sent


@pytest.mark.parametrize(
    ("sent", "aliases"), [(["db"], ("db",)), ({"net": ["db"], "other": ["x"]}, ("db",)), ({"other": ["x"]}, ())]
)
def test_aliases_are_a_list_or_as_podman_sends_them(sent: object, aliases: tuple[str, ...]) -> None:
    assert request(runtimeConfig={"aliases": sent}).runtime_config.aliases == aliases


@pytest.mark.parametrize("sent", [{}, {"runtimeConfig": None}, {"runtimeConfig": {}}, {"runtimeConfig": {"mac": None}}])
def test_no_capability_is_no_value(sent: dict[str, Any]) -> None:
    got = request(**sent).runtime_config
    assert (got.port_mappings, got.ips, got.aliases, got.ip_ranges) == ((), (), (), ())
    assert (got.bandwidth, got.dns, got.mac, got.infiniband_guid, got.device_id, got.cgroup_path) == (None,) * 6


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("port_mappings", {"portMappings": {}}),
        ("port_mappings", {"portMappings": [7]}),
        ("port_mappings", {"portMappings": [{"hostPort": "80", "containerPort": 80}]}),
        ("port_mappings", {"portMappings": [{"hostPort": True, "containerPort": 80}]}),
        ("port_mappings", {"portMappings": [{"hostPort": 80}]}),
        ("bandwidth", {"bandwidth": [1]}),
        ("dns", {"dns": {"servers": [1]}}),
        ("ip_ranges", {"ipRanges": [{}]}),
        ("ip_ranges", {"ipRanges": [[{}]]}),
        ("ips", {"ips": [1]}),
        ("aliases", {"aliases": "db"}),
        ("aliases", {"aliases": {"net": [1]}}),
        ("mac", {"mac": 1}),
        ("mac", []),
    ],
)
def test_a_malformed_capability_is_an_invalid_configuration(name: str, sent: object) -> None:
    with pytest.raises(VerbError) as caught:
        getattr(request(runtimeConfig=sent).runtime_config, name)
    assert caught.value.code == 7


def test_a_malformed_capability_does_not_disturb_who_does_not_use_it() -> None:
    assert request(runtimeConfig={"portMappings": 7, "mac": "x"}).runtime_config.mac == "x"


def test_a_previous_result_is_typed_and_none_where_there_is_none() -> None:
    got = request(prevResult={"ips": [{"version": "4", "address": "10.0.0.2/24"}]})
    assert got.prev_result is not None
    assert got.prev_result.ips == [{"address": "10.0.0.2/24"}]
    assert request().prev_result is None
    assert request(prevResult=None).prev_result is None


def test_changing_the_result_leaves_the_previous_one() -> None:
    got = request(prevResult={"ips": [{"address": "10.0.0.2/24"}]})
    got.result.ips[0]["address"] = "changed"
    assert got.prev_result is not None
    assert got.prev_result.ips == [{"address": "10.0.0.2/24"}]
    assert got.result.ips == [{"address": "changed"}]


def test_a_broken_previous_result_stops_add_and_not_del() -> None:
    broken = config(prevResult={"ips": [None]})
    assert call_plugin(Recorder().plugin, "ADD", broken).code == 6
    assert call_plugin(Recorder().plugin, "DEL", broken).status == 0


@pytest.mark.parametrize("key", ["cni.dev/valid-attachments", "cni.dev/attachments"])
def test_gc_knows_the_valid_attachments(key: str) -> None:
    valid = [{"containerID": "a", "ifname": "eth0"}, {"containerID": "b", "ifname": "eth1"}]
    assert gc({key: valid}).valid_attachments == {("a", "eth0"), ("b", "eth1")}


def test_null_is_an_empty_list_of_attachments_as_go_sends_it() -> None:
    assert gc({"cni.dev/valid-attachments": None}).valid_attachments == frozenset()


@pytest.mark.parametrize(
    ("more", "msg"),
    [
        ({}, "cni.dev/valid-attachments is missing: without it a GC must free nothing"),
        ({"cni.dev/valid-attachments": [7]}, "cni.dev/valid-attachments: 7 is not an attachment"),
        (
            {"cni.dev/attachments": [{"containerID": "a"}]},
            "cni.dev/attachments: {'containerID': 'a'} is not an attachment",
        ),
        ({"cni.dev/attachments": [{"ifname": "a"}]}, "cni.dev/attachments: {'ifname': 'a'} is not an attachment"),
    ],
)
def test_without_a_right_list_nothing_may_be_collected(more: dict[str, Any], msg: str) -> None:
    with pytest.raises(VerbError) as caught:
        _ = gc(more).valid_attachments
    assert (caught.value.code, caught.value.msg) == (7, msg)


def test_a_plugin_can_require_a_previous_result() -> None:
    assert request(prevResult={"ips": []}).require_prev_result().ips == []
    with pytest.raises(VerbError, match="missing prevResult") as caught:
        request().require_prev_result()
    assert caught.value.code == 7
