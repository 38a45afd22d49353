"""The well-known capabilities in ``runtimeConfig``."""

from __future__ import annotations

from typing import Any

import pytest

from libcni.plugin import VerbError
from plugin.plugins import request

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
