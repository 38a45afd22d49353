"""``libcni del``: from the record alone."""

from __future__ import annotations

import pytest

from cli.node import DBNET, CommandNode, attach_sharing, containers


def test_del_of_a_container_needs_no_configuration(node: CommandNode) -> None:
    node.add("a")
    node.write("30-front.conflist", {**DBNET, "name": "front", "plugins": [{"type": "fake"}]})
    assert node.run("add", "front", node.netns("a"), "-c", "a", "-i", "eth1").code == 0
    for path in node.conf_dir.iterdir():
        path.unlink()
    ran = node.run("del", "--container", "a", "--ifname", "eth0")
    assert ran.out == "detached a eth0 from dbnet\n"
    assert node.run("del", "-c", "a").out == "detached a eth1 from front\n"
    assert node.cni.get_cached_attachments() == []


@pytest.mark.parametrize(("name", "code"), [("dbnet-c1-eth0", 1), ("dbnet-c2-eth0", 0)])
def test_del_from_the_records_fails_if_the_record_is_corrupt(node: CommandNode, name: str, code: int) -> None:
    node.results.mkdir(parents=True)
    (node.results / name).write_text("{", encoding="utf-8")
    ran = node.run("del", "-c", "c1")
    assert ran.code == code
    assert (str(node.results / name) in ran.err) is (code == 1)


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["nobody"], "libcni del NETWORK NETNS -c nobody"),
        (["nobody", "-n", "dbnet", "-i", "eth1"], "libcni del dbnet NETNS -c nobody -i eth1"),
    ],
)
def test_without_a_record_the_command_that_needs_none_is_named(
    node: CommandNode, words: list[str], command: str
) -> None:
    ran = node.run("del", *words)
    assert (ran.code, ran.err.splitlines()[-1].strip()) == (0, command)
    assert node.run(*command.replace("NETWORK", "dbnet").replace("NETNS", node.netns("a")).split()[1:]).code == 0


def test_another_namespace_than_the_recorded_one(node: CommandNode) -> None:
    node.add("a")
    ran = node.run("del", "dbnet", node.netns("b"), "-c", "a")
    assert ran.code != 0
    assert "libcni del a -i eth0 -n dbnet" in ran.err
    assert containers(node) == ["a"]
    assert node.run("del", "-c", "a", "-i", "eth0").code == 0


def test_interfaces_that_share_a_rule_are_detached_in_two_attempts(node: CommandNode) -> None:
    attach_sharing(node)
    ran = node.run("del", "-c", "a")
    assert ran.code == 0
    assert ran.out.split("\n") == ["detached a net1 from sharing", "detached a eth0 from sharing", ""]


@pytest.mark.parametrize(
    ("missing", "detached"), [("other", "a eth0 from net"), ("net", "a eth1 from other")], ids=["first", "last"]
)
def test_del_with_the_current_configuration_goes_on_after_an_error(
    node: CommandNode, missing: str, detached: str
) -> None:
    node.configure("net")
    node.configure("other")
    for network, ifname in (("net", "eth0"), ("other", "eth1")):
        assert node.run("add", network, node.netns("a"), "-c", "a", "-i", ifname).code == 0
    (node.bin / missing).unlink()
    ran = node.run("del", "a", "--use-given")
    assert (ran.code, ran.out) == (4, f"detached {detached}\n")


def test_a_del_without_a_record_says_so_and_what_it_has_run(node: CommandNode) -> None:
    node.add("a")
    # The container lives, and its record is in another directory.
    ran = node.run("del", "dbnet", "", "-c", "a", "--cache-dir", str(node.root / "other"))
    assert ran.code == 0
    assert f"note: there was no record of container a, interface eth0 in {node.root}/other" in ran.err
    assert "fake-tuning, fake-bridge" in " ".join(ran.err.split())
    assert containers(node) == ["a"]
    assert "no record" not in node.run("del", "dbnet", node.netns("a"), "-c", "a").err
