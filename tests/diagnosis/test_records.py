"""The doctor finds records that are corrupt, set aside or unfinished."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from nodes import FakeNode

from diagnosis.conftest import OperatorNode, only
from libcni import CNIConfig, InterfaceExistsError, PluginError, RuntimeConf
from libcni.diagnosis import diagnose, find_stale_attachments
from libcni.diagnosis.processes import plugin_processes
from libcni.testing import wait_until


def configure_hanging(node: OperatorNode, body: str) -> None:
    """Install a plugin that hangs after bridge has made the interface, and write a network with it."""
    node.plugin("oper-hangs", body)
    node.configure("net", node.bridge(f"{node.net}.0/24"), "oper-hangs")


@pytest.mark.real
def test_a_runtime_that_was_killed_within_add_and_its_plugin_that_still_runs(node: OperatorNode) -> None:
    configure_hanging(node, "[ $CNI_COMMAND != ADD ] || exec sleep 300")
    container = node.new_namespace()
    command = ["libcni", "add", "net", container.path, "-c", "c1"]
    with subprocess.Popen(command, env=node.env, stdout=subprocess.DEVNULL) as runtime:
        wait_until(lambda: bool(processes_of(node)))
        assert node.finding("its ADD runs now").severity == "note"
        runtime.kill()
        runtime.wait()
    (plugin,) = processes_of(node)
    found = node.mend("its ADD was interrupted, and a plugin still runs")
    assert found.commands == (f"kill {plugin}", "libcni del -c c1 -i eth0")
    assert "eth0" not in container.links()
    node.assert_healthy()


@pytest.mark.real
def test_an_add_that_was_refused_for_an_interface(node: OperatorNode) -> None:
    node.configure("net", node.bridge(f"{node.net}.0/24"))
    container = node.new_namespace()
    container.run("ip", "link", "add", "eth0", "type", "veth", "peer", "x")
    links = container.links_and_addresses()
    with pytest.raises(InterfaceExistsError):
        node.cni.add_network_list("net", RuntimeConf("c1", container.path, "eth0"))
    node.mend("its ADD found the interface there, and did not succeed")
    assert container.links_and_addresses() == links
    node.assert_healthy()


@pytest.mark.real
def test_a_runtime_that_was_killed_within_del(node: OperatorNode) -> None:
    once = node.root / "once"
    pass_on = "import json, sys; print(json.dumps(json.load(sys.stdin)['prevResult']))"
    body = f"""[ $CNI_COMMAND != DEL ] || [ -e {once} ] || {{ touch {once}; exec sleep 300; }}
[ $CNI_COMMAND != ADD ] || exec python3 -c "{pass_on}" < "$stdin\""""
    configure_hanging(node, body)
    container = node.attach("c1")
    with subprocess.Popen(["libcni", "del", "-c", "c1"], env=node.env) as runtime:
        wait_until(lambda: bool(processes_of(node)))
        assert node.finding("its DEL runs now").severity == "note"
        runtime.kill()
        runtime.wait()
    found = node.mend("its DEL was interrupted, and a plugin still runs")
    assert found.meaning.startswith("it is detached in part")
    assert "eth0" not in container.links()
    node.assert_healthy()


@pytest.mark.real
def test_a_runtime_that_was_killed_and_its_plugin_with_it(node: OperatorNode) -> None:
    container = node.attach("c1")
    node.change_record("c1", state="pending")
    node.mend("its ADD was interrupted, or its roll-back failed")
    assert "eth0" not in container.links()
    node.assert_healthy()


def test_a_del_in_which_a_plugin_failed_is_not_said_to_be_interrupted(node: OperatorNode) -> None:
    fails = node.root / "fails"
    fails.touch()
    configure_hanging(node, f"[ $CNI_COMMAND != DEL ] || [ ! -e {fails} ] || exit 1")
    node.attach("c1")
    with pytest.raises(PluginError):
        node.cni.del_network_list("net", RuntimeConf("c1", None, "eth0"))
    fails.unlink()
    node.mend("its DEL was interrupted, or a plugin failed in it")
    node.assert_healthy()


def processes_of(node: OperatorNode) -> list[int]:
    found = node.cni.get_cached_attachments()
    return (
        [pid for pid, text in plugin_processes(node.cni, found[0]).items() if text.startswith("sleep 300 ")]
        if found
        else []
    )


@pytest.mark.real
@pytest.mark.parametrize("is_set_aside", [False, True])
def test_the_corrupt_record_of_a_container_that_lives(node: OperatorNode, *, is_set_aside: bool) -> None:
    container = node.attach("c1")
    node.record("c1").write_bytes(b"")
    if is_set_aside:
        node.type("libcni repair --yes")
    found = node.finding("a corrupt record that was set aside" if is_set_aside else "it is empty")
    assert found.commands == (() if is_set_aside else ("libcni repair --yes",))
    assert f"is on eth0 in {container.path}: the container lives" in found.meaning
    detach, attach = found.disrupts
    addresses = container.addresses("eth0")
    node.type(detach.command)
    assert "eth0" not in container.links()
    assert node.leased() == {}
    node.type(attach.command)
    assert container.addresses("eth0") == addresses
    node.mend("a corrupt record that was set aside")
    node.assert_healthy()


def test_a_corrupt_record(cni: CNIConfig) -> None:
    Path(cni.cache_dir, "results", "net-c2-eth0").touch()
    assert only(cni).seen == "it is empty"


def test_a_record_whose_name_no_command_accepts_is_set_aside(cni: CNIConfig) -> None:
    Path(cni.cache_dir, "results", "net-\x1b[31m-eth0").touch()
    assert only(cni).commands == ("libcni repair --yes",)


def test_a_cache_that_does_not_exist_is_said_to_be_missing(healthy: FakeNode) -> None:
    report = diagnose(healthy.client(cache_dir=healthy.root / "misspelt"))
    (checked,) = [one.what for one in report.checked if one.check == "records"]
    assert checked.endswith("misspelt, a directory that does not exist")


def test_a_cache_that_is_no_directory(healthy: FakeNode) -> None:
    wrong = healthy.client(cache_dir=healthy.netns("c1"))
    assert "it is not a directory" in {finding.seen for finding in diagnose(wrong).findings}


def test_an_interrupted_add_is_found_at_once_and_stale_only_later(healthy: FakeNode, cni: CNIConfig) -> None:
    healthy.change_record(state="pending", created=time.time() - 5, uptime=None)
    assert find_stale_attachments(cni) == ()
    assert (only(cni).severity, only(cni).seen) == ("warning", "its ADD was interrupted, or its roll-back failed")
    assert len(find_stale_attachments(cni, pending_after=1)) == 1
