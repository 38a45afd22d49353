"""The networks in force: their order, the default, a reload, and what stays where a file cannot be used."""

from __future__ import annotations

import shutil

import pytest

from libcni.errors import NetworkNotFoundError
from libcni.manager import Container
from manager.fakes import ManagerNode


def test_no_configuration_at_all_names_the_directories(node: ManagerNode) -> None:
    with pytest.raises(NetworkNotFoundError, match=f"no configuration in {node.conf_dir}"):
        node.manager().set_up(Container("c1", "/ns"))
    shutil.rmtree(node.conf_dir)
    with pytest.raises(NetworkNotFoundError, match=f"no configuration in {node.conf_dir}, which does not exist"):
        node.manager().set_up(Container("c1", "/ns"))


def problems(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings since the last call."""
    found = [one.getMessage() for one in caplog.records]
    caplog.clear()
    return found


def test_a_problem_is_logged_once(node: ManagerNode, caplog: pytest.LogCaptureFixture) -> None:
    node.configure("a")
    manager = node.manager()
    node.write("bad.conflist", "{")
    manager.reload()
    manager.reload()
    assert [one for one in problems(caplog) if "bad.conflist" in one] == [str(manager.configuration.problems[0])]


def test_the_warnings_of_a_network_are_logged_when_it_changes(
    node: ManagerNode, caplog: pytest.LogCaptureFixture
) -> None:
    manager = node.manager()
    for mtu in (1400, 1400, 1500):
        node.configure("a", {"type": "a", "mtu": mtu, "runtimeConfig": {}})
        manager.reload()
    assert ["runtimeConfig" in one for one in problems(caplog)] == [True, True]
