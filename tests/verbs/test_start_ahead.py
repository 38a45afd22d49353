"""Plugins that are started ahead: they wait for their configuration, and do nothing before it comes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from helpers import network

from libcni import AsyncCNIConfig, CNIConfig, NetworkConfigList, PluginError, RuntimeConf
from libcni.verbs.node import StartAhead

RT = RuntimeConf("c1", None, "eth0")
PRINT = """[ $CNI_COMMAND != ADD ] || echo '{"cniVersion":"1.0.0"}'"""


class Shell:
    """Plugins of shell that log when they start, when they have read, and when they end."""

    def __init__(self, directory: Path, kind: type[CNIConfig | AsyncCNIConfig]) -> None:
        self.directory = directory
        self.bin = directory / "bin"
        self.bin.mkdir()
        self.cache = directory / "cache"
        self.log_file = directory / "log"
        self.kind = kind

    def plugin(self, name: str, body: str = PRINT) -> None:
        path = self.bin / name
        path.write_text(
            f"#!/bin/sh\necho {name} $CNI_COMMAND started >> {self.log_file}\n"
            f'config=$(cat)\n[ -n "$config" ] || {{ echo {name} empty >> {self.log_file}; exit 1; }}\n'
            f"echo {name} $CNI_COMMAND read >> {self.log_file}\n{body}\n"
            f"echo {name} $CNI_COMMAND ended >> {self.log_file}\n"
        )
        path.chmod(0o755)

    def call(self, verb: str, net: NetworkConfigList, mode: StartAhead = "always", **settings: Any) -> Any:
        cni = self.kind([self.bin], self.cache, start_ahead=mode, **settings)

        async def awaited() -> Any:
            return await getattr(cni, verb)(net, RT)

        return asyncio.run(awaited()) if isinstance(cni, AsyncCNIConfig) else getattr(cni, verb)(net, RT)

    @property
    def log(self) -> list[str]:
        return self.log_file.read_text().splitlines() if self.log_file.exists() else []


@pytest.fixture(params=[CNIConfig, AsyncCNIConfig], ids=["blocking", "asyncio"])
def shell(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Shell:
    # Another test's plugins, and those of a machine with one core, must not decide whether a plugin starts ahead.
    monkeypatch.setattr("libcni.verbs.node.can_start_ahead", lambda: True)
    return Shell(tmp_path, request.param)


def children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


def wait_until_started(shell: Shell, line: str) -> str:
    """Return shell code that waits until another plugin has logged ``line``."""
    return f'until grep -q "{line}" {shell.log_file}; do sleep 0.01; done'


def test_the_next_plugin_starts_while_one_runs_and_reads_when_it_has_ended(shell: Shell) -> None:
    shell.plugin("a", f"{wait_until_started(shell, 'b $CNI_COMMAND started')}; {PRINT}")
    shell.plugin("b", f"{wait_until_started(shell, 'c $CNI_COMMAND started')}; {PRINT}")
    shell.plugin("c")
    net = network("a", "b", "c")
    shell.call("add_network_list", net)
    log = shell.log
    for one, after in (("a", "b"), ("b", "c")):
        assert log.index(f"{after} ADD started") < log.index(f"{one} ADD ended") < log.index(f"{after} ADD read")
    shell.plugin("c", f"{wait_until_started(shell, 'b DEL started')}")
    shell.plugin("b", f"{wait_until_started(shell, 'a DEL started')}")
    shell.plugin("a")
    shell.call("del_network_list", net)
    log = shell.log
    for one, after in (("c", "b"), ("b", "a")):
        assert log.index(f"{after} DEL started") < log.index(f"{one} DEL ended") < log.index(f"{after} DEL read")


def test_check_starts_ahead_too(shell: Shell) -> None:
    shell.plugin("a")
    shell.plugin("b")
    net = network("a", "b")
    shell.call("add_network_list", net, "never")
    shell.plugin("a", wait_until_started(shell, "b CHECK started"))
    shell.call("check_network_list", net)
    assert shell.log.index("b CHECK started") < shell.log.index("a CHECK ended") < shell.log.index("b CHECK read")


def test_not_a_byte_before_the_record_is_on_the_disk(shell: Shell) -> None:
    shell.plugin("a", f"ls {shell.cache}/results >> {shell.log_file}; {PRINT}")
    shell.call("add_network_list", network("a"))
    assert shell.log == ["a ADD started", "a ADD read", "net-c1-eth0", "a ADD ended"]


def test_a_record_that_cannot_be_written_leaves_the_first_plugin_unfed(shell: Shell) -> None:
    shell.plugin("a")
    shell.cache.mkdir()
    (shell.cache / "results").write_text("a file")
    with pytest.raises(Exception, match="cannot be"):
        shell.call("add_network_list", network("a"))
    assert not any("read" in line or "empty" in line for line in shell.log)
    assert children() == []


def test_a_plugin_that_fails_leaves_the_next_one_unfed_and_killed(shell: Shell) -> None:
    shell.plugin("a", f"[ $CNI_COMMAND = DEL ] || {{ {wait_until_started(shell, 'b ADD started')}; exit 1; }}")
    shell.plugin("b")
    descriptors = sorted(os.listdir("/proc/self/fd"))
    with pytest.raises(PluginError):
        shell.call("add_network_list", network("a", "b"))
    assert [line for line in shell.log if line.startswith("b ADD")] == ["b ADD started"]
    assert [line for line in shell.log if "DEL read" in line] == ["b DEL read", "a DEL read"]
    assert children() == []
    assert sorted(os.listdir("/proc/self/fd")) == descriptors


@pytest.mark.parametrize("mode", ["auto", "never"])
def test_a_plugin_that_is_not_known_to_read_first_is_not_started_ahead(shell: Shell, mode: StartAhead) -> None:
    shell.plugin("a", f"sleep 0.2; {PRINT}")
    shell.plugin("b")
    shell.call("add_network_list", network("a", "b"), mode)
    assert shell.log.index("a ADD ended") < shell.log.index("b ADD started")


def test_a_plugins_time_counts_from_its_configuration(shell: Shell) -> None:
    shell.plugin("a", f"sleep 1.5; {PRINT}")
    shell.plugin("b", f"sleep 1.5; {PRINT}")
    shell.call("add_network_list", network("a", "b"), plugin_timeout=2.5)


def test_a_configuration_larger_than_the_pipe_reaches_the_plugin(shell: Shell) -> None:
    shell.plugin("a")
    shell.plugin("b", f'printf %s "$config" | wc -c >> {shell.log_file}; {PRINT}')
    shell.call("add_network_list", network("a", {"type": "b", "x": "y" * 2_000_000}))
    assert any(line.isdigit() and int(line) > 2_000_000 for line in shell.log)
    assert children() == []


def test_an_executor_without_prepare_works_as_before(tmp_path: Path) -> None:
    from libcni.executor import ProcessExecutor

    class Own:
        def __init__(self) -> None:
            self.find = ProcessExecutor().find
            self.execute = ProcessExecutor().execute

    shell = Shell(tmp_path, CNIConfig)
    shell.plugin("a")
    shell.call("add_network_list", network("a"), executor=Own())
    assert shell.log == ["a ADD started", "a ADD read", "a ADD ended"]


def test_another_word_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="auto, always, never"):
        CNIConfig([], tmp_path, start_ahead="allways")  # type: ignore[arg-type]


@pytest.mark.parametrize("kill_at", ["before the record", "while the first runs"])
def test_a_killed_runtime_leaves_a_waiting_plugin_without_its_configuration(tmp_path: Path, kill_at: str) -> None:
    shell = Shell(tmp_path, CNIConfig)
    shell.plugin("a", f"{wait_until_started(shell, 'b ADD started')}; sleep 60")
    shell.plugin("b")
    runtime = textwrap.dedent(f"""
        import os, signal, time
        import libcni, libcni.verbs.node
        libcni.verbs.node.can_start_ahead = lambda: True
        from libcni.store.records import RecordStore
        if {kill_at!r} == "before the record":
            RecordStore.begin = lambda self, record: (time.sleep(0.5), os.kill(os.getpid(), signal.SIGKILL))
        net = libcni.NetworkConfigList.from_dict(
            {{"cniVersion": "1.0.0", "name": "net", "plugins": [{{"type": "a"}}, {{"type": "b"}}]}})
        cni = libcni.CNIConfig([{str(shell.bin)!r}], {str(shell.cache)!r}, start_ahead="always")
        cni.add_network_list(net, libcni.RuntimeConf("c1", None, "eth0"))
    """)
    process = subprocess.Popen([sys.executable, "-c", runtime])
    waiting = "a" if kill_at == "before the record" else "b"
    deadline = time.monotonic() + 30
    while f"{waiting} ADD started" not in shell.log and time.monotonic() < deadline:
        time.sleep(0.01)
    if kill_at != "before the record":
        process.send_signal(signal.SIGKILL)
    process.wait(30)
    while f"{waiting} empty" not in shell.log and time.monotonic() < deadline:
        time.sleep(0.01)
    assert f"{waiting} empty" in shell.log
    assert f"{waiting} ADD read" not in shell.log
    subprocess.run(["pkill", "-KILL", "-f", str(shell.bin)], check=False)


@pytest.mark.real
def test_a_real_plugin_is_started_ahead_and_killed_without_an_effect(tmp_path: Path) -> None:
    from libcni.executor.start_ahead import reads_first

    assert reads_first("/usr/lib/cni/bridge")
    shell = Shell(tmp_path, CNIConfig)
    shell.plugin("first", "[ $CNI_COMMAND = DEL ] || { sleep 0.3; exit 1; }")
    ipam = {"type": "host-local", "subnet": "10.96.0.0/24", "dataDir": str(tmp_path / "ipam")}
    net = network("first", {"type": "bridge", "bridge": "br-ahead", "ipam": ipam})
    cni = CNIConfig([shell.bin, "/usr/lib/cni"], shell.cache)
    with pytest.raises(PluginError, match="first"):
        cni.add_network_list(net, RT)
    assert not Path("/sys/class/net/br-ahead").exists()
    assert not (tmp_path / "ipam").exists() or not list((tmp_path / "ipam").rglob("10.*"))
    assert children() == []
