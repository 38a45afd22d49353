"""STATUS of all networks: whether containers can be set up, and why not."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from libcni import NetworkNotFoundError, PluginError
from libcni.manager import Container
from manager.fakes import ManagerNode, fails


def test_status_is_ready_with_a_default_network_that_is(node: ManagerNode) -> None:
    node.configure("a", cniVersion="1.1.0")
    node.configure("b")
    status = node.manager().status()
    assert (status.ready, status.reason) == (True, "")
    assert [(one.name, one.is_default, one.ready) for one in status.networks] == [("a", True, True), ("b", False, True)]
    assert node.calls("STATUS") == ["STATUS a"]


def test_status_says_which_plugin_is_missing(node: ManagerNode) -> None:
    node.configure("a")
    (node.bin / "a").unlink()
    status = node.manager().status()
    assert not status.ready
    assert 'plugin "a" not found' in status.reason
    assert status.networks[0].plugins[0].state == "missing"


def test_status_says_what_the_plugin_answers(node: ManagerNode) -> None:
    node.configure("a", cniVersion="1.1.0")
    node.plugin("a", fails("STATUS", 50, "no address left"))
    state = node.manager().status().network("a")
    assert state is not None
    assert "no address left" in state.reason
    error = state.plugins[0].error
    assert isinstance(error, PluginError)
    assert error.code == 50


def test_status_says_that_a_plugin_does_not_support_the_version(node: ManagerNode) -> None:
    node.configure("a", cniVersion="0.3.0")
    assert 'does not support version "0.3.0"' in node.manager().status().reason


def test_status_is_that_of_the_default_networks_alone(node: ManagerNode) -> None:
    node.configure("a")
    node.configure("b")
    (node.bin / "b").unlink()
    assert node.manager().status().ready
    assert not node.manager(default="b").status().ready
    assert not node.manager(default=["a", "b"]).status().ready
    assert not node.manager(default=2).status().ready


def test_status_of_a_default_network_that_is_not_there(node: ManagerNode) -> None:
    node.configure("a")
    status = node.manager(default="other").status()
    assert not status.ready
    assert status.reason == f'no network named "other" in {node.conf_dir} (the known networks: a)'


def test_status_lists_unusable_files(node: ManagerNode) -> None:
    node.configure("a")
    node.write("00-bad.conflist", "{")
    status = node.manager().status()
    assert status.ready
    assert "00-bad.conflist" in str(status.problems[0])


def test_status_names_unusable_files_where_nothing_else_is_there(node: ManagerNode) -> None:
    node.write("00-bad.conflist", "{")
    assert "00-bad.conflist" in node.manager().status().reason


def test_loopback_is_in_the_status_where_every_container_gets_it(node: ManagerNode) -> None:
    node.configure("a")
    status = node.manager(loopback=True).status()
    assert [(one.name, one.ready) for one in status.networks] == [("cni-loopback", False), ("a", True)]


def test_networks_are_asked_side_by_side_within_one_timeout(node: ManagerNode, make: Callable[..., Any]) -> None:
    for name in "abcd":
        node.configure(name, cniVersion="1.1.0")
        node.plugin(name, "[ $CNI_COMMAND = STATUS ] && sleep 30")
    started = time.monotonic()
    status = make().status(timeout=1.5)
    assert time.monotonic() - started < 4
    assert [state.ready for state in status.networks] == [False] * 4


def test_only_the_networks_that_are_named_are_asked(node: ManagerNode, make: Callable[..., Any]) -> None:
    for name in "abc":
        node.configure(name, cniVersion="1.1.0")
    node.plugin("b", fails("STATUS", 50, "no address left"))
    status = make().status(["c", "b"])
    assert [state.name for state in status.networks] == ["c", "b"]
    assert (status.ready, "no address left" in status.reason) == (False, True)
    assert make().status(["c"]).ready
    assert "STATUS a" not in node.calls("STATUS")
    with pytest.raises(NetworkNotFoundError):
        make().status(["none"])


def test_fewer_networks_than_there_must_be_is_not_ready(node: ManagerNode, make: Callable[..., Any]) -> None:
    node.configure("a")
    assert make(default=2).status().reason.startswith("the manager's default needs 2 networks, and only these exist: a")
    with pytest.raises(NetworkNotFoundError, match="needs 2 networks"):
        make(default=2).set_up(Container("c1", "/ns"))
    assert node.calls("ADD") == []
