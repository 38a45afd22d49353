"""State in the kernel that a plugin leaves is seen."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import pytest
from plugin.plugins import Recorder, nothing

from libcni.plugin import Request, VerbError
from libcni.testing import NetworkNamespace, check_plugin
from libcni.testing.snapshot import difference, snapshot
from testing.faulty import NEWEST, PREVIOUS, failing, ip

LINK = "cnitest0"
needs_iptables = pytest.mark.skipif(
    shutil.which("iptables") is None, reason="needs iptables (apt-get install iptables)"
)
needs_nft = pytest.mark.skipif(shutil.which("nft") is None, reason="needs nft (apt-get install nftables)")


class Linking(Recorder):
    """A plugin that makes a link in the namespace, with one fault."""

    def __init__(self, fault: str = "") -> None:
        self.fault = fault
        super().__init__(add=self._add, delete=self._delete, check=self._check, gc=nothing)

    def _add(self, request: Request) -> None:
        name = request.netns.rpartition("/")[2]
        ip("-netns", name, "link", "add", request.ifname, "type", "veth", "peer", "name", f"{request.ifname}p")
        request.result.add_interface(request.ifname, sandbox=request.netns)
        if self.fault == "host link":
            number = request.container_id[-8:]
            ip("link", "add", f"plug{number}", "type", "veth", "peer", "name", f"gulp{number}")
        if self.fault == "rule":
            ip("-netns", name, "rule", "add", "table", "77", "priority", "77")
        if self.fault == "nft":
            one = "set s {\ntype inet_service\nelements = { 80 }\n}\n"
            text = f"table inet filter {{\n{one}chain c {{\ntcp dport 80 accept\n}}\n}}\n"
            subprocess.run(["ip", "netns", "exec", name, "nft", "-f", "-"], input=text.encode(), check=True)
        if self.fault == "iptables":  # once more for each attachment
            subprocess.run(["iptables", "-w", "-A", "FORWARD", "-j", "ACCEPT"], check=True)
        if self.fault == "address":
            ip("-netns", name, "address", "add", "10.77.0.1/24", "dev", "lo")
        if self.fault == "route":
            ip("-netns", name, "link", "set", "lo", "up")
            ip("-netns", name, "route", "replace", "10.78.0.0/24", "dev", "lo")

    def _delete(self, request: Request) -> None:
        name = request.netns.rpartition("/")[2]
        if self.fault != "link":
            subprocess.run(["ip", "-netns", name, "link", "delete", request.ifname], check=False, capture_output=True)

    def _check(self, request: Request) -> None:
        name = request.netns.rpartition("/")[2]
        shown = subprocess.run(["ip", "-netns", name, "link", "show", request.ifname], check=False, capture_output=True)
        if shown.returncode:
            raise VerbError("the link has gone")


@pytest.mark.real
@pytest.mark.parametrize(
    ("fault", "check", "problem"),
    [
        ("", "", ""),
        ("link", "DEL leaves nothing", "new: link cnitest0 (down), link cnitest0p (down)"),
        ("rule", "DEL leaves nothing", "new: rule"),
        pytest.param(
            "nft",
            "DEL leaves nothing",
            "nft inet filter c, nft inet filter c [{ | nft inet filter s 80",
            marks=needs_nft,
        ),
        pytest.param(
            "iptables",
            "DEL leaves nothing on the host",
            "new: host iptables-save -A FORWARD -j ACCEPT (number ",
            marks=needs_iptables,
        ),
        ("address", "DEL leaves nothing", "new: address 10.77.0.1/24 on lo"),
        ("route", "DEL leaves nothing", "route 10.78.0.0/24 lo"),
        ("host link", "DEL leaves nothing on the host", "link gulp"),
    ],
)
def test_state_in_the_kernel_is_seen(
    cni_netns: NetworkNamespace, cni_namespaces: Any, fault: str, check: str, problem: str
) -> None:
    with cni_namespaces() as machine, machine.entered():
        report = check_plugin(
            Linking(fault).plugin, {}, namespace=cni_netns, versions=NEWEST, only=["life", "failures"]
        )
    if not fault:
        assert failing(report) == set()
        return
    found = {finding.check: finding.problem for finding in report.failures}
    assert all(part in found[check] for part in problem.split(" | "))


@pytest.mark.real
def test_the_routes_of_a_chained_plugin_may_stay(cni_netns: NetworkNamespace, cni_namespaces: Any) -> None:
    """DEL of the plugin that created the interface deletes them."""

    def add(request: Request) -> None:
        with request.in_namespace():
            ip("route", "replace", "10.78.0.0/24", "dev", "lo")

    plugin = Recorder(add=add).plugin
    cni_netns.run("ip", "link", "set", "lo", "up")
    with cni_namespaces() as machine, machine.entered():
        report = check_plugin(plugin, {}, namespace=cni_netns, prev_result=PREVIOUS, versions=NEWEST)
    assert failing(report) == {"CHECK fails after DEL"}, "the plugin has no CHECK of its own"


@pytest.mark.real
def test_addresses_that_the_kernel_makes_are_left_out(cni_netns: NetworkNamespace) -> None:
    cni_netns.run("ip", "link", "add", LINK, "up", "type", "veth", "peer", "name", "cnitest0p")
    cni_netns.run("ip", "address", "add", "fe80::7/64", "dev", LINK)
    lines = {line for line in snapshot(cni_netns) if not line.startswith("rule ")}
    assert lines == {f"link {LINK} (up)", "link cnitest0p (down)", "link lo (down)"}


def test_a_difference_names_what_is_new_and_what_is_gone() -> None:
    assert difference(frozenset({"a", "b"}), frozenset({"b", "c"})) == "new: a; gone: c"
    assert difference(frozenset({"a"}), frozenset({"a"})) == ""
