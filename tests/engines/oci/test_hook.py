"""The hook as a runtime runs it, with fake plugins: attach, detach, and what can go wrong in between."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from libcni import RuntimeConf
from libcni.cli import main
from libcni.engines.oci import pins
from libcni.engines.oci.pins import namespace_of
from libcni.kernel.namespace import namespace_identity
from libcni.manager import NetworkManager
from libcni.testing import wait_until

from .conftest import HookNode, end

Process = Callable[[], int]


@contextmanager
def process_in(path: str, *descriptors: int) -> Iterator[int]:
    """Start a process in an existing network namespace for the time of a block, and wait until it ends."""
    command = ["nsenter", f"--net={path}", "sleep", "600"]
    with subprocess.Popen(command, pass_fds=descriptors) as child:
        try:
            wanted = namespace_identity(path)
            wait_until(lambda: namespace_of(child.pid) == wanted)
            yield child.pid
        finally:
            child.kill()


@pytest.mark.parametrize("status", ["creating", "created"], ids=["runc", "crun"])
def test_a_container_gets_the_default_network_and_loses_it_at_its_end(
    node: HookNode, process: Process, status: str
) -> None:
    [plugin] = node.configure_capable("front", "a")
    pid = process()
    assert node.run(node.state(status, pid)) == ""
    assert node.attached == [("c1", "front", "eth0", "ready")]
    [call] = plugin.calls
    assert call.env["CNI_NETNS"] == f"{node.pins.directory}/c1.{pid}"
    assert "/usr/sbin" in call.env["PATH"].split(":")  # where iptables is
    assert [one.owner for one in node.cni.get_cached_attachments()] == ["oci-hook"]
    end(pid)
    assert node.detach() == ""
    assert (node.attached, node.pinned) == ([], [])
    assert plugin.verbs == ("ADD", "DEL")


def test_the_namespace_is_still_there_for_the_plugins_when_its_processes_have_gone(
    node: HookNode, process: Process
) -> None:
    node.configure_capable("front", "a")
    node.fakes.shell("a", 'stat -L -c "%d %i" "$CNI_NETNS" > "${0%/*}/$CNI_COMMAND"')
    pid = process()
    device, inode = namespace_of(pid) or (0, 0)
    assert node.attach(pid) == ""
    end(pid)
    assert node.detach() == ""
    assert (node.bin / "ADD").read_text() == (node.bin / "DEL").read_text() == f"{device} {inode}\n"


def test_a_read_only_disk_does_not_stop_a_detach(node: HookNode, process: Process) -> None:
    [plugin] = node.configure_capable("front", "a")
    pid = process()
    assert node.attach(pid) == ""
    end(pid)
    records = node.cni.cache_dir
    subprocess.run(["mount", "--bind", records, records], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", records], check=True)
        assert node.detach() == ""
    finally:
        subprocess.run(["umount", records], check=True)
    assert plugin.verbs == ("ADD", "DEL")
    assert node.attached == [("c1", "front", "eth0", "ready")]
    assert node.detach() == ""
    assert (node.attached, node.pinned) == ([], [])


def test_annotations_say_networks_interfaces_and_arguments(node: HookNode, process: Process) -> None:
    [front] = node.configure_capable("front", "a")
    [back] = node.configure_capable("back", "b")
    said = node.attach(process(), networks="back, front@net5", args="K=V", ports="8080:80")
    assert said == ""
    assert node.attached == [("c1", "back", "eth0", "ready"), ("c1", "front", "net5", "ready")]
    [first], [second] = back.calls, front.calls
    assert (first.env["CNI_ARGS"], second.env["CNI_ARGS"]) == ("K=V", "K=V")
    assert first.config["runtimeConfig"]["portMappings"][0]["hostPort"] == 8080
    assert "runtimeConfig" not in second.config


def test_nonsense_attaches_nothing_and_says_what_is_wrong(node: HookNode, process: Process) -> None:
    [plugin] = node.configure_capable("front", "a")
    pid = process()
    assert "annotation libcni.ports: '80' is not of the form" in node.attach(pid, ports="80")
    assert 'no network named "frnot"' in node.attach(pid, networks="frnot")
    assert "invalid interface name 'lo'" in node.attach(pid, networks="front@lo")
    assert "it is unknown (the annotations are" in node.attach(pid, netwrok="front")
    assert "container state on stdin: it is empty" in node.run("")
    assert "network namespace of process 999999999 (container c1): there is no such process" in node.attach(999999999)
    assert 'state of container c1 has the status "creating" and no pid' in node.attach(None)
    assert 'status "running", in which this hook does nothing' in node.run(node.state("running", pid))
    assert (plugin.verbs, node.attached, node.pinned) == ((), [], [])


def test_a_port_that_no_plugin_would_publish_is_refused(node: HookNode, process: Process) -> None:
    node.configure("front")
    assert "no plugin declares the capability portMappings" in node.attach(process(), ports="80:80")
    assert node.attached == []


def test_the_hosts_namespace_is_refused(node: HookNode, process: Process) -> None:
    [plugin] = node.configure_capable("front", "a")
    said = node.attach(os.getpid())
    assert "has no network namespace of its own" in said
    assert "libcni.networks=none" in said
    # The shell is the first process of its own /proc. The hook runs elsewhere, and must not attach the shell either.
    inside = f"unshare --net {shlex.join(node.command())}; true"
    words = ["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", inside]
    done = subprocess.run(words, input=node.state("creating", 1), capture_output=True, text=True, check=False)
    assert "has no network namespace of its own" in done.stderr
    assert (plugin.verbs, node.pinned) == ((), [])


def test_a_hook_that_runs_twice_attaches_once(node: HookNode, process: Process) -> None:
    plugin = node.configure_capable("front", "a")[0]
    pid = process()
    assert [node.attach(pid), node.attach(pid)] == ["", ""]
    assert list(plugin.verbs) == ["ADD"]
    end(pid)
    assert [node.detach(), node.detach()] == ["", ""]
    assert list(plugin.verbs) == ["ADD", "DEL"]


def test_a_hook_waits_for_another_hook_of_the_same_container(node: HookNode, process: Process) -> None:
    [plugin] = node.configure_capable("front", "a")
    pid = process()
    manager = NetworkManager(node.client())
    with manager.locked("c1"), ThreadPoolExecutor() as other:
        for hook in (lambda: node.attach(pid, "--timeout=0.2"), lambda: node.detach("--timeout=0.2")):
            assert "container c1: another operation of a manager held its lock" in other.submit(hook).result()
        assert plugin.verbs == ()
        assert node.attach(process(), container_id="c2") == ""
    assert node.attach(pid) == ""


def test_a_container_that_shares_a_namespace_is_attached_once(node: HookNode, process: Process) -> None:
    [plugin] = node.configure_capable("front", "a")
    pid = process()
    assert node.attach(pid, container_id="pod") == ""
    assert node.attach(pid, container_id="app") == ""
    assert node.detach(container_id="app") == ""
    assert node.attached == [("pod", "front", "eth0", "ready")]
    assert plugin.verbs == ("ADD",)


def test_a_container_in_the_namespace_of_one_that_failed_to_detach_is_attached(
    node: HookNode, process: Process
) -> None:
    node.configure_capable("front", "a")
    node.fakes.scenario("a", {"DEL": [{"error": {"code": 100, "msg": "busy"}}] * 2 + [{}]})
    pid = process()
    assert node.attach(pid, container_id="first") == ""
    descriptor = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    end(pid)
    assert "busy" in node.detach(container_id="first")
    with process_in(f"/proc/self/fd/{descriptor}", descriptor) as later:
        os.close(descriptor)
        assert node.attach(later, container_id="second") == ""
    assert [one[0] for one in node.attached] == ["first", "second"]


@pytest.mark.parametrize("has_hook", [True, False])
def test_a_container_that_ends_before_another_in_its_namespace_keeps_the_address(
    node: HookNode, process: Process, caplog: pytest.LogCaptureFixture, *, has_hook: bool
) -> None:
    [plugin] = node.configure_capable("front", "a")
    pid = process()
    assert node.attach(pid, container_id="first") == ""
    with process_in(f"/proc/{pid}/ns/net") as later:
        if has_hook:
            assert node.attach(later, networks="front", container_id="second") == ""
            said = "container second shares the network namespace of container first, which has the networks: its own"
            assert said in caplog.text
        end(pid)
        assert node.detach(container_id="first") == ""
        assert "container first stays attached: " in caplog.text
        assert node.attached == [("first", "front", "eth0", "ready")]
        assert plugin.verbs == ("ADD",)
    # The last one detaches both; without a hook of the second, the repeated hook does.
    assert node.detach(container_id="second" if has_hook else "first") == ""
    assert (node.attached, node.pinned, list(plugin.verbs)) == ([], [], ["ADD", "DEL"])


def test_a_poststop_that_is_late_leaves_the_next_container_of_the_same_id_alone(
    node: HookNode, process: Process
) -> None:
    node.configure_capable("front", "a")
    first, second = process(), process()
    assert node.attach(first) == ""
    end(first)  # its poststop has not come yet
    assert node.attach(second) == ""
    assert node.detach() == ""
    assert node.attached == [("c1", "front", "eth0", "ready")]
    assert node.pinned == [("c1", second)]


def test_an_id_that_a_running_container_has_is_refused(node: HookNode, process: Process) -> None:
    [plugin] = node.configure_capable("front", "a")
    first, second = process(), process()
    assert node.attach(first) == ""
    assert f"a container c1 is attached already, and its process {first} still runs" in node.attach(second)
    assert (plugin.verbs, node.pinned) == (("ADD",), [("c1", first)])


def test_what_another_program_attached_is_neither_detached_nor_replaced(node: HookNode, process: Process) -> None:
    [plugin] = node.configure_capable("front", "a")
    pid = process()
    other = node.client(owner="")
    other.add_network_list("front", RuntimeConf("c1", f"/proc/{pid}/ns/net", "eth7"))
    refused = node.attach(pid)
    assert "container c1 is already attached to network front by another program" in refused
    assert f"libcni del c1 --conf-dir {node.conf_dir} --path {node.bin} --cache-dir {node.cache}" in refused
    assert node.detach() == ""
    assert node.attached == [("c1", "front", "eth7", "ready")]
    assert plugin.verbs == ("ADD",)


def test_another_programs_attachment_of_the_same_interface_stays(node: HookNode, process: Process) -> None:
    [plugin] = node.configure_capable("front", "a")
    node.configure_capable("back", "b")
    pid = process()
    assert node.attach(pid, networks="front") == ""
    rt = RuntimeConf("c1", f"{node.pins.directory}/c1.{pid}", "eth0")
    node.client(owner="other").add_network_list("back", rt, on_existing="allow")
    end(pid)
    assert node.detach() == ""
    assert node.attached == [("c1", "back", "eth0", "ready")]
    assert node.pinned == [("c1", pid)], "its DEL needs the namespace"
    assert plugin.verbs == ("ADD", "DEL")


@pytest.mark.parametrize("delay", [0.0, 0.1, 0.2, 0.3, 0.4, 0.6])
def test_a_hook_that_is_killed_leaves_nothing_that_poststop_does_not_find(
    node: HookNode, process: Process, delay: float
) -> None:
    node.configure_capable("front", "a")
    node.fakes.scenario("a", {"ADD": {"sleep": 0.2}})
    pid = process()
    with subprocess.Popen(node.command(), stdin=subprocess.PIPE, text=True) as hook:
        assert hook.stdin is not None
        hook.stdin.write(node.state("creating", pid))
        hook.stdin.close()
        time.sleep(delay)
        hook.send_signal(signal.SIGKILL)
    end(pid)
    assert node.detach() == ""
    assert (node.attached, node.pinned) == ([], [])


def test_the_hook_that_comes_after_a_killed_one_attaches(node: HookNode, process: Process) -> None:
    node.configure_capable("front", "a")
    once = node.root / "once"
    node.plugin("a", f"[ $CNI_COMMAND = ADD ] && mkdir {once} && {{ echo $$ > {once}/pid; exec sleep 120; }}")
    pid = process()
    with subprocess.Popen(node.command(), stdin=subprocess.PIPE, text=True) as hook:
        assert hook.stdin is not None
        hook.stdin.write(node.state("creating", pid))
        hook.stdin.close()
        wait_until(lambda: (once / "pid").exists() and (once / "pid").read_text().endswith("\n"))
        hook.send_signal(signal.SIGKILL)
    os.kill(int((once / "pid").read_text()), signal.SIGKILL)
    assert node.attach(pid) == ""
    assert node.attached == [("c1", "front", "eth0", "ready")]
    assert node.verbs() == ["ADD a", "DEL a", "ADD a"]


def test_a_container_that_ends_while_it_is_attached_is_detached_again(node: HookNode, process: Process) -> None:
    [plugin] = node.configure_capable("front", "a")
    pid = process()
    # Until it has ended: on a busy machine that takes longer than the rest of the attach.
    kill = f"import os, select; pidfd = os.pidfd_open({pid}); os.kill({pid}, 9); select.select([pidfd], [], [])"
    node.fakes.shell("a", f"[ $CNI_COMMAND != ADD ] || {sys.executable} -IS -c '{kill}'")
    assert f"process {pid} of container c1 ended while" in node.attach(pid)
    assert (node.attached, node.pinned) == ([], [])
    assert plugin.verbs == ("ADD", "DEL")


@pytest.mark.slow
def test_a_plugin_that_hangs_ends_the_hook_within_its_own_limit(node: HookNode, process: Process) -> None:
    node.configure_capable("front", "a")
    # In shell: the roll-back has a second, and Python's start may take longer than that.
    node.fakes.shell("a", "[ $CNI_COMMAND != ADD ] || exec sleep 60")
    said = node.attach(process(), "--timeout=6")
    assert re.search(r"it did not end within [0-4](\.\d+)? s", said), said
    assert (node.attached, node.pinned) == ([], [])


@pytest.mark.slow
def test_a_detach_gives_a_plugin_the_whole_time(node: HookNode, process: Process) -> None:
    """On a busy machine a part of the time is too little, and nobody runs poststop again."""
    node.configure_capable("front", "a")
    node.fakes.shell("a", "[ $CNI_COMMAND != DEL ] || exec sleep 60")
    pid = process()
    assert node.attach(pid) == ""
    end(pid)
    said = node.detach("--timeout=4.5")
    assert re.search(r"it did not end within ([2-4]\.\d+|[34]) s", said), said


def test_a_detach_that_fails_keeps_record_and_namespace_for_the_next(node: HookNode, process: Process) -> None:
    node.configure_capable("front", "a")
    node.fakes.scenario("a", {"DEL": [{"error": {"code": 100, "msg": "busy"}}] * 2 + [{}]})
    pid = process()
    assert node.attach(pid) == ""
    end(pid)
    assert "busy" in node.detach()
    assert [one[:2] for one in node.attached] == [("c1", "front")]
    assert node.pinned == [("c1", pid)]
    assert node.detach() == ""
    assert (node.attached, node.pinned) == ([], [])


def test_a_wrong_annotation_that_stops_even_the_roll_back_can_be_corrected(node: HookNode, process: Process) -> None:
    node.configure_capable("front", "a")
    error = '{"code": 999, "msg": "this address is taken"}'
    node.fakes.shell("a", f"grep -q 02:00:00:00:00:02 $stdin || {{ echo '{error}'; exit 1; }}")
    first, second = process(), process()
    assert "this address is taken" in node.attach(first, mac="02:00:00:00:00:01")
    end(first)
    assert "this address is taken" in node.detach()
    assert node.attached == [("c1", "front", "eth0", "detaching")]
    assert node.attach(second, mac="02:00:00:00:00:02") == ""
    assert node.attached == [("c1", "front", "eth0", "ready")]
    end(second)
    assert node.detach() == ""
    assert (node.attached, node.pinned) == ([], [])


def test_resolv_conf_is_written_in_place_from_the_results(node: HookNode, process: Process) -> None:
    node.configure_capable("front", "a")
    dns = {"nameservers": ["10.0.0.1"], "search": ["a.test"]}
    node.fakes.scenario("a", {"ADD": {"result": {"dns": dns}}})
    file = node.bundle / "resolv.conf"
    file.write_text("nameserver 192.0.2.1\nsomething that is longer than what replaces it\n")
    inode = file.stat().st_ino
    assert node.attach(process(), container_id="c2") == ""
    assert "192.0.2.1" in file.read_text()
    assert node.attach(process(), "--resolv-conf") == ""
    assert file.read_text() == "nameserver 10.0.0.1\nsearch a.test\n"
    assert file.stat().st_ino == inode


def test_a_container_that_joins_another_has_its_name_servers(node: HookNode, process: Process) -> None:
    node.configure_capable("front", "a")
    node.fakes.scenario("a", {"ADD": {"result": {"dns": {"nameservers": ["10.0.0.1"]}}}})
    pid = process()
    assert node.attach(pid, container_id="first") == ""
    with process_in(f"/proc/{pid}/ns/net") as later:
        file = node.bundle / "resolv.conf"
        file.write_text("")
        assert node.attach(later, "--resolv-conf", container_id="second") == ""
        assert file.read_text() == "nameserver 10.0.0.1\n"
    end(pid)
    assert node.detach(container_id="first") == ""


@pytest.mark.parametrize("kind", ["fifo", "device", "link"])
def test_a_resolv_conf_that_is_no_file_of_the_bundle_is_not_written(
    node: HookNode, process: Process, kind: str
) -> None:
    node.configure_capable("front", "a")
    node.fakes.scenario("a", {"ADD": {"result": {"dns": {"nameservers": ["10.0.0.1"]}}}})
    path, victim = node.bundle / "resolv.conf", node.root / "victim"
    victim.write_text("precious")
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    else:
        path.symlink_to(victim)
    assert "cannot write" in node.attach(process(), "--resolv-conf")
    assert (node.attached, node.pinned, victim.read_text()) == ([], [], "precious")


def test_a_bundle_that_is_no_absolute_path_gets_no_resolv_conf(node: HookNode, process: Process) -> None:
    node.configure_capable("front", "a")
    node.fakes.scenario("a", {"ADD": {"result": {"dns": {"nameservers": ["10.0.0.1"]}}}})
    state = json.dumps({"id": "c1", "status": "creating", "pid": process()})
    assert "the bundle '' in the runtime's state is not an absolute path" in node.run(state, "--resolv-conf")
    assert (node.attached, node.pinned) == ([], [])


def test_a_namespace_that_cannot_be_pinned_is_an_error_and_nothing_runs(node: HookNode, process: Process) -> None:
    [plugin] = node.configure_capable("front", "a")
    directory = Path(node.pins.directory)
    directory.write_text("a file, not a directory")
    said = node.attach(process())
    assert "pinned namespaces" in said
    assert plugin.verbs == ()
    directory.unlink()


def test_hooks_with_other_records_have_other_pins(
    node: HookNode, process: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runtimes may give one ID to two containers. Each hook removes the pins of an ID that it has no records of."""
    monkeypatch.setattr(pins, "DIRECTORY", node.pins.directory)
    monkeypatch.setattr(pins, "CACHE_DIR", f"{tmp_path}/default")
    (tmp_path / "default").mkdir()
    (tmp_path / "linked").symlink_to("default")
    (tmp_path / "runc").mkdir()
    node.configure_capable("front", "a")
    theirs, mine = f"--cache-dir={tmp_path}/linked", f"--cache-dir={tmp_path}/mine"
    of_mine = pins.Pins(pins.directory_for(f"{tmp_path}/mine"))
    try:
        first, second = process(), process()
        assert node.attach(first, theirs) == ""
        assert node.attach(second, mine) == ""
        assert (node.pinned, [pin.pid for pin in of_mine.all()]) == ([("c1", first)], [second])
        end(first)
        end(second)
        gc = ["gc", "--runtime", f"{tmp_path}/runc", f"--path={node.bin}", f"--conf-dir={node.conf_dir}", mine]
        assert main(gc) == 0
        assert (node.pinned, of_mine.all()) == ([("c1", first)], []), "the other hook detaches its container later"
        assert node.attach(process(), mine) == ""
        assert node.detach(theirs) == ""
        assert (node.pinned, len(of_mine.all())) == ([], 1)
    finally:
        for pin in of_mine.all():
            of_mine.remove(pin)
        with suppress(FileNotFoundError):
            os.rmdir(of_mine.directory)


@pytest.mark.slow
def test_a_detach_waits_for_a_reload_and_then_detaches(node: HookNode, process: Process) -> None:
    """Runtimes do not repeat poststop."""
    node.configure("front")
    node.plugin("front", "sleep 0.5")
    pid = process()
    assert node.attach(pid) == ""
    (attachment,) = node.cni.get_cached_attachments()
    with ThreadPoolExecutor() as pool:
        reload = pool.submit(node.client().reload_attachment, attachment)
        wait_until(lambda: "DEL front" in node.verbs())
        end(pid)
        assert node.detach() == ""
        reload.result()
    assert node.verbs() == ["ADD front", "DEL front", "ADD front", "DEL front"]
    assert (node.attached, node.pinned) == ([], [])
