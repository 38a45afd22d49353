"""``libcni check``, and that the other verbs without a result print nothing either."""

from __future__ import annotations

from cli.node import DBNET, CommandNode


def test_check_del_and_status_print_nothing(node: CommandNode) -> None:
    node.write("10-dbnet.conflist", {**DBNET, "plugins": DBNET["plugins"][:1]})
    netns = node.netns("a")
    node.run("add", "dbnet", netns)
    for verb in ("check", "status", "del"):
        ran = node.run(verb, "dbnet", netns)
        assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert node.cni.get_cached_attachments() == []


def test_check_of_all_and_status_that_was_not_asked(node: CommandNode) -> None:
    node.add("a")
    node.add("b")
    ran = node.run("check", "--all", "-o", "json")
    assert [(one["container_id"], one["check"]) for one in ran.data] == [("a", "ok"), ("b", "ok")]
    assert (node.run("check", "-c", "a").out, node.run("check", "-c", "nobody").code) == ("", 4)
    node.write("10-dbnet.conflist", {**DBNET, "cniVersion": "1.0.0"})
    ran = node.run("status", "dbnet", "-o", "json")
    assert (ran.code, ran.data["ready"]) == (0, None)
    assert "was not asked" in ran.err
