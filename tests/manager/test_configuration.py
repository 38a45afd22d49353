"""The networks in force: their order, the default, a reload, and what stays where a file cannot be used."""

from __future__ import annotations

import os
import shutil

import pytest

from libcni.errors import NetworkNotFoundError
from libcni.manager import Container
from manager.fakes import ManagerNode, names


def test_the_default_can_be_changed_at_run_time(node: ManagerNode) -> None:
    node.configure("a")
    node.configure("b")
    manager = node.manager()
    manager.set_default("b")
    manager.set_up(Container("c1", "/ns"))
    assert node.calls("ADD") == ["ADD b c1 eth0"]


def test_no_configuration_at_all_names_the_directories(node: ManagerNode) -> None:
    with pytest.raises(NetworkNotFoundError, match=f"no configuration in {node.conf_dir}"):
        node.manager().set_up(Container("c1", "/ns"))
    shutil.rmtree(node.conf_dir)
    with pytest.raises(NetworkNotFoundError, match=f"no configuration in {node.conf_dir}, which does not exist"):
        node.manager().set_up(Container("c1", "/ns"))


def test_what_is_kept_can_be_given_up(node: ManagerNode) -> None:
    node.configure("a")
    manager = node.manager()
    shutil.rmtree(node.conf_dir)
    manager.reload(keep=False)
    assert names(manager) == []


def test_events_of_reloads(node: ManagerNode) -> None:
    node.configure("a")
    manager = node.manager()
    assert [(one.kind, one.network) for one in node.events] == [("reload", ""), ("network-ready", "a")]
    node.events.clear()
    manager.reload()
    assert node.kinds() == ["reload"]
    node.events.clear()
    node.write("bad.conflist", "{")
    node.configure("b")
    (node.conf_dir / "a.conflist").unlink()
    manager.reload()
    manager.reload()
    assert node.kinds(without="reload") == ["network-ready", "network-gone", "problem"]
    assert [one.network for one in node.events if one.network] == ["b", "a"]


def test_a_network_is_ready_only_with_its_plugins(node: ManagerNode) -> None:
    node.configure("a")
    os.unlink(node.bin / "a")
    manager = node.manager()
    assert node.kinds() == ["reload", "problem"]
    assert 'plugin "a" not found' in node.events[-1].detail
    node.events.clear()
    node.plugin("a")
    manager.reload()
    assert node.kinds() == ["reload", "network-ready"]


def test_a_network_that_changes_emits_ready_again(node: ManagerNode) -> None:
    node.configure("a")
    node.configure("b")
    manager = node.manager()
    node.events.clear()
    node.configure("a", {"type": "a", "mtu": 1400})
    manager.reload()
    assert [(one.kind, one.network) for one in node.events] == [("reload", ""), ("network-ready", "a")]
