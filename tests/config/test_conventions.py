"""The one declaration of the conventions' keys: who uses it, and what it refuses in plain values."""

from __future__ import annotations

from typing import Any

import pytest

import libcni
from libcni.config import conventions
from libcni.config.conventions import OF_ONE_INTERFACE, Convention, check_capability_args, key_of
from libcni.plugin import AddressRange, BandwidthLimits, DNSSettings, PortMappingEntry, RuntimeConfig

PORT = {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}


@pytest.mark.parametrize(
    ("declared", "typed", "at_the_plugin"),
    [
        (conventions.CAPABILITY_ARGS, libcni.CapabilityArgs, RuntimeConfig),
        (conventions.PORT_MAPPING, libcni.PortMapping, PortMappingEntry),
        (conventions.BANDWIDTH, libcni.Bandwidth, BandwidthLimits),
        (conventions.IP_RANGE, libcni.IPRange, AddressRange),
        (conventions.DNS_SERVERS, libcni.DNSServers, DNSSettings),
    ],
)
def test_a_runtime_and_a_plugin_have_the_keys_of_the_declaration(
    declared: Convention, typed: type[Any], at_the_plugin: Any
) -> None:
    keys = list(declared.checks)
    assert sorted(key_of(name) for name in typed.model_fields if name != "extra") == sorted(keys)
    assert sorted(key_of(name) for name in at_the_plugin._fields) == sorted(keys)


def test_what_one_interface_can_have_are_declared_keys() -> None:
    assert conventions.CAPABILITY_ARGS.checks.keys() >= OF_ONE_INTERFACE


@pytest.mark.parametrize(
    ("args", "location", "problem"),
    [
        ({"bandwidth": {"ingressRate": 1000}}, "bandwidth", "ingressRate and ingressBurst must be set together"),
        ({"bandwidth": {"EgressBurst": 1000}}, "bandwidth", "egressRate and egressBurst must be set together"),
        ({"bandwidth": {"ingressRate": "1M", "ingressBurst": 1}}, "bandwidth.ingressRate", "an integer, not '1M'"),
        ({"portMappings": [{"hostPort": 8080, "containerPort": 80}]}, "portMappings[0].protocol", 'missing "protocol"'),
        ({"portMappings": [{**PORT, "protocol": ""}]}, "portMappings[0].protocol", 'missing "protocol"'),
        ({"portMappings": [PORT, {**PORT, "hostPort": 0}]}, "portMappings[1].hostPort", "1 to 65535, not 0"),
        ({"portMappings": [{**PORT, "containerPort": 70000}]}, "portMappings[0].containerPort", "not 70000"),
        ({"portMappings": [{**PORT, "hostPort": "80"}]}, "portMappings[0].hostPort", "an integer, not '80'"),
        ({"portMappings": [{**PORT, "hostPort": True}]}, "portMappings[0].hostPort", "an integer, not True"),
        ({"portMappings": [{**PORT, "hostIP": "localhost"}]}, "portMappings[0].hostIP", "not 'localhost'"),
        ({"portMappings": [{**PORT, "HostIp": "localhost"}]}, "portMappings[0].HostIp", "not 'localhost'"),
        ({"portMappings": [{**PORT, "protocol": "http"}]}, "portMappings[0].protocol", "tcp, udp or sctp"),
        ({"portMappings": [{**PORT, "host_ip": "::1"}]}, "portMappings[0].host_ip", "did you mean hostIP?"),
        ({"portMappings": [PORT, {**PORT, "containerPort": 81}]}, "portMappings[1]", "8080/tcp is mapped twice"),
        (
            {"portMappings": [{**PORT, "hostIP": "fd00::1"}, {**PORT, "hostIP": "fd00:0::1"}]},
            "portMappings[1]",
            "is mapped twice",
        ),
        ({"portMappings": [PORT, {**PORT, "hostIP": "127.0.0.1"}]}, "portMappings[1]", "is mapped twice"),
        ({"portMappings": [{**PORT, "hostPort": n + 1} for n in range(5000)]}, "portMappings", "at most 4,096"),
        ({"portMappings": PORT}, "portMappings", "a list, not"),
        ({"ipRanges": [[{"rangeStart": "10.0.0.1"}]]}, "ipRanges[0][0].subnet", 'missing "subnet"'),
        ({"ipRanges": [[{"subnet": "10.0.0.0"}]]}, "ipRanges[0][0].subnet", "CIDR"),
        ({"ipRanges": [[{"subnet": "10.0.0.0/8", "gateway": "x"}]]}, "ipRanges[0][0].gateway", "not 'x'"),
        ({"dns": {"servers": ["10.0.0.1", "ns1"]}}, "dns.servers[1]", "not 'ns1'"),
        ({"ips": ["10.0.0.300"]}, "ips[0]", "not '10.0.0.300'"),
        ({"mac": "02:00"}, "mac", "six bytes"),
        ({"infinibandGUID": "02:00"}, "infinibandGUID", "eight bytes"),
        ({"deviceID": 4}, "deviceID", "a string, not 4"),
        ({"aliases": {"net": "db"}}, "aliases", "a list, not 'db'"),
    ],
)
def test_a_wrong_plain_value_is_named(args: dict[str, Any], location: str, problem: str) -> None:
    with pytest.raises(libcni.ConfigError) as caught:
        check_capability_args(args)
    assert (caught.value.location or "").startswith(f"capability_args.{location}")
    assert problem in caught.value.problem


@pytest.mark.parametrize(
    "args",
    [
        # containerd's keys and zero values, whose case plugins in Go ignore
        {"portMappings": [{"HostPort": 8080, "ContainerPort": 80, "Protocol": "TCP", "HostIP": ""}]},
        {
            "portMappings": [PORT, {**PORT, "protocol": "udp"}, {**PORT, "hostPort": 81, "hostIP": "127.0.0.1"}],
            "mac": "",
        },
        {"portMappings": None, "bandwidth": {}, "dns": {"servers": None}, "ipRanges": []},
        {"bandwidth": {"ingressRate": 0, "ingressBurst": 0, "egressRate": 5, "egressBurst": 5}},
        # what the conventions do not have
        {"portMappings": [{**PORT, "vendor": {"a": 1}}], "tier": {"hostPort": 0}, "PORTMAPPINGS": 7},
        {"aliases": {"net": ["db"]}, "mac": "02-00-00-00-00-01", "cgroupPath": "/x", "deviceID": "0000:04:00.5"},
    ],
)
def test_right_and_unknown_plain_values_pass(args: dict[str, Any]) -> None:
    check_capability_args(args)


def test_what_no_plugin_declares_is_not_checked() -> None:
    check_capability_args({"mac": "x"}, {"mac"})


def test_typed_and_plain_values_follow_the_same_rules() -> None:
    """What a typed object sends passes the plain check, whatever a caller left out."""
    args = libcni.CapabilityArgs.from_json({"portMappings": [{"hostPort": 1, "containerPort": 2, "hostIP": ""}]})
    assert args.to_json() == {"portMappings": [{"hostPort": 1, "containerPort": 2, "protocol": "tcp"}]}
    check_capability_args(args.to_json())
    with pytest.raises(libcni.ConfigError, match="ingress_rate and ingress_burst must be set together"):
        libcni.Bandwidth(ingress_rate=1)
