"""The well-known capabilities in ``runtimeConfig``. Loading itself: test_typed_config.py."""

from __future__ import annotations

from typing import Any

import pytest

from plugin.plugins import request

GO = {"hostPort": 8080, "containerPort": 80, "protocol": "udp", "hostIP": "10.0.0.1"}
CONTAINERD = {"HostPort": 8080, "ContainerPort": 80, "Protocol": "udp", "HostIP": "10.0.0.1"}


@pytest.mark.parametrize(("key", "sent"), [("portMappings", GO), ("PortMappings", CONTAINERD)])
def test_port_mappings_are_read_in_whatever_case(key: str, sent: dict[str, Any]) -> None:
    config = {key: [{**sent, "vendor": 1}, {"hostPort": 1, "containerPort": 2}]}
    first, second = request(runtimeConfig=config).runtime_config.port_mappings
    assert (first.host_port, first.container_port, first.protocol, first.host_ip) == (8080, 80, "udp", "10.0.0.1")
    assert second == (1, 2, "tcp", "")


def test_every_convention_is_known() -> None:
    sent = {
        "bandwidth": {"ingressRate": 1, "IngressBurst": 2, "egressRate": 3, "egressBurst": 4},
        "DNS": {"Servers": ["8.8.8.8"], "searches": ["example.org"], "options": None, "new": 2},
        "ipRanges": [[{"subnet": "10.1.2.0/24", "RangeStart": "10.1.2.3", "gateway": "10.1.2.254"}], []],
        "ips": ["10.10.0.1/24", "fd00::1/64"],
        "mac": "c2:11:22:33:44:55",
        "infinibandGUID": "c2:11:22:33:44:55:66:77",
        "deviceID": "0000:04:00.5",
        "aliases": ["primary-db"],
        "cgroupPath": "/kubelet/pod1",
        "io.kubernetes.cri.pod-annotations": {"a": "b"},
    }
    got = request(runtimeConfig=sent).runtime_config
    assert got.bandwidth == (1, 2, 3, 4)
    assert request(runtimeConfig={"bandwidth": {}}).runtime_config.bandwidth == (0, 0, 0, 0)
    assert got.dns == (("8.8.8.8",), ("example.org",), ())
    assert got.ip_ranges == ((("10.1.2.0/24", "10.1.2.3", "", "10.1.2.254"),), ())
    assert got.ips == ("10.10.0.1/24", "fd00::1/64")
    assert (got.mac, got.infiniband_guid) == ("c2:11:22:33:44:55", "c2:11:22:33:44:55:66:77")
    assert (got.device_id, got.aliases, got.cgroup_path) == ("0000:04:00.5", ("primary-db",), "/kubelet/pod1")


@pytest.mark.parametrize(
    ("sent", "aliases"), [(["db"], ("db",)), ({"net": ["db"], "other": ["x"]}, ("db",)), ({"other": ["x"]}, ())]
)
def test_aliases_are_a_list_or_as_podman_sends_them(sent: object, aliases: tuple[str, ...]) -> None:
    assert request(runtimeConfig={"aliases": sent}).runtime_config.aliases == aliases


@pytest.mark.parametrize("sent", [{}, {"runtimeConfig": None}, {"runtimeConfig": {"mac": None}}])
def test_no_capability_is_no_value(sent: dict[str, Any]) -> None:
    got = request(**sent).runtime_config
    assert (got.port_mappings, got.ips, got.aliases, got.ip_ranges) == ((), (), (), ())
    assert (got.bandwidth, got.dns, got.mac, got.infiniband_guid, got.device_id, got.cgroup_path) == (None,) * 6
