"""Real containers of a real runtime get their network by the hook, from real plugins, and leave nothing."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from nodes import PLUGIN_PATH, Namespace

import libcni
import libcni.diagnosis
from libcni.engines.oci import collect
from libcni.engines.oci.pins import directory_for
from libcni.manager import NetworkManager
from libcni.testing import wait_until

from .runc import RuntimeNode, why_no_containers

pytestmark = [pytest.mark.real, pytest.mark.slow]

REPOSITORY = Path(__file__).resolve().parents[2]
CONTAINERS = int(os.environ.get("LIBCNI_CONTAINERS", "50"))
KILLED = CONTAINERS * 3 // 5
LIMIT = '{"ingressRate": 10000000, "ingressBurst": 1000000}'
SERVER = ("httpd", "-f", "-p", "80", "-h", "/")


# crun 1.8 refuses to run where both cgroups v1 and v2 have controllers
@pytest.fixture(params=["runc", pytest.param("crun", marks=pytest.mark.may_skip)])
def node(request: pytest.FixtureRequest, host: Namespace, tmp_path: Path) -> Iterator[RuntimeNode]:
    """Return a node with a runtime. Nothing of it is left at the end, whatever the test does."""
    reason = why_no_containers(request.param)
    if reason is not None:
        pytest.skip(reason)
    node = RuntimeNode(tmp_path, host, request.param)
    try:
        said = node.run_bundle("probe", node.plain_bundle("probe", "true"))  # no hook: it must not hide its faults
        if said:
            pytest.skip(f"{request.param} runs no containers here: {said.strip()}")
        yield node
    finally:
        node.close()


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        text: str = answer.read().decode()
    return text


def address_of(node: RuntimeNode, container_id: str) -> str:
    [attachment] = node.cni.get_cached_attachments(container_id)
    assert attachment.result is not None
    return attachment.result.ips[0].address.partition("/")[0]


def test_two_containers_reach_each_other_and_a_published_port_answers(node: RuntimeNode) -> None:
    node.start("web", *SERVER, ports="8080:80", mac="c2:11:22:33:44:55", bandwidth=LIMIT)
    assert node.run("one", "wget", "-qO-", f"http://{address_of(node, 'web')}/") == "hello from a container\n"
    assert fetch("http://10.88.0.1:8080/") == "hello from a container\n"
    [pin] = node.pins.all("web")
    inside = subprocess.check_output(["nsenter", f"--net={pin.path}", "ip", "link", "show", "eth0"], text=True)
    assert "c2:11:22:33:44:55" in inside
    assert node.addresses() == [address_of(node, "web")]
    node.end("web")
    assert (node.addresses(), node.traces(), node.pins.all()) == ([], [], [])
    assert node.cni.get_cached_attachments() == []


def test_an_address_is_free_again_when_its_container_has_ended(node: RuntimeNode) -> None:
    for name in ("first", "second", "third"):
        assert "inet 10.88.0.9/16" in node.run(name, "ip", "addr", "show", "eth0", ips="10.88.0.9")
        assert node.addresses() == []


def test_a_container_on_two_networks_has_both_interfaces_and_a_resolv_conf(node: RuntimeNode) -> None:
    bridge = {"type": "bridge", "bridge": "cni1", "ipam": {"type": "host-local", "subnet": "10.99.0.0/16"}}
    node.write_network("back", {"cniVersion": "1.0.0", "plugins": [bridge]})
    words = ("sh", "-c", "busybox ip -o addr; cat /etc/resolv.conf")
    shell = Path(node.root, "rootfs/bin/sh")
    shell.symlink_to("busybox")
    Path(node.root, "rootfs/bin/cat").symlink_to("busybox")
    said = node.run("both", *words, hook=("--resolv-conf",), networks="front, back@net1")
    assert "eth0    inet 10.88.0." in said
    assert "net1    inet 10.99.0." in said
    assert "nameserver 10.88.0.1\nsearch front.test\n" in said
    assert (node.addresses(), node.traces()) == ([], [])


def test_what_is_wrong_is_printed_by_the_runtime_and_nothing_is_attached(node: RuntimeNode) -> None:
    said = node.run("wrong", "echo", "it runs", ports="80")
    assert "annotation libcni.ports: '80' is not of the form" in said
    assert "it runs" not in said
    said = node.run("missing", "echo", "it runs", networks="front, nowhere")
    assert "nowhere" in said
    assert "it runs" not in said
    assert (node.addresses(), node.traces(), node.pins.all()) == ([], [], [])


def test_the_page_goes_as_written(host: Namespace, tmp_path: Path) -> None:
    """Every command of the page is typed, and prints what the page says; only the directories are others."""
    reason = why_no_containers("runc") or (None if shutil.which("jq") else "not installed: jq (apt-get install jq)")
    if reason is not None:
        pytest.skip(reason)
    page = (REPOSITORY / "docs/how-to/other-runtimes.md").read_text()
    typed = "".join(re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    entries = re.findall(r"^\$ (.*\n(?:> .*\n)*)", typed, re.MULTILINE)
    pins = directory_for(f"{tmp_path}/cache")
    places = {
        "/etc/cni/net.d": f"{tmp_path}/net.d",
        "/containers": f"{tmp_path}/containers",
        "/run/libcni/netns": pins,
        '"host-local"': f'"host-local", "dataDir": "{tmp_path}/leases"',
    }
    script = ["exec 2>&1"]
    for entry in entries:
        script.append(f"cat <<'SHOWN'\n$ {entry}SHOWN")
        command = re.sub("|".join(map(re.escape, places)), lambda found: places[found[0]], entry)
        script.append(re.sub(r"^> ", "", command, flags=re.MULTILINE))
    env = {
        "PATH": f"{Path(sys.executable).parent}:{PLUGIN_PATH}",
        "NETCONFPATH": f"{tmp_path}/net.d",
        "LIBCNI_CACHE_DIR": f"{tmp_path}/cache",
    }
    run = ["bash", "-c", "\n".join(script)]
    try:
        done = subprocess.run(run, cwd=tmp_path, env=env, check=False, stdout=subprocess.PIPE, text=True, timeout=300)
    finally:
        for name in ("web", "client"):
            subprocess.run(["runc", "delete", "--force", name], check=False, capture_output=True)
        if os.path.isdir(pins):
            os.rmdir(pins)
    # The page shows plugins of Debian 12; newer ones know a version more, and its column is wider.
    said = re.sub(r" \d+s ", " 0s ", done.stdout.replace(", 1.1.0 ", " "))
    assert re.sub(" {2,}", "  ", said).splitlines() == re.sub(" {2,}", "  ", typed).splitlines()


def test_the_end_of_a_container_that_nobody_tells_of_is_found(node: RuntimeNode) -> None:
    node.start("web", *SERVER)
    node.start("stays", *SERVER)
    [pin] = node.pins.all("web")
    os.kill(pin.pid, signal.SIGKILL)
    wait_until(lambda: not pin.is_alive)
    sweep(node)  # the runtime still has the container: its poststop is to come
    assert len(node.addresses()) == 2
    # the state is lost, as after a crash
    subprocess.run(["mv", str(node.state / "web"), str(node.root / "lost")], check=True)
    sweep(node)
    assert node.addresses() == [address_of(node, "stays")]
    assert [pin.container_id for pin in node.pins.all()] == ["stays"]


def sweep(node: RuntimeNode) -> None:
    cni = node.cni
    collect(NetworkManager(cni), [str(node.state)])


def test_many_containers_at_once_some_of_them_killed_at_any_moment_leave_nothing(node: RuntimeNode) -> None:
    chance = random.Random(19)
    running: dict[str, subprocess.Popen[bytes]] = {}
    for number in range(CONTAINERS):
        name = f"many{number}"
        bundle = node.bundle(name, "sleep", "1", ports=f"{9000 + number}:80")
        words = node.command("run", "--bundle", str(bundle), name)
        with (bundle / "output").open("w") as output:
            running[name] = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    victims = chance.sample(sorted(running), KILLED)
    for index, name in enumerate(victims):
        time.sleep(chance.uniform(0, 0.5))
        with contextlib.suppress(ProcessLookupError):
            # every second time a hook dies, and its runtime lives on
            os.kill(chance.choice(node.hooks() or [running[name].pid]) if index % 2 else running[name].pid, 9)
    codes = {name: process.wait(timeout=600) for name, process in running.items()}
    node.wait_for_hooks()
    assert sum(code == 0 for code in codes.values()) >= CONTAINERS - 2 * KILLED
    for path in node.state.iterdir():
        node.end(path.name)
    node.wait_for_hooks()
    sweep(node)
    cni = node.cni
    # The doctor sees the whole machine: namespaces of other tests may have addresses of this network for a while.
    wait_until(lambda: libcni.diagnosis.diagnose(cni).findings == (), 60, "the doctor finds something")
    assert (cni.get_cached_attachments(), node.pins.all()) == ([], [])
    assert (node.addresses(), node.traces()) == ([], [])
