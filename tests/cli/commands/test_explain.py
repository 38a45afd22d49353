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


def test_a_missing_plugin_is_named_in_the_words_of_the_command(node: CommandNode) -> None:
    node.write("10-dbnet.conflist", {**DBNET, "plugins": [{"type": "fake-bridg"}]})
    assert "did you mean fake-bridge? If not, install fake-bridg, or pass its directory with --path)\n" in (
        node.run("explain", "dbnet").out
    )
