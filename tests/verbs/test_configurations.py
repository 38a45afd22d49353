"""Which configuration and arguments a verb uses, in which order, and which files it reads for that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from helpers import RT, attached, network

from libcni.config.network import NetworkConfigList
from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import RecordError
from libcni.store.model import PENDING, Record
from libcni.verbs.configurations import configurations, network_to_use

ADDED = RuntimeConf("c1", "/n", "eth0", args=[("K", "recorded")])
CALLERS = RuntimeConf("c1", "/n", "eth0", args=[("K", "given")])
RECORDED, GIVEN, FILE = network("recorded"), network("given"), network("file")
OURS = attached(RECORDED, ADDED)
BEGUN = attached(RECORDED, ADDED, state=PENDING, result=None)
GOS = attached(RECORDED, ADDED, version="", plugins=())
EMPTY = NetworkConfigList("net", "1.0.0", ())


def tried(record: Record | None, given: NetworkConfigList | None, *, use_given: bool) -> list[str]:
    """Return the plugin and the argument of each try, with ``read`` where the file was read before it."""
    log: list[str] = []

    def load(name: str) -> NetworkConfigList:
        assert name == "net"
        log.append("read")
        return FILE

    for one in configurations(record, given, CALLERS, load, use_given=use_given):
        argument = dict(one.rt.args or ())["K"]
        log.append(f"{one.net.plugins[0].type} {argument}")
    return log


@pytest.mark.parametrize(
    ("record", "given", "use_given", "tries"),
    [
        (None, GIVEN, False, ["given given"]),
        (OURS, GIVEN, False, ["recorded recorded"]),
        (OURS, GIVEN, True, ["given given"]),
        (OURS, None, True, ["recorded given"]),
        (OURS, EMPTY, True, ["recorded given"]),
        (replace(OURS, config=b"{"), GIVEN, False, ["given recorded"]),
        (replace(OURS, config=b"{"), None, False, ["read", "file recorded"]),
        (replace(OURS, config=b"{"), None, True, ["read", "file given"]),
        (BEGUN, GIVEN, False, ["recorded recorded", "given given"]),
        (BEGUN, None, False, ["recorded recorded", "read", "file given"]),
        (BEGUN, EMPTY, False, ["recorded recorded", "recorded given"]),
        (BEGUN, GIVEN, True, ["given given"]),
        (GOS, GIVEN, False, ["given recorded"]),
        (GOS, None, False, ["read", "file recorded"]),
        (GOS, None, True, ["recorded given"]),
    ],
)
def test_what_is_tried(record: Record | None, given: Any, use_given: bool, tries: list[str]) -> None:
    assert tried(record, given, use_given=use_given) == tries


@pytest.mark.parametrize("record", [OURS, GOS])
def test_the_recorded_configuration_alone(record: Record) -> None:
    assert network_to_use(record).plugins == RECORDED.plugins
    assert network_to_use(record, EMPTY).plugins == RECORDED.plugins


def test_without_any_configuration() -> None:
    with pytest.raises(RecordError, match="/x: the record holds no usable configuration") as caught:
        network_to_use(replace(OURS, config=b"", path="/x"))
    assert (caught.value.path, caught.value.missing) == ("/x", "configuration")
    assert caught.value.hint


def test_the_callers_configuration_is_the_recorded_one_only_with_the_same_drop_ins() -> None:
    net = network("a")
    changed = replace(net, plugins=network("a", "drop-in").plugins)
    record = attached(net, RT)
    assert network_to_use(record, net) is net
    assert [plugin.type for plugin in network_to_use(record, changed).plugins] == ["a"]
