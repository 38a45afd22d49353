"""``libcni doctor``: its text, and commands that can be pasted."""

from __future__ import annotations

import subprocess

from cli.node import DBNET, CommandNode


def test_a_finding_about_a_name_with_control_characters_can_be_pasted(node: CommandNode) -> None:
    path = node.cache / "corrupt" / "dbnet-\x1b[31m\nit's-eth0.1795338822684574478"
    path.parent.mkdir(parents=True)
    path.touch()
    lines = node.run("doctor").out.splitlines()
    assert r"warning " + str(path.parent) + r"/dbnet-\x1b[31m\nit's-eth0.1795338822684574478" in lines
    command = next(line.removeprefix("  type") for line in lines if line.startswith("  type"))
    subprocess.run(["bash", "-c", command], check=True)
    assert not path.exists()


def test_doctor_of_a_healthy_node_and_of_an_empty_one(node: CommandNode) -> None:
    node.write("10-dbnet.conflist", {**DBNET, "plugins": [{"type": "fake"}]})
    assert node.run("doctor").out.endswith("ok: no problems found in what was checked\n")
    ran = node.run("doctor", "--conf-dir", "/nowhere", "--path", "/nowhere", "-o", "json")
    assert (ran.code, ran.data["status"]) == (2, "error")
    assert [(one["check"], one["subject"], one["seen"]) for one in ran.data["findings"]] == [
        ("configuration", "/nowhere", "there is no such directory"),
        ("plugins", "/nowhere", "there is no such directory"),
    ]


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


def test_a_directory_that_was_set_aside_can_be_removed_with_the_printed_command(node: CommandNode) -> None:
    (node.cache / "results" / "x").mkdir(parents=True)
    assert node.run("repair", "--yes").code == 0
    findings = node.run("doctor", "-o", "json").data["findings"]
    (command,) = [command for one in findings if one["check"] == "records" for command in one["commands"]]
    subprocess.run(command, shell=True, check=True)
    assert not list((node.cache / "corrupt").iterdir())


def test_problems_that_alternate_are_grouped_by_their_meaning(node: CommandNode) -> None:
    for number in range(20):
        node.add(f"c{number}")
        if number % 2:
            node.record(f"c{number}", "dbnet").write_text("{", encoding="utf-8")
        else:
            node.change_record(f"c{number}", "dbnet", state="pending")
    printed = node.run("doctor").out
    assert printed.count("error 5 more like the last one") == 1
    assert printed.count("warning 5 more like the last one") == 1
    assert printed.count("libcni del -c") == 5
