"""The networks in force, from their sources; the last good one stays where a file cannot be used."""

from __future__ import annotations

import shutil

import pytest
from helpers import network

from libcni.errors import NetworkNotFoundError
from libcni.manager import Container
from manager.fakes import ManagerNode, names


def test_conf_and_conflist_files_are_in_one_order_by_name(node: ManagerNode) -> None:
    """The node of Multus: 00-multus.conf wraps 10-calico.conflist."""
    node.configure("calico", file="10-calico.conflist")
    node.plugin("multus")
    node.write("00-multus.conf", '{"cniVersion": "1.0.0", "name": "multus", "type": "multus"}')
    manager = node.manager()
    assert manager.network().name == "multus"
    assert names(manager) == ["multus", "calico"]
    node.write("00-bad.conflist", "{")
    node.configure("earlier", file="00-earlier.conflist")
    manager.reload()
    assert manager.network().name == "earlier"


def test_the_default_may_be_named(node: ManagerNode) -> None:
    node.configure_each("a", "b")
    manager = node.manager(default="b")
    assert [planned.net.name for planned in manager.plan(Container("c1", "/ns"))] == ["b"]
    with pytest.raises(TypeError, match="default must be a str, not 2"):
        node.manager(default=2)


def test_configurations_given_in_code_come_first(node: ManagerNode) -> None:
    node.configure("a")
    given = [network("own", name=name) for name in ("z", "a")]
    manager = node.manager(networks=given)
    assert names(manager) == ["z", "a"]
    assert manager.network("a").plugins[0].type == "own"
    assert "already defined in code" in str(manager.configuration.problems[0])


def test_a_half_written_file_leaves_the_last_good_network_in_force(node: ManagerNode) -> None:
    node.configure("a", file="10-a.conflist")
    node.configure("b", file="20-b.conflist")
    manager = node.manager()
    good = manager.network("a")
    for half in ("", '{"cniVersion": "1.0.0", "na'):
        node.write("10-a.conflist", half)
        manager.reload()
        assert names(manager) == ["a", "b"]
        assert manager.network("a") == good
        assert manager.configuration.kept == ("a",)
        assert "10-a.conflist" in str(manager.configuration.problems[0])
    node.configure("a", "b", file="10-a.conflist")
    manager.reload()
    assert manager.network("a").plugins[0].type == "b"
    assert (manager.configuration.kept, manager.configuration.problems) == ((), ())


def test_a_bad_drop_in_leaves_the_last_good_network_in_force(node: ManagerNode) -> None:
    node.configure("a")
    manager = node.manager()
    (node.conf_dir / "a").mkdir()
    (node.conf_dir / "a" / "x.conf").write_text("{")
    manager.reload()
    assert manager.configuration.kept == ("a",)
    assert [plugin.type for plugin in manager.network("a").plugins] == ["a"]


def test_a_file_whose_network_comes_twice_is_not_kept_under_the_old_name(node: ManagerNode) -> None:
    node.configure("a")
    node.configure("b", file="x.conflist")
    manager = node.manager()
    node.configure("a", file="x.conflist")
    manager.reload()
    assert names(manager) == ["a"]


def test_a_directory_that_has_gone_leaves_its_last_good_networks_in_force(node: ManagerNode) -> None:
    node.configure("a")
    manager = node.manager()
    shutil.rmtree(node.conf_dir)
    manager.reload()
    assert names(manager) == ["a"]
    assert "the directory no longer exists" in str(manager.configuration.problems[0])
    assert names(node.manager()) == []
    node.conf_dir.mkdir()
    node.configure("b")
    manager.reload()
    assert names(manager) == ["b"]


def test_an_empty_directory_has_no_networks(node: ManagerNode) -> None:
    path = node.configure("a")
    manager = node.manager()
    path.unlink()
    manager.reload()
    assert names(manager) == []
    assert manager.status().reason == f"no configuration in {node.conf_dir}"


def test_a_directory_that_is_none_is_a_problem(node: ManagerNode) -> None:
    file = node.root / "file"
    file.touch()
    manager = node.manager({"conf_dir": file})
    assert str(file) in str(manager.configuration.problems[0])


def test_no_configuration_at_all_names_the_directories(node: ManagerNode) -> None:
    with pytest.raises(NetworkNotFoundError, match=f"no configuration in {node.conf_dir}"):
        node.manager().set_up(Container("c1", "/ns"))
    node.write("00-bad.conflist", "{")
    assert "00-bad.conflist" in node.manager().status().reason
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
