"""The networks in force: their order, the default, a reload, and what stays where a file cannot be used."""

from __future__ import annotations

import os
import shutil

import pytest

from libcni.errors import NetworkNotFoundError
from libcni.manager import Container
from manager.fakes import ManagerNode, names


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


def test_a_missing_plugin_is_a_problem_that_ends(node: ManagerNode, caplog: pytest.LogCaptureFixture) -> None:
    node.configure("a")
    os.unlink(node.bin / "a")
    manager = node.manager()
    assert 'plugin "a" not found' in problems(caplog)[0]
    node.plugin("a")
    assert manager.reload().missing == ()
    os.unlink(node.bin / "a")
    manager.reload()
    assert 'plugin "a" not found' in problems(caplog)[0]


def test_the_warnings_of_a_network_are_logged_when_it_changes(
    node: ManagerNode, caplog: pytest.LogCaptureFixture
) -> None:
    manager = node.manager()
    for mtu in (1400, 1400, 1500):
        node.configure("a", {"type": "a", "mtu": mtu, "runtimeConfig": {}})
        manager.reload()
    assert ["runtimeConfig" in one for one in problems(caplog)] == [True, True]


def test_a_manager_shows_its_client_and_its_networks(node: ManagerNode) -> None:
    node.configure("a")
    shown = repr(node.manager(client={"owner": "me"}))
    assert shown.startswith("NetworkManager(CNIConfig(")
    assert "me" in shown
    assert f"conf_dirs=[{str(node.conf_dir)!r}], networks=['a'])" in shown
