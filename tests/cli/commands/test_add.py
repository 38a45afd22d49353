"""``libcni add``, as cnitool does it."""

from __future__ import annotations

import hashlib
import json

import pytest

from cli.node import DBNET, CommandNode


def test_the_container_id_is_derived_as_cnitool_does(node: CommandNode) -> None:
    netns = node.netns("a")
    assert node.run("add", "dbnet", f"{node.root}/ns/../ns/a").code == 0
    (one,) = node.cni.get_cached_attachments()
    assert one.container_id == "cnitool-" + hashlib.sha512(netns.encode()).hexdigest()[:20]
    assert one.netns == netns
    assert one.ifname == "eth0"
    node.run("add", "dbnet", "/var/run/netns/testing")
    assert node.record("cnitool-77383ca0a0715733ca6f", "dbnet").exists(), "the ID in cnitool's documentation"


def test_the_result_is_indented_by_four_without_a_new_line_at_the_end(node: CommandNode) -> None:
    ran = node.run("add", "dbnet", node.netns("a"))
    assert ran.out == json.dumps(json.loads(ran.out), indent=4)
    assert ran.err.splitlines()[1:] == []


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_the_output_is_utf_8_in_every_locale(node: CommandNode, encoding: str) -> None:
    fake = {"ADD": {"result": {"cniVersion": "1.1.0", "dns": {"domain": "ü✓😀"}}}}
    odd = {"cniVersion": "1.1.0", "name": "odd", "plugins": [{"type": "fake", "fake": fake}]}
    node.write("odd.conflist", odd)
    ran = node.run_script("add", "odd", node.netns("a"), "-c", "c1", PYTHONIOENCODING=encoding)
    assert (ran.code, ran.err) == (0, "")
    assert json.loads(ran.out)["dns"] == {"domain": "ü✓😀"}


def test_an_add_that_fails_says_that_the_namespace_does_not_exist(node: CommandNode) -> None:
    broken = {**DBNET, "name": "broken", "plugins": [{"type": "fake", "fake": {"error": {"code": 100, "msg": "no"}}}]}
    node.write("broken.conflist", broken)
    missing = node.root / "nowhere"
    assert f"the namespace {missing} does not exist\n" in node.run("add", "broken", str(missing), "-c", "a").err
    assert "does not exist" not in node.run("add", "broken", node.netns("a"), "-c", "b").err
