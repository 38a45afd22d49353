"""Results between all pairs of versions: round trips where the versions can say the same, a stated loss where not."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import libcni
from libcni import ALL_VERSIONS, Result

FLAT = ("0.1.0", "0.2.0")
LISTED = ("0.3.0", "0.3.1", "0.4.0")
PLAIN = ("1.0.0", "1.1.0")
ADDRESSES = {
    "4": ["10.0.0.1", "10.255.1.2", "192.168.0.9", "0.0.0.0"],
    "6": ["fd00::1", "2001:db8::5", "::", "fe80::1:2"],
}
PREFIXES = {"4": 32, "6": 128}

Document = dict[str, Any]
Documents = st.SearchStrategy[Document]


def optional(mapping: dict[str, Any], **more: Any) -> Documents:
    return st.fixed_dictionaries(mapping, optional=more)


def of_either(make: Callable[[str], Documents]) -> Documents:
    return make("4") | make("6")  # faster than flatmap(), which makes the strategies anew in each example


names = st.sampled_from(["eth0", "cni0", "veth1a2b"])
unknown = st.sampled_from([None, 1, "x", {"k": [1.5]}, 9007199254740993])
vendor = {"example.com/x": unknown}
dns = optional(
    {},
    nameservers=st.lists(st.sampled_from(ADDRESSES["4"] + ADDRESSES["6"]), max_size=2),
    domain=st.sampled_from(["d", "a.b"]),
    search=st.lists(names, max_size=2),
    options=st.lists(names, max_size=2),
)


def cidr(family: str) -> st.SearchStrategy[str]:
    return st.builds("{}/{}".format, st.sampled_from(ADDRESSES[family]), st.integers(0, PREFIXES[family]))


def route(family: str) -> Documents:
    return optional({"dst": cidr(family)}, gw=st.sampled_from(ADDRESSES[family]))


def newest_route(family: str) -> Documents:
    numbers = {key: st.integers(0, 9000) for key in ("mtu", "advmss", "priority", "table", "scope")}
    return optional({"dst": cidr(family)}, gw=st.sampled_from(ADDRESSES[family]), **numbers)


def flat_ip(family: str) -> Documents:
    routes = st.lists(route(family), min_size=1, max_size=3)
    return optional({"ip": cidr(family)}, gateway=st.sampled_from(ADDRESSES[family]), routes=routes)


def listed_ip(family: str) -> Documents:
    gateway = st.sampled_from(ADDRESSES[family])
    return optional(
        {"version": st.just(family), "address": cidr(family)}, gateway=gateway, interface=st.integers(-1, 3), **vendor
    )


def plain_ip(family: str) -> Documents:
    gateway = st.sampled_from(ADDRESSES[family])
    return optional({"address": cidr(family)}, gateway=gateway, interface=st.integers(-1, 3), **vendor)


interface = optional({"name": names}, mac=names, sandbox=names, **vendor)
newest_interface = optional(
    {"name": names}, mac=names, sandbox=names, mtu=st.integers(0, 9000), socketPath=names, pciID=names
)
flat_bodies = st.one_of(
    optional({"ip4": flat_ip("4")}, ip6=flat_ip("6"), dns=dns, **vendor),
    optional({"ip6": flat_ip("6")}, dns=dns, **vendor),
)
listed_bodies = optional(
    {},
    interfaces=st.lists(interface, min_size=1, max_size=3),
    ips=st.lists(of_either(listed_ip), min_size=1, max_size=4),
    routes=st.lists(of_either(route), min_size=1, max_size=4),
    dns=dns,
    **vendor,
)
plain_bodies = optional(
    {},
    interfaces=st.lists(newest_interface, min_size=1, max_size=3),
    ips=st.lists(of_either(plain_ip), min_size=1, max_size=4),
    routes=st.lists(of_either(newest_route), min_size=1, max_size=4),
    dns=dns,
    **vendor,
)
BODIES = {
    **dict.fromkeys(FLAT, flat_bodies),
    **dict.fromkeys(LISTED, listed_bodies),
    **dict.fromkeys(PLAIN, plain_bodies),
}


@cache
def of_version(version: str) -> Documents:
    return BODIES[version].map(lambda body: {"cniVersion": version, **body})


def convert(document: Document, *versions: str) -> Document:
    result = Result.from_bytes(json.dumps(document))
    for version in versions:
        result = result.as_version(version)
    return result.to_dict()


def family(address: str) -> str:
    return "6" if ":" in address else "4"


# A document takes longer to make than to convert: each one is converted to all versions of a test.


@pytest.mark.parametrize("source", ALL_VERSIONS)
@given(data=st.data())
@settings(max_examples=15)
def test_every_pair_gives_a_valid_result_or_says_why_not(source: str, data: st.DataObject) -> None:
    document = data.draw(of_version(source))
    for target in ALL_VERSIONS:
        note(target)
        if target in FLAT and source not in FLAT and not document.get("ips"):
            with pytest.raises(libcni.VersionError, match="no valid IP addresses"):
                convert(document, target)
            continue
        converted = convert(document, target)
        assert converted["cniVersion"] == target
        assert Result.from_bytes(json.dumps(converted)).cni_version == target
        assert converted.get("dns") == document.get("dns")
        assert converted.get("example.com/x") == document.get("example.com/x")


@pytest.mark.parametrize("source", FLAT)
@given(data=st.data())
@settings(max_examples=15)
def test_what_the_oldest_can_say_all_others_can(source: str, data: st.DataObject) -> None:
    document = data.draw(of_version(source))
    for target in ALL_VERSIONS:
        note(target)
        assert convert(document, target, source) == document


@pytest.mark.parametrize("source", LISTED + PLAIN)
@given(data=st.data())
@settings(max_examples=15)
def test_from_0_3_upwards_and_from_1_0_upwards_nothing_is_lost(source: str, data: st.DataObject) -> None:
    document = data.draw(of_version(source))
    for target in LISTED + PLAIN if source in LISTED else PLAIN:
        note(target)
        assert convert(document, target, source) == document
        if source in PLAIN:
            assert convert(document, target) == {**document, "cniVersion": target}
