"""A node with real plugins on which this library and Go libcni take turns: one attaches, the other does the rest."""

from __future__ import annotations

import base64
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from moments import count_moments, moments, spread
from nodes import PLUGINS, Namespace, RealNode, plugins_know_gc
from processes import fork, wait

from conformance.exact import plain
from conformance.golang import call
from libcni import RuntimeConf

pytestmark = [pytest.mark.slow, pytest.mark.real]

RECORDS = 25
"""The attachments of each test; with both tests and both versions of Go they are 100."""
PORTS = {"portMappings": [{"hostPort": 18080, "containerPort": 80, "protocol": "tcp"}]}


class SharedNode:
    """A RealNode, and Go libcni with the same records, plugins and network."""

    def __init__(self, node: RealNode, program: Path) -> None:
        self.node, self.program = node, program
        bridge = node.bridge("10.77.0.0/24", ipMasq=True, isDefaultGateway=True)
        portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
        self.document = {"cniVersion": "1.0.0", "name": "net", "plugins": [bridge, portmap]}
        node.write("net.conflist", self.document)

    def conf(self, container: str, netns: str) -> RuntimeConf:
        return RuntimeConf(container, netns, "eth0", [("IgnoreUnknown", "1"), ("K8S_POD_NAME", container)], PORTS)

    def go(self, kind: str, rt: RuntimeConf, **more: Any) -> str:
        """Let Go libcni do one thing; return its error, or ""."""
        document = base64.b64encode(json.dumps(self.document).encode()).decode()
        given = {
            "container_id": rt.container_id, "netns": rt.netns or "", "ifname": rt.ifname,
            "args": [list(pair) for pair in rt.args or ()], "capability_args": dict(rt.capability_args or {}),
        }  # fmt: skip
        job = {"path": more.pop("path", [PLUGINS]), "cacheDir": str(self.node.cache)}
        step = {"kind": kind, "document": document, "rt": given, "timeout": 60, **more}
        job["environ"] = self.node.settings["env"]
        ((outcome,),) = call(self.program, [{**job, "steps": [step]}])
        assert not outcome.get("unsupported")
        return str(plain(outcome["error"])["text"]) if "error" in outcome else ""

    def has_half_a_record(self) -> bool:
        """Return whether a write to a record was stopped in the middle: Go cannot read it, this library can."""
        for path in self.node.results.iterdir():
            try:
                json.loads(path.read_bytes())
            except ValueError:
                return True
        return False

    def left(self) -> list[object]:
        """Return what is on the node of attachments: records, addresses, interfaces, rules of ports."""
        rules = [rule for rule in self.node.host.rules("nat") if "18080" in rule or "10.77.0." in rule]
        records = [path.name for path in self.node.results.iterdir()] if self.node.results.exists() else []
        links = [name for name in self.node.host.links() if name.startswith("veth")]
        return [*records, *self.node.leased(), *links, *rules]


@pytest.fixture
def shared(real_node: RealNode, each_go_program: Path) -> SharedNode:
    return SharedNode(real_node, each_go_program)


def test_what_go_attached_is_checked_and_detached_here(shared: SharedNode, container: Namespace) -> None:
    for number in range(RECORDS):
        rt = shared.conf(f"c{number}", container.path)
        assert shared.go("add", rt) == ""
        assert shared.node.states() == ["ready"]
        cni = shared.node.client()
        (attachment,) = cni.get_cached_attachments()
        cni.check_attachment(attachment)
        way = number % 4
        if way == 0:
            cni.del_attachment(attachment)
        elif way == 1:
            cni.gc_network_list("net", [], include_go=True)
        elif way == 2:
            cni.add_network_list("net", rt, on_existing="replace")
            cni.del_network_list("net", rt)
        else:
            cni.take_over_attachment(attachment)
            cni.reload_attachment(cni.get_cached_attachments()[0])
            assert shared.go("check", rt) == ""
            cni.del_network_list("net", RuntimeConf(rt.container_id, None, "eth0"))
        assert shared.left() == [], way


def test_what_was_attached_here_is_detached_by_go_at_every_moment(shared: SharedNode, container: Namespace) -> None:
    """A program of this library is killed at each moment of an ADD. Go's DEL, and then its ADD, find what is there."""
    rt = shared.conf("c1", container.path)

    def add() -> None:
        shared.node.client().add_network_list("net", rt)

    def delete() -> None:
        shared.node.client().del_network_list("net", rt)

    add()  # what is done only once is done now
    delete()
    count = count_moments(add)
    delete()
    kills = 0
    for number in [*spread(count, RECORDS - 1), count + 1]:

        def die(moment: int, number: int = number) -> None:
            if moment == number:
                os.kill(os.getpid(), signal.SIGKILL)

        def child() -> None:
            with moments(die):
                add()

        killed = wait(fork(child)) == -signal.SIGKILL
        kills += killed
        if not killed:
            assert shared.go("check", rt) == ""
        refused = shared.go("del", rt)
        assert not refused or shared.has_half_a_record(), (number, refused)
        # Go deletes its file's name, and nothing else of ours is left but what DEL of this library takes.
        delete()
        assert shared.left() == [], f"killed at {number} of {count}"
        assert "eth0" not in container.links()
        assert shared.go("add", rt) == "", number
        assert shared.go("del", rt) == "", number
    assert kills > 0.8 * (RECORDS - 1)
    assert shared.left() == []


@pytest.mark.parametrize("is_between", [True, False], ids=["after firewall", "in firewall"])
def test_the_rules_of_an_add_that_was_killed_are_removed_by_go(
    shared: SharedNode, container: Namespace, is_between: bool
) -> None:
    """firewall's DEL removes the rules of the addresses in prevResult, which Go reads under its own key ``result``."""
    node, kill = shared.node, "[ $CNI_COMMAND = DEL ] || kill -9 $PPID"
    if is_between:
        node.plugin("killer", kill)
        last: dict[str, Any] = {"type": "killer"}
    else:  # its rules are made, and its result is not recorded
        node.plugin("walled", f'{PLUGINS}/firewall < "$stdin" || exit; {kill}; exit 0')
        last = {"type": "walled"}
    rest = [{"type": "firewall"}, last] if is_between else [last]
    shared.document["plugins"] = [node.bridge("10.77.0.0/24"), *rest]
    node.write("net.conflist", shared.document)
    rt = shared.conf("c1", container.path)
    assert wait(fork(lambda: node.client().add_network_list("net", rt))) == -signal.SIGKILL
    assert node.states() == ["pending"]
    assert len(node.host.rules("filter", "10.77.0.2/32")) == 2
    assert shared.go("del", rt, path=[str(node.root / "bin"), PLUGINS]) == ""
    assert (shared.left(), node.host.rules("filter", "10.77.0.")) == ([], [])


@pytest.mark.may_skip  # the newest Go is downloaded
def test_gc_of_go_keeps_what_is_valid(
    real_node: RealNode, newest_go_program: Path, container: Namespace, other: Namespace
) -> None:
    shared = SharedNode(real_node, newest_go_program)
    if plugins_know_gc():
        shared.document["cniVersion"] = "1.1.0"
        real_node.write("net.conflist", shared.document)
    cni = shared.node.cni
    living = RuntimeConf("living", other.path, "eth0")
    cni.add_network_list("net", living)
    cni.add_network_list("net", shared.conf("dead", container.path))
    assert shared.go("gc", living, valid=[["living", "eth0"]]) == ""
    assert [one.container_id for one in shared.node.client().get_cached_attachments()] == ["living"]
    cni.check_network_list("net", living)
    assert not [rule for rule in shared.node.host.rules("nat") if "18080" in rule]
    cni.del_network_list("net", living)
    assert shared.left() == []
