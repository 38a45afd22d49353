"""The conformance helper sees state: each faulty plugin here is found by the check that is meant for it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from plugin.plugins import Recorder, nothing, write_plugin

from libcni.plugin import Plugin, Request, VerbError
from libcni.testing import ConformanceReport, FakePlugins, NetworkNamespace, check_plugin
from libcni.testing.examination import Examination
from libcni.testing.ipam_checks import check_addresses
from libcni.testing.protocol_checks import check_reads_stdin_first

NEWEST = ("1.1.0",)
PREVIOUS = {
    "interfaces": [{"name": "eth0", "sandbox": "/run/netns/x"}],
    "ips": [{"address": "10.0.0.2/24", "gateway": "10.0.0.1", "interface": 0}],
    "routes": [{"dst": "0.0.0.0/0", "gw": "10.0.0.1"}],
    "dns": {"nameservers": ["10.0.0.1"]},
}


def failing(report: ConformanceReport) -> set[str]:
    return {finding.check for finding in report.failures}


class Pool(Recorder):
    """An IPAM plugin in memory, the lowest free number first, with one fault."""

    def __init__(self, fault: str = "", size: int = 20) -> None:
        self.fault, self.size = fault, size
        self.held: dict[str, int] = {}
        super().__init__(add=self._add, delete=self._delete, check=self._check, gc=self._gc)

    def _add(self, request: Request) -> None:
        if request.container_id in self.held and self.fault != "DEL frees nothing, and ADD does not mind":
            raise VerbError("duplicate allocation")
        free = [number for number in range(2, self.size) if number not in self.held.values()]
        if not free:
            raise VerbError("no free address", code=11)
        number = 2 if self.fault == "one address for all" else free[0]
        self.held[request.container_id] = number
        request.result.add_ip(f"10.9.0.{number}/24")

    def _delete(self, request: Request) -> None:
        if not self.fault.startswith("DEL frees nothing"):
            self.held.pop(request.container_id, None)

    def _check(self, request: Request) -> None:
        if request.container_id not in self.held and self.fault != "CHECK says yes":
            raise VerbError("no address")

    def _gc(self, request: Request) -> None:
        if self.fault != "GC does nothing":
            valid = {container for container, _ in request.valid_attachments}
            self.held = {container: number for container, number in self.held.items() if container in valid}


def test_a_right_ipam_plugin_has_no_failure() -> None:
    assert failing(check_plugin(Pool().plugin, {}, ipam=True)) == set()


@pytest.mark.parametrize(
    ("fault", "checks"),
    [
        ("DEL frees nothing", {"CHECK after DEL is refused", "ADD after DEL", "DEL frees the address"}),
        ("DEL frees nothing, and ADD does not mind", {"CHECK after DEL is refused", "DEL frees the address"}),
        ("CHECK says yes", {"CHECK after DEL is refused", "GC of everything frees"}),
        ("GC does nothing", {"GC of everything frees"}),
        ("one address for all", {"two containers get different addresses"}),
    ],
)
def test_a_faulty_ipam_plugin_is_found(fault: str, checks: set[str]) -> None:
    assert failing(check_plugin(Pool(fault).plugin, {}, ipam=True, versions=NEWEST)) == checks


def test_an_ipam_plugin_whose_configuration_lists_the_addresses_need_not_hold_them() -> None:
    recorder = Recorder(add=lambda request: request.result.add_ip("10.9.0.2/24"))
    config = {"ipam": {"addresses": [{"address": "10.9.0.2/24"}]}}
    assert failing(check_plugin(recorder.plugin, config, ipam=True)) == set()


def test_an_ipam_plugin_that_gets_the_address_in_cni_args_need_not_hold_it() -> None:
    recorder = Recorder(add=lambda request: request.result.add_ip(request.args["IP"]))
    assert failing(check_plugin(recorder.plugin, {}, ipam=True, args="IP=10.9.0.2/24")) == set()


def test_a_plugin_that_keeps_state_elsewhere_can_say_so() -> None:
    assert failing(check_plugin(Recorder().plugin, {}, versions=NEWEST)) == set()
    report = check_plugin(Recorder().plugin, {}, versions=NEWEST, keeps_state=True)
    assert failing(report) == {"CHECK after DEL is refused", "GC of everything frees"}


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
    assert lost in {finding.problem for finding in report.failures if finding.check == "ADD passes prevResult on"}


LINK = "cnitest0"


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


class Linking(Recorder):
    """A plugin that makes a link in the namespace, with one fault."""

    def __init__(self, name: str, fault: str = "") -> None:
        self.name, self.fault = name, fault
        super().__init__(add=self._add, delete=self._delete, check=self._check, gc=nothing)

    def _add(self, request: Request) -> None:
        ip("-netns", self.name, "link", "add", LINK, "type", "veth", "peer", "name", "cnitestpeer")
        request.result.add_interface(LINK, sandbox=request.netns)
        if self.fault == "host link":
            number = request.container_id[-8:]
            ip("link", "add", f"plug{number}", "type", "veth", "peer", "name", f"gulp{number}")
        if self.fault == "rule":
            ip("-netns", self.name, "rule", "add", "table", "77", "priority", "77")
        if self.fault == "address":
            ip("-netns", self.name, "address", "add", "10.77.0.1/24", "dev", "lo")
        if self.fault == "route":
            ip("-netns", self.name, "link", "set", "lo", "up")
            ip("-netns", self.name, "route", "replace", "10.78.0.0/24", "dev", "lo")

    def _delete(self, request: Request) -> None:
        if self.fault != "link":
            subprocess.run(["ip", "-netns", self.name, "link", "delete", LINK], check=False, capture_output=True)

    def _check(self, request: Request) -> None:
        shown = subprocess.run(["ip", "-netns", self.name, "link", "show", LINK], check=False, capture_output=True)
        if shown.returncode and self.fault != "CHECK says yes":
            raise VerbError("the link has gone")


@pytest.mark.real
@pytest.mark.parametrize(
    ("fault", "check", "problem"),
    [
        ("", "", ""),
        ("link", "DEL leaves nothing", "new: link cnitest0 (down), link cnitestpeer (down)"),
        ("rule", "DEL leaves nothing", "new: rule"),
        ("address", "DEL leaves nothing", "new: address 10.77.0.1/24 on lo"),
        ("route", "DEL leaves nothing", "route 10.78.0.0/24 lo"),
        ("host link", "DEL leaves nothing on the host", "link gulp"),
        ("CHECK says yes", "CHECK misses the interface", "CHECK succeeds still"),
    ],
)
def test_state_in_the_kernel_is_seen(
    cni_netns: NetworkNamespace, cni_namespaces: Any, fault: str, check: str, problem: str
) -> None:

    with cni_namespaces() as machine, machine.entered():
        report = check_plugin(Linking(cni_netns.name, fault).plugin, {}, namespace=cni_netns, versions=NEWEST)
    if not fault:
        assert failing(report) == set()
        return
    found = {finding.check: finding.problem for finding in report.failures}
    assert problem in found[check]


@pytest.mark.real
def test_a_chained_plugin_whose_gc_forgets_what_its_del_has_to_remove(cni_netns: NetworkNamespace) -> None:
    def address(verb: str) -> None:
        subprocess.run(["ip", "-netns", cni_netns.name, "address", verb, "10.77.0.1/24", "dev", "lo"], check=False)

    known: set[str] = set()
    plugin = Plugin("forgetful")

    @plugin.add
    def add(request: Request) -> None:
        known.add(request.container_id)
        address("add")

    @plugin.delete
    def delete(request: Request) -> None:
        if request.container_id in known:
            address("del")

    @plugin.gc
    def gc(request: Request) -> None:
        if not request.valid_attachments:
            known.clear()

    report = check_plugin(plugin, {}, namespace=cni_netns, prev_result=PREVIOUS, versions=NEWEST)
    (problem,) = [one.problem for one in report.failures if one.check == "DEL leaves nothing"]
    assert problem.endswith("(a GC without this attachment came before the DEL)")


EAGER = """
import time
if os.environ["CNI_COMMAND"] == "ADD":
    link = ["link", "add", "cnieager0", "type", "veth", "peer", "name", "cnieager1"]
    subprocess.run(["ip", "-netns", "{name}", *link])
plugin.add(lambda request: None)
plugin.delete(lambda request: subprocess.run(["ip", "-netns", "{name}", "link", "delete", "cnieager0"]) and None)
"""


@pytest.mark.real
def test_a_plugin_that_acts_before_it_reads_stdin_is_found(tmp_path: Path, cni_netns: NetworkNamespace) -> None:
    path = write_plugin(tmp_path, "eager", EAGER.format(name=cni_netns.name))
    exam = Examination(path, {}, cni_netns, None, {}, ipam=False, timeout=30)
    check_reads_stdin_first(exam, "1.1.0")  # alone: the whole examination starts Python a hundred times
    (failure,) = exam.report.failures
    assert failure.check == "ADD does nothing before it has read stdin"
    assert failure.problem == "new: link cnieager0 (down), link cnieager1 (down)"


def test_a_plugin_that_answers_before_it_reads_stdin_is_found(cni_fakes: FakePlugins) -> None:
    path = cni_fakes.path / "deaf"
    path.write_text('#!/bin/sh\necho \'{"cniVersion": "1.1.0", "supportedVersions": ["1.1.0"]}\'\n')
    path.chmod(0o755)
    problems = [f.problem for f in check_plugin(path, {}).failures if "before it has read" in f.check]
    assert problems == ["it ended before its configuration came"]


RACING = """
import json, time
@plugin.add
def add(request):
    try:
        held = json.load(open(request.config["file"]))
    except OSError:
        held = {}
    number = min(n for n in range(2, 200) if n not in held.values())
    time.sleep(0.1)
    held[request.container_id] = number
    with open(request.config["file"], "w") as file:
        json.dump(held, file)
    request.result.add_ip(f"10.9.0.{number}/24")
@plugin.check
def check(request):
    if request.container_id not in json.load(open(request.config["file"])):
        raise VerbError("no address")
@plugin.delete
def delete(request):
    try:
        held = json.load(open(request.config["file"]))
    except (OSError, ValueError):
        return
    held.pop(request.container_id, None)
    with open(request.config["file"], "w") as file:
        json.dump(held, file)
"""


def test_two_adds_at_once_that_get_one_address_are_found(tmp_path: Path) -> None:
    path = write_plugin(tmp_path, "racing", RACING)
    exam = Examination(path, {"file": str(tmp_path / "held")}, None, None, {"args": ""}, ipam=True, timeout=30)
    check_addresses(exam, "1.0.0")
    assert failing(exam.report) == {"ADDs at the same time get different addresses"}


def write_shell_plugin(directory: Path, **verbs: str) -> Path:
    """Write a right plugin that starts fast, and has one command more for each of some verbs."""
    path = directory / "shell"
    answers = {"VERSION": '"supportedVersions": ["1.1.0"], ', "ADD": ""}
    lines = [f"[ $CNI_COMMAND != {verb} ] || {command}" for verb, command in verbs.items()]
    for verb, more in answers.items():
        lines.append(f'[ $CNI_COMMAND != {verb} ] || echo \'{{{more}"cniVersion": "1.1.0"}}\'')
    path.write_text("\n".join(["#!/bin/sh", "cat >/dev/null", *lines, ""]), encoding="utf-8")
    path.chmod(0o755)
    return path


def test_a_log_line_on_stdout_is_found(tmp_path: Path) -> None:
    verbs = ("CHECK", "DEL", "GC", "STATUS")
    path = write_shell_plugin(tmp_path, **{verb: f"echo {verb} done" for verb in verbs})
    failures = check_plugin(path, {}, versions=NEWEST).failures
    problems = [f.problem for f in failures if "print on stdout" in f.check]
    assert problems == ["; ".join(f"{verb}: '{verb} done\\n'" for verb in verbs)]


def test_a_process_left_on_stdout_is_found(tmp_path: Path) -> None:
    report = check_plugin(write_shell_plugin(tmp_path, DEL="sleep 2 &"), {}, versions=NEWEST)
    assert "no process keeps stdout open: after the end of DEL" in map(str, report.failures)


@pytest.mark.parametrize("here", [True, False])
def test_a_plugin_that_hangs_is_a_finding_and_loses_no_other(tmp_path: Path, here: bool) -> None:
    path = write_shell_plugin(tmp_path, STATUS="exec sleep 60")
    hanging = Recorder(status=lambda request: time.sleep(60)).plugin
    report = check_plugin(hanging if here else path, {}, versions=NEWEST, timeout=1.0)
    assert "STATUS (1.1.0): signal 9: no answer within 1 s" in map(str, report.failures)
    assert any("every call is answered in time: no answer within 1 s: STATUS" in str(f) for f in report.failures)
    assert "VERSION answers: right" in map(str, report.findings)


def test_an_executable_that_cannot_be_started_is_a_finding(tmp_path: Path) -> None:
    assert "it cannot be started" in str(check_plugin(tmp_path / "missing", {}))


@pytest.mark.parametrize("code", [42, 99])
def test_a_code_that_the_specification_reserves_is_found(code: int) -> None:
    def fail(request: Request) -> None:
        raise VerbError("no", code=code)

    report = check_plugin(Recorder(status=fail).plugin, {}, versions=NEWEST)
    check = "error codes below 100 are the specification's"
    assert [f.problem for f in report.failures if f.check == check] == [f"STATUS: code {code}"]


def test_a_plugin_that_does_not_forward_is_found(tmp_path: Path) -> None:
    ipam = write_shell_plugin(tmp_path).name
    config = {"ipam": {"type": ipam}}
    forgetful, right = Plugin("forgetful"), Plugin("right", ipam=True)

    def add(request: Request) -> None:
        request.result = request.ipam_add()

    for plugin in (forgetful, right):
        plugin.add(add)
        plugin.delete(nothing)
    forgetful.delete(lambda request: request.delegate_del(ipam))
    report = check_plugin(forgetful, config, path=str(tmp_path), versions=NEWEST)
    missed = {f"{verb} is forwarded to the IPAM plugin" for verb in ("STATUS", "CHECK", "GC")}
    assert failing(report) == missed
    assert failing(check_plugin(right, config, path=str(tmp_path), versions=NEWEST)) == set()


def test_no_container_of_a_network_in_use_loses_its_address() -> None:
    pools: dict[str, Pool] = {}

    def pool(verb: str) -> Callable[[Request], None]:
        return lambda request: getattr(pools.setdefault(request.name, Pool()), verb)(request)

    shared = Recorder(add=pool("_add"), delete=pool("_delete"), check=pool("_check"), gc=pool("_gc"))
    pools["dbnet"] = Pool()
    pools["dbnet"].held["c1"] = 2
    report = check_plugin(shared.plugin, {"name": "dbnet"}, ipam=True, versions=NEWEST)
    assert report.failures == []
    assert pools["dbnet"].held == {"c1": 2}
