"""The default route through one interface, beside those that other networks made."""

from __future__ import annotations

from typing import Any

import pytest
from nodes import Namespace, NewNamespace

from libcni.manager import Container, DefaultRouteError, NetworkRequest
from libcni.manager.default_route import set_default_route
from manager.fakes import Make, ManagerNode

pytestmark = pytest.mark.real


def routes(inner: Namespace, family: str) -> list[Any]:
    found = [
        (row["dev"], row.get("gateway"), row.get("metric", 0)) for row in inner.ip(family, "route", "show", "default")
    ]
    return sorted(found, key=lambda row: row[2])


def test_older_default_routes_stay_with_a_high_metric(new_namespace: NewNamespace) -> None:
    inner = new_namespace()
    for number, name in enumerate(("d0", "d1")):
        inner.run("ip", "link", "add", name, "type", "veth", "peer", "name", f"p{number}")
        inner.run("ip", "link", "set", name, "up")
        inner.run("ip", "link", "set", f"p{number}", "up")
        inner.run("ip", "address", "add", f"10.{number}.0.2/24", "dev", name)
        inner.run("ip", "-6", "address", "add", f"fd0{number}::2/64", "dev", name, "nodad")
    inner.run("ip", "route", "add", "default", "via", "10.0.0.1")
    inner.run("ip", "route", "add", "default", "via", "10.0.0.3", "metric", "50")
    inner.run("ip", "-6", "route", "add", "default", "via", "fd00::1", "metric", "50")
    for _ in range(2):  # the second time changes nothing
        set_default_route(inner.path, "d1", ["10.1.0.1", "fd01::1"])
        assert routes(inner, "-4") == [("d1", "10.1.0.1", 0), ("d0", "10.0.0.1", 4096), ("d0", "10.0.0.3", 4097)]
        assert routes(inner, "-6") == [("d1", "fd01::1", 1024), ("d0", "fd00::1", 4096)]


def test_the_routes_of_a_namespace_to_which_the_path_leads_later_stay(
    node: ManagerNode, make: Make, new_namespace: NewNamespace
) -> None:
    container, other = new_namespace(), new_namespace()
    other.run("ip", "link", "add", "eth0", "type", "veth", "peer", "x")
    for name in ("x", "eth0"):
        other.run("ip", "link", "set", name, "up")
    other.run("ip", "address", "add", "10.0.0.2/24", "dev", "eth0")
    other.run("ip", "route", "add", "default", "via", "10.0.0.1")
    path = node.root / "netns"
    path.symlink_to(container.path)
    node.configure("a")
    node.plugin("a", f"[ $CNI_COMMAND = ADD ] && ln -sfn {other.path} {path}")
    request = NetworkRequest("a", default_route=("10.0.0.3",))
    with pytest.raises(DefaultRouteError, match="leads to another namespace"):
        make().set_up(Container("c1", str(path), [request]))
    assert routes(other, "-4") == [("eth0", "10.0.0.1", 0)]
    assert node.cni.get_cached_attachments() == []


def test_a_namespace_that_is_none_is_an_error() -> None:
    with pytest.raises(DefaultRouteError, match="/none"):
        set_default_route("/none", "eth0", ["10.1.0.1"])


def test_a_gateway_that_is_no_address_is_refused_before_anything_runs() -> None:
    with pytest.raises(ValueError, match="does not appear to be an IPv4 or IPv6 address"):
        NetworkRequest("front", default_route=("10.1",))
