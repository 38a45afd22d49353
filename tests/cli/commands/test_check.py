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


def test_a_check_in_which_no_plugin_runs_is_not_ok(node: CommandNode) -> None:
    node.configure("now")
    node.write("20-then.conflist", {**DBNET, "name": "then", "disableCheck": True})
    for network in ("now", "then"):
        assert node.run("add", network, node.netns("a"), "-c", f"c-{network}").code == 0
    node.write("20-then.conflist", {**DBNET, "name": "then"})  # the record still forbids it
    ran = node.run("check", "--all", "-o", "json")
    assert [(one["network"], one["check"]) for one in ran.data] == [("now", "ok"), ("then", "not asked")]
    ran = node.run("check", "c-then")
    assert (ran.code, ran.out) == (0, "")
    assert "note: network then was not asked about 1 attachment: its configuration has disableCheck" in ran.err
    node.write("10-now.conflist", {**DBNET, "name": "now", "disableCheck": True})
    ran = node.run("check", "c-now")
    assert "note: network now was not asked about 1 attachment" in ran.err
    ran = node.run("check", "now", node.netns("a"), "-c", "c-now")
    assert (ran.code, "note: network now was not asked about 1 attachment" in ran.err) == (0, True)


def test_check_in_another_namespace_names_no_command_that_detaches(node: CommandNode) -> None:
    node.add("a")
    failed = node.run("check", "dbnet", node.netns("b"), "-c", "a")
    assert failed.code == 1
    assert "libcni check a -i eth0 -n dbnet" in failed.err
    assert "libcni del" not in failed.err


def test_a_known_fault_of_a_plugin_is_counted_apart(node: CommandNode) -> None:
    fault = '{"cniVersion": "1.1.0", "code": 100, "msg": "could not check ipv6 dnat"}'
    node.plugin("portmap", f"[ $CNI_COMMAND != CHECK ] || {{ echo '{fault}'; exit 1; }}")
    node.write("30-ports.conflist", {**DBNET, "name": "ports", "plugins": [{"type": "portmap"}]})
    node.add("a")
    for container in ("b", "c"):
        assert node.run("add", "ports", node.netns(container), "-c", container).code == 0
    ran = node.run("check", "--all", "-o", "json")
    assert [one["check"] for one in ran.data] == ["ok", "known fault", "known fault"]
    assert ran.code == 0
    assert "note: 2 attachments may be healthy: CHECK of portmap has a known fault" in ran.err
    node.change_record("a", "dbnet", state="pending")
    assert node.run("check", "--all").code == 4
    for words in (["b"], ["ports", node.netns("b"), "-c", "b"]):
        ran = node.run("check", *words)
        assert (ran.code, ran.out) == (0, "")
        assert "note: 1 attachment may be healthy: CHECK of portmap has a known fault" in ran.err


def test_a_record_of_go_without_a_namespace_is_not_checked_without_one(node: CommandNode) -> None:
    node.configure("net")
    assert node.run("add", "net", node.netns("a"), "-c", "a").code == 0
    node.strip_record("a")
    record = node.record("a")
    record.write_text(record.read_text().replace('"netns":', '"no":'))
    ran = node.run("check", "a")
    assert (ran.code, "Go libcni recorded no namespace" in ran.err) == (1, True)
    assert node.run("check", "net", node.netns("a"), "-c", "a").code == 0
