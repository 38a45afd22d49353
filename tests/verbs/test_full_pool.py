"""The hint of an ADD that finds no free address: who has how many."""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import patch

import pytest
from nodes import FakeNode, both_clients

from libcni import PluginError, RuntimeConf

TEXT = "failed to allocate for range 0: no IP addresses available in range set: 10.9.0.1-10.9.0.6"


@pytest.fixture
def node(tmp_path: Path, request: pytest.FixtureRequest) -> FakeNode:
    """Return a node with a network of five addresses: one living, two dead, two without a record."""
    node = FakeNode(tmp_path, request.param)
    ipam = {"type": "host-local", "subnet": "10.9.0.0/29", "dataDir": str(tmp_path / "leases")}
    node.configure("net", {"type": "bridge", "ipam": ipam})
    for name in ("c1", "c2", "c3"):
        node.cni.add_network_list("net", RuntimeConf(name, node.netns(name), "eth0"))
    for name in ("c2", "c3"):
        os.unlink(node.netns(name))
    leases(node).mkdir(parents=True)
    (leases(node) / "lock").touch()
    for number, name in enumerate(("c1", "c2", "c3", "c4", "c5"), 2):
        (leases(node) / f"10.9.0.{number}").write_text(f"{name}\r\neth0", encoding="utf-8")
    return node


def leases(node: FakeNode) -> Path:
    return node.root / "leases" / "net"


def fails(node: FakeNode, code: int, msg: str = "", verb: str = "ADD") -> PluginError:
    error = f'{{"cniVersion": "1.0.0", "code": {code}, "msg": "{msg}"}}'
    node.plugin("bridge", f"[ $CNI_COMMAND != {verb} ] || {{ echo '{error}'; exit 1; }}")
    call = node.cni.add_network_list if verb == "ADD" else node.cni.check_network_list
    name = "new" if verb == "ADD" else "c1"
    with pytest.raises(PluginError) as caught:
        call("net", RuntimeConf(name, node.netns(name), "eth0"))
    assert caught.value.hint is not None
    return caught.value


FULL = (
    "network net has no free address: 5 of 5 are reserved, 1 of living containers, 2 of containers that no longer "
    "exist, 2 without a record; see which can be freed"
)


@both_clients
@pytest.mark.parametrize(("code", "msg"), [(999, TEXT), (11, "")], ids=["text", "code 11"])
def test_an_add_that_finds_the_pool_full_says_who_has_the_addresses(node: FakeNode, code: int, msg: str) -> None:
    error = fails(node, code, msg)
    assert error.hint is not None
    assert (error.hint.text, error.hint.command) == (FULL, "doctor")
    assert "libcni doctor --conf-dir" in str(error)


@both_clients
def test_code_11_with_free_addresses_and_another_verb_have_their_own_hints(node: FakeNode) -> None:
    (leases(node) / "10.9.0.6").unlink()
    assert str(fails(node, 11).hint) == "the plugin asks you to try again later"
    assert "see who has the addresses: libcni doctor" in str(fails(node, 999, TEXT).hint), "the plugin must know"
    assert "how to repair it" in str(fails(node, 999, TEXT, "CHECK").hint)


@both_clients
@pytest.mark.parametrize("problem", [PermissionError(13, "denied"), ValueError("embedded null byte")])
def test_what_cannot_be_counted_does_not_hide_the_error(node: FakeNode, problem: Exception) -> None:
    with patch("libcni.verbs.full_pool.reservations_in", side_effect=problem):
        error = fails(node, 999, TEXT)
    assert error.msg == TEXT
    assert str(error.hint).startswith("see who has the addresses: libcni doctor")
    assert [one.container_id for one in node.cni.get_cached_attachments()] == ["c1", "c2", "c3"], "it is rolled back"


@both_clients
def test_of_a_large_pool_only_the_number_is_counted(node: FakeNode) -> None:
    with patch("libcni.verbs.full_pool._MOST", 4):
        assert "no free address: 5 of 5 are reserved; see which" in str(fails(node, 999, TEXT).hint)
