"""The container runtime of examples/ and its asyncio sister with real plugins: features, and leftovers of kills."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from forkserver import ForkServer
from nodes import PLUGIN_PATH, PLUGINS, Namespace, RealNode

import libcni
from libcni.testing import wait_until

EXAMPLES = Path(__file__).parents[2] / "examples"
RUNTIME = str(EXAMPLES / "runtime.py")
SERVICE = [sys.executable, str(EXAMPLES / "service.py")]
KILLS = 30
pytestmark = pytest.mark.real


class ExampleNode(RealNode):
    """A RealNode with the networks "front", with ports and limits, and "back", with addresses to choose."""

    def __init__(self, root: Path, host: Namespace, server: ForkServer) -> None:
        super().__init__(root, host)
        self.server = server
        portmap = {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True}
        limits = {"type": "bandwidth", "capabilities": {"bandwidth": True}}
        dns = {"nameservers": ["9.9.9.9"]}
        self.configure("front", self.bridge("10.88.0.0/16", ipMasq=True, dns=dns), portmap, limits)
        self.configure("back", self.bridge("10.99.0.0/16", bridge="br-back", capabilities={"ips": True}))
        self.home = root / "home"
        self.env = os.environ | {
            "PYTHONPATH": str(Path(libcni.__file__).parent.parent),
            "RUNTIME_HOME": str(self.home),
            "LIBCNI_CACHE_DIR": str(self.cache),
            "NETCONFPATH": str(self.conf_dir),
            "CNI_PATH": PLUGINS,
            "PATH": PLUGIN_PATH,
        }

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, RUNTIME, *words], env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def type(self, *words: str) -> str:
        """Run the runtime to its end, and return its output."""
        return "".join(self.server.run(words, self.env, self.root, program=RUNTIME)[1:])

    def left(self) -> dict[str, list[str]]:
        """Return all traces of containers: records, reservations, namespaces, interfaces of the host and rules."""
        return {
            "records": [path.name for path in sorted((self.cache / "results").glob("*"))],
            "reservations": list(self.leased()),
            "namespaces": [path.name for path in sorted((self.home / "netns").glob("*"))],
            "containers": [path.name for path in sorted((self.home / "containers").glob("*"))],
            "links": [name for name in self.host.links() if name.startswith(("veth", "ifb", "bwp"))],
            "rules": [line for line in self.host.rules("nat") if "CNI-DN-" in line or " 10.88.0." in line],
        }

    def assert_nothing_is_left(self) -> None:
        assert {what: found for what, found in self.left().items() if found} == {}


@pytest.fixture
def node(host: Namespace, tmp_path: Path, fork_server: ForkServer) -> Iterator[ExampleNode]:
    node = ExampleNode(tmp_path, host, fork_server)
    yield node
    for path in (node.home / "netns").glob("*"):
        subprocess.run(["umount", "-l", path], check=False, capture_output=True)


def test_a_container_has_two_networks_a_port_a_limit_an_address_and_name_servers(node: ExampleNode) -> None:
    options = ("--network", "front", "--network", "back=10.99.0.7/16", "--publish", "8080:80", "--rate", "8000000")
    server = ("-c", "import http.server as s; s.test(s.SimpleHTTPRequestHandler, port=80)")
    started = json.loads(node.type("run", "web", *options, "--", sys.executable, *server))
    assert started["addresses"]["eth1"] == ["10.99.0.7/16"]
    [address] = started["addresses"]["eth0"]
    assert node.type("ps") == f"web running {address} 10.99.0.7/16\n"
    assert "9.9.9.9" in node.type("exec", "web", "--", "cat", "/etc/resolv.conf")
    assert address in node.type("exec", "web", "--", "ip", "address")
    fetch = "import urllib.request as u; print(u.urlopen('http://10.88.0.1:8080/', timeout=5).status)"
    wait_until(
        lambda: subprocess.run([sys.executable, "-c", fetch], check=False, capture_output=True).returncode == 0, 60
    )
    assert "tbf" in node.host.run("tc", "qdisc")
    assert "runs already" in node.type("run", "web", "--network", "front", "--", "true")
    assert "no plugin declares" in node.type("run", "other", "--network", "front=10.88.0.9", "--", "true")
    assert node.type("rm", "web") == ""
    node.assert_nothing_is_left()


def test_gc_removes_a_container_that_has_ended_and_keeps_one_that_lives(node: ExampleNode) -> None:
    lives = json.loads(node.type("run", "lives", "--network", "front", "--", "sleep", "60"))["addresses"]["eth0"]
    node.type("run", "ends", "--network", "front", "--", "true")
    wait_until(lambda: "ends dead" in node.type("ps"), 60)
    assert "detached ends front eth0" in node.type("gc")
    assert node.type("ps") == f"lives running {lives[0]}\n"
    node.type("rm", "lives")
    node.assert_nothing_is_left()


@pytest.mark.slow
def test_nothing_is_left_and_nobody_is_cut_off_whenever_the_runtime_is_killed(node: ExampleNode) -> None:
    chance = random.Random(46)
    options = ("--network", "front", "--network", "back")
    began = time.monotonic()
    stays = json.loads(node.type("run", "stays", *options, "--publish", "8080:80", "--", "sleep", "600"))["addresses"]
    whole = time.monotonic() - began
    for number in range(KILLS):
        command = ("run", "rm", "gc")[number % 3]
        name = f"c{number}"
        if command != "run":
            node.type(
                "run",
                name,
                *options,
                "--publish",
                f"{9000 + number}:80",
                "--",
                "sleep",
                "600" if command == "rm" else "0",
            )
        if command == "gc":
            wait_until(lambda: f"{name} dead" in node.type("ps"), 60)  # noqa: B023
        words = {"run": ("run", name, *options, "--", "sleep", "600"), "rm": ("rm", name), "gc": ("gc",)}[command]
        victim = node.start(*words)
        time.sleep(chance.uniform(0.1, 1.0) * whole)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        node.type("gc")
        attached = [line.split() for line in node.type("ps").splitlines()]
        assert {line[1] for line in attached} == {"running"}, attached
        for running, _, front, back in attached:
            seen = node.type("exec", running, "--", "ip", "-o", "address")
            assert front in seen
            assert back in seen
        assert sorted(node.left()["containers"]) == sorted(line[0] for line in attached)
        for line in attached:
            if line[0] != "stays":
                assert node.type("rm", line[0]) == ""
        left = node.left()
        assert sorted(left["reservations"]) == sorted(one.partition("/")[0] for each in stays.values() for one in each)
        assert (len(left["records"]), left["namespaces"], len(left["links"])) == (2, ["stays"], 2)
    node.type("rm", "stays")
    node.assert_nothing_is_left()


def jobs(number: int, *command: str) -> str:
    rows = ({"name": f"job{index}", "networks": ["front", "back"], "command": command} for index in range(number))
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def serve(node: ExampleNode) -> subprocess.Popen[str]:
    return subprocess.Popen(SERVICE, env=node.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_the_service_runs_jobs_and_leaves_nothing(node: ExampleNode) -> None:
    with serve(node) as service:
        printed = service.communicate(jobs(6, "ip", "address", "show", "eth1"), timeout=120)[0]
    assert sorted(line for line in printed.splitlines() if line.startswith("job")) == [
        f"job{index} exit status 0" for index in range(6)
    ]
    assert printed.count("inet 10.99.0.") == 6
    node.assert_nothing_is_left()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_service_can_be_stopped_at_any_time(node: ExampleNode, number: signal.Signals) -> None:
    with serve(node) as service:
        assert service.stdin
        service.stdin.write(jobs(4, "sleep", "600"))
        service.stdin.flush()
        time.sleep(1.0)
        service.send_signal(number)
        assert service.wait(timeout=60) in {0, -number}
    if number == signal.SIGKILL:
        with serve(node) as service:
            service.communicate("", timeout=60)
    node.assert_nothing_is_left()
