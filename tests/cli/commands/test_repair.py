"""``libcni repair``: the plan, the repair, and what it leaves."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import libcni
from cli.node import GOOD, CommandNode, attach_sharing, containers
from libcni.diagnosis import acts, repair_node
from libcni.diagnosis.acts import ACTS
from libcni.diagnosis.mends import Mend
from libcni.diagnosis.node_state import NodeState
from libcni.testing import wait_until


def states(ran_data: dict[str, list[dict[str, object]]]) -> list[object]:
    return [one["state"] for one in ran_data["outcomes"]]


def test_repair_says_what_it_would_do_then_does_it_then_has_nothing_to_do(broken_node: CommandNode) -> None:
    planned = broken_node.run("repair", "-o", "json").data
    assert states(planned) == ["planned"] * 4
    assert len(broken_node.cni.get_cached_attachments()) == 5
    done = broken_node.run("repair", "--yes", "-o", "json")
    assert (done.code, states(done.data)) == (1, ["mended"] * 4), "an error is left: a plugin that is not installed"
    assert [one["mend"]["kind"] for one in done.data["outcomes"]] == ["set-aside", "detach", "detach", "detach"]
    assert len(list((broken_node.cache / "corrupt").iterdir())) == 1
    assert [one.container_id for one in broken_node.cni.get_cached_attachments()] == [GOOD]
    assert broken_node.run("repair").out == "nothing to repair\n"


def test_only_what_is_named_is_mended(broken_node: CommandNode) -> None:
    done = broken_node.run("repair", "corrupt-record", "--yes", "-o", "json")
    assert [one["finding"] for one in done.data["outcomes"]] == ["corrupt-record"]
    stale = next(one.container_id for one in broken_node.cni.get_cached_attachments() if one.container_id != GOOD)
    done = broken_node.run("repair", f"{stale}:eth0", "--yes", "-o", "json")
    assert [one["mend"]["containers"] for one in done.data["outcomes"]] == [[f"{stale}:eth0"]]
    assert len(broken_node.cni.get_cached_attachments()) == 3


def test_what_repair_cannot_see_is_noted(node: CommandNode) -> None:
    node.cni.add_network_list("dbnet", libcni.RuntimeConf("vm", "tap-of-vm", "eth0"))
    ran = node.run("repair")
    assert ran.out == "nothing to repair among the checked objects\n"
    assert ran.err == "note: not checked, so not repaired: container vm, dbnet, eth0: tap-of-vm is not a path\n"


def test_a_name_of_nothing_is_noted(broken_node: CommandNode) -> None:
    assert broken_node.run("repair", "link-down", "--interrupt", "goood").code == 0, "it may have ended meanwhile"
    ran = broken_node.run("repair", "deda", GOOD, "dead", "--interrupt", "goood")
    assert ran.code == 4
    notes = {f"note: no finding and no container is named {name}" for name in ("deda", "goood")}
    assert set(ran.err.splitlines()) == notes


def test_repair_leaves_an_add_that_may_still_run(node: CommandNode) -> None:
    node.add("young")
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    node.change_record("young", "dbnet", state="pending", created=time.time() - 30, uptime=now - 30)
    ran = node.run("repair")
    assert ran.out == "nothing to repair\n"
    assert "not repaired, because younger than 300 s (--pending-after): container young, dbnet, eth0" in ran.err
    shown = node.run("repair", "--pending-after", "10").out
    assert "detach young:eth0" in shown
    assert shown.splitlines()[-1].endswith("libcni repair --yes --pending-after 10")


def test_a_repair_that_fails_in_part_says_so(broken_node: CommandNode) -> None:
    (broken_node.bin / "fake-bridge").unlink()
    ran = broken_node.run("repair", "--yes")
    assert ran.code == 1
    assert "failed" in ran.out
    assert 'plugin "fake-bridge" not found' in ran.out
    ran = broken_node.run("repair", "--yes", "--skip-missing")
    assert "failed" not in ran.out
    assert ran.code == 1, "an error is left: the plugin is missing"


def test_interfaces_that_share_a_rule_are_detached_in_two_attempts(node: CommandNode) -> None:
    attach_sharing(node)
    for ifname in ("eth0", "net1"):
        node.change_record("a", "sharing", ifname, bootId="another")
    ran = node.run("repair", "--yes", "-o", "json")
    assert (ran.code, states(ran.data)) == (0, ["mended", "mended"])


def test_the_command_that_repairs_has_the_options_of_the_plan(node: CommandNode) -> None:
    assert node.run("add", "dbnet", node.netns("a"), "-c", "a", "--owner", "pod").code == 0
    node.change_record("a", "dbnet", bootId="another")
    options = f"--cache-dir {node.cache} --owner pod"
    given = ["a", "--check", "--skip-missing", "--pending-after", "7", "--timeout", "9"]
    last = node.run("repair", *options.split(), *given, LIBCNI_CACHE_DIR="").out.splitlines()[-1]
    assert last.endswith(f"libcni repair --yes {' '.join(given)} {options}")


def test_repair_detaches_records_of_go_only_if_asked(node: CommandNode) -> None:
    node.add("a")
    node.strip_record("a", "dbnet")
    Path(node.netns("a")).unlink()
    # A record of Go names no namespace: while another test has one that nobody can read, the container may be in that.
    wait_until(lambda: node.run("repair", "-o", "json").data["outcomes"], 60)
    for words in ([], ["--yes"]):
        ran = node.run("repair", *words, "-o", "json").data
        [left] = ran["outcomes"]
        assert (left["state"], left["needs"]) == ("left", [["include_go", ""]])
        assert ran["commands"] == ["libcni repair --yes --include-go"]
    done = node.run("repair", "--yes", "--include-go", "-o", "json").data
    assert states(done) == ["mended"]
    assert node.cni.get_cached_attachments() == []


def test_what_interrupts_a_container_is_done_only_if_it_is_named(node: CommandNode) -> None:
    node.plugin("checked", result={"cniVersion": "1.0.0"})
    node.configure("net", "checked")
    for container in ("a", "b"):
        assert node.run("add", "net", node.netns(container), "-c", container).code == 0
    node.plugin(
        "checked",
        """[ $CNI_COMMAND != CHECK ] || { echo '{"cniVersion": "1.0.0", "code": 999, "msg": "gone"}'; exit 1; }""",
        result={"cniVersion": "1.0.0"},
    )
    ran = node.run("repair", "--check", "--yes", "-o", "json").data
    assert states(ran) == ["left", "left"]
    assert ran["commands"] == ["libcni repair --yes --check --interrupt a b"]
    ran = node.run("repair", "--check", "--yes", "--interrupt", "a", "-o", "json").data
    # CHECK fails after the reload, too.
    assert [(one["state"], one["mend"]["interrupts"]) for one in ran["outcomes"]] == [
        ("failed", ["a:eth0"]),
        ("left", ["b:eth0"]),
    ]


def test_a_container_that_ends_before_its_mend_is_no_failure(
    node: CommandNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.add("a")
    node.change_record("a", "dbnet", bootId="another")

    def end(state: NodeState, mend: Mend) -> None:
        node.record("a", "dbnet").unlink()
        raise OSError(2, "the namespace has ended")

    monkeypatch.setattr(acts, "ACTS", {**ACTS, "detach": ACTS["detach"]._replace(change=end)})
    [outcome] = repair_node(node.cni).outcomes
    assert (outcome.state, outcome.reason) == ("not needed", "")


@pytest.mark.slow
def test_pods_and_starts_of_ids_are_taken_and_printed(node: CommandNode) -> None:
    """A pod with a network that its plugin finds damaged can be attached again only if it is named."""
    ids = {"web-0": "ab" * 32, "web-1": "ac" * 32, "": "1c" * 32}
    node.plugin("checked", result={"cniVersion": "1.0.0"})
    node.configure("net", "checked")
    for pod, container in ids.items():
        args = f"K8S_POD_NAMESPACE=shop;K8S_POD_NAME={pod}" if pod else ""
        assert node.run("add", "net", node.netns(container[:2]), "-c", container, "--args", args).code == 0
    node.plugin(
        "checked",
        """[ $CNI_COMMAND != CHECK ] || { echo '{"cniVersion": "1.0.0", "code": 999, "msg": "gone"}'; exit 1; }""",
        result={"cniVersion": "1.0.0"},
    )
    [command] = node.run("repair", "--check", "--yes", "-o", "json").data["commands"]
    assert command == "libcni repair --yes --check --interrupt 1c1c1c1c1c1c shop/web-0 shop/web-1"
    for word, container in (("web-0", "ab"), ("shop/web-1", "ac"), ("ab", "ab"), ("1", "1c"), ("1c1c", "1c")):
        found = node.run("doctor", word, "--check", "-o", "json").data["findings"]
        assert all(f"{container * 32}:eth0" in one["containers"] for one in found), word
        ran = node.run("repair", word, "--check", "-o", "json").data
        assert [one["needs"] for one in ran["outcomes"]] == [[["interrupt", f"{container * 32}:eth0"]]]
    ran = node.run("doctor", "a", "--check")
    assert (ran.code, "a means 2 containers: abab" in ran.err) == (3, True)
    assert "nothing to do" in node.run("del", "ab").err, "to detach one needs the twelve digits of a table"
    assert node.run("show", "web-0").code == 0


def test_an_owner_repairs_only_its_own(node: CommandNode) -> None:
    node.add("plain")
    assert node.run("add", "dbnet", node.netns("ours"), "-c", "ours", "--owner", "podman").code == 0
    for container in ("plain", "ours"):
        node.change_record(container, "dbnet", bootId="another")
    ran = node.run("repair", "--yes", "-o", "json").data
    assert [one["needs"] for one in ran["outcomes"] if one["state"] == "left"] == [[["owner", "podman"]]]
    assert ran["commands"] == ["libcni repair --yes --owner podman"]
    assert containers(node) == ["ours"]
    assert node.run("repair", "--yes", "--owner", "podman").code == 0
    assert containers(node) == []
