"""``libcni explain``: the calls of a verb, also from the record."""

from __future__ import annotations

from cli.node import DBNET, CommandNode


def test_explain_shows_del_from_the_record(node: CommandNode) -> None:
    node.add("a")
    changed = {**DBNET, "plugins": [{"type": "fake", "changed": True}]}
    node.write("10-dbnet.conflist", changed)
    ran = node.run("explain", "dbnet", "-c", "a", "--verb", "del", "-o", "json")
    assert ran.code == 0, ran.err
    (verb,) = ran.data["verbs"]
    assert [call["plugin"] for call in verb["calls"]] == ["fake-tuning", "fake-bridge"]
    assert verb["calls"][0]["environment"]["CNI_NETNS"] == node.netns("a")
    assert verb["calls"][0]["stdin"]["prevResult"]["ips"]
    assert verb["calls"][0].keys() == {
        "plugin", "path", "injected", "removed", "environment", "stdin", "stdin_text",
    }  # fmt: skip
    assert "from the record" in verb["note"]
    ran = node.run("explain", "dbnet", "-c", "nobody", "--verb", "del", "-o", "json")
    assert [call["plugin"] for call in ran.data["verbs"][0]["calls"]] == ["fake"]


def test_explain_needs_no_file_for_the_verbs_that_use_the_record(node: CommandNode) -> None:
    node.add("a")
    (node.conf_dir / "10-dbnet.conflist").unlink()
    ran = node.run("explain", "dbnet", "-c", "a", "-o", "json")
    assert ran.code == 0, ran.err
    assert [one["verb"] for one in ran.data["verbs"]] == ["CHECK", "DEL"]
    assert [call["plugin"] for call in ran.data["verbs"][1]["calls"]] == ["fake-tuning", "fake-bridge"]
    assert node.run("explain", "dbnet", "-c", "nobody").code == 4
    assert node.run("explain", "dbnet", "-c", "a", "--verb", "add").code == 4
