"""The node agent in examples/fleet, what deploys it, and the simulation of many nodes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from libcni import ConfigError
from libcni.manager import Container, NetworkRequest
from manager.fakes import Place, fails

FLEET = Path(__file__).parents[2] / "examples" / "fleet"
MODULES = ("agent", "desired", "simulate")


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(FLEET))
    yield
    for name in MODULES:
        sys.modules.pop(name, None)


class Agent:
    """An agent in a place of its own, and its desired-state file."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.file = place.root / "desired.yaml"
        self.manager = place.async_manager()
        self.agent: Any = import_module("agent").NodeAgent(self.manager, str(self.file), retry=(0.05, 0.2))

    def want(self, **containers: Any) -> None:
        rows = [{"id": name, "netns": f"/ns/{name}", "networks": networks} for name, networks in containers.items()]
        self.file.write_text(yaml.safe_dump({"containers": rows}))

    def reconcile(self) -> Any:
        return asyncio.run(self.agent.reconcile())

    def attached(self) -> list[str]:
        found = self.place.client().get_cached_attachments()
        return sorted(f"{one.container_id}:{one.network}:{one.ifname}" for one in found if one.state == "ready")


@pytest.fixture
def fleet(place: Place) -> Agent:
    place.network("a")
    place.network("b")
    return Agent(place)


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
    before = fleet.place.calls()
    fleet.reconcile()
    assert fleet.place.calls() == before


def test_a_container_whose_networks_change_is_attached_anew(fleet: Agent) -> None:
    fleet.want(c1=["a"])
    fleet.reconcile()
    fleet.want(c1=["b", "a"])
    fleet.reconcile()
    assert fleet.attached() == ["c1:a:eth1", "c1:b:eth0"]


def test_a_container_that_is_half_attached_is_attached_anew(fleet: Agent) -> None:
    fleet.want(c1=["a", "b"])
    fleet.reconcile()
    next(fleet.place.cache.glob("results/b-*")).unlink()
    fleet.reconcile()
    assert fleet.attached() == ["c1:a:eth0", "c1:b:eth1"]


def test_a_container_whose_namespace_was_made_again_is_attached_anew(fleet: Agent) -> None:
    netns = fleet.place.root / "netns"
    netns.touch()
    row = {"id": "c1", "netns": str(netns), "networks": ["a"]}
    fleet.file.write_text(json.dumps({"containers": [row]}))
    fleet.reconcile()
    (fleet.place.root / "new").touch()
    os.replace(fleet.place.root / "new", netns)
    fleet.reconcile()
    assert len(fleet.place.calls("ADD")) == 2


def test_a_desired_state_that_cannot_be_read_never_means_nothing(fleet: Agent) -> None:
    fleet.want(c1=["a"])
    fleet.reconcile()
    fleet.file.write_text("containers: [")
    state = fleet.reconcile()
    asyncio.run(fleet.agent.collect_garbage())
    assert not state.converged
    assert "desired.yaml" in state.problem
    assert fleet.attached() == ["c1:a:eth0"]
    fresh = Agent(fleet.place)
    fresh.reconcile()
    asyncio.run(fresh.agent.collect_garbage())
    assert fleet.attached() == ["c1:a:eth0"]


def test_what_fails_stops_nothing_else_and_is_tried_again_later(fleet: Agent) -> None:
    fleet.place.plugin("b", fails("ADD", msg="full"))
    fleet.want(c1=["a"], c2=["a", "b"], c3=["a"])
    state = fleet.reconcile()
    assert list(state.failing) == ["c2"]
    assert "full" in state.failing["c2"]
    assert fleet.attached() == ["c1:a:eth0", "c3:a:eth0"]
    tries = len(fleet.place.calls("ADD"))
    assert fleet.reconcile().failing
    assert len(fleet.place.calls("ADD")) == tries
    fleet.place.plugin("b")
    time.sleep(0.06)
    assert fleet.reconcile().converged


def test_a_container_that_fails_and_is_no_longer_wanted_is_forgotten(fleet: Agent) -> None:
    fleet.place.plugin("b", fails("ADD"))
    fleet.want(c1=["b"])
    assert not fleet.reconcile().converged
    fleet.want()
    assert fleet.reconcile().converged


def test_gc_cleans_what_no_container_owns(fleet: Agent) -> None:
    fleet.want(c1=["a"])
    fleet.reconcile()
    asyncio.run(fleet.manager.set_up(Container("stray", "/ns", ["b"])))
    asyncio.run(fleet.agent.collect_garbage())
    assert fleet.attached() == ["c1:a:eth0"]


def test_the_desired_state_is_read_whole() -> None:
    web, batch = import_module("desired").read_desired(str(FLEET / "desired.yaml"))
    assert (web.id, web.netns) == ("web-1", "/run/netns/web-1")
    assert web.networks == ("front", NetworkRequest("storage", "net1", {}, {"ips": ["10.20.0.7/24"]}))
    assert web.capability_args == {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}
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
        "{",
    ],
)
def test_a_bad_desired_state_is_an_error_that_names_the_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "desired.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"desired\.yaml"):
        import_module("desired").read_desired(str(file))


def command(fleet: Agent, *more: str) -> list[str]:
    place = fleet.place
    options = {
        "--desired": fleet.file,
        "--conf-dir": place.conf,
        "--plugin-dir": place.bin,
        "--cache-dir": place.cache,
        "--status": place.root / "status.json",
        "--interval": "0.05",
    }
    words = [str(word) for pair in options.items() for word in pair]
    return [sys.executable, str(FLEET / "agent.py"), *words, *more]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(FLEET.parents[1])}


@contextlib.contextmanager
def running(fleet: Agent) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command(fleet), env=environment(), stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def until_attached(fleet: Agent, *expected: str) -> None:
    deadline = time.monotonic() + 20
    while fleet.attached() != list(expected):
        assert time.monotonic() < deadline, fleet.attached()
        time.sleep(0.02)


def test_once_from_the_command_line(fleet: Agent) -> None:
    fleet.want(c1=["a"])
    assert subprocess.run(command(fleet, "--once"), env=environment(), check=False).returncode == 0
    assert fleet.attached() == ["c1:a:eth0"]
    fleet.want(c1=["none"])
    assert subprocess.run(command(fleet, "--once"), env=environment(), check=False).returncode == 1


def test_it_follows_the_file_alone_in_its_directory_until_it_is_told_to_end(fleet: Agent) -> None:
    fleet.want(c1=["a"])
    agent = import_module("agent")
    status = str(fleet.place.root / "status.json")
    assert not agent.is_healthy(status, 60)
    with running(fleet) as process:
        until_attached(fleet, "c1:a:eth0")
        fleet.want(c1=["a"], c2=["b"])
        until_attached(fleet, "c1:a:eth0", "c2:b:eth0")
        second = subprocess.run(command(fleet), env=environment(), capture_output=True, text=True, check=False)
        assert second.returncode == 1
        assert "another agent" in second.stderr
        assert agent.is_healthy(status, 60)
        assert not agent.is_healthy(status, -1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    assert fleet.attached() == ["c1:a:eth0", "c2:b:eth0"]


def test_the_daemon_set_is_of_the_right_form() -> None:
    document = yaml.safe_load((FLEET / "daemonset.yaml").read_text())
    assert (document["apiVersion"], document["kind"]) == ("apps/v1", "DaemonSet")
    spec = document["spec"]["template"]["spec"]
    assert document["spec"]["selector"]["matchLabels"] == document["spec"]["template"]["metadata"]["labels"]
    assert spec["hostNetwork"] is True
    (container,) = spec["containers"]
    assert container["securityContext"] == {"privileged": True}
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}
    on_host = {volume["hostPath"]["path"] for volume in spec["volumes"]}
    mounted = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    assert on_host == set(mounted)
    assert mounted["/run/netns"]["mountPropagation"] == "HostToContainer"
    options = import_module("agent").parser().parse_args(container["command"][2:])
    assert {options.conf_dir, options.cache_dir, *options.plugin_dir, os.path.dirname(options.desired)} <= on_host
    assert not mounted[options.cache_dir].get("readOnly")
    probe = import_module("agent").parser().parse_args(container["readinessProbe"]["exec"]["command"][2:])
    assert probe.healthy == options.status


def test_the_nomad_job_is_of_the_right_form() -> None:
    job = json.loads((FLEET / "fleet.nomad.json").read_text())["Job"]
    assert {"ID", "Name", "Type", "Datacenters", "TaskGroups"} <= job.keys()
    assert job["Type"] == "system"
    (group,) = job["TaskGroups"]
    (task,) = group["Tasks"]
    assert (task["Driver"], task["User"], task["KillSignal"]) == ("raw_exec", "root", "SIGTERM")
    program, *arguments = task["Config"]["args"]
    assert program.endswith("/agent.py")
    assert import_module("agent").parser().parse_args(arguments).plugin_dir == ["/opt/cni/bin"]


def check_report(report: dict[str, Any], nodes: int) -> None:
    assert report["attachments"] == nodes * report["containers per node"] * 2
    assert report["a tenth broken: converged nodes"] == nodes - nodes // 10
    assert report["a tenth broken: failed calls"] >= nodes // 10
    assert report["healed: leaked leases"] == 0
    assert report["every tenth call fails: leaked leases"] == 0
    assert report["left in the end"] == 0


def test_a_small_fleet_converges_and_leaks_nothing(tmp_path: Path) -> None:
    report = asyncio.run(import_module("simulate").simulate(tmp_path, nodes=10, containers=2))
    check_report(report, 10)


@pytest.mark.slow
def test_two_hundred_nodes_converge_in_two_minutes_and_broken_ones_do_not_hold_up_the_others(tmp_path: Path) -> None:
    started = time.monotonic()
    report = asyncio.run(import_module("simulate").simulate(tmp_path))
    check_report(report, 200)
    assert report["every tenth call fails: failed calls"] > 0
    # a third of the work of the cold start is done while a tenth is broken; it must not take longer
    assert report["a tenth broken: the others, s"] <= report["cold start, s"] + 1
    assert time.monotonic() - started < 120
