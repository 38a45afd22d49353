"""Rows of field.md about running plugins: deadlines, output, errors, environment. The number is the row's."""

from __future__ import annotations

import json
import os
import resource
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from libcni import (
    CNIError,
    CNIErrorGroup,
    DelPolicy,
    InvalidOutputError,
    NetworkNotFoundError,
    PluginError,
    PluginNotFoundError,
    PluginTimeoutError,
    ProcessExecutor,
    RuntimeConf,
)
from reliability.shell import RT, Shell
from reliability.test_embedding import wait_until


def seconds_of(work: Any, *args: Any, **options: Any) -> float:
    """Return how long a verb takes that is stopped at its deadline."""
    started = time.monotonic()
    with pytest.raises(PluginTimeoutError):
        work(*args, **options)
    return time.monotonic() - started


def gone(pid_file: Path) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid_file.read_text().strip()}/stat").read_text().split(") ")[1][0] == "Z"
    return True


def test_field_02_a_grandchild_of_4_s_and_a_deadline_of_1_s(shell: Shell) -> None:
    shell.plugin("hangs", f"sleep 4 & echo $! > {shell.root}/pid; wait")
    cni = shell.client()
    assert 1 <= seconds_of(cni.add_network_list, shell.network("hangs"), RT, timeout=1, rollback=False) < 2
    wait_until(lambda: gone(shell.root / "pid"))


def test_field_02_also_where_both_ignore_term(shell: Shell) -> None:
    shell.plugin("hangs", f"trap '' TERM; sleep 4 & echo $! > {shell.root}/pid; wait; sleep 4")
    cni = shell.client()
    assert 1 <= seconds_of(cni.add_network_list, shell.network("hangs"), RT, timeout=1, rollback=False) < 2
    wait_until(lambda: gone(shell.root / "pid"))


@pytest.mark.parametrize("stream", ["1", "2"])
def test_field_02_a_grandchild_that_holds_the_output_delays_nothing(shell: Shell, stream: str) -> None:
    """The plugin's exit ends the call. Some plugins start a daemon on purpose, and it lives on."""
    close = "2>&-" if stream == "1" else ">&-"
    shell.plugin("starts", f"[ $CNI_COMMAND = ADD ] && {{ sleep 4 {close} & echo $! > {shell.root}/pid; }}")
    started = time.monotonic()
    result = shell.client().add_network_list(shell.network("starts"), RT, timeout=1)
    assert time.monotonic() - started < 1
    assert result.ips[0].address == "10.1.0.5/16"
    assert not gone(shell.root / "pid")
    os.kill(int((shell.root / "pid").read_text()), 9)


def test_field_02_a_grandchild_that_prints_on_delays_nothing(shell: Shell) -> None:
    shell.plugin("starts", f"[ $CNI_COMMAND = DEL ] && {{ yes & echo $! > {shell.root}/pid; }}; exit 0")
    started = time.monotonic()
    shell.client().del_network_list(shell.network("starts"), RT)
    assert time.monotonic() - started < 1
    wait_until(lambda: gone(shell.root / "pid"))  # of SIGPIPE


def test_field_02_there_is_a_deadline_by_default_and_one_for_each_plugin(shell: Shell) -> None:
    shell.plugin("hangs", "sleep 10")
    shell.plugin("slow", "sleep 0.2")
    assert shell.client()._settings.timeout == 60.0
    cni = shell.client(plugin_timeout=0.4, timeout=5)
    assert 0.3 < seconds_of(cni.add_network_list, shell.network("hangs"), RT, rollback=False) < 1.5
    other = RuntimeConf("c2", None, "eth0")
    cni.add_network_list(shell.network("slow", "slow", "slow"), other)  # 0.6 s in all
    whole = shell.client(timeout=0.5, cleanup_timeout=5)
    assert seconds_of(whole.add_network_list, shell.network("slow", "slow", "slow"), RuntimeConf("c3", None, "e")) > 0.5


@pytest.mark.parametrize("timeout", [1e7, 1e10, None])
def test_field_02_very_long_deadlines(shell: Shell, timeout: float | None) -> None:
    shell.plugin("a")
    shell.client().add_network_list(shell.network("a"), RT, timeout=timeout)


def test_field_02_a_deadline_that_is_over_runs_nothing(shell: Shell) -> None:
    shell.plugin("a")
    assert seconds_of(shell.client().del_network_list, shell.network("a"), RT, timeout=1e-9) < 0.5
    assert shell.calls() == []


def test_field_04_every_binary_is_found_before_the_first_runs(shell: Shell) -> None:
    shell.plugin("first")
    cni = shell.client()
    for verb in (cni.add_network_list, cni.del_network_list):
        with pytest.raises(PluginNotFoundError) as raised:
            verb(shell.network("first", "missing"), RT)
        assert raised.value.plugin == "missing"
    assert shell.calls() == []
    assert shell.states() == []


def test_field_05_del_stops_at_the_first_error_unless_it_is_told_to_go_on(shell: Shell) -> None:
    for name in ("ipam", "middle", "last"):
        shell.plugin(name)
    net, cni = shell.network("ipam", "middle", "last"), shell.client()
    cni.add_network_list(net, RT)
    shell.plugin("middle", "exit 1")
    with pytest.raises(PluginError):
        cni.del_network_list(net, RT)
    assert shell.calls()[3:] == ["DEL last", "DEL middle"]
    with pytest.raises(CNIErrorGroup) as raised:
        cni.del_network_list(net, RT, policy=DelPolicy(keep_going=True))
    assert shell.calls()[5:] == ["DEL last", "DEL middle", "DEL ipam"]
    assert [getattr(error, "plugin", "") for error in raised.value.exceptions] == ["middle"]
    assert shell.states() == ["detaching"], "the record stays, so that it can be tried again"
    shell.plugin("middle")
    cni.del_network_list(net, RT)
    assert shell.states() == []


def test_field_06_a_missing_binary_or_configuration_does_not_keep_the_sandbox_for_ever(shell: Shell) -> None:
    shell.plugin("a")
    shell.plugin("removed")
    net, cni = shell.network("a", "removed"), shell.client(conf_dir=shell.root)
    cni.add_network_list(net, RT)
    (shell.bin / "removed").unlink()
    with pytest.raises(PluginNotFoundError):
        cni.del_network_list("net", RT)
    report = cni.del_network_list("net", RT, policy=DelPolicy(skip_missing=True))
    assert [(one.plugin, one.state) for one in report.plugins] == [("removed", "skipped"), ("a", "done")]
    assert shell.states() == []
    with pytest.raises(NetworkNotFoundError):
        cni.del_network_list("net", RT)


def test_field_09_clean_up_has_its_own_time(shell: Shell) -> None:
    shell.plugin("first", "[ $CNI_COMMAND = ADD ] || sleep 0.3")
    shell.plugin("hangs", "[ $CNI_COMMAND = ADD ] && sleep 10")
    net, cni = shell.network("first", "hangs"), shell.client()
    with pytest.raises(PluginTimeoutError) as raised:
        cni.add_network_list(net, RT, timeout=0.5)
    assert raised.value.rollback_errors == ()
    assert shell.calls() == ["ADD first", "ADD hangs", "DEL hangs", "DEL first"]
    assert shell.states() == []


def test_field_09_clean_up_is_bounded_too(shell: Shell) -> None:
    shell.plugin("hangs", "sleep 10")
    cni = shell.client(cleanup_timeout=0.2)
    assert seconds_of(cni.add_network_list, shell.network("hangs"), RT, timeout=0.2) < 2
    assert shell.states() == ["pending"]


def test_field_14_an_error_says_all_that_is_known(shell: Shell) -> None:
    error = '{"cniVersion": "1.0.0", "code": 7, "msg": "no such bridge", "details": "br0"}'
    shell.plugin("a", f"[ $CNI_COMMAND = ADD ] || exit 0; echo oops >&2; echo '{error}'; exit 3")
    with pytest.raises(PluginError) as raised:
        shell.client().add_network_list(shell.network("a"), RT)
    one = raised.value
    assert (one.code, one.msg, one.details, one.stderr, one.exit_status) == (7, "no such bridge", "br0", "oops\n", 3)
    assert (one.plugin, one.path, one.verb) == ("a", str(shell.bin / "a"), "ADD")
    assert (one.network, one.container_id, one.ifname) == ("net", "c1", "eth0")
    assert one.seconds > 0
    assert "no such bridge; br0 (code 7); stderr: 'oops'" in str(one)


def test_field_15_a_timeout_is_an_error_of_its_own(shell: Shell) -> None:
    shell.plugin("hangs", "echo working >&2; sleep 10")
    with pytest.raises(TimeoutError) as raised:
        shell.client().add_network_list(shell.network("hangs"), RT, timeout=0.3, rollback=False)
    assert isinstance(raised.value, PluginTimeoutError)
    assert (raised.value.plugin, raised.value.stderr) == ("hangs", "working\n")
    assert "it did not end within" in str(raised.value)


@pytest.mark.parametrize(
    ("printed", "problem"),
    [
        ("", "it printed nothing"),
        ("true", "it printed something that is not a result"),
        ("hello {}", "something that is not a result.*hello"),
        ("{} {}", "something after the result"),
        ('{"ips": [', "the document ends too early|ips"),
        ('{"code": 7, "msg": "no"}', "an error document and exit status 0: no"),
        ('{"cniVersion": "9.9.9"}', 'unsupported CNI result version "9.9.9"'),
    ],
)
def test_field_16_garbage_on_stdout_is_named_and_quoted(shell: Shell, printed: str, problem: str) -> None:
    shell.plugin("a", f"[ $CNI_COMMAND = ADD ] || exit 0; printf '%s' '{printed}'; exit 0")
    with pytest.raises(InvalidOutputError, match=problem):
        shell.client().add_network_list(shell.network("a"), RT)
    assert shell.calls() == ["ADD a", "DEL a"], "and rolled back"


@pytest.mark.parametrize("stream", ["", ">&2"])
def test_a_plugin_that_prints_without_end_is_stopped(shell: Shell, stream: str) -> None:
    shell.plugin("floods", f"[ $CNI_COMMAND = ADD ] || exit 0; yes {stream}")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    name = "stderr" if stream else "stdout"
    with pytest.raises(InvalidOutputError, match=f"more than 16777216 bytes on {name}, and was stopped") as raised:
        shell.client().add_network_list(shell.network("floods"), RT, timeout=3)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < 80, "the memory has grown by so many MiB"
    assert len(raised.value.stdout) + len(raised.value.stderr) < 300_000
    limited = shell.client(executor=ProcessExecutor(output_limit=1000))
    with pytest.raises(InvalidOutputError, match="more than 1000 bytes"):
        limited.add_network_list(shell.network("floods"), RuntimeConf("c2", None, "eth0"))


def test_output_up_to_the_limit_is_taken(shell: Shell) -> None:
    padding = "x" * 500_000
    shell.plugin("a", result=json.dumps({"cniVersion": "1.0.0", "padding": padding}))
    result = shell.client().add_network_list(shell.network("a"), RT)
    assert result.to_dict()["padding"] == padding


def test_field_42_callers_need_not_compare_texts(shell: Shell) -> None:
    shell.plugin("a", "exit 1")
    cni = shell.client(conf_dir=shell.root / "none")
    with pytest.raises(LookupError):
        cni.add_network_list("missing", RT)
    with pytest.raises(PluginNotFoundError) as raised:
        cni.add_network_list(shell.network("nothere"), RT)
    assert (raised.value.plugin, raised.value.searched) == ("nothere", (str(shell.bin),))
    with pytest.raises(ValueError, match="container ID"):
        cni.add_network_list(shell.network("a"), RuntimeConf("", None, "eth0"))
    for work in (cni.add_network_list, cni.check_network_list, cni.del_network_list):
        with pytest.raises(CNIError):
            work(shell.network("a"), RT)


def test_field_50_containers_in_parallel_and_no_daemon(shell: Shell) -> None:
    shell.plugin("slow", "sleep 0.3")
    net, cni = shell.network("slow"), shell.client()
    threads = [
        threading.Thread(target=cni.add_network_list, args=(net, RuntimeConf(f"c{number}", None, "eth0")))
        for number in range(8)
    ]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - started < 1.2
    assert shell.states() == ["ready"] * 8
