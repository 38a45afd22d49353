"""``libcni doctor``: its text, and the commands at its end."""

from __future__ import annotations

import errno
import os

import pytest

import libcni.diagnosis
from cli.node import DBNET, GONE, CommandNode, containers
from libcni import Attachment, CNIConfig, RecordError
from libcni.cli import main
from libcni.cli.listing import short_names
from libcni.diagnosis import DoctorReport, NodeFinding, NodeRepair


def test_a_name_with_control_characters_is_printed_as_text(node: CommandNode) -> None:
    path = node.cache / "corrupt" / "dbnet-\x1b[31m\nit's-eth0.1795338822684574478"
    path.parent.mkdir(parents=True)
    path.touch()
    lines = node.run("doctor").out.splitlines()
    assert r"note " + str(path.parent) + r"/dbnet-\x1b[31m\nit's-eth0.1795338822684574478 (set-aside)" in lines


@pytest.mark.parametrize(
    ("remedy", "lines"),
    [
        (
            "do: libcni forget; or: libcni show c1 --config",
            ["remedy do: libcni forget; or", "type libcni show c1"],
        ),
        ("remove it: libcni forget; it's gone then", ["remedy remove it: libcni forget; it's gone then"]),
        ("remove it: libcni forget; so that it is gone", ["remedy remove it: libcni forget; so that it is gone"]),
    ],
)
def test_no_part_of_a_remedy_is_lost(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], remedy: str, lines: list[str]
) -> None:
    """A remedy may name several commands, or go on after one."""
    report = DoctorReport((NodeFinding("drift", "error", "no-file", "network net", "seen", remedy=remedy),))
    monkeypatch.setattr(libcni.diagnosis, "repair_node", lambda *_, **__: NodeRepair((), report))
    assert main(["doctor", "--cache-dir=/nowhere"]) == 2
    shown = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert all(any(line.startswith(wanted) for line in shown) for wanted in lines), shown


RULE = "iptables -t nat -D POSTROUTING -s 10.92.0.0/16 -m comment --comment 'one; two, no NAT' -j ACCEPT"


@pytest.mark.parametrize(
    ("remedy", "words", "commands"),
    [
        (f"if nobody wants this: {RULE}", "if nobody wants this", [RULE]),
        (f"find out who: made it, then run: {RULE}; ip rule del priority 9", "run", [RULE, "ip rule del priority 9"]),
        (f"if it is so: {RULE}; else: kubectl delete pod -n shop web-0", "else", ["kubectl delete pod -n shop web-0"]),
        (f"if it is so: {RULE}; then call repair again", "again", []),
    ],
)
def test_commands_are_not_folded(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    remedy: str,
    words: str,
    commands: list[str],
) -> None:
    report = DoctorReport((NodeFinding("drift", "error", "no-file", "network net", "seen", remedy=remedy),))
    monkeypatch.setattr(libcni.diagnosis, "repair_node", lambda *_, **__: NodeRepair((), report))
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["doctor", "--cache-dir=/nowhere"]) == 2
    text, *shown = capsys.readouterr().out.partition("remedy")[2].partition("\n\n")[0].partition("type  ")
    assert text.split()[-1] == words.rsplit(maxsplit=1)[-1]
    assert [line.strip() for line in shown[-1].splitlines()] == commands


def test_a_remedy_that_is_only_a_command_is_not_folded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = DoctorReport((NodeFinding("interfaces", "error", "hairpin-off", "container c1", "seen", remedy=RULE),))
    monkeypatch.setattr(libcni.diagnosis, "repair_node", lambda *_, **__: NodeRepair((), report))
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["doctor", "--cache-dir=/nowhere"]) == 2
    [line] = [line for line in capsys.readouterr().out.splitlines() if "iptables" in line]
    assert line.split(maxsplit=1) == ["type", RULE]


def test_doctor_of_a_healthy_node_and_of_an_empty_one(node: CommandNode) -> None:
    node.write("10-dbnet.conflist", {**DBNET, "plugins": [{"type": "fake"}]})
    assert node.run("doctor").out.endswith("ok: no problems found in the checked objects\n")
    ran = node.run("doctor", "--conf-dir", "/nowhere", "--path", "/nowhere", "-o", "json")
    assert (ran.code, ran.data["status"]) == (2, "error")
    assert [(one["check"], one["subject"], one["seen"]) for one in ran.data["findings"]] == [
        ("configuration", "/nowhere", "there is no such directory"),
        ("plugins", "/nowhere", "there is no such directory"),
    ]


def test_one_cause_has_one_command(node: CommandNode) -> None:
    # Without addresses: the doctor looks for them in all namespaces of the machine, those of other tests included.
    node.plugin("quiet", result={"cniVersion": "1.0.0"})
    node.configure("quiet")
    for container in ("a", "b"):
        assert node.run("add", "quiet", node.netns(container), "-c", container).code == 0
        node.change_record(container, "quiet", bootId="another")
    assert node.run("doctor", "-o", "json").data["commands"] == ["libcni repair --yes"]
    shown = node.run("doctor", LIBCNI_OWNER="mine").out.splitlines()
    assert shown[-1].endswith("libcni repair --yes --owner ''"), "they have no owner"


def test_the_doctor_prints_each_plugin_that_is_missing(node: CommandNode) -> None:
    for index in range(8):
        plugin = {"type": f"missing-{index}"}
        node.write(f"{index}.conflist", {"cniVersion": "1.0.0", "name": f"net{index}", "plugins": [plugin]})
    shown = node.run("doctor").out
    assert all(f'plugin "missing-{index}" not found' in shown for index in range(8))


def test_a_check_that_skipped_something_is_not_ok(node: CommandNode) -> None:
    node.write("10-dbnet.conflist", {**DBNET, "plugins": [{"type": "fake"}]})
    assert node.run("add", "dbnet", "/nowhere/a", "-c", "a").code == 0
    [row] = [line for line in node.run("doctor").out.splitlines() if line.startswith("namespaces ")]
    assert row.endswith("1 not checked")


def test_the_doctor_of_one_container(broken_node: CommandNode) -> None:
    shown = broken_node.run("doctor", GONE[:12]).out
    assert shown.startswith("not checked:\n"), "no check is called ok that has findings of other containers"
    ran = broken_node.run("doctor", GONE[:12], "-o", "json")
    assert [one["name"] for one in ran.data["findings"]] == ["dead"]
    [command] = ran.data["commands"]
    assert command == f"libcni repair --yes {GONE[:12]}"
    assert broken_node.run(*command.split()[1:]).code == 1, "errors of the node are left"
    assert GONE not in containers(broken_node)
    ran = broken_node.run("doctor", "web-9")
    assert (ran.code, "there is no record of container web-9" in ran.err) == (4, True), "it is no container in order"
    assert len(containers(broken_node)) == 4


@pytest.mark.parametrize("words", [["--cache-dirr"], ["--timeout", "never"]])
def test_a_doctor_that_could_not_run_has_found_nothing(node: CommandNode, words: list[str]) -> None:
    """Its exit codes 1 and 2 are findings: a monitor must not count a typing mistake as errors of the node."""
    ran = node.run("doctor", *words)
    assert (ran.code, ran.out) == (3, "")
    assert "type " not in ran.err, "the same command would fail in the same way"


def test_a_bug_in_a_check_is_no_traceback_and_not_ok(
    node: CommandNode, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("no such luck")

    node.add("a")
    monkeypatch.setattr("libcni.diagnosis.disk.os.statvfs", fail)
    for name, value in node.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(node.root)
    assert main(["doctor"]) == 3
    out, err = capsys.readouterr()
    assert err == ""
    assert "the rest of this check" in out
    assert "a bug of this program stopped this check" in " ".join(out.split())
    assert "ok: no problems" not in out
    assert main(["repair"]) == 0
    assert "not repaired: the rest of this check" in capsys.readouterr().err


@pytest.mark.may_skip  # CI runs the suite once without root
@pytest.mark.skipif(os.geteuid() == 0, reason="root may list every directory; the next test needs no other user")
def test_without_root_the_doctor_checks_configurations_and_plugins(node: CommandNode) -> None:
    node.add("a")
    (node.cache / "results").chmod(0)
    ran = node.run("doctor", "-o", "json")
    (node.cache / "results").chmod(0o700)
    assert {"configuration", "plugins"} <= {one["check"] for one in ran.data["checked"]}
    assert any("rules and reservations" in one["subject"] for one in ran.data["not_checked"])
    assert {one["check"] for one in ran.data["findings"]} == {"disk"}, (
        "nothing is concluded from records that are hidden"
    )


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ENOTDIR])
def test_records_that_cannot_be_listed_stop_no_doctor(
    node: CommandNode, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(_cni: CNIConfig, _container_id: str | None = None) -> list[Attachment]:
        raise RecordError("the records cannot be listed", errno=number)

    monkeypatch.setattr(CNIConfig, "get_cached_attachments", refuse)
    assert short_names(node.cni, ["a:eth0"]) == ["a"]


def test_a_file_in_the_place_of_the_record_directory_is_a_finding(node: CommandNode) -> None:
    ran = node.run("doctor", "--cache-dir", "/etc/hostname", "-o", "json")
    assert ran.code == 2
    [found] = [one for one in ran.data["findings"] if one["check"] == "disk"]
    assert (found["name"], found["subject"]) == ("no-directory", "/etc/hostname")
    assert found["remedy"].startswith("use another record directory (--cache-dir), or ")
