"""Leftovers of ended containers: records and pins against the runtimes' state directories and the processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from libcni import RuntimeConf
from libcni.cli import main
from libcni.engines.oci.ended_containers import collect, container_ids, find_ended
from libcni.errors import CNIErrorGroup, ConfigError
from libcni.manager import NetworkManager

from .conftest import HookNode, end

Process = Callable[[], int]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a runtime's state directory."""
    path = tmp_path / "runc"
    path.mkdir()
    return path


def test_each_container_has_a_directory_also_before_its_state_is_written(root: Path) -> None:
    (root / "c1").mkdir()
    (root / "c2").mkdir()
    (root / "c2/state.json").touch()
    assert container_ids([str(root)]) == {"c1", "c2"}


def test_a_directory_that_does_not_exist_is_no_runtime_without_containers(root: Path) -> None:
    with pytest.raises(ConfigError, match="cannot list the containers of a runtime"):
        container_ids([f"{root}/none"])
    with pytest.raises(ConfigError, match='unknown runtime "runk" \\(give runc, crun'):
        container_ids(["runk"])


def test_a_container_lives_while_it_has_a_process_or_a_directory(node: HookNode, process: Process, root: Path) -> None:
    node.configure_capable("front", "a")
    pids = {name: process() for name in ("runs", "stopped", "ended")}
    for name, pid in pids.items():
        assert node.attach(pid, container_id=name) == ""
    (root / "stopped").mkdir()
    end(pids["stopped"])
    end(pids["ended"])
    ended = find_ended(node.cni, [str(root)])
    assert [one.container_id for one in ended.attachments] == ["ended"]
    assert [pin.container_id for pin in ended.pins] == ["ended"]


def test_a_program_that_does_not_see_the_processes_detaches_nothing(
    node: HookNode, process: Process, root: Path
) -> None:
    node.configure_capable("front", "a")
    pid = process()
    assert node.attach(pid, container_id="c1") == ""
    work = """
import sys
from libcni import CNIConfig
from libcni.errors import ConfigError
from libcni.engines.oci.pins import OWNER
from libcni.engines.oci.ended_containers import find_ended
cni = CNIConfig([], sys.argv[1], conf_dir=sys.argv[2], owner=OWNER)
try:
    print(len(find_ended(cni, [sys.argv[3]]).attachments))
except ConfigError as error:
    print(error)
"""
    program = [sys.executable, "-c", work, node.cni.cache_dir, node.cni.conf_dir, str(root)]
    other = ["unshare", "--pid", "--fork", "--mount-proc"]
    assert subprocess.run(program, capture_output=True, text=True, check=True).stdout == "0\n"
    assert (
        "the processes of other PID namespaces are hidden"
        in subprocess.run([*other, *program], capture_output=True, text=True, check=True).stdout
    )
    (root / "c1").mkdir()  # the runtime knows it, so the processes are not asked
    assert subprocess.run([*other, *program], capture_output=True, text=True, check=True).stdout == "0\n"


def command(node: HookNode, *words: str) -> int:
    return main([*words, f"--path={node.bin}", f"--cache-dir={node.cache}", f"--conf-dir={node.conf_dir}"])


def test_gc_shows_an_ended_container_before_it_detaches_it_and_doctor_says_what_to_type(
    node: HookNode, process: Process, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [plugin] = node.configure_capable("front", "a")
    pid = process()
    assert node.attach(pid) == ""
    assert command(node, "gc", "--runtime", str(root)) == 0
    command(node, "doctor")
    assert "has ended" not in capsys.readouterr().out
    end(pid)
    assert command(node, "doctor") != 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "container c1, front, eth0" in printed
    assert "its runtime did not run the poststop hook" in printed
    assert f"libcni gc --runtime runc --runtime crun --conf-dir {node.conf_dir} " in printed
    assert command(node, "gc", "--runtime", str(root), "--dry-run") == 0
    assert "c1" in capsys.readouterr().out
    assert "DEL" not in plugin.verbs
    assert command(node, "gc", "--runtime", str(root)) == 0
    assert "c1" in capsys.readouterr().out
    assert (node.attached, node.pinned) == ([], [])


def test_what_ended_containers_left_is_detached_and_nothing_else(node: HookNode, process: Process, root: Path) -> None:
    [plugin] = node.configure_capable("front", "a")
    ended, runs = process(), process()
    assert node.attach(ended, container_id="ended") == ""
    assert node.attach(runs, container_id="runs") == ""
    node.client(owner="").add_network_list("front", RuntimeConf("foreign", "/run/netns/none", "eth0"))
    left = process()
    node.pins.pin("killed", left)  # by a hook that was killed before it wrote a record
    end(ended)
    end(left)
    summary, pins = collect(NetworkManager(node.cni), [str(root)])
    assert [one.container_id for one in summary.of("detached")] == ["ended"]
    assert sorted(pin.container_id for pin in pins) == ["ended", "killed"]
    assert [one[0] for one in node.attached] == ["foreign", "runs"]
    assert node.pinned == [("runs", runs)]
    [call] = [call for call in plugin.calls if call.verb == "DEL"]
    assert call.env["CNI_NETNS"] == f"{node.pins.directory}/ended.{ended}"


def test_what_cannot_be_detached_keeps_its_namespace(node: HookNode, process: Process, root: Path) -> None:
    node.configure_capable("front", "a")
    node.fakes.scenario("a", {"DEL": [{"error": {"code": 100, "msg": "busy"}}] * 2 + [{}]})
    pid = process()
    assert node.attach(pid) == ""
    end(pid)
    with pytest.raises(CNIErrorGroup, match="GC: 1 failed"):
        collect(NetworkManager(node.cni), [str(root)])
    assert node.pinned == [("c1", pid)]
    _, pins = collect(NetworkManager(node.cni), [str(root)])
    assert [pin.pid for pin in pins] == [pid]
    assert node.attached == []


def test_what_the_configuration_forbids_to_sweep_stays_with_its_namespace(
    node: HookNode, process: Process, root: Path
) -> None:
    node.configure_capable("front", "a", disableGC=True)
    pid = process()
    assert node.attach(pid) == ""
    end(pid)
    assert collect(NetworkManager(node.cni), [str(root)])[1] == []
    assert node.pinned == [("c1", pid)]
