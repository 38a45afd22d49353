"""Faulty IPAM plugins, each found by the check that is meant for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from plugin.plugins import Recorder, write_plugin

from libcni.plugin import Request, VerbError
from libcni.testing import check_plugin
from libcni.testing.examination import Examination
from libcni.testing.ipam_checks import check_addresses
from testing.faulty import NEWEST, failing


class Pool(Recorder):
    """An IPAM plugin in memory, the lowest free number first, with one fault."""

    def __init__(self, fault: str = "", size: int = 20) -> None:
        self.fault, self.size = fault, size
        self.held: dict[tuple[str, str], int] = {}
        self.networks: dict[tuple[str, str], str] = {}
        super().__init__(add=self._add, delete=self._delete, check=self._check, gc=self._gc, status=self._status)

    def key(self, request: Request) -> tuple[str, str]:
        return request.container_id, "" if self.fault == "one address for a container" else request.ifname

    def _status(self, request: Request) -> None:
        if len(self.held) >= self.size - 2 and self.fault != "a full pool is ready":
            raise VerbError("no free address", code=50)

    def _add(self, request: Request) -> None:
        if self.key(request) in self.held and self.fault != "DEL frees nothing, and ADD does not mind":
            raise VerbError("duplicate allocation")
        free = [number for number in range(2, self.size) if number not in self.held.values()]
        if not free:
            raise VerbError("no free address", code=11)
        number = 2 if self.fault == "one address for all" else free[0]
        self.held[self.key(request)] = number
        self.networks[self.key(request)] = request.name
        request.result.add_ip(f"10.9.0.{number}/24")

    def _delete(self, request: Request) -> None:
        if not self.fault.startswith("DEL frees nothing"):
            ifname = request.ifname if self.fault != "DEL frees by container" else None
            self.held = {
                key: number
                for key, number in self.held.items()
                if key[0] != request.container_id or key[1] not in {ifname or key[1], ""}
            }

    def _check(self, request: Request) -> None:
        if self.key(request) not in self.held and self.fault != "CHECK says yes":
            raise VerbError("no address")

    def _gc(self, request: Request) -> None:
        if self.fault != "GC does nothing":
            valid = set(request.valid_attachments) if "cni.dev/valid-attachments" in request.config else set()
            if self.fault == "GC keeps by container":
                valid = {key for key in self.held if key[0] in {container for container, _ in valid}}
            if "cni.dev/valid-attachments" not in request.config and self.fault != "GC without a list frees all":
                raise VerbError("no list", code=7)
            own = {key for key, name in self.networks.items() if name == request.name}
            self.held = {one: number for one, number in self.held.items() if one in valid or one not in own}


def test_a_right_ipam_plugin_has_no_failure() -> None:
    assert failing(check_plugin(Pool().plugin, {}, ipam=True)) == set()


@pytest.mark.parametrize(
    ("fault", "checks"),
    [
        ("a full pool is ready", {"STATUS fails if no address is free"}),
        ("DEL frees by container", {"DEL keeps other attachments", "GC keeps a valid interface"}),
        ("GC keeps by container", {"GC frees the other interface of a container"}),
        (
            "one address for a container",
            {
                "ADD of a second interface",
                "GC without a list of attachments frees nothing",
                "GC keeps other networks",
                "GC keeps valid attachments",
            },
        ),
        ("GC without a list frees all", {"GC without a list of attachments frees nothing", "GC keeps other networks"}),
        ("DEL frees nothing", {"CHECK fails after DEL", "ADD after DEL", "DEL frees the address"}),
        ("DEL frees nothing, and ADD does not mind", {"CHECK fails after DEL", "DEL frees the address"}),
        ("CHECK says yes", {"CHECK fails after DEL", "GC without valid attachments frees all"}),
        ("GC does nothing", {"GC without valid attachments frees all"}),
        ("one address for all", {"two containers get different addresses", "two interfaces get different addresses"}),
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
    exam = Examination(path, {"file": str(tmp_path / "held")}, ipam=True, version="1.0.0")
    check_addresses(exam)
    assert failing(exam.report) == {"ADDs at the same time get different addresses"}


def test_no_container_of_a_network_in_use_loses_its_address() -> None:
    pools: dict[str, Pool] = {}

    def pool(verb: str) -> Callable[[Request], None]:
        return lambda request: getattr(pools.setdefault(request.name, Pool()), verb)(request)

    shared = Recorder(
        add=pool("_add"), delete=pool("_delete"), check=pool("_check"), gc=pool("_gc"), status=pool("_status")
    )
    pools["dbnet"] = Pool()
    pools["dbnet"].held["c1", "eth0"], pools["dbnet"].networks["c1", "eth0"] = 2, "dbnet"
    report = check_plugin(shared.plugin, {"name": "dbnet"}, ipam=True, versions=NEWEST)
    assert report.failures == []
    assert pools["dbnet"].held == {("c1", "eth0"): 2}
