"""The typed conventions: what each row of the conventions' table becomes, and what is refused."""

from __future__ import annotations

import pickle
import pydoc
from typing import Any

import pytest

import libcni
from libcni import Bandwidth, CapabilityArgs, DNSServers, IPRange, PortMapping

ROWS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {"port_mappings": [PortMapping(host_port=8080, container_port=80, protocol="TCP", host_ip="127.0.0.1")]},
        {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp", "hostIP": "127.0.0.1"}]},
    ),
    (
        {
            "ip_ranges": [
                [IPRange(subnet="10.1.2.0/24", range_start="10.1.2.3", range_end="10.1.2.99", gateway="10.1.2.254")]
            ]
        },
        {
            "ipRanges": [
                [{"subnet": "10.1.2.0/24", "rangeStart": "10.1.2.3", "rangeEnd": "10.1.2.99", "gateway": "10.1.2.254"}]
            ]
        },
    ),
    (
        {"bandwidth": Bandwidth(ingress_rate=2048, ingress_burst=1600, egress_rate=4096, egress_burst=1600)},
        {"bandwidth": {"ingressRate": 2048, "ingressBurst": 1600, "egressRate": 4096, "egressBurst": 1600}},
    ),
    (
        {"dns": DNSServers(servers=["8.8.8.8"], searches=["corp.tyrell.net"], options=["ndots:2"])},
        {"dns": {"servers": ["8.8.8.8"], "searches": ["corp.tyrell.net"], "options": ["ndots:2"]}},
    ),
    ({"ips": ["10.10.0.1/24", "3ffe:ffff:0:01ff::1/64"]}, {"ips": ["10.10.0.1/24", "3ffe:ffff:0:01ff::1/64"]}),
    ({"mac": "c2:11:22:33:44:55"}, {"mac": "c2:11:22:33:44:55"}),
    ({"infiniband_guid": "c2:11:22:33:44:55:66:77"}, {"infinibandGUID": "c2:11:22:33:44:55:66:77"}),
    ({"device_id": "0000:04:00.5"}, {"deviceID": "0000:04:00.5"}),
    ({"aliases": ["my-container", "primary-db"]}, {"aliases": ["my-container", "primary-db"]}),
    ({"cgroup_path": "/kubelet.slice/x"}, {"cgroupPath": "/kubelet.slice/x"}),
    ({"extra": {"vendorThing": {"a": 1}}}, {"vendorThing": {"a": 1}}),
]


@pytest.mark.parametrize(("given", "expected"), ROWS, ids=[next(iter(expected)) for _, expected in ROWS])
def test_every_convention_has_its_own_key(given: dict[str, Any], expected: dict[str, Any]) -> None:
    args = CapabilityArgs(**given)
    assert args.to_json() == expected
    assert CapabilityArgs.from_json(expected) == args == pickle.loads(pickle.dumps(args))
    assert hash(CapabilityArgs.from_json(expected)) == hash(args)


@pytest.mark.parametrize(
    ("make", "location"),
    [
        (lambda: PortMapping(host_port=70000, container_port=80), "PortMapping.host_port"),
        (lambda: PortMapping(host_port=80, container_port=80, protocol="icmp"), "PortMapping.protocol"),
        (lambda: PortMapping(host_port=80, container_port=80, host_ip="here"), "PortMapping.host_ip"),
        (lambda: PortMapping(host_port="80", container_port=80), "PortMapping.host_port"),  # type: ignore[arg-type]
        (lambda: Bandwidth(ingress_rate=-1), "Bandwidth.ingress_rate"),
        (lambda: Bandwidth(ingress_rate=2**64, ingress_burst=1), "Bandwidth.ingress_rate"),
        (lambda: Bandwidth(ingress_rate=1, ingress_burst=2**35), "Bandwidth.ingress_burst"),
        # The bandwidth plugin refuses both on ADD and on DEL.
        (lambda: Bandwidth(ingress_rate=1), "Bandwidth"),
        (lambda: Bandwidth(egress_rate=0, egress_burst=1), "Bandwidth"),
        (lambda: IPRange(subnet="10.1.2.0/99"), "IPRange.subnet"),
        (lambda: IPRange(subnet="10.1.2.0"), "IPRange.subnet"),
        (lambda: IPRange(subnet="10.1.2.0/255.255.255.0"), "IPRange.subnet"),
        (lambda: CapabilityArgs(mac="c2:11:22:33:44"), "CapabilityArgs.mac"),
        (lambda: CapabilityArgs(infiniband_guid="c2:11:22:33:44:55"), "CapabilityArgs.infiniband_guid"),
        (lambda: CapabilityArgs(ips=["10.0.0.1", "x"]), "CapabilityArgs.ips[1]"),
        (lambda: CapabilityArgs(ips="10.0.0.1"), "CapabilityArgs.ips"),  # type: ignore[arg-type]
        (lambda: CapabilityArgs(port_mappings=["80:80"]), "CapabilityArgs.port_mappings[0]"),  # type: ignore[list-item]
        (lambda: CapabilityArgs(extra={"portmappings": []}), "CapabilityArgs.extra"),
        (lambda: CapabilityArgs.from_json({"portMapping": []}), "portMapping"),
        (
            lambda: CapabilityArgs.from_json({"portMappings": [{"hostPort": 1, "containerPort": 2, "HostIp": "x"}]}),
            "portMappings[0].HostIp",
        ),
        (lambda: CapabilityArgs.from_json({"bandwidth": {"egressRate": 1}}), "bandwidth"),
        (lambda: CapabilityArgs.from_json({"portMappings": [{"hostPort": 1}]}), "portMappings[0].containerPort"),
    ],
)
def test_what_the_convention_does_not_allow_is_refused_with_its_location(make: Any, location: str) -> None:
    with pytest.raises(libcni.ConfigError) as caught:
        make()
    assert caught.value.location == location


@pytest.mark.parametrize(
    ("kind", "values", "problem"),
    [
        (PortMapping, {"hostip": "::1", "host_port": 1, "container_port": 2}, "'hostip'; did you mean host_ip?"),
        (PortMapping, {"hostPort": 1}, "'hostPort'; did you mean host_port?"),
        (CapabilityArgs, {"port_mapping": []}, "'port_mapping'; did you mean port_mappings?"),
        (CapabilityArgs, {"tier": "gold"}, r"'tier'; .* extra=\{\.\.\.\}"),
    ],
)
def test_a_name_that_is_no_field_is_refused_with_the_right_one(kind: Any, values: dict[str, Any], problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        kind(**values)


def test_a_runtime_configuration_takes_them_as_they_are() -> None:
    args = CapabilityArgs(port_mappings=[PortMapping(host_port=8080, container_port=80)])
    plain = {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}
    assert libcni.RuntimeConf("c1", None, "eth0", capability_args=args).capability_args == plain
    mixed = {"portMappings": [PortMapping(host_port=8080, container_port=80)]}
    assert libcni.RuntimeConf("c1", None, "eth0", capability_args=mixed).capability_args == plain
    with pytest.raises(libcni.ConfigError, match="capability_args: it must be a mapping"):
        libcni.RuntimeConf("c1", None, "eth0", capability_args=PortMapping(host_port=1, container_port=2))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [Bandwidth, CapabilityArgs, DNSServers, IPRange, PortMapping])
def test_help_shows_the_fields_and_not_the_names_of_pydantic(kind: type) -> None:
    text = pydoc.plain(pydoc.render_doc(kind))
    assert len(text) < 4000
    assert "Attributes:" in text
    assert "to_json" in text
    assert "model_validate" not in text


@pytest.mark.parametrize("kind", [CapabilityArgs, PortMapping])
def test_fields_by_position_are_refused_in_the_callers_words(kind: Any) -> None:
    with pytest.raises(TypeError, match=rf"^{kind.__name__} takes fields by name only: {kind.__name__}\(\w+=..., "):
        kind(80)


def test_a_missing_field_is_named() -> None:
    options: Any = {"host_port": 80}
    with pytest.raises(libcni.ConfigError, match=r"^PortMapping\.container_port: it is missing$"):
        PortMapping(**options)
