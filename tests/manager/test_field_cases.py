"""Cases of go-cni's and ocicni's own tests: order, GC, status and check. The names say what they expect.

Where the manager answers in another way, the test says so, and testdata/evidence/manager-comparison.md why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from libcni import CNIErrorGroup, NotAttachedError
from libcni.errors import NetworkNotFoundError
from libcni.manager import Container
from manager.fakes import ManagerNode, fails

Make = Callable[..., Any]


def default_of(manager: Any) -> list[str]:
    return [net.name for net in manager.default_networks()]


# order: ocicni's "finds the first network by file name", go-cni's WithDefaultConf


def test_conf_and_conflist_files_are_in_one_order_by_name(node: ManagerNode, make: Make) -> None:
    """The node of Multus: 00-multus.conf wraps 10-calico.conflist."""
    node.configure("calico", file="10-calico.conflist")
    node.plugin("multus")
    node.write("00-multus.conf", '{"cniVersion": "1.0.0", "name": "multus", "type": "multus"}')
    manager = make()
    assert default_of(manager) == ["multus"]
    assert [net.name for net in manager.networks] == ["multus", "calico"]
    manager.set_up(Container("c1", "/ns"))
    assert node.calls("ADD") == ["ADD multus c1 eth0"]


def test_of_two_files_with_one_name_the_first_by_file_name_counts(node: ManagerNode, make: Make) -> None:
    node.configure("net", "second", file="20-net.conflist")
    node.plugin("first")
    node.write("10-net.conf", '{"cniVersion": "1.0.0", "name": "net", "type": "first"}')
    make().set_up(Container("c1", "/ns"))
    assert node.calls("ADD") == ["ADD first c1 eth0"]


def test_a_json_file_is_in_the_same_order(node: ManagerNode, make: Make) -> None:
    node.configure("b", file="20-b.conflist")
    node.plugin("a")
    node.write("10-a.json", '{"cniVersion": "1.0.0", "name": "a", "type": "a"}')
    assert default_of(make()) == ["a"]


def test_an_earlier_file_that_comes_later_becomes_the_default(node: ManagerNode, make: Make) -> None:
    """ocicni: finds an asynchronously written default network configuration."""
    node.configure("b", file="20-b.conflist")
    manager = make()
    assert default_of(manager) == ["b"]
    node.configure("a", file="10-a.conflist")
    manager.reload()
    assert default_of(manager) == ["a"]
    (node.conf_dir / "10-a.conflist").unlink()
    manager.reload()
    assert default_of(manager) == ["b"]


def test_a_first_file_that_is_broken_is_passed_over(node: ManagerNode, make: Make) -> None:
    node.write("00-broken.conf", "{")
    (node.conf_dir / "01-empty.conflist").touch()
    node.configure("good", file="10-good.conflist")
    manager = make()
    assert default_of(manager) == ["good"]
    assert len(manager.configuration.problems) == 2


# status: go-cni's WithMinNetworkCount and ErrCNINotInitialized, ocicni's Status


def test_an_empty_directory_is_not_initialized(node: ManagerNode, make: Make) -> None:
    manager = make()
    assert not manager.status().ready
    with pytest.raises(NetworkNotFoundError, match="no configuration in"):
        manager.set_up(Container("c1", "/ns"))


def test_the_status_of_the_default_network_is_the_answer_of_its_plugins(node: ManagerNode, make: Make) -> None:
    """ocicni: STATUS is asked from 1.1.0 on, and only the default network's answer counts."""
    node.configure("a", cniVersion="1.1.0")
    node.configure("b", cniVersion="1.1.0")
    node.plugin("b", fails("STATUS", 50))
    assert make().status().ready
    node.plugin("a", fails("STATUS", 51, "limited"))
    assert "limited" in make().status().reason
    node.configure("a", cniVersion="1.0.0")
    assert make().status().ready


# GC: ocicni's GC(validPods)


def test_gc_goes_over_every_network_even_if_one_fails(node: ManagerNode, make: Make) -> None:
    """ocicni stops nowhere and joins the errors."""
    node.configure("a", cniVersion="1.1.0")
    node.configure("b", cniVersion="1.1.0")
    node.plugin("a", fails("GC", msg="stuck"))
    with pytest.raises(CNIErrorGroup) as caught:
        make().gc([])
    assert "stuck" in str(caught.value)
    assert node.calls("GC") == ["GC b", "GC a"]


def test_gc_of_a_network_that_disables_it_runs_nothing(node: ManagerNode, make: Make) -> None:
    document = '{"cniVersion": "1.1.0", "name": "a", "disableGC": true, "plugins": [{"type": "a"}]}'
    node.plugin("a")
    node.write("a.conflist", document)
    manager = make()
    manager.set_up(Container("c1", "/ns"))
    assert manager.gc([]).items == ()
    assert node.calls("DEL", "GC") == []


# check: go-cni's Check, ocicni's GetPodNetworkStatus


def test_check_after_tear_down_is_an_error(node: ManagerNode, make: Make) -> None:
    node.configure("a")
    manager = make()
    manager.set_up(Container("c1", "/ns"))
    manager.tear_down("c1")
    with pytest.raises(NotAttachedError):
        manager.check("c1")
