"""How deep a document may be does not depend on the stack, so what was attached can always be read back."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import libcni
import libcni.executor
import libcni.reports
from libcni.config.jsontext import MAX_DEPTH

RT = libcni.RuntimeConf("c1", "/run/netns/x", "eth0")


class Nested:
    """An executor whose plugins print a result that is nested so deeply."""

    def __init__(self, levels: int) -> None:
        self.levels = levels
        self.calls: list[libcni.Invocation] = []

    def find(self, plugin: str, path: Sequence[str]) -> str:
        return f"{path[0]}/{plugin}"

    def execute(self, invocation: libcni.Invocation, limits: libcni.executor.CallOptions) -> libcni.Outcome:
        self.calls.append(invocation)
        return libcni.Outcome(stdout=document(self.levels, cniVersion="1.0.0"))


def document(levels: int, **keys: Any) -> bytes:
    """Return an object with these keys, nested ``levels`` deep in all."""
    return json.dumps({**keys, "x": None}).replace("null", "[" * (levels - 1) + "]" * (levels - 1)).encode()


def network(levels: int) -> libcni.NetworkConfigList:
    plugin = json.dumps({"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "a"}]})
    inner = document(levels - 2, type="a").decode()
    return libcni.NetworkConfigList.from_bytes(plugin.replace('{"type": "a"}', inner))


def on_a_deep_stack(frames: int, action: Callable[[], object]) -> None:
    if frames:
        on_a_deep_stack(frames - 1, action)
    else:
        action()


def test_the_deepest_that_is_accepted_can_be_checked_and_detached(tmp_path: Path) -> None:
    executor = Nested(MAX_DEPTH)
    cni = libcni.CNIConfig(["/bin"], tmp_path, executor=executor, durable=False)
    net = network(MAX_DEPTH)
    cni.add_network_list(net, RT)
    on_a_deep_stack(400, lambda: cni.check_network_list(net, RT))
    assert [one.state for one in cni.get_cached_attachments()] == ["ready"]
    on_a_deep_stack(400, lambda: assert_done(cni.del_network_list(net, RT)))
    assert executor.calls[-1].stdin.endswith(b',"prevResult":' + document(MAX_DEPTH, cniVersion="1.0.0") + b"}")


def assert_done(report: libcni.reports.DelReport) -> None:
    assert report.record == "found"
