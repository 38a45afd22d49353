"""Plugins that lose a result, forget or do not forward, each found by the check that is meant for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from plugin.plugins import Recorder, nothing

from libcni.plugin import Plugin, Request, VerbError
from libcni.testing import check_plugin
from testing.faulty import NEWEST, PREVIOUS, failing, write_shell_plugin


def test_a_plugin_that_keeps_state_elsewhere_can_say_so() -> None:
    assert failing(check_plugin(Recorder().plugin, {}, versions=NEWEST)) == set()
    report = check_plugin(Recorder().plugin, {}, versions=NEWEST, keeps_state=True)
    assert failing(report) == {"CHECK fails after DEL", "GC without valid attachments frees all"}


def changing(change: Callable[[Any], object]) -> Plugin:
    return Recorder(add=lambda request: change(request.result) and None).plugin


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        (lambda result: result.routes.clear(), "routes: 0.0.0.0/0 by 10.0.0.1 is lost"),
        (lambda result: result.dns.clear(), "dns.nameservers is lost"),
        (lambda result: (result.interfaces.clear(), result.ips[0].pop("interface")), "interfaces: eth0 is lost"),
        (lambda result: result.ips[0].pop("gateway"), "ips: 10.0.0.2/24 by 10.0.0.1 is lost"),
    ],
)
def test_a_part_of_prev_result_that_is_lost_is_found(change: Callable[[Any], object], lost: str) -> None:
    report = check_plugin(changing(change), {}, prev_result=PREVIOUS, versions=NEWEST)
    assert lost in {finding.problem for finding in report.failures if finding.check == "ADD keeps prevResult"}


def test_a_plugin_that_does_not_forward_is_found(tmp_path: Path) -> None:
    ipam = write_shell_plugin(tmp_path).name
    config = {"ipam": {"type": ipam}}
    forgetful, right = Plugin("forgetful"), Plugin("right", ipam=True)

    forgetful.add(lambda request: request.delegate_add(request.ipam_type))
    right.add(lambda request: request.ipam_add())
    right.delete(nothing)
    forgetful.delete(lambda request: request.forward(ipam))
    report = check_plugin(forgetful, config, path=str(tmp_path), versions=NEWEST, only=["life"])
    missed = {f"{verb} is forwarded to the IPAM plugin" for verb in ("STATUS", "CHECK", "GC")}
    assert failing(report) == missed
    assert failing(check_plugin(right, config, path=str(tmp_path), versions=NEWEST, only=["life"])) == set()


def test_what_a_call_that_fails_has_not_done_is_no_finding_of_its_own(tmp_path: Path) -> None:
    """A CHECK that always fails says nothing about GC. A plugin that refuses ADD need not ask its IPAM plugin first."""
    plugin = Plugin("broken")

    @plugin.add
    def add(request: Request) -> None:
        if request.config.get("ipam"):
            raise VerbError("no bridge")

    @plugin.check
    def check(request: Request) -> None:
        raise VerbError("no plugin name")

    plugin.delete(nothing)
    assert failing(check_plugin(plugin, {}, versions=NEWEST)) == {"CHECK"}
    config = {"ipam": {"type": write_shell_plugin(tmp_path).name}}
    assert "ADD is forwarded to the IPAM plugin" not in failing(
        check_plugin(plugin, config, path=str(tmp_path), versions=NEWEST)
    )


@pytest.mark.parametrize("key", ["delegate", "delegates"])
def test_a_plugin_that_delegates_may_need_cni_path(tmp_path: Path, key: str) -> None:
    other = write_shell_plugin(tmp_path).name
    plugin = Plugin("meta")
    plugin.add(lambda request: request.delegate_add(other, dict(request.config)))
    for register in (plugin.delete, plugin.check, plugin.gc, plugin.status):
        register(lambda request: request.forward(other))
    part = {"type": other}
    config = {key: part if key == "delegate" else [part]}
    assert failing(check_plugin(plugin, config, path=str(tmp_path), versions=NEWEST, only=["refusals"])) == set()
    report = check_plugin(plugin, {}, path=str(tmp_path), versions=NEWEST, only=["refusals"])
    assert failing(report) == {"DEL without CNI_PATH"}
