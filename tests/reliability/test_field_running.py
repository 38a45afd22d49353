"""Rows of field.md about running plugins: deadlines, output, errors, environment. The number is the row's."""

from __future__ import annotations

import json
import os
import resource
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from helpers import RT, network
from nodes import FakeNode
from processes import is_running

from libcni import (
    CNIError,
    CNIErrorGroup,
    DelPolicy,
    InvalidOutputError,
    NetworkNotFoundError,
    PluginError,
    PluginNotFoundError,
    PluginTimeoutError,
    RuntimeConf,
)
from libcni.executor import ProcessExecutor
from libcni.testing import wait_until


def seconds_of(work: Any, *args: Any, **options: Any) -> float:
    """Return how long a verb takes that is stopped at its deadline."""
    started = time.monotonic()
    with pytest.raises(PluginTimeoutError):
        work(*args, **options)
    return time.monotonic() - started


def gone(pid_file: Path) -> bool:
    return not is_running(int(pid_file.read_text()))


def test_field_02_a_grandchild_of_4_s_and_a_deadline_of_1_s(node: FakeNode) -> None:
    node.plugin("hangs", f"sleep 4 & echo $! > {node.root}/pid; wait")
    cni = node.client()
    assert 1 <= seconds_of(cni.add_network_list, node.network("hangs"), RT, timeout=1, rollback=False) < 2
    wait_until(lambda: gone(node.root / "pid"))


def test_field_02_also_where_both_ignore_term(node: FakeNode) -> None:
    node.plugin("hangs", f"trap '' TERM; sleep 4 & echo $! > {node.root}/pid; wait; sleep 4")
    cni = node.client()
    assert 1 <= seconds_of(cni.add_network_list, node.network("hangs"), RT, timeout=1, rollback=False) < 2
    wait_until(lambda: gone(node.root / "pid"))


@pytest.mark.parametrize("stream", ["1", "2"])
def test_field_02_a_grandchild_that_holds_the_output_delays_nothing(node: FakeNode, stream: str) -> None:
    """The plugin's exit ends the call. Some plugins start a daemon on purpose, and it lives on."""
    close = "2>&-" if stream == "1" else ">&-"
    node.plugin("starts", f"[ $CNI_COMMAND = ADD ] && {{ sleep 4 {close} & echo $! > {node.root}/pid; }}")
    started = time.monotonic()
    result = node.client().add_network_list(node.network("starts"), RT, timeout=1)
    assert time.monotonic() - started < 1
    assert result.ips[0].address == "10.0.0.2/24"
    assert not gone(node.root / "pid")
    os.kill(int((node.root / "pid").read_text()), 9)


def test_field_02_a_grandchild_that_prints_on_delays_nothing(node: FakeNode) -> None:
    node.plugin("starts", f"[ $CNI_COMMAND = DEL ] && {{ yes & echo $! > {node.root}/pid; }}; exit 0")
    started = time.monotonic()
    node.client().del_network_list(node.network("starts"), RT)
    assert time.monotonic() - started < 1
    wait_until(lambda: gone(node.root / "pid"))  # of SIGPIPE


def test_field_02_there_is_a_deadline_by_default_and_one_for_each_plugin(node: FakeNode) -> None:
    node.plugin("hangs", "sleep 10")
    node.plugin("slow", "sleep 0.2")
    assert node.client()._settings.timeout == 60.0
    cni = node.client(plugin_timeout=0.4, timeout=30)
    assert 0.3 < seconds_of(cni.add_network_list, node.network("hangs"), RT, rollback=False) < 9
    cni = node.client(plugin_timeout=2, timeout=30)
    eleven = ["slow"] * 11  # 2.2 s in all
    cni.add_network_list(node.network(*eleven), RuntimeConf("c2", None, "eth0"))
    whole = node.client(timeout=0.5, cleanup_timeout=5)
    assert seconds_of(whole.add_network_list, node.network("slow", "slow", "slow"), RuntimeConf("c3", None, "e")) > 0.5


@pytest.mark.parametrize("timeout", [1e7, 1e10, None])
def test_field_02_very_long_deadlines(node: FakeNode, timeout: float | None) -> None:
    node.client().add_network_list(node.network("a"), RT, timeout=timeout)


def test_field_02_a_deadline_that_is_over_runs_nothing(node: FakeNode) -> None:
    assert seconds_of(node.client().del_network_list, node.network("a"), RT, timeout=1e-9) < 0.5
    assert node.verbs() == []


def test_field_04_every_binary_is_found_before_the_first_runs(node: FakeNode) -> None:
    cni = node.client()
    node.plugin("first")
    for verb in (cni.add_network_list, cni.del_network_list):
        with pytest.raises(PluginNotFoundError) as raised:
            verb(network("first", "missing"), RT)
        assert raised.value.plugin == "missing"
    assert node.verbs() == []
    assert node.states() == []


def test_field_05_del_stops_at_the_first_error_unless_it_is_told_to_go_on(node: FakeNode) -> None:
    net, cni = node.network("ipam", "middle", "last"), node.client()
    cni.add_network_list(net, RT)
    node.plugin("middle", "exit 1")
    with pytest.raises(PluginError):
        cni.del_network_list(net, RT)
    assert node.verbs()[3:] == ["DEL last", "DEL middle"]
    with pytest.raises(CNIErrorGroup) as raised:
        cni.del_network_list(net, RT, policy=DelPolicy(keep_going=True))
    assert node.verbs()[5:] == ["DEL last", "DEL middle", "DEL ipam"]
    assert [getattr(error, "plugin", "") for error in raised.value.exceptions] == ["middle"]
    assert node.states() == ["detaching"], "the record stays, so that it can be tried again"
    node.plugin("middle")
    cni.del_network_list(net, RT)
    assert node.states() == []


def test_field_06_a_missing_binary_or_configuration_does_not_keep_the_sandbox_for_ever(node: FakeNode) -> None:
    net, cni = node.network("a", "removed"), node.client(conf_dir=node.root)
    cni.add_network_list(net, RT)
    (node.bin / "removed").unlink()
    with pytest.raises(PluginNotFoundError):
        cni.del_network_list("net", RT)
    report = cni.del_network_list("net", RT, policy=DelPolicy(skip_missing=True))
    assert [(one.plugin, one.state) for one in report.plugins] == [("removed", "skipped"), ("a", "done")]
    assert node.states() == []
    with pytest.raises(NetworkNotFoundError):
        cni.del_network_list("net", RT)


def test_field_09_clean_up_has_its_own_time(node: FakeNode) -> None:
    node.plugin("first", "[ $CNI_COMMAND = ADD ] || sleep 0.3")
    node.plugin("hangs", "[ $CNI_COMMAND = ADD ] && sleep 10")
    net, cni = node.network("first", "hangs"), node.client()
    with pytest.raises(PluginTimeoutError) as raised:
        cni.add_network_list(net, RT, timeout=0.5)
    assert raised.value.rollback_errors == ()
    assert node.verbs() == ["ADD first", "ADD hangs", "DEL hangs", "DEL first"]
    assert node.states() == []


def test_field_09_clean_up_is_bounded_too(node: FakeNode) -> None:
    node.plugin("hangs", "sleep 10")
    cni = node.client(cleanup_timeout=0.2)
    assert seconds_of(cni.add_network_list, node.network("hangs"), RT, timeout=0.2) < 2
    assert node.states() == ["pending"]


def test_field_14_an_error_says_all_that_is_known(node: FakeNode) -> None:
    error = '{"cniVersion": "1.0.0", "code": 7, "msg": "no such bridge", "details": "br0"}'
    node.plugin("a", f"[ $CNI_COMMAND = ADD ] || exit 0; echo oops >&2; echo '{error}'; exit 3")
    with pytest.raises(PluginError) as raised:
        node.client().add_network_list(node.network("a"), RT)
    one = raised.value
    assert (one.code, one.msg, one.details, one.stderr, one.exit_status) == (7, "no such bridge", "br0", "oops\n", 3)
    assert (one.plugin, one.path, one.verb) == ("a", str(node.bin / "a"), "ADD")
    assert (one.network, one.container_id, one.ifname) == ("net", "c1", "eth0")
    assert one.seconds > 0
    assert "no such bridge; br0 (code 7); stderr: 'oops'" in str(one)


def test_field_15_a_timeout_is_an_error_of_its_own(node: FakeNode) -> None:
    node.plugin("hangs", "echo working >&2; sleep 10")
    with pytest.raises(TimeoutError) as raised:
        node.client().add_network_list(node.network("hangs"), RT, timeout=0.3, rollback=False)
    assert isinstance(raised.value, PluginTimeoutError)
    assert (raised.value.plugin, raised.value.stderr) == ("hangs", "working\n")
    assert "it did not end within" in str(raised.value)


@pytest.mark.parametrize(
    ("printed", "problem"),
    [
        ("", "it printed nothing"),
        ("true", "it printed something that is not a result"),
        ("hello {}", "something that is not a result.*hello"),
        ("{} {}", "there is more after the end"),
        ('{"ips": [', "the document ends too early|ips"),
        ('{"code": 7, "msg": "no"}', "an error document and exit status 0: no"),
        ('{"cniVersion": "9.9.9"}', 'unsupported CNI result version "9.9.9"'),
    ],
)
def test_field_16_garbage_on_stdout_is_named_and_quoted(node: FakeNode, printed: str, problem: str) -> None:
    node.plugin("a", f"[ $CNI_COMMAND = ADD ] || exit 0; printf '%s' '{printed}'; exit 0")
    with pytest.raises(InvalidOutputError, match=problem):
        node.client().add_network_list(node.network("a"), RT)
    assert node.verbs() == ["ADD a", "DEL a"], "and rolled back"


@pytest.mark.parametrize("stream", ["", ">&2"])
def test_a_plugin_that_prints_without_end_is_stopped(node: FakeNode, stream: str) -> None:
    node.plugin("floods", f"[ $CNI_COMMAND = ADD ] || exit 0; yes {stream}")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    name = "stderr" if stream else "stdout"
    with pytest.raises(InvalidOutputError, match=f"more than 16777216 bytes on {name}, and was stopped") as raised:
        node.client().add_network_list(node.network("floods"), RT, timeout=3)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < 80, "the memory has grown by so many MiB"
    assert len(raised.value.stdout) + len(raised.value.stderr) < 300_000
    limited = node.client(executor=ProcessExecutor(output_limit=1000))
    with pytest.raises(InvalidOutputError, match="more than 1000 bytes"):
        limited.add_network_list(node.network("floods"), RuntimeConf("c2", None, "eth0"))


def test_output_up_to_the_limit_is_taken(node: FakeNode) -> None:
    padding = "x" * 500_000
    node.plugin("a", result=json.dumps({"cniVersion": "1.0.0", "padding": padding}))
    result = node.client().add_network_list(node.network("a"), RT)
    assert result.to_dict()["padding"] == padding


def test_field_42_callers_need_not_compare_texts(node: FakeNode) -> None:
    node.plugin("a", "exit 1")
    cni = node.client(conf_dir=node.root / "none")
    with pytest.raises(LookupError):
        cni.add_network_list("missing", RT)
    with pytest.raises(PluginNotFoundError) as raised:
        cni.add_network_list(network("nothere"), RT)
    assert (raised.value.plugin, raised.value.searched) == ("nothere", (str(node.bin),))
    with pytest.raises(ValueError, match="container ID"):
        cni.add_network_list(node.network("a"), RuntimeConf("", None, "eth0"))
    for work in (cni.add_network_list, cni.check_network_list, cni.del_network_list):
        with pytest.raises(CNIError):
            work(node.network("a"), RT)


def test_field_50_containers_in_parallel_and_no_daemon(node: FakeNode) -> None:
    running = node.root / "running"
    running.mkdir()
    node.plugin("slow", f"touch {running}/$CNI_CONTAINERID; until [ $(ls {running} | wc -l) = 8 ]; do sleep 0.02; done")
    net, cni = node.network("slow"), node.client(timeout=20, cleanup_timeout=1)
    threads = [
        threading.Thread(target=cni.add_network_list, args=(net, RuntimeConf(f"c{number}", None, "eth0")))
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert node.states() == ["ready"] * 8, "each waited until all of them ran"
