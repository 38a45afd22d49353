"""Configurations as they are on real nodes, in ``testdata/net.d``: they get no advice that does not fit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nodes import FakeNode

from conformance.vectors import TESTDATA
from libcni import read_config_directory
from libcni.cli import main
from libcni.diagnosis import diagnose
from libcni.testing import wait_until

NODES = sorted(path.name for path in (TESTDATA / "net.d").iterdir())
DEFAULTS = {
    "antrea": "antrea", "aws": "aws-cni", "azure": "azure", "calico": "k8s-pod-network", "cilium": "cilium",
    "containerd": "containerd-net", "crio": "crio", "crio-old": "crio-bridge", "firecracker": "fcnet",
    "flannel": "cbr0", "galaxy": "galaxy-sdn", "gke": "k8s-pod-network", "istio": "kindnet", "k3s": "cbr0",
    "kindnet": "kindnet", "kube-ovn": "kube-ovn", "linkerd": "k8s-pod-network", "multus": "multus-cni-network",
    "multus-thick": "multus-cni-network", "nerdctl": "bridge", "nomad": "nomad", "ovn-kubernetes": "ovn-kubernetes",
    "podman": "podman", "weave": "weave",
}  # fmt: skip
"""The network that a runtime takes by default on a node of each kind."""
MORE = {"crio-old": {"cni-loopback"}, "podman": {"front"}}
"""The further networks of a node."""


def types(value: Any) -> Iterator[str]:
    """Yield the types of all plugins in a document, those of IPAM and of delegates included."""
    if isinstance(value, dict):
        if isinstance(value.get("type"), str) and value["type"] != "k8s":
            yield value["type"]
        value = list(value.values())
    for one in value if isinstance(value, list) else ():
        yield from types(one)


class ConfiguredNode(FakeNode):
    """A node with the configurations of a kind, and fake plugins for all of them."""

    def __init__(self, root: Path, kind_of_node: str) -> None:
        super().__init__(root)
        self.kind_of_node = kind_of_node
        self.networks = {DEFAULTS[kind_of_node]} | MORE.get(kind_of_node, set())
        shutil.copytree(TESTDATA / "net.d" / kind_of_node, self.conf_dir, dirs_exist_ok=True)
        self.text = ""
        for path in [*self.conf_dir.glob("*.conf"), *self.conf_dir.glob("*.conflist")]:
            text = path.read_text(encoding="utf-8")
            self.text += text
            for plugin in types(json.loads(text)):
                self.plugin(plugin)


@pytest.fixture(params=NODES)
def node(request: pytest.FixtureRequest, tmp_path: Path) -> ConfiguredNode:
    return ConfiguredNode(tmp_path, request.param)


def test_each_kind_has_its_expectation() -> None:
    assert sorted(DEFAULTS) == NODES


def test_the_networks_of_a_node_are_read_without_a_warning(
    node: ConfiguredNode, caplog: pytest.LogCaptureFixture
) -> None:
    directory = read_config_directory(node.conf_dir)
    assert directory.networks[0].name == DEFAULTS[node.kind_of_node]
    assert {net.name for net in directory.networks} == node.networks
    assert directory.problems == ()
    for net in directory.networks:
        assert node.cni.validate_network_list(net).problems == ()
    assert caplog.messages == []


@pytest.mark.usefixtures("firewall_programs")
def test_the_doctor_gives_no_advice(node: ConfiguredNode) -> None:
    # The doctor sees the whole machine: a container of another test may have an address of the same range for a while.
    # The files of the plugins' daemons are not here.
    wait_until(lambda: {one.name for one in diagnose(node.cni).findings} <= {"file-missing"}, 60)


@pytest.mark.parametrize("capabilities", ["{}", '{"portMappings":[{"hostPort":80,"containerPort":80}]}'])
def test_the_commands_show_it_as_it_is(
    node: ConfiguredNode, capabilities: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--conf-dir", str(node.conf_dir), "--path", str(node.bin), "--cache-dir", str(node.cache)]
    assert main(["networks", "--validate", *where]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    monkeypatch.setenv("CAP_ARGS", capabilities)
    for name in node.networks:
        assert name in shown.out
        assert main(["explain", name, *where]) == 0
        told = capsys.readouterr()
        assert told.err == ""
        assert "ADD" in told.out
        # A meta-plugin passes the ports on to its delegates.
        takes_ports = '"portMappings"' in node.text and capabilities != "{}"
        assert ('"hostPort":80' in told.out) == takes_ports
