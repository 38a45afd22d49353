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


def test_status_says_why_a_network_is_not_ready(node: ManagerNode) -> None:
    for name, version in (("full", "1.1.0"), ("missing", "1.0.0"), ("old", "0.3.0")):
        node.configure(name, cniVersion=version)
    node.plugin("full", fails("STATUS", 50, "no address left"))
    (node.bin / "missing").unlink()
    full, missing, old = node.manager().status().networks
    assert [state.ready for state in (full, missing, old)] == [False] * 3
    assert "no address left" in full.reason
    assert 'plugin "missing" not found' in missing.reason
    assert 'does not support version "0.3.0"' in old.reason


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
    assert not make().status(timeout=1.5).ready
