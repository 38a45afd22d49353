"""STATUS of all networks: whether containers can be set up, and why not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from manager.fakes import ManagerNode, fails


def test_status_is_ready_with_a_default_network_that_is(node: ManagerNode) -> None:
    node.configure("a", cniVersion="1.1.0")
    node.configure("b")
    status = node.manager().status()
    assert (status.ready, status.reason) == (True, "")
    assert [(state.name, state.ready) for state in status.networks] == [("a", True), ("b", True)]
    assert node.calls("STATUS") == ["STATUS a"]


def test_status_says_which_plugin_is_missing(node: ManagerNode) -> None:
    node.configure("a")
    (node.bin / "a").unlink()
    status = node.manager().status()
    assert not status.ready
    assert 'plugin "a" not found' in status.reason


def test_status_says_what_the_plugin_answers(node: ManagerNode) -> None:
    node.configure("a", cniVersion="1.1.0")
    node.plugin("a", fails("STATUS", 50, "no address left"))
    (state,) = node.manager().status().networks
    assert not state.ready
    assert "no address left" in state.reason


def test_status_says_that_a_plugin_does_not_support_the_version(node: ManagerNode) -> None:
    node.configure("a", cniVersion="0.3.0")
    assert 'does not support version "0.3.0"' in node.manager().status().reason


def test_status_is_that_of_the_default_network_alone(node: ManagerNode) -> None:
    node.configure_each("a", "b")
    (node.bin / "b").unlink()
    assert node.manager().status().ready
    assert not node.manager(default="b").status().ready


def test_status_of_a_default_network_that_is_not_there(node: ManagerNode) -> None:
    node.configure("a")
    status = node.manager(default="other").status()
    assert not status.ready
    assert status.reason == f'no network named "other" in {node.conf_dir} (the known networks: a)'


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
        others = " && ".join(f"[ -e {node.root}/{other}.asked ]" for other in "abcd")
        wait = f"touch {node.root}/{name}.asked; until {others}; do sleep 0.1; done"
        node.plugin(name, f"if [ $CNI_COMMAND = STATUS ]; then {wait}; fi")
    assert [state.ready for state in make().status().networks] == [True] * 4
    node.plugin("a", "[ $CNI_COMMAND = STATUS ] && exec sleep 60")
    assert "did not end within" in make().status(timeout=1.5).reason
