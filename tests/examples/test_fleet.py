"""The node agent in examples/fleet: what a round changes, what it leaves alone, and its command."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest
from forkserver import ForkServer
from manager.fakes import ManagerNode, fails

from libcni import ConfigError, RuntimeConf
from libcni.manager import NetworkRequest
from libcni.testing import wait_until

from .conftest import FLEET, Fleet, agent, files

PORTS = {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}


def test_it_attaches_what_is_missing_and_detaches_what_is_not_wanted(fleet: Fleet) -> None:
    fleet.want(c1=["a"], c2=["a", "b"])
    assert fleet.reconcile()
    assert fleet.attached() == ["c1:a:eth0", "c2:a:eth0", "c2:b:eth1"]
    before = fleet.node.calls()
    assert fleet.reconcile()
    assert fleet.node.calls() == before  # nothing to do: nothing is run
    fleet.want(c2=["b", "a"], c3=["b"])  # two networks of c2 change places
    assert fleet.reconcile()
    assert fleet.attached() == ["c2:a:eth1", "c2:b:eth0", "c3:b:eth0"]


def test_only_what_is_missing_or_changed_is_attached_again(fleet: Fleet) -> None:
    fleet.want(c1=["a", "b"])
    fleet.reconcile()
    next(fleet.node.cache.glob("results/b-*")).unlink()
    fleet.node.forget_calls()
    assert fleet.reconcile()
    assert fleet.node.calls() == ["ADD b c1 eth1"]
    fleet.node.configure("b", {"type": "b", "mtu": 1400})
    fleet.node.forget_calls()
    assert fleet.reconcile()
    assert fleet.node.calls() == ["DEL b c1 eth1", "ADD b c1 eth1"]
    assert fleet.node.last_call("b", "ADD").config["mtu"] == 1400


CHANGED: dict[str, dict[str, Any]] = {
    "args": {"networks": ["a", {"name": "b", "args": {"K": "new"}}]},
    "capabilities": {"networks": ["a", {"name": "b", "capabilities": PORTS}]},
    "network_args": {"networks": ["a", {"name": "b", "network_args": {"cni": {"x": 1}}}]},
    "netns": {"networks": ["a", "b"], "netns": "/ns/other"},
}


@pytest.mark.parametrize("what", CHANGED)
def test_what_changed_in_the_file_is_attached_anew_and_then_it_is_quiet(fleet: Fleet, what: str) -> None:
    fleet.want(c1=["a", "b"])
    fleet.reconcile()
    fleet.node.forget_calls()
    fleet.want(c1=CHANGED[what])
    assert fleet.reconcile()
    assert "ADD b c1 eth1" in fleet.node.calls()
    assert ("ADD a c1 eth0" in fleet.node.calls()) == (what == "netns")  # another namespace concerns both
    fleet.node.forget_calls()
    assert fleet.reconcile()
    assert fleet.node.calls() == []


@pytest.mark.parametrize("text", ["{", None])
def test_a_network_whose_file_is_torn_or_gone_is_reported_and_its_attachments_stay(
    fleet: Fleet, text: str | None
) -> None:
    fleet.want(c1=["a"])
    fleet.reconcile()
    file = fleet.node.conf_dir / "a.conflist"
    file.unlink() if text is None else file.write_text(text)
    assert not fleet.reconcile(check=True)
    assert fleet.attached() == ["c1:a:eth0"]


def test_a_dry_run_changes_nothing(fleet: Fleet, node: ManagerNode, fork_server: ForkServer) -> None:
    fleet.want(c1=["a"], c2=["a"], c3=["a"])
    fleet.reconcile()
    node.plugin("a", fails("CHECK", msg="eth0 is gone", when="[ $CNI_CONTAINERID = c3 ]"))
    fleet.want(c1=["b"], c3=["a"], c4=["a"])
    before, calls = files(node.cache), node.calls("ADD", "DEL")
    done = fleet.run("--dry-run")
    assert done.returncode == 1
    assert sorted(line.partition(":")[0] for line in done.stdout.splitlines()) == ["c1", "c2", "c3", "c4"]
    assert "eth0 is gone" in done.stdout
    assert (files(node.cache), node.calls("ADD", "DEL")) == (before, calls)
    assert not (node.root / "status.json").exists()


def test_changes_of_complete_attachments_are_limited(
    node: ManagerNode, fork_server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(agent.time, "monotonic", lambda: now)
    fleet = Fleet(node, fork_server, changes_per_minute=2)
    fleet.want(c1=["a"], c2=["a"], c3=["a"])
    assert fleet.reconcile()  # attaching is not limited
    fleet.want(c1=["b"], c2=["b"], c3=["b"], c4=["b"])
    assert not fleet.reconcile()
    [waiting] = fleet.agent.waiting
    assert sorted(fleet.attached()) == [
        f"{one}:{'a' if one == waiting else 'b'}:eth0" for one in ("c1", "c2", "c3", "c4")
    ]
    now += 59.9
    assert not fleet.reconcile()
    now += 0.2
    assert fleet.reconcile()
    assert f"{waiting}:b:eth0" in fleet.attached()


def test_check_repairs_the_damaged_interface_alone(fleet: Fleet) -> None:
    fleet.want(c1=["a", "b"], c2=["a"])
    assert fleet.reconcile(check=True)
    damage = fleet.node.root / "damage"
    damage.touch()
    fleet.node.plugin("b", f"[ $CNI_COMMAND = ADD ] && rm -f {damage}\n{fails('CHECK', when=f'[ -e {damage} ]')}")
    fleet.node.forget_calls()
    assert fleet.reconcile()  # as far as the records say
    assert fleet.reconcile(check=True)
    assert fleet.node.calls("ADD", "DEL") == ["DEL b c1 eth1", "ADD b c1 eth1"]


def test_what_a_repair_does_not_mend_is_repaired_once(fleet: Fleet) -> None:
    fleet.want(c1=["a"], c2=["b"])
    fleet.reconcile()
    fleet.node.plugin("a", fails("CHECK", msg="no such rule"))
    fleet.reconcile(check=True)  # repairs
    adds = fleet.node.calls("ADD")
    for check in (False, True, False):  # without being asked for CHECK, too
        assert not fleet.reconcile(check=check)
        assert "no such rule" in fleet.agent.failing["c1"]
    assert fleet.node.calls("ADD") == adds
    fleet.node.plugin("a")
    assert fleet.reconcile()


@pytest.mark.parametrize(
    "answer", [fails("CHECK", code=11), fails("CHECK", code=7), "[ $CNI_COMMAND = CHECK ] && echo '[' && exit 1"]
)
def test_a_check_that_cannot_say_what_is_wrong_detaches_nothing(fleet: Fleet, answer: str) -> None:
    fleet.want(c1=["a"])
    fleet.reconcile()
    fleet.node.plugin("a", answer)
    fleet.reconcile(check=True)
    assert list(fleet.agent.failing) == ["c1"]
    assert fleet.node.calls("DEL") == []


@pytest.mark.parametrize("text", ["containers: [", "", "containers:", "containers: {}", "# nothing\n", None])
def test_a_desired_state_that_is_empty_missing_or_torn_never_means_nothing(
    fleet: Fleet, node: ManagerNode, fork_server: ForkServer, text: str | None
) -> None:
    fleet.want(c1=["a"])
    fleet.reconcile()
    if text is None:
        fleet.file.unlink()
    else:
        fleet.file.write_text(text)
    for one in (fleet, Fleet(node, fork_server)):  # the agent that has seen a good file, and one that has not
        assert not one.reconcile(check=True)
        assert one.attached() == ["c1:a:eth0"]
    fleet.file.write_text("containers: []")
    assert fleet.reconcile()
    assert fleet.attached() == []


def test_what_fails_stops_nothing_else_and_is_tried_again(fleet: Fleet) -> None:
    fleet.node.plugin("b", fails("ADD", msg="full"))
    fleet.want(c1=["a"], c2=["a", "b"], c3=["a"])
    assert not fleet.reconcile()
    assert "full" in fleet.agent.failing["c2"]
    assert fleet.attached() == ["c1:a:eth0", "c2:a:eth0", "c3:a:eth0"]
    fleet.node.plugin("b")
    assert fleet.reconcile()
    fleet.node.plugin("b", fails("ADD"))
    fleet.want(c4=["b"])
    assert not fleet.reconcile()
    fleet.want()
    assert fleet.reconcile()  # an unwanted container that fails is forgotten


@pytest.mark.parametrize("shared", [False, True])
def test_other_programs_containers_are_left_alone(fleet: Fleet, shared: bool) -> None:
    fleet.attach_for_others("theirs", "a", fleet.node.cache if shared else None)
    before = files(fleet.node.cache if shared else fleet.neighbour)
    fleet.want(theirs=["b"], c1=["b"])
    fleet.reconcile(check=True)
    assert "another program" in fleet.agent.failing["theirs"]
    fleet.want()
    assert fleet.reconcile(check=True)
    assert files(fleet.node.cache if shared else fleet.neighbour) == before
    assert [call for call in fleet.node.calls() if "theirs" in call] == ["ADD a theirs eth0"]
    assert fleet.node.calls("GC") == []


def test_a_torn_record_is_a_problem_and_stays_and_a_stray_one_of_its_own_is_detached(fleet: Fleet) -> None:
    fleet.want(c1=["a"], c2=["a"])
    fleet.reconcile()
    fleet.manager.cni.add_network_list("b", RuntimeConf("stray", "/ns", "eth0"))
    torn = next(fleet.node.cache.glob("results/a-c2-*"))
    torn.write_text("{")
    fleet.want(c1=["a"])
    assert not fleet.reconcile(check=True)
    assert fleet.attached() == ["c1:a:eth0"]
    assert torn.read_text() == "{"


def test_the_desired_state_is_read_whole() -> None:
    web, batch = agent.read_desired(str(FLEET / "desired.yaml")).values()
    assert (web.id, web.netns) == ("web-1", "/run/netns/web-1")
    assert web.networks == ("front", NetworkRequest("storage", "net1", {}, {"ips": ["10.20.0.7/24"]}))
    assert web.capability_args == PORTS
    assert batch.networks is None
    assert dict(batch.args) == {"IgnoreUnknown": "1", "TENANT": "blue"}


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "containers: 1",
        "containers: [{id: c1}]",
        "containers: [{id: c1, netns: /a, network: x}]",
        "containers: [{id: c1, netns: /a}, {id: c1, netns: /b}]",
        "containers: [{id: c1, netns: /a, capabilities: {when: 2020-01-01}}]",
        "\x00",
    ],
)
def test_a_bad_desired_state_is_an_error_that_names_the_file(fleet: Fleet, text: str) -> None:
    fleet.file.write_text(text)
    with pytest.raises(ConfigError, match=r"desired\.yaml"):
        agent.read_desired(str(fleet.file))


def test_once_and_healthy_and_one_agent_per_directory(fleet: Fleet) -> None:
    status = str(fleet.node.root / "status.json")
    fleet.want(c1=["a"], c2=["none"])
    assert fleet.run("--once").returncode == 1
    assert not agent.is_healthy(status, 60)
    assert list(json.loads((fleet.node.root / "status.json").read_text())["failing"]) == ["c2"]
    fleet.want(c1=["a"])
    assert fleet.run("--once").returncode == 0
    assert fleet.attached() == ["c1:a:eth0"]
    assert fleet.run("--healthy", status).returncode == 0
    assert not agent.is_healthy(status, -1)
    with fleet.running() as process:
        fleet.want(c1=["a"], c2=["b"])
        wait_until(lambda: fleet.attached() == ["c1:a:eth0", "c2:b:eth0"], 60)
        second = fleet.run("--once")
        assert (second.returncode, "not started" in second.stderr) == (2, True)
        assert fleet.run("--dry-run").returncode == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert fleet.attached() == ["c1:a:eth0", "c2:b:eth0"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_ended_within_an_add_it_ends_the_change_or_converges_after_its_next_start(
    fleet: Fleet, number: signal.Signals
) -> None:
    started, go = fleet.node.root / "started", fleet.node.root / "go"
    loop = f"touch {started}; while [ ! -e {go} ]; do sleep 0.05; done"
    fleet.node.plugin("a", f"if [ $CNI_COMMAND = ADD ]; then {loop}; fi")
    fleet.want(c1=["a"])
    with fleet.running() as process:
        wait_until(started.exists, 60)
        process.send_signal(number)
        go.touch()  # the plugin outlives a killed agent
        assert process.wait(60) == (0 if number == signal.SIGTERM else -number)
    if number == signal.SIGKILL:
        assert fleet.run("--once").returncode == 0
    assert fleet.attached() == ["c1:a:eth0"]


def test_it_follows_a_config_map_and_the_networks_files_while_it_runs(fleet: Fleet) -> None:
    """The kubelet replaces a ConfigMap by renaming a symbolic link to another directory."""
    volume = fleet.node.root / "volume"
    rows: list[dict[str, Any]] = [{"id": "c1", "netns": "/ns/c1", "networks": ["a"]}]

    def put(version: str) -> None:
        (volume / version).mkdir(parents=True)
        (volume / version / "node-1.yaml").write_text(json.dumps({"containers": rows}))
        (volume / "..data_tmp").symlink_to(version)
        (volume / "..data_tmp").replace(volume / "..data")

    put("..1")
    (volume / "node-1.yaml").symlink_to("..data/node-1.yaml")
    fleet.file = volume / "node-1.yaml"
    with fleet.running() as process:
        wait_until(lambda: fleet.attached() == ["c1:a:eth0"], 60)
        rows.append({"id": "c2", "netns": "/ns/c2", "networks": ["b"]})
        put("..2")
        wait_until(lambda: fleet.attached() == ["c1:a:eth0", "c2:b:eth0"], 60)
        (volume / "..data").unlink()  # the ConfigMap has gone: nothing is detached
        fleet.node.configure("b", {"type": "b", "mtu": 1400})
        wait_until(lambda: fleet.node.calls("ADD").count("ADD b c2 eth0") == 2, 60)
        process.kill()
    assert fleet.node.calls("DEL") == ["DEL b c2 eth0"]
