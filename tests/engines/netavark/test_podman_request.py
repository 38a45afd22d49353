"""What netavark's documents say, and what is refused with a reason."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libcni.engines.netavark.podman_request import read_document, read_options, read_request
from libcni.errors import CNIError

from .conftest import network, request


def options(container: dict[str, str] | None = None, **values: str) -> Any:
    return read_options(network(options=values), container)


def test_the_cni_network_has_podmans_name_unless_an_option_names_another() -> None:
    assert options().conf == "front"
    assert options(conf="back").conf == "back"


def test_options_of_a_network() -> None:
    found = options(
        args="A=1;B=2", capabilities='{"deviceID": "0000:03:00.0"}', bandwidth='{"ingressRate": 9, "ingressBurst": 8}'
    )
    assert found.args == {"A": "1", "B": "2"}
    assert found.capabilities == {"deviceID": "0000:03:00.0", "bandwidth": {"ingressRate": 9, "ingressBurst": 8}}
    assert found.publishes
    # Podman cuts the value of --network at each comma. The container's options replace the network's.
    own = options({"args": "B=3;C=4", "ports": "ignore", "bandwidth": "ingressRate=9;ingressBurst=8"}, args="A=1;B=2")
    assert (own.args, own.publishes) == ({"A": "1", "B": "3", "C": "4"}, False)
    assert own.capabilities == {"bandwidth": {"ingressRate": 9, "ingressBurst": 8}}
    with pytest.raises(CNIError, match='no option "conf"'):
        options({"conf": "back"})


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"mtu": "1400"}, 'the driver cni has no option "mtu" (the options are conf, args, bandwidth,'),
        ({"args": "K"}, "option args: invalid CNI_ARGS pair 'K': it must be KEY=VALUE"),
        ({"ports": "no"}, 'option ports: it must be "ignore", not "no"'),
        ({"bandwidth": "{"}, "option bandwidth: it is not JSON"),
        ({"bandwidth": "ingressRate=fast"}, "option bandwidth: "),
        ({"capabilities": "[]"}, "option capabilities: [] is not a JSON object"),
        ({"conf": "-x"}, "invalid network name '-x'"),
        ({"conf": 5}, "option conf: the value is not a string"),
    ],
)
def test_a_wrong_option_is_refused_and_named(values: dict[str, Any], said: str) -> None:
    with pytest.raises(CNIError) as caught:
        read_options(network(options=values))
    assert said in str(caught.value)


def test_a_port_is_a_range_with_protocols() -> None:
    port = {"container_port": 80, "host_ip": "127.0.0.1", "host_port": 8080, "protocol": "tcp,udp", "range": 2}
    plain = {"container_port": 80, "host_ip": "", "host_port": 81, "protocol": "", "range": 0}
    assert read_request(request(ports=[port, plain])).ports == [
        {"hostPort": 8080, "containerPort": 80, "protocol": "tcp", "hostIP": "127.0.0.1"},
        {"hostPort": 8081, "containerPort": 81, "protocol": "tcp", "hostIP": "127.0.0.1"},
        {"hostPort": 8080, "containerPort": 80, "protocol": "udp", "hostIP": "127.0.0.1"},
        {"hostPort": 8081, "containerPort": 81, "protocol": "udp", "hostIP": "127.0.0.1"},
        {"hostPort": 81, "containerPort": 80, "protocol": "tcp"},
    ]


def test_an_address_that_a_reload_repeats_counts_once() -> None:
    assert read_request(request(static_ips=["10.1.0.9", "fd00::9", "10.1.0.9"])).ips == ("10.1.0.9", "fd00::9")


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({**request(), "container_id": None}, "netavark's request: container_id: it is missing"),
        ({**request(), "network": []}, "network: [] is not an object"),
        ({**request(), "network_options": {}}, "interface_name: it is missing"),
        ({**request(), "network": {}}, "name: it is missing"),
        ({**request(), "port_mappings": [80]}, "port_mappings[0]: 80 is not an object"),
        (request(ports=[{"host_port": "80", "container_port": 80}]), "host_port: '80' is not an integer"),
        (request(static_ips="10.1.0.9"), "static_ips: '10.1.0.9' is not an array"),
    ],
)
def test_a_request_of_another_form_is_refused(document: Any, said: str) -> None:
    with pytest.raises(CNIError) as caught:
        read_request(document)
    assert said in str(caught.value)


@pytest.mark.parametrize(("data", "said"), [(b"", "it is empty"), (b"[]", "[] is not"), (b"{", "not JSON")])
def test_what_is_no_document_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(CNIError) as caught:
        read_document(data)
    assert said in str(caught.value)


@given(st.dictionaries(st.sampled_from(["args", "bandwidth", "capabilities", "ports", "conf"]), st.text()))
def test_any_text_of_an_option_is_read_or_refused_as_an_error_of_the_library(values: dict[str, str]) -> None:
    with suppress(CNIError):
        read_options(network(options=values))
