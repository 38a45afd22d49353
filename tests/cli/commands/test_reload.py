"""libcni reload."""

from __future__ import annotations

import json

from cli.node import DBNET, CommandNode


def test_reload_says_what_it_would_do_and_does_it(node: CommandNode) -> None:
    node.add("a")
    node.add("b")
    planned = node.run("reload", "--all", "--dry-run", "-o", "json").data
    assert [(one["container_id"], one["done"]) for one in planned] == [("a", "planned"), ("b", "planned")]
    assert node.run("reload", "b:eth0").out.splitlines()[1].split()[-1] == "reloaded"
    done = json.loads(node.run("reload", "a", "-o", "json").out)
    assert [(one["container_id"], one["done"], one["before"] == one["after"]) for one in done] == [
        ("a", "reloaded", True)
    ]
    # Together: fake-ipam knows no request for an address, and may give each the other one's.
    assert [one["container_id"] for one in json.loads(node.run("reload", "--all", "-o", "json").out)] == ["a", "b"]


def test_one_failure_does_not_stop_the_others(node: CommandNode) -> None:
    node.add("a")
    node.add("b")
    assert node.run("reload").code == 2
    (node.root / "ns" / "a").unlink()
    planned = node.run("reload", "a", "b", "--dry-run").out.splitlines()[1:]
    assert [line.split("  ")[-1] for line in planned] == ["not possible", "planned"]
    ran = node.run("reload", "a", "b")
    assert ran.code == 4
    assert "the namespace" in ran.err
    assert ran.err.count("  type  ") == 1
    assert "type  libcni del a -i eth0 -n dbnet\n" in ran.err
    assert [line.split()[-1] for line in ran.out.splitlines()[1:]] == ["failed", "reloaded"]


def test_errors_of_several_kinds_have_exit_code_1(node: CommandNode) -> None:
    node.configure("net")
    for container in ("gone", "moody"):
        assert node.run("add", "net", node.netns(container), "-c", container).code == 0
    (node.root / "ns" / "gone").unlink()
    node.plugin("net", "[ $CNI_COMMAND != ADD ] || exit 1")
    ran = node.run("reload", "gone", "moody")
    assert (ran.code, "error: RELOAD of 2 attachments failed\n" in ran.err) == (1, True)


def test_all_are_those_of_the_owner_and_those_of_go_only_if_asked(node: CommandNode) -> None:
    for container in ("mine", "gos"):
        node.add(container)
    assert node.run("add", "dbnet", node.netns("alices"), "-c", "alices", "--owner", "alice").code == 0
    node.strip_record("gos", "dbnet")
    ran = node.run("reload", "--all", "--dry-run")
    assert [line.split()[0] for line in ran.out.splitlines()] == ["CONTAINER", "mine"]
    assert (
        "note: 2 attachments of other owners (--owner) or of Go libcni (--include-go) are left as they are" in ran.err
    )
    assert "alices" in node.run("reload", "--all", "--dry-run", "--owner", "alice").out
    assert "gos" in node.run("reload", "--all", "--dry-run", "--include-go").out
    assert node.run("reload", "--all", "--include-go", "--owner", "alice").code == 2


def test_all_are_also_those_that_a_stopped_reload_has_left(node: CommandNode) -> None:
    node.plugin("moody")
    node.write("10-dbnet.conflist", DBNET | {"plugins": [*DBNET["plugins"], {"type": "moody"}]})
    node.add("a")
    node.plugin("moody", "[ $CNI_COMMAND != ADD ] || exit 1")
    assert node.run("reload", "--all").code != 0
    assert node.states() == ["pending"]
    node.plugin("moody")
    assert node.run("reload", "--all").code == 0
    assert node.states() == ["ready"]


def test_what_no_plugin_has_finished_is_no_failure_of_all_nor_of_the_containers_other_interface(
    node: CommandNode,
) -> None:
    """A killed ADD without any result: its caller got no answer, so a reload would attach what nobody uses."""
    node.configure("net")
    for words in (("a", "eth0"), ("a", "eth1"), ("b", "eth0")):
        assert node.run("add", "net", node.netns(words[0]), "-c", words[0], "-i", words[1]).code == 0
    node.change_record("a", state="pending")
    ran = node.run("reload", "--all")
    assert (ran.code, node.states()) == (0, ["pending", "ready", "ready"])
    assert "note: 1 attachment whose ADD was stopped at its beginning (see: libcni doctor) is left as it is" in ran.err
    ran = node.run("reload", "a")
    assert (ran.code, [line.split()[-1] for line in ran.out.splitlines()[1:]]) == (4, ["failed", "reloaded"])
    assert "the ADD has not ended" in ran.err


def test_what_would_fail_after_its_del_is_not_detached(node: CommandNode) -> None:
    """The daemon of a plugin has ended since the ADD: the plugin's DEL works, and its ADD does not."""
    socket = node.root / "daemon.sock"
    socket.touch()
    node.plugin("moody", "[ $CNI_COMMAND != ADD ] || [ -e daemon.sock ] || exit 1")
    node.configure("net")
    node.write("20-moody.conflist", {
        "cniVersion": "1.0.0", "name": "moody", "plugins": [{"type": "moody", "server_socket": str(socket)}],
    })  # fmt: skip
    for network, container in (("net", "a"), ("moody", "b")):
        assert node.run("add", network, node.netns(container), "-c", container).code == 0
    socket.unlink()
    for words in (("--dry-run",), ()):
        ran = node.run("reload", "a", "b", *words)
        assert ran.code == 1
        expected = ["planned", "not possible"] if words else ["reloaded", "failed"]
        assert [line.split("  ")[-1] for line in ran.out.splitlines()[1:]] == expected
        assert f"its ADD would fail after the DEL: {socket} does not exist: start the plugin's daemon" in ran.err
    assert node.states() == ["ready", "ready"]
    socket.touch()
    assert node.run("reload", "b").code == 0
