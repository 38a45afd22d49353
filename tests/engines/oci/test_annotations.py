"""What annotations and options ask for, and what is refused with a reason."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libcni.engines.oci.annotations import KEYS, read_wanted
from libcni.errors import CNIError, ConfigError


def networks(text: str) -> list[tuple[object, str | None]]:
    requests = read_wanted({"libcni.networks": text}).requests
    assert requests is not None
    return [(one.network, one.ifname) for one in requests]


def capabilities(**annotations: str) -> dict[str, Any]:
    return read_wanted({f"libcni.{key}": value for key, value in annotations.items()}).capabilities


def test_without_annotations_and_options_it_is_the_default_network() -> None:
    wanted = read_wanted({"org.example.other": "x"})
    assert (wanted.requests, wanted.args, wanted.capabilities) == (None, (), {})


def test_networks_are_names_in_order_with_the_interface_behind_an_at_sign() -> None:
    assert networks("front, back@net1") == [("front", None), ("back", "net1")]


def test_networks_may_be_json_each_with_arguments_of_its_own() -> None:
    text = '[{"network": "front", "ifname": "eth5", "args": {"K": "V"}, "capabilities": {"aliases": ["db"]}}, "b@e1"]'
    requests = read_wanted({"libcni.networks": text}).requests
    assert requests is not None
    first, second = requests
    assert (first.network, first.ifname, first.args) == ("front", "eth5", (("K", "V"),))
    assert first.capability_args == {"aliases": ["db"]}
    assert (second.network, second.ifname) == ("b", "e1")


def test_the_word_none_means_no_network() -> None:
    assert read_wanted({"libcni.networks": " none "}).requests == []


@pytest.mark.parametrize(
    ("text", "mapping"),
    [
        ("8080:80", {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}),
        ("5353:53/UDP", {"hostPort": 5353, "containerPort": 53, "protocol": "udp"}),
        ("127.0.0.1:1:2", {"hostPort": 1, "containerPort": 2, "protocol": "tcp", "hostIP": "127.0.0.1"}),
        ("[::1]:1:65535/sctp", {"hostPort": 1, "containerPort": 65535, "protocol": "sctp", "hostIP": "::1"}),
    ],
)
def test_a_port_is_written_as_docker_does(text: str, mapping: dict[str, Any]) -> None:
    assert capabilities(ports=f"1:1, {text}")["portMappings"][1] == mapping


def test_arguments_for_plugins() -> None:
    found = capabilities(
        capabilities='{"mac": "c2:00:00:00:00:00", "io.example": {"x": 1}}',
        ips="10.88.0.7, fd00::7",
        mac="c2:11:22:33:44:55",
        bandwidth='{"ingressRate": 1000, "ingressBurst": 8000}',
    )
    assert found == {
        "mac": "c2:11:22:33:44:55",  # the annotation of its own wins
        "ips": ["10.88.0.7", "fd00::7"],
        "bandwidth": {"ingressRate": 1000, "ingressBurst": 8000},
        "io.example": {"x": 1},
    }
    assert read_wanted({"libcni.args": "A=1;B=2"}).args == (("A", "1"), ("B", "2"))


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        ("netwroks", "front", "it is unknown (the annotations are libcni.networks"),
        ("networks", "", 'it is empty (write "none" for no network)'),
        ("networks", "front,,back", "has an empty part"),
        ("networks", "front,-x", "invalid network name '-x'"),
        ("networks", "front@", "invalid interface name ''"),
        ("networks", "front@a/b", "invalid interface name 'a/b'"),
        ("networks", "front@all", "invalid interface name 'all'"),
        ("networks", "[]", "the array is empty"),
        ("networks", "[1]", "1 is neither a network's name nor an object"),
        ("networks", '[{"name": "front"}]', "the key 'name' is unknown (the keys are args,"),
        ("networks", '[{"network": "front", "args": [1]}]', "invalid CNI_ARGS pair 1: it must be a mapping"),
        ("networks", '[{"network": "front", "ifname": 5}]', "invalid interface name 5"),
        ("networks", '[{"network": "front", "capabilities": [1]}]', "capabilities: it must be an object, not [1]"),
        ("networks", "[", "it is not JSON"),
        ("args", "K", "must be KEY=VALUE"),
        ("ports", "80", "'80' is not of the form [HOST_IP:]HOST_PORT:CONTAINER_PORT"),
        ("ports", "80:http", "'80:http' is not of the form"),
        ("ports", "0:80", "'0:80' is not of the form"),
        ("ports", "80:65536", "'80:65536' is not of the form"),
        ("ports", "80:80/icmp", "'80:80/icmp' is not of the form"),
        ("ports", "::1:80:80", "'::1:80:80' is not of the form"),
        ("ports", "host:80:80", "'host' is not an IP address"),
        ("ips", "10.88.0.300", "10.88.0.300"),
        ("mac", "c2", " mac: "),
        ("bandwidth", "fast", "it is not JSON"),
        ("bandwidth", '{"ingressRate": -1}', "ingressRate"),
        ("capabilities", "[]", "[] is not a JSON object"),
    ],
)
def test_nonsense_is_refused_and_the_annotation_named(key: str, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_wanted({f"libcni.{key}": text})
    assert str(caught.value).startswith(f"annotation libcni.{key}: ")
    assert said in str(caught.value)


@given(st.sampled_from(KEYS), st.text() | st.from_regex(r'[\[{]["a-z0-9:,@/.\-]*[\]}]', fullmatch=True))
def test_any_text_is_read_or_refused_as_an_error_of_the_library(key: str, text: str) -> None:
    with suppress(CNIError):
        read_wanted({f"libcni.{key}": text})
