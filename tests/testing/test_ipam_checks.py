"""Faulty IPAM plugins, each found by the check that is meant for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from plugin.plugins import Recorder

from libcni.plugin import Request, VerbError
from libcni.testing import check_plugin
from testing.faulty import NEWEST, SHELL_IPAM, Change, changed, failing, write_executable


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


def test_an_ipam_plugin_that_does_not_hear_what_is_asked_for_is_found() -> None:
    recorder = Recorder(add=lambda request: request.result.add_ip("10.9.0.2/24"))
    for options in ({"config": {}, "args": "IP=10.9.0.7"}, {"config": {"runtimeConfig": {"ips": ["10.9.0.7/24"]}}}):
        report = check_plugin(recorder.plugin, ipam=True, versions=NEWEST, only=["life"], **options)
        (problem,) = [f.problem for f in report.failures if f.check == "ADD gives what the runtime asks for"]
        assert "was requested, but the result has 10.9.0.2" in problem


def test_a_pool_of_one_address_is_enough() -> None:
    assert failing(check_plugin(Pool(size=3).plugin, {}, ipam=True, versions=NEWEST)) == set()


# Executables with a fault that shows only beside other calls, or when they are killed.
SHELL_FAULTS: list[tuple[str, str, str, str, list[Change]]] = [
    (
        "looks for a free number before it takes it",
        "addresses",
        "ADDs at the same time get different addresses",
        "was given more than once",
        [
            (
                "    until {",
                '    while [ -e "$pool/$number" ]; do number=$((number + 1)); done\n    sleep 0.1\n    until {',
            ),
            ("set -C\n", ""),
            ("    printf", '    [ $number -lt 12 ] || { rm "$pool/$number"; fail 11 "no free address"; }\n    printf'),
        ],
    ),
    (
        "fails if a file vanishes while it looks at all of them",
        "several",
        "verbs of several containers at once",
        "calls failed during calls of other containers",
        [
            ("    for file", '    set -- "$1" "$pool"/*\n    sleep 0.01\n    for file'),
            ("|| found=\n", '|| [ "$found$file" = "$pool/*" ] || fail 100 gone\n'),
        ],
    ),
    (
        "DEL needs the result of an ADD that has been killed",
        "failures",
        "DEL leaves nothing of an ADD that is killed",
        "the next ADD of the same attachment fails",
        [
            ("    printf", "    sleep 0.2\n    printf"),
            ("DEL) each", 'DEL) [ "${stdin#*prevResult}" = "$stdin" ] || each'),
        ],
    ),
]


@pytest.mark.parametrize(
    ("group", "check", "problem", "changes"),
    [fault[1:] for fault in SHELL_FAULTS],
    ids=[fault[0] for fault in SHELL_FAULTS],
)
def test_a_fault_beside_other_calls_is_found(
    tmp_path: Path, group: str, check: str, problem: str, changes: list[Change]
) -> None:
    path = write_executable(tmp_path / "pool", changed(SHELL_IPAM, *changes))
    report = check_plugin(path, {}, ipam=True, versions=["0.4.0"], only=[group])
    assert {f.check for f in report.failures} == {check}
    assert problem in report.failures[0].problem


def test_the_right_executable_has_no_failure(tmp_path: Path) -> None:
    path = write_executable(tmp_path / "pool", SHELL_IPAM)
    groups = ["life", "several", "addresses", "failures"]
    assert check_plugin(path, {}, ipam=True, versions=["0.4.0"], only=groups).failures == []


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
