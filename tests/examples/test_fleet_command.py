"""The node agent's command: when it starts, what it says, and how it follows its files."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from manager.fakes import ManagerNode, fails

from libcni.testing import wait_until

from .fleet import Agent, attach, environment, files, module


class _UnixConnection(http.client.HTTPConnection):
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(20)
        self.sock.connect(self.host)


def get(address: str | tuple[str, int], path: str) -> tuple[int, str]:
    """Return the status and the body of an answer."""
    connection = (
        _UnixConnection(address) if isinstance(address, str) else http.client.HTTPConnection(*address, timeout=20)
    )
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_once_from_the_command_line(fleet: Agent) -> None:
    fleet.want(c1=["a"])
    assert fleet.run("--once").returncode == 0
    assert fleet.attached() == ["c1:a:eth0"]
    fleet.want(c1=["none"])
    assert fleet.run("--once").returncode == 1
    assert fleet.attached() == ["c1:a:eth0"]


def test_a_dry_run_prints_the_changes_and_writes_nothing(fleet: Agent) -> None:
    fleet.want(c1=["a"])
    done = fleet.run("--dry-run")
    assert (done.stdout, done.returncode) == ("attach c1: eth0: network a is not attached\n", 1)
    assert not fleet.node.cache.exists()
    assert not (fleet.node.root / "status.json").exists()
    fleet.reconcile()
    done = fleet.run("--dry-run")
    assert (done.stdout, done.returncode) == ("", 0)


def test_its_records_and_its_owner_are_its_own_by_default() -> None:
    options = module("agent").parser().parse_args([])
    assert options.cache_dir != "/var/lib/cni"
    assert options.owner
    assert options.listen is None
    cni = module("agent").make_agent(options).manager.cni
    assert (cni.cache_dir, cni.owner) == (options.cache_dir, options.owner)


@pytest.mark.parametrize("owner", ["", "other-runtime"])
def test_it_does_not_start_where_others_have_records_unless_told_to_leave_them(fleet: Agent, owner: str) -> None:
    shared = fleet.neighbours(fleet.node.cache) if not owner else fleet.node.client(owner=owner)
    attach(shared, "theirs", "a")
    before = files(fleet.node.cache)
    fleet.want()
    done = fleet.run("--once")
    assert done.returncode == 2
    assert "theirs" in done.stderr
    assert "--leave-others" in done.stderr
    assert fleet.run("--once", "--leave-others").returncode == 0
    assert {name: data for name, data in files(fleet.node.cache).items() if name != "agent.lock"} == before
    assert fleet.node.calls("DEL") == []


def test_it_does_not_start_with_gc_on_a_network_that_others_use(fleet: Agent) -> None:
    attach(fleet.neighbours(), "theirs", "a")
    fleet.want()
    assert fleet.run("--once").returncode == 0
    done = fleet.run("--once", "--gc")
    assert done.returncode == 2
    assert "network a" in done.stderr
    assert fleet.run("--once", "--gc", "--leave-others").returncode == 0


@pytest.mark.parametrize(
    "words",
    [
        ["--owner", ""],
        ["--interval", "0"],
        ["--check-interval", "nan"],
        ["--changes-per-minute", "0"],
        ["--listen", "0.0.0.0:80"],
        ["--listen", "192.0.2.1:80"],
        ["--listen", "localhost"],
        ["--listen", "127.0.0.1:66000"],
    ],
)
def test_options_that_would_be_dangerous_or_mean_nothing_are_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit):
        module("agent").parser().parse_args(words)


def test_it_follows_the_file_alone_in_its_directory_until_it_is_told_to_end(fleet: Agent) -> None:
    fleet.want(c1=["a"])
    agent = module("agent")
    status = str(fleet.node.root / "status.json")
    assert not agent.is_healthy(status, 60)
    with fleet.running() as process:
        fleet.until_attached("c1:a:eth0")
        fleet.want(c1=["a"], c2=["b"])
        fleet.until_attached("c1:a:eth0", "c2:b:eth0")
        wait_until(lambda: agent.is_healthy(status, 60))
        assert not agent.is_healthy(status, -1)
        assert fleet.run("--dry-run").returncode == 0  # it may run beside the agent
        second = fleet.run()
        assert second.returncode == 2
        assert "another agent" in second.stderr
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert fleet.attached() == ["c1:a:eth0", "c2:b:eth0"]


def test_it_repairs_at_an_interval_while_it_runs(fleet: Agent) -> None:
    damage = fleet.node.root / "damage"
    fleet.node.plugin("a", f"[ $CNI_COMMAND = ADD ] && rm -f {damage}\n{fails('CHECK', when=f'[ -e {damage} ]')}")
    fleet.want(c1=["a"])
    with fleet.running("--check-interval", "0.1"):
        fleet.until_attached("c1:a:eth0")
        damage.touch()
        wait_until(lambda: fleet.node.calls("ADD", "DEL") == ["ADD a c1 eth0", "DEL a c1 eth0", "ADD a c1 eth0"])


def slow_add(node: ManagerNode) -> tuple[Path, Path]:
    """Make ADD of plugin a wait; return the file that shows that it runs, and the one that it waits for."""
    started, go = node.root / "started", node.root / "go"
    loop = f"touch {started}; while [ ! -e {go} ]; do sleep 0.05; done"
    node.plugin("a", f"if [ $CNI_COMMAND = ADD ]; then {loop}; fi")
    return started, go


def test_told_to_end_it_ends_the_change_that_runs_and_begins_no_other(fleet: Agent) -> None:
    started, go = slow_add(fleet.node)
    fleet.agent._limit = asyncio.Semaphore(1)
    fleet.want(c1=["a"], c2=["a"])

    async def story() -> None:
        stop = asyncio.Event()
        task = asyncio.create_task(fleet.agent.run(stop, interval=0.01))
        while not started.exists():  # noqa: ASYNC110 - a plugin makes it
            await asyncio.sleep(0.01)
        stop.set()
        go.touch()
        await task

    asyncio.run(story())
    assert len(fleet.attached()) == 1
    assert len(fleet.agent.state.waiting) == 1


def test_killed_within_an_add_it_converges_after_its_next_start(fleet: Agent) -> None:
    started, go = slow_add(fleet.node)
    fleet.want(c1=["a"])
    with fleet.running() as process:
        wait_until(started.exists, 60)
        process.kill()
        process.wait()
    go.touch()  # the plugin has outlived the agent
    assert fleet.run("--once").returncode == 0
    assert fleet.attached() == ["c1:a:eth0"]
    calls = fleet.node.calls()
    assert fleet.run("--once").returncode == 0
    assert fleet.node.calls("ADD", "DEL") == [call for call in calls if not call.startswith("CHECK")]


def test_it_follows_a_config_map_and_the_networks_files_while_it_runs(fleet: Agent) -> None:
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
    with fleet.running():
        fleet.until_attached("c1:a:eth0")
        rows.append({"id": "c2", "netns": "/ns/c2", "networks": ["b"]})
        put("..2")
        fleet.until_attached("c1:a:eth0", "c2:b:eth0")
        (volume / "..data").unlink()  # the ConfigMap has gone: nothing is detached
        fleet.node.configure("b", {"type": "b", "mtu": 1400})
        wait_until(lambda: fleet.node.calls("ADD").count("ADD b c2 eth0") == 2)
        assert fleet.node.calls("DEL") == ["DEL b c2 eth0"]


def test_its_log_has_one_json_object_a_line(fleet: Agent) -> None:
    fleet.node.plugin("b", fails("ADD"))
    fleet.want(c1=["a"], c2=["b"])
    rows = [json.loads(line) for line in fleet.run("--once").stderr.splitlines()]
    assert {"time", "level", "logger", "message"} <= rows[0].keys()
    [attached] = [row for row in rows if row.get("fleet_change") == "attach" and row["fleet_container_id"] == "c1"]
    assert attached["level"] == "info"
    assert any(row["level"] == "warning" and row.get("fleet_container_id") == "c2" for row in rows)
    assert any((row.get("cni_network"), row.get("cni_code")) == ("b", 100) for row in rows)


@pytest.fixture(params=["unix", "loopback"])
def address(request: pytest.FixtureRequest, fleet: Agent) -> str | tuple[str, int]:
    return str(fleet.node.root / "socket") if request.param == "unix" else ("127.0.0.1", 0)


def test_health_readiness_and_metrics(fleet: Agent, address: str | tuple[str, int]) -> None:
    endpoints = module("endpoints").Endpoints(fleet.agent)
    fleet.node.plugin("b", fails("ADD"))
    fleet.want(c1=["a"], c2=["b"])
    with endpoints.serving(address) as bound:
        assert get(bound, "/healthz") == (200, "ok\n")
        assert get(bound, "/readyz")[0] == 503  # no round yet
        fleet.reconcile(check=True)
        status, body = get(bound, "/readyz")
        assert status == 503
        assert list(json.loads(body)["failing"]) == ["c2"]
        fleet.want(c1=["a"])
        fleet.reconcile(check=True)
        status, body = get(bound, "/readyz")
        assert (status, json.loads(body)["converged"]) == (200, True)
        lines = get(bound, "/metrics")[1].splitlines()
        assert "libcni_fleet_converged 1.0" in lines
        assert 'libcni_fleet_changes_total{kind="attach",outcome="done"} 1.0' in lines
        assert 'libcni_fleet_changes_total{kind="attach",outcome="failed"} 1.0' in lines
        assert 'libcni_fleet_checks_total{outcome="ok"} 1.0' in lines
        assert "libcni_fleet_rounds_total 2.0" in lines
        assert get(bound, "/")[0] == 404
        if isinstance(bound, str):
            assert stat.S_IMODE(os.stat(bound).st_mode) == 0o600
    assert not isinstance(bound, str) or not os.path.exists(bound)


def test_health_fails_when_the_event_loop_is_stuck(fleet: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    module_ = module("endpoints")
    endpoints = module_.Endpoints(fleet.agent)
    assert endpoints.health()[0] == 200
    monkeypatch.setattr(module_, "STALLED", -1.0)
    assert endpoints.health()[0] == 503
    monkeypatch.undo()
    endpoints.beat()
    assert endpoints.health()[0] == 200


def test_a_client_that_says_nothing_keeps_no_other_waiting(fleet: Agent) -> None:
    endpoints = module("endpoints").Endpoints(fleet.agent)
    path = str(fleet.node.root / "socket")
    with endpoints.serving(path), socket.socket(socket.AF_UNIX) as silent:
        silent.connect(path)
        assert get(path, "/healthz") == (200, "ok\n")
    assert not [thread for thread in threading.enumerate() if thread.name == "endpoints"]


def test_the_command_listens_where_it_is_told(fleet: Agent) -> None:
    path = str(fleet.node.root / "socket")
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(path)  # an agent that was killed leaves its socket
    stale.close()
    fleet.want(c1=["a"])
    with fleet.running("--listen", f"unix:{path}") as process:
        fleet.until_attached("c1:a:eth0")
        wait_until(lambda: get(path, "/readyz")[0] == 200)
        assert get(path, "/healthz")[0] == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_without_prometheus_client_only_the_metrics_are_missing(fleet: Agent, tmp_path: Path) -> None:
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "prometheus_client.py").write_text("raise ImportError")
    code = (
        "import sys; sys.path[:0] = sys.argv[1:]\n"
        "from endpoints import Endpoints\n"
        "class Agent: pass\n"
        "print(Endpoints(Agent()).metrics(), Endpoints(Agent()).health()[0])\n"
    )
    paths = [str(tmp_path / "without"), str(Path(module("endpoints").__file__).parent)]
    done = subprocess.run(
        [sys.executable, "-c", code, *paths], env=environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("(501,")
    assert done.stdout.strip().endswith("200")


def test_a_status_file_that_cannot_be_written_stops_nothing(node: ManagerNode) -> None:
    node.configure("a")
    fleet = Agent(node)
    agent = module("agent")
    fleet.agent._on_state = lambda state: agent.write_status(str(node.root / "none" / "status"), state)
    fleet.want(c1=["a"])
    assert fleet.reconcile().converged
