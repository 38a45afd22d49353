"""The node agent in examples/fleet: what a round changes, what it leaves alone, and what it reports."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from manager.fakes import ManagerNode, fails

from libcni import ConfigError
from libcni.manager import Container, NetworkRequest

from .fleet import FLEET, Agent, attach, files, module

PORTS = {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}


def test_it_attaches_what_is_missing_and_detaches_what_has_gone(fleet: Agent) -> None:
    fleet.want(c1=["a"], c2=["a", "b"])
    assert fleet.reconcile().converged
    assert fleet.attached() == ["c1:a:eth0", "c2:a:eth0", "c2:b:eth1"]
    fleet.want(c2=["a", "b"], c3=["b"])
    assert fleet.reconcile().attached == ("c2", "c3")
    assert fleet.attached() == ["c2:a:eth0", "c2:b:eth1", "c3:b:eth0"]


def test_a_round_with_nothing_to_do_runs_nothing(fleet: Agent) -> None:
    fleet.want(c1=["a", "b"])
    fleet.reconcile()
    before = fleet.node.calls()
    assert fleet.reconcile().changes == ()
    assert fleet.node.calls() == before


def test_networks_that_changed_places_are_attached_anew(fleet: Agent) -> None:
    fleet.want(c1=["a"])
    fleet.reconcile()
    fleet.want(c1=["b", "a"])
    fleet.reconcile()
    assert fleet.attached() == ["c1:a:eth1", "c1:b:eth0"]


def test_of_a_container_that_is_half_attached_only_the_missing_half_is_attached(fleet: Agent) -> None:
    fleet.want(c1=["a", "b"])
    fleet.reconcile()
    next(fleet.node.cache.glob("results/b-*")).unlink()
    before = len(fleet.node.calls())
    assert fleet.reconcile().converged
    assert fleet.node.calls()[before:] == ["ADD b c1 eth1"]


CHANGED: dict[str, dict[str, Any]] = {
    "args": {"networks": ["a", {"name": "b", "args": {"K": "new"}}]},
    "capabilities": {"networks": ["a", {"name": "b", "capabilities": PORTS}]},
    "network_args": {"networks": ["a", {"name": "b", "network_args": {"cni": {"x": 1}}}]},
    "netns": {"networks": ["a", "b"], "netns": "/ns/other"},
}


@pytest.mark.parametrize("what", CHANGED)
def test_changed_arguments_are_attached_anew_and_then_it_is_quiet(node: ManagerNode, what: str) -> None:
    node.configure("a")
    node.configure("b", {"type": "b", "capabilities": {"portMappings": True}})
    fleet = Agent(node)
    fleet.want(c1=["a", "b"])
    fleet.reconcile()
    before = len(node.calls())
    fleet.want(c1=CHANGED[what])
    state = fleet.reconcile()
    assert state.converged
    assert what in str(state.changes[0])
    ifname = "eth0" if what == "netns" else "eth1"  # another namespace concerns both
    assert node.calls()[before:][-1].startswith("ADD b c1 eth1")
    assert any(call.endswith(ifname) for call in node.calls()[before:])
    assert fleet.reconcile().changes == ()


def test_an_interface_whose_network_did_not_change_is_not_touched(fleet: Agent) -> None:
    fleet.want(c1=["a", "b"])
    fleet.reconcile()
    before = len(fleet.node.calls())
    fleet.node.configure("b", {"type": "b", "mtu": 1400})
    fleet.manager.reload()
    assert fleet.reconcile().converged
    assert fleet.node.calls()[before:] == ["DEL b c1 eth1", "ADD b c1 eth1"]
    assert fleet.node.last_call("b", "ADD", "eth1").config["mtu"] == 1400
    assert fleet.reconcile().changes == ()


def test_a_configuration_that_was_only_written_differently_changes_nothing(fleet: Agent) -> None:
    file = fleet.node.configure("a", {"type": "a", "mtu": 1400})
    fleet.manager.reload()
    fleet.want(c1=["a"])
    fleet.reconcile()
    document = json.loads(file.read_text())
    document["plugins"] = [dict(reversed(plugin.items())) for plugin in document["plugins"]]
    file.write_text(json.dumps(document, indent=4))
    fleet.manager.reload()
    assert fleet.reconcile().changes == ()


def test_a_network_whose_file_has_gone_is_an_error_and_its_attachments_stay(fleet: Agent) -> None:
    fleet.want(c1=["a"])
    fleet.reconcile()
    (fleet.node.conf_dir / "a.conflist").unlink()
    fleet.manager.reload()
    state = fleet.reconcile(check=True)
    assert list(state.failing) == ["c1"]
    assert fleet.attached() == ["c1:a:eth0"]


def test_a_network_whose_file_is_torn_stays_in_force_and_is_reported(fleet: Agent) -> None:
    fleet.want(c1=["a"])
    fleet.reconcile()
    (fleet.node.conf_dir / "a.conflist").write_text("{")
    fleet.manager.reload()
    state = fleet.reconcile()
    assert "network a" in state.problems[0]
    assert not state.converged
    assert fleet.attached() == ["c1:a:eth0"]


def test_a_container_whose_namespace_was_made_again_is_attached_anew(fleet: Agent) -> None:
    netns = fleet.node.root / "netns"
    netns.touch()
    fleet.want(c1={"netns": str(netns), "networks": ["a"]})
    fleet.reconcile()
    (fleet.node.root / "new").touch()
    os.replace(fleet.node.root / "new", netns)
    fleet.reconcile()
    assert len(fleet.node.calls("ADD")) == 2


def test_a_dry_run_says_what_would_change_and_changes_nothing(fleet: Agent) -> None:
    fleet.want(c1=["a"], c2=["a"], c3=["a"])
    fleet.reconcile()
    fleet.node.plugin("a", fails("CHECK", msg="eth0 is gone", when="[ $CNI_CONTAINERID = c3 ]"))
    fleet.want(c1=["b"], c3=["a"], c4=["a"])
    before = files(fleet.node.cache)
    calls = fleet.node.calls("ADD", "DEL")
    state = fleet.reconcile(check=True, dry_run=True)
    assert sorted(f"{one.kind} {one.container_id}" for one in state.changes) == [
        "attach c4",
        "detach c2",
        "reattach c1",
        "repair c3",
    ]
    assert not state.converged
    assert files(fleet.node.cache) == before
    assert fleet.node.calls("ADD", "DEL") == calls


def test_so_many_changes_a_minute_detach_what_is_complete_and_the_others_wait(node: ManagerNode) -> None:
    node.configure("a")
    node.configure("b")
    fleet = Agent(node, changes_per_minute=2)
    fleet.want(c1=["a"], c2=["a"], c3=["a"])
    assert fleet.reconcile().converged  # what has no attachment yet does not count
    fleet.want(c1=["b"], c2=["b"], c3=["b"], c4=["b"])
    state = fleet.reconcile()
    assert (list(state.waiting), state.converged) == (["c3"], False)
    assert fleet.attached() == ["c1:b:eth0", "c2:b:eth0", "c3:a:eth0", "c4:b:eth0"]
    fleet.clock.now += 59.9
    assert list(fleet.reconcile().waiting) == ["c3"]
    fleet.clock.now += 0.2
    assert fleet.reconcile().converged
    assert fleet.attached()[2] == "c3:b:eth0"


def test_check_repairs_the_damaged_interface_alone(fleet: Agent) -> None:
    fleet.want(c1=["a", "b"], c2=["a"])
    fleet.reconcile(check=True)
    damage = fleet.node.root / "damage"
    damage.touch()
    fleet.node.plugin("b", f"[ $CNI_COMMAND = ADD ] && rm -f {damage}\n{fails('CHECK', when=f'[ -e {damage} ]')}")
    before = len(fleet.node.calls("ADD", "DEL"))
    assert fleet.reconcile().converged  # as far as the records say
    state = fleet.reconcile(check=True)
    assert fleet.node.calls("ADD", "DEL")[before:] == ["DEL b c1 eth1", "ADD b c1 eth1"]
    assert [one.kind for one in state.changes] == ["repair"]
    assert state.converged


def test_what_a_repair_does_not_mend_is_reported_and_repaired_once(fleet: Agent) -> None:
    fleet.want(c1=["a"], c2=["b"])
    fleet.reconcile()
    fleet.node.plugin("a", fails("CHECK", msg="no such rule"))
    state = fleet.reconcile(check=True)
    assert "no such rule" in state.failing["c1"]
    assert list(state.failing) == ["c1"]
    adds = fleet.node.calls("ADD")
    for _ in range(3):
        fleet.clock.now += 100
        assert not fleet.reconcile().converged  # also without asking for CHECK
        assert not fleet.reconcile(check=True).converged
    assert fleet.node.calls("ADD") == adds
    fleet.node.plugin("a")
    fleet.clock.now += 100
    assert fleet.reconcile().converged


@pytest.mark.parametrize(
    "answer", [fails("CHECK", code=11), fails("CHECK", code=7), "[ $CNI_COMMAND = CHECK ] && echo '[' && exit 1"]
)
def test_a_check_that_cannot_say_what_is_wrong_detaches_nothing(fleet: Agent, answer: str) -> None:
    fleet.want(c1=["a"])
    fleet.reconcile()
    fleet.node.plugin("a", answer)
    assert list(fleet.reconcile(check=True).failing) == ["c1"]
    assert fleet.node.calls("DEL") == []


def test_a_repair_that_waits_for_the_limit_is_not_forgotten(node: ManagerNode) -> None:
    node.configure("a")
    node.configure("b")
    fleet = Agent(node, changes_per_minute=1)
    fleet.want(c1=["a"], c2=["b"])
    fleet.reconcile()
    fleet.want(c1=["a"], c2=["a"])
    node.plugin("a", fails("CHECK", when="[ $CNI_CONTAINERID = c1 ]"))
    fleet.reconcile()  # uses the limit up
    assert list(fleet.reconcile(check=True).waiting) == ["c1"]
    assert list(fleet.reconcile().waiting) == ["c1"]


@pytest.mark.parametrize("text", ["containers: [", "", "containers:", "# nothing\n", None])
def test_a_desired_state_that_is_empty_missing_or_torn_never_means_nothing(fleet: Agent, text: str | None) -> None:
    fleet.want(c1=["a"])
    fleet.reconcile()
    if text is None:
        fleet.file.unlink()
    else:
        fleet.file.write_text(text)
    for agent in (fleet, Agent(fleet.node, gc=True)):  # the one that has seen a good file, and one that has not
        state = agent.reconcile(check=True)
        assert not state.converged
        assert "desired.yaml" in state.problems[0]
        assert agent.attached() == ["c1:a:eth0"]


def test_only_the_word_for_it_means_nothing(fleet: Agent) -> None:
    fleet.want(c1=["a"])
    fleet.reconcile()
    fleet.file.write_text("containers: []")
    assert fleet.reconcile().converged
    assert fleet.attached() == []


def test_what_fails_stops_nothing_else_and_is_tried_again_later(fleet: Agent) -> None:
    fleet.node.plugin("b", fails("ADD", msg="full"))
    fleet.want(c1=["a"], c2=["a", "b"], c3=["a"])
    state = fleet.reconcile()
    assert list(state.failing) == ["c2"]
    assert "full" in state.failing["c2"]
    assert fleet.attached() == ["c1:a:eth0", "c3:a:eth0"]
    tries = len(fleet.node.calls("ADD"))
    for seconds in (1.0, 2.0, 4.0):  # twice as long each time
        fleet.clock.now += seconds - 0.1
        assert list(fleet.reconcile().failing) == ["c2"]
        assert len(fleet.node.calls("ADD")) == tries
        fleet.clock.now += 0.2
        assert list(fleet.reconcile().failing) == ["c2"]
        tries += 2
        assert len(fleet.node.calls("ADD")) == tries
    fleet.node.plugin("b")
    fleet.clock.now += 60
    assert fleet.reconcile().converged


def test_a_container_that_fails_and_is_no_longer_wanted_is_forgotten(fleet: Agent) -> None:
    fleet.node.plugin("b", fails("ADD"))
    fleet.want(c1=["b"])
    assert not fleet.reconcile().converged
    fleet.want()
    assert fleet.reconcile().converged


def test_attachments_of_others_in_its_directory_are_left_alone(fleet: Agent) -> None:
    shared = fleet.neighbours(fleet.node.cache)
    attach(shared, "theirs", "a")
    before = files(fleet.node.cache)
    fleet.want(c1=["a"])
    assert fleet.reconcile(check=True).attached == ("c1",)
    fleet.want()
    assert fleet.reconcile(check=True).converged
    assert files(fleet.node.cache) == before
    assert [call for call in fleet.node.calls("DEL", "CHECK") if "theirs" in call] == []


@pytest.mark.parametrize("shared", [False, True])
def test_a_container_that_another_program_has_attached_is_refused(fleet: Agent, shared: bool) -> None:
    attach(fleet.neighbours(fleet.node.cache if shared else None), "theirs", "a")
    fleet.want(theirs=["b"], c1=["b"])
    state = fleet.reconcile(check=True)
    assert "another program" in state.failing["theirs"]
    assert fleet.attached() == ["c1:b:eth0"]
    assert [call for call in fleet.node.calls() if "theirs" in call] == ["ADD a theirs eth0"]


def test_a_torn_record_in_its_directory_is_a_problem_and_stays(fleet: Agent) -> None:
    fleet.want(c1=["a"], c2=["a"])
    fleet.reconcile()
    torn = next(fleet.node.cache.glob("results/a-c2-*"))
    torn.write_text("{")
    fleet.want(c1=["a"])
    state = fleet.reconcile(check=True)
    assert str(torn) in state.problems[0]
    assert not state.converged
    assert torn.read_text() == "{"


def test_gc_names_every_attachment_and_leaves_out_networks_of_others(node: ManagerNode) -> None:
    for name in ("a", "b"):
        node.configure(name, cniVersion="1.1.0")
    node.configure("c", cniVersion="1.1.0")
    fleet = Agent(node, gc=True, changes_per_minute=1)
    attach(fleet.neighbours(), "theirs", "b")
    fleet.want(c1=["a"], c2=["a"], c3=["a"])
    fleet.reconcile()
    fleet.want(c1=["a"])
    state = fleet.reconcile(check=True)
    assert len(state.waiting) == 1  # GC does not detach what the limit holds back
    assert sorted(node.calls("GC")) == ["GC a", "GC c"]
    [held_back] = state.waiting
    valid = node.last_call("a", "GC").config["cni.dev/valid-attachments"]
    assert valid == [{"containerID": one, "ifname": "eth0"} for one in ("c1", held_back)]


def test_without_being_told_it_never_runs_gc(node: ManagerNode) -> None:
    node.configure("a", cniVersion="1.1.0")
    fleet = Agent(node)
    fleet.want()
    fleet.reconcile(check=True)
    assert node.calls("GC") == []


def test_no_gc_while_a_record_of_others_cannot_be_read(node: ManagerNode) -> None:
    node.configure("a", cniVersion="1.1.0")
    fleet = Agent(node, gc=True)
    attach(fleet.neighbours(), "theirs", "a")
    next(fleet.neighbour.glob("results/a-*")).write_text("{")
    fleet.want()
    state = fleet.reconcile(check=True)
    assert state.warnings
    assert node.calls("GC") == []


def test_a_stray_attachment_of_its_own_owner_is_detached(fleet: Agent) -> None:
    fleet.want(c1=["a"])
    asyncio.run(fleet.manager.set_up(Container("stray", "/ns", ["b"])))
    fleet.reconcile()
    assert fleet.attached() == ["c1:a:eth0"]


def test_the_desired_state_is_read_whole() -> None:
    web, batch = module("desired").read_desired(str(FLEET / "desired.yaml"))
    assert (web.id, web.netns) == ("web-1", "/run/netns/web-1")
    assert web.networks == ("front", NetworkRequest("storage", "net1", {}, {"ips": ["10.20.0.7/24"]}))
    assert web.capability_args == PORTS
    assert batch.networks is None
    assert batch.args == {"IgnoreUnknown": "1", "TENANT": "blue"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "containers: 1",
        "containers: [{id: c1}]",
        "containers: [{id: c1, netns: /a, network: x}]",
        "containers: [{id: c1, netns: /a}, {id: c1, netns: /b}]",
        "containers: [{id: c1, netns: /a, capabilities: {when: 2020-01-01}}]",
        "{",
        "\x00",
    ],
)
def test_a_bad_desired_state_is_an_error_that_names_the_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "desired.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"desired\.yaml"):
        module("desired").read_desired(str(file))
