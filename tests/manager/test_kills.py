"""Random kills of a loop of set-up, tear-down and GC: nothing is left, and nothing of a neighbour is touched."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from helpers import network
from nodes import Namespace, RealNode
from processes import fork, kill_after

from libcni import CNIError, NetworkConfigList, RuntimeConf
from libcni.manager import Container, Namespaces, NetworkManager

pytestmark = [pytest.mark.slow, pytest.mark.real]

ROUNDS = 4
KILLS = int(os.environ.get("LIBCNI_MANAGER_KILLS", "200")) // ROUNDS
PREFIX = f"mgr-kill-{os.getpid()}"
OURS = [f"{PREFIX}-{number}" for number in range(3)]
NEIGHBOUR, BY_HAND = f"{PREFIX}-neighbour", f"{PREFIX}-hand"


def churn(node: RealNode, net: NetworkConfigList, seed: str) -> None:
    """Set up, tear down and collect until a kill; write the first error that an operation raises."""
    dice = random.Random(seed)
    manager = NetworkManager(node.client(owner="ours"), conf_dirs=[], networks=[net], namespaces=Namespaces())
    while True:
        name = dice.choice(OURS)
        ports = {"portMappings": [{"hostPort": 21000 + OURS.index(name), "containerPort": 80, "protocol": "tcp"}]}
        verb = dice.choice(["set_up", "set_up", "tear_down", "gc"])
        try:
            if verb == "set_up":
                manager.set_up(Container(name, capability_args=ports), on_existing="replace")
            elif verb == "tear_down":
                manager.tear_down(name)
            else:
                manager.gc([name])
        except CNIError as error:
            (node.root / "failed").write_text(f"{verb} {name} {error}")


@pytest.fixture
def by_hand() -> Iterator[str]:
    """A namespace that an operator made, with a container's name."""
    subprocess.run(["ip", "netns", "add", BY_HAND], check=True)
    yield f"/run/netns/{BY_HAND}"
    for name in (BY_HAND, NEIGHBOUR, *OURS):
        if os.path.lexists(f"/run/netns/{name}"):
            subprocess.run(["ip", "netns", "delete", name], check=False)


def state(node: RealNode, inner: Namespace) -> dict[str, Any]:
    """Return everything on the host that a container leaves behind, apart from the bridge."""
    return {
        "links": sorted(name for name in node.host.links() if name.startswith("veth")),
        "leases": node.leased(),
        "rules": sorted(node.host.rules("nat", "210")),
        "namespaces": sorted(name for name in os.listdir("/run/netns") if name.startswith(PREFIX)),
        "records": sorted(path.name for part in ("results", "namespaces") for path in (node.cache / part).glob("*")),
        "inside": inner.addresses("eth0"),
    }


@pytest.mark.parametrize("number", range(ROUNDS))
def test_kills_leave_nothing_and_a_neighbour_untouched(real_node: RealNode, by_hand: str, number: int) -> None:
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True}
    net = network(real_node.bridge("10.79.1.0/24"), portmap, name="kill")
    neighbour = real_node.client(owner="neighbour")
    NetworkManager(neighbour, conf_dirs=[], networks=[net], namespaces=Namespaces()).set_up(
        Container(
            NEIGHBOUR, capability_args={"portMappings": [{"hostPort": 21009, "containerPort": 80, "protocol": "tcp"}]}
        )
    )
    inner = Namespace(NEIGHBOUR)
    before = state(real_node, inner)
    dice = random.Random(f"{os.environ.get('LIBCNI_SEED', '1')} {number}")
    for kill in range(KILLS):
        runtime = fork(partial(churn, real_node, net, f"{number} {kill}"))
        assert kill_after(runtime, dice.uniform(0.0, 0.6))
        # No operation failed, whatever the kill before it left.
        assert not (real_node.root / "failed").exists(), (real_node.root / "failed").read_text()
    manager = NetworkManager(real_node.client(owner="ours"), conf_dirs=[], networks=[net], namespaces=Namespaces())
    manager.gc([])
    manager.tear_down(BY_HAND)
    assert state(real_node, inner) == before
    assert os.path.exists(by_hand)
    neighbour.check_network_list(net, RuntimeConf(NEIGHBOUR, None, "eth0"))
