"""A node for the driver: fake plugins, a network, and the command as netavark runs it."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from engines.engine_node import EngineNode
from libcni.engines.netavark import OWNER

ID = "752947ff91f961eb3cb47ffe9315016979f3ffbec09e4d96a4fae3fb03391697"
CAPABILITIES = ("portMappings", "ips", "mac", "bandwidth", "aliases")

RESULT = {
    "cniVersion": "1.0.0",
    "interfaces": [
        {"name": "veth1", "mac": "c2:00:00:00:00:01"},
        {"name": "eth0", "mac": "C2:11:22:33:44:55", "sandbox": "/ns"},
    ],
    "ips": [
        {"address": "10.1.0.5/16", "gateway": "10.1.0.1", "interface": 1},
        {"address": "fd00::5/64", "interface": 1},
    ],
    "dns": {"nameservers": ["10.1.0.1"], "domain": "front.test", "search": ["test"]},
}


def network(name: str = "front", **members: Any) -> dict[str, Any]:
    """Return a network as podman gives it to ``create``."""
    return {
        "name": name,
        "id": "2f259bab93aaaaa2542ba43ef33eb990d0999ee1b9924b557b7be53c0b7a1bb9",
        "driver": "cni",
        "ipv6_enabled": False,
        "internal": False,
        "dns_enabled": True,
        **members,
    }


def request(container_id: str = ID, ports: Any = None, options: Any = None, name: str = "front", **own: Any) -> Any:
    """Return the request of ``setup`` and ``teardown``; ``options``: of the network; ``own``: of the container."""
    return {
        "container_id": container_id,
        "container_name": "web",
        "port_mappings": ports,
        "network": network(name, options=options),
        "network_options": {"interface_name": "eth0", "static_ips": None, "static_mac": None, **own},
    }


class DriverNode(EngineNode):
    """A node with the command that runs the driver."""

    program = "netavark-plugin"
    result = RESULT

    def __init__(self, root: Path) -> None:
        super().__init__(root, OWNER)
        self.netns_path = self.netns("container")

    def configure_capable(self, *capabilities: str, name: str = "front", plugin: str = "bridge") -> None:
        """Write a network of one plugin that declares these capabilities."""
        self.configure(name, {"type": plugin, "capabilities": dict.fromkeys(capabilities, True)})

    def run(self, verb: str, document: Any = None, *words: str) -> tuple[int, Any]:
        """Run the driver as netavark does; return the exit code, and what it printed."""
        netns = [] if verb in {"create", "info"} else [self.netns_path]
        text = document if isinstance(document, str) else json.dumps(document)
        code, printed, _ = self.run_program(text, *words, verb, *netns)
        return code, json.loads(printed or "null")

    def answer(self, verb: str, document: Any = None) -> Any:
        code, answer = self.run(verb, document)
        assert code == 0, answer
        return answer

    def error(self, verb: str, document: Any = None) -> str:
        code, answer = self.run(verb, document)
        assert (code, list(answer)) == (1, ["error"])
        text: str = answer["error"]
        return text

    def received(self, plugin: str = "bridge", verb: str = "ADD") -> tuple[Mapping[str, str], Mapping[str, Any]]:
        """Return the CNI_ARGS and the configuration of a plugin's last call."""
        call = self.last_call(plugin, verb)
        args = dict(pair.split("=", 1) for pair in call.env["CNI_ARGS"].split(";") if pair)
        return args, call.config

    @property
    def attached(self) -> list[tuple[str, str, str, str]]:
        found = self.cni.get_cached_attachments()
        return sorted((one.owner, one.network, one.ifname, one.state) for one in found)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[DriverNode]:
    """Return a node; the driver's signal handlers do not outlive the test."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield DriverNode(tmp_path)
    for number, handler in handlers.items():
        signal.signal(number, handler)
