"""What makes the command line pleasant: short IDs, progress, signals, owners, ways out."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest
from processes import children, is_running

from cli.node import DBNET, CommandNode
from libcni.testing import wait_until

FIRST = "3f4c1b2a9d8e7f60" * 4
SECOND = "3f4c1b2a9d8e1111" * 4
HANGING = {"cniVersion": "1.1.0", "name": "hanging", "plugins": [{"type": "fake", "fake": {"ADD": {"sleep": 300}}}]}


def containers(node: CommandNode) -> list[str]:
    return [one.container_id for one in node.cni.get_cached_attachments()]


# container IDs


def test_tables_show_as_much_of_an_id_as_tells_it_apart(node: CommandNode) -> None:
    for container in (FIRST, SECOND, "web"):
        node.add(container)
    lines = node.run("attachments").out.splitlines()[1:]
    assert [line.split()[0] for line in lines] == ["3f4c1b2a9d8e1", "3f4c1b2a9d8e7", "web"]
    node.run("del", "-c", SECOND)
    assert node.run("attachments").out.splitlines()[1].split()[0] == FIRST[:12]
    assert FIRST in node.run("attachments", "--no-trunc").out
    assert node.run("attachments", "-q").out.split() == [FIRST, "web"]
    assert node.run("networks", "-q").out == "dbnet\n"


def test_the_beginning_of_an_id_is_enough(node: CommandNode) -> None:
    for container in (FIRST, SECOND):
        node.add(container)
    assert node.run("show", "3f4c1b2a9d8e7", "-o", "json").data[0]["container_id"] == FIRST
    assert [one["container_id"] for one in node.run("attachments", "-c", "3f4c1b2a9d8e1", "-o", "json").data] == [
        SECOND
    ]
    ambiguous = node.run("show", "3f4c")
    assert ambiguous.code == 2
    assert FIRST in ambiguous.err
    assert SECOND in ambiguous.err
    assert node.run("gc", "dbnet", "--valid", "3f4c1b2a9d8e7").code == 0
    assert containers(node) == [FIRST]
    assert node.run("check", "-c", "3f4").code == 0
    assert node.run("del", "-c", "3f4").code == 0
    assert containers(node) == []


def test_a_script_that_detaches_twice_detaches_no_neighbour(node: CommandNode) -> None:
    node.add("web")
    node.add("web-2")
    assert node.run("del", "-c", "web").code == 0
    again = node.run("del", "-c", "web")
    assert (again.code, again.out) == (0, "")
    assert "there is no record of container web" in again.err
    assert containers(node) == ["web-2"]
    assert node.run_in_terminal("del", "-c", "web").code == 0
    assert containers(node) == [], "a person on a terminal may abbreviate"


@pytest.mark.parametrize("width", [60, 80])
def test_tables_fit_narrow_terminals(node: CommandNode, width: int) -> None:
    node.write("10-dbnet.conflist", {**DBNET, "plugins": DBNET["plugins"][:1]})
    for container in (FIRST, SECOND):
        node.add(container)
    for command in (["attachments"], ["networks"], ["check", "--all"], ["doctor"]):
        shown = node.run_in_terminal(*command, width=width, NO_COLOR="1").out
        if command != ["doctor"]:  # which also has long lines of its own, for copying
            assert all(len(line) <= width for line in shown.splitlines()), shown
    assert "3f4c1b2a9d8e7" in node.run_in_terminal("attachments", width=width).out


@pytest.mark.parametrize("width", [95, 101, 107])
def test_a_folded_table_loses_no_word(shown_node: CommandNode, width: int) -> None:
    shown = shown_node.run_in_terminal("repair", width=width, NO_COLOR="1").out
    namespace = shown_node.root / "ns" / "gone"
    assert "its namespace" in shown
    assert shown.split(str(namespace))[1].split()[:2] == ["has", "gone"]


def test_a_cell_that_is_folded_in_a_narrow_terminal_stays_in_its_column(node: CommandNode) -> None:
    node.add("c" * 40)
    node.change_record("c" * 40, "dbnet", bootId="another")
    shown = node.run_in_terminal("repair", width=48, NO_COLOR="1").out.split("\n\n", maxsplit=1)[0]
    assert [line[:10].strip() for line in shown.splitlines()] == ["detach", "what", "", "why"]


def test_no_color_means_no_escapes(node: CommandNode) -> None:
    node.add("a")
    for argv in (["attachments"], ["show", "a"], ["doctor"], ["show", "b"], ["--help"], ["nosuchcommand"]):
        assert "\x1b" not in node.run_in_terminal(*argv, NO_COLOR="1").out
    assert "\x1b" in node.run_in_terminal("doctor").out


# signals and progress


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_the_verb_and_its_plugin(node: CommandNode, number: signal.Signals) -> None:
    node.write("hanging.conflist", HANGING)
    command = [*node.command, "add", "hanging", "/ns/a", "-c", "a"]
    env = {**node.env, **node.server.coverage}  # a command in the fork server cannot be sent a signal
    process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: bool(node.cni.get_cached_attachments()) and bool(children(process.pid)))
    plugins = children(process.pid)
    time.sleep(0.3)  # the plugin has read its configuration by then; it may be killed earlier, too
    process.send_signal(number)
    _, printed = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert number.name in printed
    assert "Traceback" not in printed
    wait_until(lambda: not any(is_running(pid) for pid in plugins))
    assert [one.state for one in node.cni.get_cached_attachments()] == ["pending"]


def test_a_slow_verb_says_which_plugin_runs_and_that_it_rolls_back(node: CommandNode) -> None:
    refusal = {"ADD": {"sleep": 1.6, "error": {"code": 7, "msg": "no"}}, "DEL": {"sleep": 1.6}}
    slow = {"cniVersion": "1.1.0", "name": "slow", "plugins": [{"type": "fake", "fake": refusal}]}
    node.write("slow.conflist", slow)
    shown = node.run_in_terminal("add", "slow", node.netns("a"), "-c", "a").out
    assert "ADD: plugin fake runs" in shown
    assert "rolling back, DEL: plugin fake runs" in shown
    lines = shown.replace("\r", "\n").splitlines()
    assert not any(line.strip().startswith("ADD:") for line in lines[-3:]), "the line is erased"
    assert "plugin fake runs" not in node.run("add", "slow", node.netns("b"), "-c", "b").err


def test_a_verb_that_waits_says_for_whom(node: CommandNode) -> None:
    node.write("hanging.conflist", HANGING)
    first = subprocess.Popen([*node.command, "add", "hanging", "/ns/a", "-c", "a"], env=node.env)
    try:
        wait_until(lambda: bool(node.cni.get_cached_attachments()))
        shown = node.run_in_terminal("del", "hanging", "/ns/a", "-c", "a", "--timeout", "4").out
        assert "DEL: waiting for a lock of " in shown
        assert f"({first.pid})" in shown
    finally:
        first.send_signal(signal.SIGTERM)
        first.wait(30)


# watching


def test_watch_follows_the_changes(node: CommandNode) -> None:
    node.add("a")
    command, env = [*node.command, "watch", "-o", "json"], {**node.env, **node.server.coverage}
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None

    def event() -> tuple[str, str, str]:
        assert process.stdout is not None
        found = json.loads(process.stdout.readline())
        return found["event"], found["container_id"], found["state"]

    try:
        assert event() == ("recorded", "a", "ready")
        node.cni.add_network_list("dbnet", _rt(node, "b"))
        events = [event()]
        if events[0][2] == "pending":
            events.append(event())
        assert events[-1][1:] == ("b", "ready")
        (node.root / "ns" / "a").unlink()
        assert event() == ("changed", "a", "gone")
        node.cni.del_network_list("dbnet", _rt(node, "b"))
        while (last := event())[0] != "removed":
            assert last[1] == "b"
        assert last[1] == "b"
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.communicate()[1] == "", "no verb had begun"


def _rt(node: CommandNode, container: str):  # type: ignore[no-untyped-def]  # noqa: ANN202
    import libcni

    return libcni.RuntimeConf(container, node.netns(container), "eth0")


# owners and ways out


def test_an_owner_sweeps_only_its_own(node: CommandNode) -> None:
    node.add("plain")
    assert node.run("add", "dbnet", node.netns("ours"), "-c", "ours", "--owner", "podman").code == 0
    assert "podman" in node.run("attachments").out
    assert node.run("gc", "dbnet", "--none-valid", LIBCNI_OWNER="podman").code == 0
    assert containers(node) == ["plain"]
    assert node.run("gc", "dbnet", "--none-valid", "--owner", "other").code == 0
    assert containers(node) == ["plain"]
    taken = node.run("take-over", "--from", "", "--owner", "podman", "-o", "json").data
    assert [(one["container_id"], one["owner"]) for one in taken] == [("plain", "podman")]
    node.change_record("plain", "dbnet", bootId="another")
    assert [(one["action"], one["reason"]) for one in node.run("repair", "-o", "json").data] == [
        ("left", "see: libcni repair --owner podman")
    ]
    assert node.run("repair", "--yes").code == 0
    assert containers(node) == ["plain"]
    assert "plain" in node.run("doctor").out, "the doctor shows the attachments of all owners"
    assert node.run("repair", "--yes", "--owner", "podman").code == 0
    assert containers(node) == []


def test_an_owner_with_control_characters_is_refused(node: CommandNode) -> None:
    by_option = node.run("add", "dbnet", node.netns("a"), "--owner", "a\tb")
    by_variable = node.run("gc", "dbnet", "--none-valid", LIBCNI_OWNER="a\x1b[m")
    for ran in (by_option, by_variable):
        assert ran.code == 2
        assert "invalid owner" in ran.err
    assert containers(node) == []


def test_gc_without_a_file_leaves_other_owners_alone(node: CommandNode) -> None:
    node.add("plain")
    node.run("add", "dbnet", node.netns("ours"), "-c", "ours", "--owner", "podman")
    (node.conf_dir / "10-dbnet.conflist").unlink()
    assert node.run("gc", "dbnet", "--none-valid").code == 0
    assert containers(node) == ["ours"]
    findings = node.run("doctor", "-o", "json").data["findings"]
    (command,) = next(one for one in findings if one["check"] == "drift")["commands"]
    assert command == "libcni gc dbnet --none-valid --owner podman"


def test_gc_says_whose_attachments_it_leaves(node: CommandNode) -> None:
    node.run("add", "dbnet", node.netns("a"), "-c", "a", "--owner", "podman")
    node.run("add", "dbnet", node.netns("b"), "-c", "b", "--owner", "podman")
    ran = node.run("gc", "dbnet", "--none-valid")
    assert (ran.code, ran.out) == (0, "")
    assert "note: 2 attachments stay: they are of owner podman" in ran.err
    assert "note: 1 attachment stays" in node.run("gc", "dbnet", "--valid", "a").err
    assert "note" not in node.run("gc", "dbnet", "--valid", "a", "--valid", "b").err
    assert "note" not in node.run("gc", "dbnet", "--none-valid", "--owner", "podman").err


def test_the_doctor_prints_many_findings_of_one_kind_as_one(node: CommandNode) -> None:
    for index in range(8):
        node.add(f"c{index}")
        node.change_record(f"c{index}", "dbnet", bootId="another")
    ran = node.run("doctor", LIBCNI_OWNER="mine")
    assert ran.out.count("libcni del -c") == 5
    assert "warning 3 more like the last one" in ran.out
    assert "libcni repair --owner ''" in ran.out
    findings = node.run("doctor", "-o", "json").data["findings"]
    assert len([one for one in findings if one["check"] == "namespaces"]) == 8
    for index in range(2):
        node.run("forget", f"c{index}")
    assert "more like" not in node.run("doctor").out


def test_the_doctor_prints_each_plugin_that_is_missing(node: CommandNode) -> None:
    for index in range(8):
        plugin = {"type": f"missing-{index}"}
        node.write(f"{index}.conflist", {"cniVersion": "1.0.0", "name": f"net{index}", "plugins": [plugin]})
    shown = node.run("doctor").out
    assert all(f'plugin "missing-{index}" not found' in shown for index in range(8))


def test_a_misspelt_name_is_not_an_empty_answer(node: CommandNode) -> None:
    node.add("a")
    assert (node.run("diff", "dbnet").code, node.run("diff", "dbent").code) == (0, 4)
    (node.conf_dir / "10-dbnet.conflist").unlink()
    assert node.run("diff", "dbnet").code == 1
    assert "there is no directory /nowhere" in node.run("attachments", "--cache-dir", "/nowhere").out


@pytest.mark.parametrize("words", [["check", "-c", "a"], ["del", "-c", "a"], ["show", "a"], ["forget", "a"]])
def test_a_corrupt_record_is_not_a_missing_one(node: CommandNode, words: list[str]) -> None:
    node.add("a")
    (record,) = (node.cache / "results").iterdir()
    record.write_bytes(record.read_bytes()[:100])
    ran = node.run(*words)
    assert ran.code == 1
    assert "it may be the record of container a" in ran.err


@pytest.mark.parametrize("words", [[], ["--keep-going"]])
def test_interfaces_that_share_a_rule_are_detached_in_two_attempts(node: CommandNode, words: list[str]) -> None:
    node.plugin("sharing", "if [ $CNI_COMMAND = DEL ] && [ -e rule ] && [ $CNI_IFNAME = net1 ]; then exit 1; fi\n"
                "[ $CNI_COMMAND = DEL ] && rm -f rule || touch rule")  # fmt: skip
    node.write("20-sharing.conflist", {"cniVersion": "1.0.0", "name": "sharing", "plugins": [{"type": "sharing"}]})
    for ifname in ("eth0", "net1"):
        assert node.run("add", "sharing", node.netns("a"), "-c", "a", "-i", ifname).code == 0
    ran = node.run("del", "-c", "a", *words)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.split("\n") == ["detached a eth0 from sharing", "detached a net1 from sharing", ""]


def test_versions_of_a_network_name_the_right_command(node: CommandNode) -> None:
    ran = node.run("versions", "dbnet")
    assert ran.code == 4
    assert "libcni validate dbnet" in ran.out


def test_a_broken_drop_in_is_listed_with_its_directory(node: CommandNode) -> None:
    (node.conf_dir / "dbnet").mkdir()
    node.write("dbnet/20-x.conf", "{")
    assert "dbnet/20-x.conf" in node.run("networks").out


def test_a_directory_that_was_set_aside_can_be_removed_with_the_printed_command(node: CommandNode) -> None:
    (node.cache / "results" / "x").mkdir(parents=True)
    assert node.run("repair", "--yes").code == 0
    findings = node.run("doctor", "-o", "json").data["findings"]
    (command,) = [command for one in findings if one["check"] == "records" for command in one["commands"]]
    subprocess.run(command, shell=True, check=True)
    assert not list((node.cache / "corrupt").iterdir())


def test_forget_says_once_what_may_be_left(node: CommandNode) -> None:
    node.add("a")
    ran = node.run("forget", "a")
    assert "fake-bridge, fake-tuning" in ran.out
    assert ran.err == ""


def test_a_dead_end_names_the_ways_out(node: CommandNode) -> None:
    refusing = {"cniVersion": "1.1.0", "name": "stuck", "plugins": [{"type": "fake", "fake": {
        "ADD": {"error": {"code": 7, "msg": "no"}}, "DEL": {"error": {"code": 7, "msg": "nor"}}}}]}  # fmt: skip
    node.write("stuck.conflist", refusing)
    failed = node.run("add", "stuck", node.netns("a"), "-c", "a")
    assert "libcni del stuck -c a -i eth0 --use-given" in failed.err
    assert "libcni forget a:eth0" in failed.err
    assert node.run("del", "-c", "a").code == 1
    node.write("stuck.conflist", {**refusing, "plugins": [{"type": "fake"}]})
    assert node.run("del", "stuck", "-c", "a", "-i", "eth0", "--use-given").code == 0
    assert containers(node) == []
    node.add("b")
    forgotten = node.run("forget", "b:eth0")
    assert "what fake-bridge, fake-tuning made may be left" in forgotten.out
    assert containers(node) == []


@pytest.mark.parametrize("state", ["pending", "detaching"])
def test_check_of_an_unfinished_attachment_names_the_commands(node: CommandNode, state: str) -> None:
    node.add("a")
    node.change_record("a", "dbnet", state=state)
    failed = node.run("check", "-c", "a")
    assert failed.code == 4
    assert "libcni del -c a -i eth0, then libcni add" in failed.err
    assert node.run("del", "-c", "a", "-i", "eth0").code == 0
    assert node.run("add", "dbnet", node.netns("a"), "-c", "a").code == 0


def test_an_unknown_network_lists_the_known_ones(node: CommandNode) -> None:
    node.write("20-other.conflist", {**DBNET, "name": "other"})
    failed = node.run("add", "nonet", node.netns("a"))
    assert failed.code == 4
    lines = failed.err.split("networks", 1)[1].splitlines()
    assert [line.strip() for line in lines] == ["dbnet", "other"]
    assert "hint" not in failed.err


def test_a_plugin_that_was_uninstalled_does_not_keep_the_container(node: CommandNode) -> None:
    node.add("a")
    (node.bin / "fake-tuning").unlink()
    failed = node.run("del", "-c", "a")
    assert failed.code == 4
    assert "--skip-missing" in failed.err
    assert node.run("del", "-c", "a", "--skip-missing").code == 0


def test_too_few_open_files_are_named_as_the_cause(node: CommandNode) -> None:
    node.add("a")
    limited = ["sh", "-c", 'ulimit -n 16; exec "$@"', "sh", *node.command, "del", "-c", "a"]
    ran = subprocess.run(limited, env=node.env, capture_output=True, text=True, check=False)
    hint = ran.stderr.rpartition("hint")[2]
    assert "at least 20 open files must be allowed (ulimit -n)" in hint
    assert "libcni forget a:eth0" in hint
    assert "DelPolicy" not in hint


def test_another_namespace_than_the_recorded_one(node: CommandNode) -> None:
    node.add("a")
    ran = node.run("del", "dbnet", node.netns("b"), "-c", "a")
    assert ran.code != 0
    assert "libcni del -c a -i eth0" in ran.err
    assert containers(node) == ["a"]
    assert node.run("del", "-c", "a", "-i", "eth0").code == 0


def test_networks_that_exist_are_listed_a_line_each(node: CommandNode) -> None:
    node.write("20-front.conflist", {**DBNET, "name": "front"})
    lines = node.run("add", "fornt", "/ns/a").err.splitlines()
    assert [line.split()[-1] for line in lines[1:]] == ["dbnet", "front"]


def test_a_script_with_crlf_is_named_as_such(node: CommandNode) -> None:
    path = node.bin / "crlf"
    path.write_bytes(b"#!/bin/sh\r\nexit 0\r\n")
    path.chmod(0o755)
    node.write("crlf.conflist", {**DBNET, "name": "crlf", "plugins": [{"type": "crlf"}]})
    ran = node.run("add", "crlf", "/ns/a")
    assert "CRLF" in ran.err


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
    assert "from the record" in verb["note"]
    ran = node.run("explain", "dbnet", "-c", "nobody", "--verb", "del", "-o", "json")
    assert [call["plugin"] for call in ran.data["verbs"][0]["calls"]] == ["fake"]


def test_commands_to_type_have_the_options_of_the_caller(node: CommandNode) -> None:
    node.add("a")
    node.change_record("a", "dbnet", bootId="another")
    env = {"LIBCNI_CACHE_DIR": ""}
    findings = node.run("doctor", "--cache-dir", str(node.cache), "-o", "json", **env).data["findings"]
    (finding,) = [one for one in findings if one["check"] == "namespaces"]
    assert finding["commands"] == [f"libcni del -c a -i eth0 --cache-dir {node.cache}"]
    assert node.run(*finding["commands"][0].split()[1:], **env).code == 0
    assert containers(node) == []


# how it starts


def modules(node: CommandNode, *argv: str) -> set[str]:
    code = "import sys; from libcni.cli import main; main(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    command = [sys.executable, "-c", code, *argv]
    ran = subprocess.run(command, env=node.env, capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in ran.stderr.split()}


def test_short_answers_start_nothing_slow(node: CommandNode) -> None:
    node.add("a")
    assert not modules(node, "--version") & {"typer", "pydantic", "rich", "yaml", "asyncio"}
    assert not modules(node, "attachments") & {"typer", "pydantic", "rich", "yaml", "asyncio"}


def test_the_lines_of_a_help_text_are_folded_once(node: CommandNode) -> None:
    shown = node.run_in_terminal("check", "--help", width=100).out
    assert "ID alone: all attachments of the container" in shown
