"""What users of go-cni and ocicni have by name: tear-down without records, changed files at once, several defaults."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from libcni.config.network import NetworkConfigList
from libcni.errors import CNIErrorGroup, ConfigError, InvalidIdentifierError, NetworkNotFoundError
from libcni.manager import Container, NetworkManager
from libcni.manager.networks import stamp_of
from manager.fakes import FakeNamespaces, ManagerNode, fails, names

Make = Callable[..., Any]


def wipe(node: ManagerNode) -> None:
    for path in node.results.iterdir():
        path.unlink()
    node.forget_calls()


def outcomes(report: Any) -> list[tuple[str, str, str]]:
    return [(item.outcome, item.network, item.ifname) for item in report.items]


# A tear-down.


def test_a_container_without_records_is_torn_down_by_the_configuration(node: ManagerNode, make: Make) -> None:
    node.configure_each("a", "b")
    container = Container("c1", "/ns", ["a", "b"], args={"K": "V"})
    manager = make()
    manager.set_up(container)
    wipe(node)
    report = manager.tear_down(container)
    assert outcomes(report) == [("detached", "b", "eth1"), ("detached", "a", "eth0")]
    assert node.calls() == ["DEL b c1 eth1", "DEL a c1 eth0"]
    assert node.last_call("a").env["CNI_NETNS"] == "/ns"
    assert node.last_call("a").env["CNI_ARGS"] == "K=V"


def test_recorded_attachments_are_detached_from_their_records_and_the_rest_by_the_configuration(
    node: ManagerNode, make: Make
) -> None:
    node.configure_each("a", "b", "c")
    manager = make()
    manager.set_up(Container("c1", "/ns", ["a", "c@net1"]))
    node.record("c1", "a").unlink()
    node.forget_calls()
    report = manager.tear_down(Container("c1", "/ns", ["a", "b"]))
    assert outcomes(report) == [("detached", "c", "net1"), ("detached", "b", "eth1"), ("detached", "a", "eth0")]
    assert node.states() == []


def test_an_id_without_records_says_so_and_runs_nothing(node: ManagerNode, make: Make) -> None:
    node.configure("a")
    report = make().tear_down("c1")
    assert [(item.outcome, item.container_id) for item in report.items] == [("not-recorded", "c1")]
    assert node.calls() == []


def test_an_unknown_network_does_not_stop_the_rest_of_a_tear_down(node: ManagerNode, make: Make) -> None:
    node.configure("a")
    manager = make()
    manager.set_up(Container("c1", "/ns", ["a"]))
    with pytest.raises(CNIErrorGroup) as caught:
        manager.tear_down(Container("c1", "/ns", ["a", "nowhere"]))
    assert [type(error) for error in caught.value.exceptions] == [NetworkNotFoundError]
    assert outcomes(caught.value.report) == [("detached", "a", "eth0")]
    assert node.states() == []


def test_a_record_of_go_without_a_namespace_gets_that_of_the_container(node: ManagerNode, make: Make) -> None:
    node.configure("a")
    text = (node.conf_dir / "a.conflist").read_bytes()
    record = {
        "kind": "cniCacheV1", "containerId": "c1", "config": base64.b64encode(text).decode(),
        "ifName": "eth0", "networkName": "a", "result": {"cniVersion": "1.0.0"},
    }  # fmt: skip
    node.results.mkdir(parents=True)
    node.record("c1", "a").write_text(json.dumps(record))
    with pytest.raises(CNIErrorGroup) as caught:
        make().tear_down("c1")
    assert "Go libcni recorded no namespace" in str(caught.value.exceptions[0])
    assert outcomes(make().tear_down(Container("c1", "/ns", ["a"]))) == [("detached", "a", "eth0")]
    assert node.last_call("a").env["CNI_NETNS"] == "/ns"


def go_record(node: ManagerNode, network: str, ifname: str) -> None:
    """Write a record as Go libcni 1.1 does: without the namespace."""
    conf = {"cniVersion": "0.4.0", "name": network, "type": "a"}
    record = {
        "kind": "cniCacheV1", "containerId": "c1", "config": base64.b64encode(json.dumps(conf).encode()).decode(),
        "ifName": ifname, "networkName": network, "result": {"cniVersion": "0.4.0"},
    }  # fmt: skip
    node.results.mkdir(parents=True, exist_ok=True)
    node.record("c1", network, ifname).write_text(json.dumps(record))


@pytest.mark.parametrize("networks", [None, ["gone1", "gone2"]])
def test_recorded_networks_need_no_file_and_the_default_network_is_left_alone(
    node: ManagerNode, make: Make, networks: list[str] | None
) -> None:
    node.configure("a")
    go_record(node, "gone1", "eth0")
    go_record(node, "gone2", "eth1")
    node.forget_calls()
    report = make().tear_down(Container("c1", "/ns", networks))
    assert sorted(outcomes(report)) == [("detached", "gone1", "eth0"), ("detached", "gone2", "eth1")]


def test_a_default_network_without_a_record_is_detached_from_a_free_interface(node: ManagerNode, make: Make) -> None:
    node.configure_each("a", "b")
    manager = make(default_count=None)
    manager.set_up(Container("c1", "/ns"))
    node.record("c1", "b", "eth1").unlink()
    report = manager.tear_down(Container("c1", "/ns"))
    assert sorted(outcomes(report)) == [("detached", "a", "eth0"), ("detached", "b", "eth1")]


def test_an_unknown_network_does_not_hide_another_one_without_a_record(node: ManagerNode, make: Make) -> None:
    node.configure("a")
    with pytest.raises(CNIErrorGroup) as caught:
        make().tear_down(Container("c1", "/ns", ["nowhere", "a"]))
    assert [type(error) for error in caught.value.exceptions] == [NetworkNotFoundError]
    assert outcomes(caught.value.report) == [("detached", "a", "eth1")]


# GC and the start of a program.


def test_gc_takes_containers(attached: ManagerNode, make: Make) -> None:
    report = make().gc([Container("c1", "/ns", ["a"])])
    assert {item.container_id for item in report.of("detached")} == {"c2"}


@pytest.mark.parametrize(
    ("live", "options", "names_"),
    [
        (Container("c9", "/ns", ["a@net1", "b"]), {}, ["net1", "eth0"]),
        (Container("c9", "/ns"), {"default_count": 2, "interface_prefix": "net"}, ["net0", "net1"]),
        (Container("c9", "/ns", "none"), {}, []),
        ("c9", {"interface_prefix": "net"}, ["net0"]),
    ],
)
def test_plugins_keep_the_interfaces_that_a_container_without_records_may_have(
    node: ManagerNode, make: Make, live: Any, options: Any, names_: list[str]
) -> None:
    node.configure("a", cniVersion="1.1.0")
    node.configure("b", cniVersion="1.1.0")
    make(**options).gc([live])
    valid = node.last_call("a", "GC").config["cni.dev/valid-attachments"]
    assert valid == [{"containerID": "c9", "ifname": name} for name in names_]


def test_a_record_that_cannot_be_detached_does_not_stop_the_start_of_a_program(
    attached: ManagerNode, make: Make
) -> None:
    attached.plugin("a", fails("DEL"))
    report = make().recover([])
    assert {(item.outcome, item.container_id, item.network) for item in report.items} == {
        ("failed", "c1", "a"), ("detached", "c1", "b"), ("detached", "c2", "b"),
    }  # fmt: skip
    assert len(report.errors) == 1
    attached.plugin("a")
    assert make().recover([]).errors == ()
    with pytest.raises(TypeError):
        make().recover(None)


# A changed file.


def test_a_changed_file_counts_at_the_next_set_up(node: ManagerNode, make: Make) -> None:
    node.configure("a", {"type": "a", "subnet": "old"})
    manager = make()
    node.configure("a", {"type": "a", "subnet": "new"})
    manager.set_up(Container("c1", "/ns", ["a"]))
    assert node.last_call("a", "ADD").config["subnet"] == "new"


def test_a_new_file_a_removed_one_and_a_drop_in_count_at_the_next_question(node: ManagerNode) -> None:
    node.configure("b")
    manager = node.manager()
    assert names(manager) == ["b"]
    node.configure("a")
    assert (names(manager), manager.network().name) == (["a", "b"], "a")
    (node.conf_dir / "a.conflist").unlink()
    assert (names(manager), manager.network().name) == (["b"], "b")
    node.plugin("more")
    node.write("b/1.conf", {"type": "more"})
    assert [plugin.type for plugin in manager.network("b").plugins] == ["b", "more"]
    node.write("b.conflist", "{")  # the last good configuration stays
    assert names(manager) == ["b"]
    assert len(manager.configuration.problems) == 1


def test_nothing_is_read_while_nothing_changes(node: ManagerNode, monkeypatch: pytest.MonkeyPatch) -> None:
    node.configure("a")
    for path in (node.conf_dir / "a.conflist", node.conf_dir):
        os.utime(path)
    manager = node.manager()
    monkeypatch.setattr("libcni.manager.networks._TICK_NS", -1)  # as if the file had been written long ago
    manager.reload()
    before = manager.configuration
    monkeypatch.setattr("libcni.manager.manager_base.load", None)
    assert manager.configuration is before
    assert manager.plan(Container("c1", "/ns", ["a"]))[0].net is before.networks[0]


def test_a_file_that_may_change_within_the_clocks_tick_is_read_again(node: ManagerNode) -> None:
    node.configure("a")
    assert stamp_of(str(node.conf_dir), ["a"]) is None


# The default networks.


@pytest.mark.parametrize(
    ("count", "expected"), [(1, ["a"]), (2, ["a", "b"]), (None, ["a", "b", "c"]), (9, ["a", "b", "c"])]
)
def test_a_container_that_asks_for_none_gets_the_first_networks(
    node: ManagerNode, make: Make, count: int | None, expected: list[str]
) -> None:
    node.configure_each("a", "b", "c")
    manager = make(default_count=count, interface_prefix="net")
    result = manager.set_up(Container("c1", "/ns"))
    assert [one.network for one in result.attachments] == expected
    assert list(result.interfaces)[: len(expected)] == [f"net{number}" for number in range(len(expected))]
    assert [net.name for net in manager.default_networks] == expected


def test_the_default_can_move_on_while_a_plugin_is_missing(node: ManagerNode, make: Make) -> None:
    node.configure_each("a", "b")
    (node.bin / "a").unlink()
    manager = make(default_needs_plugins=True)
    assert [one.net.name for one in manager.plan(Container("c1", "/ns"))] == ["b"]
    assert manager.status().ready
    node.plugin("a")
    assert [one.net.name for one in manager.plan(Container("c1", "/ns"))] == ["a"]
    (node.bin / "a").unlink()
    assert not make().status().ready  # without the option it stays, and is not ready


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"default_count": 0}, ValueError),
        ({"default_count": 2, "default": "a"}, ValueError),
        ({"interface_prefix": "x" * 15}, InvalidIdentifierError),
        ({"interface_prefix": "a/b"}, InvalidIdentifierError),
    ],
)
def test_a_default_that_cannot_be_is_refused(node: ManagerNode, options: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        node.manager(**options)


# No network.


@pytest.mark.parametrize("networks", [[], (), iter(()), {}])
def test_an_empty_list_of_networks_is_refused_with_the_word_for_none(networks: Any) -> None:
    with pytest.raises(ConfigError, match=r'its networks is empty.*networks=None for the default.*networks="none"'):
        Container("c1", "/ns", networks)


def test_the_word_for_none_gives_none(node: ManagerNode, make: Make) -> None:
    node.configure("a")
    assert make().plan(Container("c1", "/ns", "none")) == ()
    assert make().set_up(Container("c1", "/ns", "none")).attachments == ()
    assert node.calls() == []
    with pytest.raises(TypeError):
        Container("c1", "/ns", "a")


# Namespaces without root.


def test_namespaces_can_be_made_by_another_maker(node: ManagerNode, make: Make) -> None:
    class Maker:
        def __init__(self) -> None:
            self.memory = FakeNamespaces()

        def make(self, path: str, announce: Callable[[str], object]) -> None:
            self.memory.make(path, announce)

        def remove(self, path: str) -> bool:
            return self.memory.unbind(path)

        def identity(self, path: str) -> tuple[int, ...] | None:
            return self.memory.identity_of(path)

    maker = Maker()
    node.configure("a")
    manager = make(namespaces="/run/netns", namespace_maker=maker)
    manager.set_up(Container("c1"))
    assert node.last_call("a", "ADD").env["CNI_NETNS"] == "/run/netns/c1"
    manager.tear_down("c1")
    assert maker.memory.done == ["create c1", "remove c1"]


def test_a_configuration_given_in_code_comes_first(node: ManagerNode) -> None:
    node.configure("a")
    own = NetworkConfigList.from_dict({"cniVersion": "1.0.0", "name": "own", "plugins": [{"type": "a"}]})
    manager: NetworkManager = node.manager(networks=[own], default_count=None)
    assert [net.name for net in manager.default_networks] == ["own", "a"]
