"""``libcni repair``: the plan, the repair, and what it leaves."""

from __future__ import annotations

import time
from pathlib import Path

from cli.node import CommandNode, attach_sharing


def test_repair_says_what_it_would_do_then_does_it_then_has_nothing_to_do(broken_node: CommandNode) -> None:
    planned = broken_node.run("repair", "-o", "json").data
    assert [one["action"] for one in planned] == ["set aside", "detach", "detach", "detach"]
    assert len(broken_node.cni.get_cached_attachments()) == 5
    done = broken_node.run("repair", "--yes", "-o", "json")
    assert (done.code, [one["action"] for one in done.data]) == (0, ["set aside", "detached", "detached", "detached"])
    aside = done.data[0]
    assert aside["reason"] == planned[0]["reason"] == "it is empty"
    assert aside["moved_to"].startswith(f"{broken_node.cache}/corrupt/")
    assert [one["moved_to"] for one in (*planned, *done.data[1:])] == [None] * 7
    assert [one.container_id for one in broken_node.cni.get_cached_attachments()] == ["good"]
    assert broken_node.run("repair").out == "nothing to repair\n"


def test_repair_prints_why_a_record_was_set_aside_and_where_it_is(broken_node: CommandNode) -> None:
    first, *_, last = broken_node.run("repair", "--yes").out.splitlines()
    assert first.split() == ["ACTION", "WHAT", "WHY"]
    assert f"{broken_node.cache}/corrupt/" in last


def test_repair_leaves_an_add_that_may_still_run(node: CommandNode) -> None:
    node.add("young")
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    node.change_record("young", "dbnet", state="pending", created=time.time() - 30, uptime=now - 30)
    assert node.run("repair").out == "nothing to repair\n"
    assert "libcni del -c young" in node.run("doctor").out
    assert "its ADD has not ended" in node.run("repair", "--pending-after", "10").out


def test_a_repair_that_fails_in_part_says_so(broken_node: CommandNode) -> None:
    (broken_node.bin / "fake-bridge").unlink()
    ran = broken_node.run("repair", "--yes")
    assert ran.code == 1
    assert "failed" in ran.out
    assert 'plugin "fake-bridge" not found' in ran.err
    assert broken_node.run("repair", "--yes", "--skip-missing").code == 0


def test_interfaces_that_share_a_rule_are_detached_in_two_attempts(node: CommandNode) -> None:
    attach_sharing(node)
    for ifname in ("eth0", "net1"):
        node.change_record("a", "sharing", ifname, bootId="another")
    ran = node.run("repair", "--yes", "-o", "json")
    assert (ran.code, [one["action"] for one in ran.data]) == (0, ["detached", "detached"])


def test_a_record_that_repair_cannot_set_aside_is_a_failure(node: CommandNode) -> None:
    node.results.mkdir(parents=True)
    (node.results / "dbnet-lost-eth0").touch()
    (node.cache / "corrupt").touch()
    ran = node.run("repair", "--yes")
    assert (ran.code, ran.out.split()[3]) == (1, "failed")


def test_the_command_that_repairs_has_the_options_of_the_plan(node: CommandNode) -> None:
    assert node.run("add", "dbnet", node.netns("a"), "-c", "a", "--owner", "pod").code == 0
    node.change_record("a", "dbnet", bootId="another")
    options = f"--cache-dir {node.cache} --owner pod"
    last = node.run("repair", *options.split(), LIBCNI_CACHE_DIR="").out.splitlines()[-1]
    assert last.endswith(f"libcni repair --yes {options}")


def test_repair_detaches_records_of_go_only_if_asked(node: CommandNode) -> None:
    node.add("a")
    node.strip_record("a", "dbnet")
    Path(node.netns("a")).unlink()
    for words in ([], ["--yes"]):
        (left,) = node.run("repair", *words, "-o", "json").data
        assert (left["action"], left["subject"]) == ("left", "stale attachments of Go libcni: 1")
        assert left["reason"] == "see: libcni repair --include-go"
    planned = node.run(*left["reason"].split()[2:])
    assert planned.out.splitlines()[-1].endswith("libcni repair --yes --include-go")
    done = node.run("repair", "--yes", "--include-go", "-o", "json").data
    assert [one["action"] for one in done] == ["detached"]
    assert node.cni.get_cached_attachments() == []
