"""The attachments that the arguments of a command select: IDs are short in tables, and found by their beginning."""

from __future__ import annotations

import os
import subprocess

import pytest
from nodes import make_fake_namespace

import libcni
from cli.node import DBNET, FIRST, GONE, GOOD, KILLED, SECOND, CommandNode, Ran, containers
from libcni.cli.inputs import Selection
from libcni.cli.listing import select, short_names, whole_names
from libcni.store.model import Record
from libcni.store.records import RecordStore


def test_a_misspelt_name_is_not_an_empty_answer(node: CommandNode) -> None:
    node.add("a")
    assert node.run("attachments", "-n", "dbent").out == "no attachment matches; this node has 1; did you mean dbnet?\n"
    assert node.run("attachments", "-n", "dbnet", "-s", "gone").out == "no attachment matches; this node has 1\n"
    assert "there is no directory /nowhere" in node.run("attachments", "--cache-dir", "/nowhere").out


def test_a_network_in_the_place_of_a_container_is_named_with_a_way_on(node: CommandNode) -> None:
    node.add("a")
    for command in ("check", "del"):  # they take no network alone
        assert node.run(command, "dbnet").err.endswith("its containers: libcni attachments --network dbnet\n")
    assert "a" in node.run("attachments", "--network", "dbnet", "-q").out.split()


def test_states_select_attachments(shown_node: CommandNode) -> None:
    assert shown_node.run("attachments", "-s", "gone", "-q").out == f"{GONE}\n"
    rows = shown_node.run("reload", "--all", "--dry-run").out.splitlines()[1:]
    assert [row.split()[0] for row in rows] == [container[:12] for container in (GOOD, KILLED)]


@pytest.mark.parametrize("words", [["check", "a"], ["del", "a"], ["show", "a"], ["forget", "a"]])
def test_a_corrupt_record_is_not_a_missing_one(node: CommandNode, words: list[str]) -> None:
    node.add("a")
    (record,) = (node.cache / "results").iterdir()
    record.write_bytes(record.read_bytes()[:100])
    ran = node.run(*words)
    assert ran.code == 1
    assert "this record, perhaps of container a, cannot be used" in ran.err


@pytest.mark.parametrize("words", [["forget", ""], ["forget", ":eth0"], ["show", ""]])
def test_an_empty_id_names_no_container(node: CommandNode, words: list[str]) -> None:
    node.add("a")
    assert node.run(*words).code == 2
    assert containers(node) == ["a"]


@pytest.fixture
def denied_node(node: CommandNode) -> CommandNode:
    """Return a node with a good record that the user of ``run_without_rights`` may not read."""
    node.add("a")
    (record,) = node.results.iterdir()
    record.chmod(0)
    return node


def run_without_rights(node: CommandNode, *words: str) -> Ran:
    # root may read every file, except without these capabilities.
    drop = [] if os.geteuid() else ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]
    ran = subprocess.run([*drop, *node.command, *words], env=node.env, capture_output=True, text=True, check=False)
    return Ran(ran.returncode, ran.stdout, ran.stderr)


@pytest.mark.parametrize(
    ("words", "code"),
    [(["del", "a"], 1), (["attachments"], 0)],
)
def test_who_may_not_read_a_record_is_told_to_be_root_and_nothing_else(
    denied_node: CommandNode, words: list[str], code: int
) -> None:
    ran = run_without_rights(denied_node, *words)
    assert ran.code == code
    assert "run libcni as root" in ran.err
    assert "repair" not in ran.err + ran.out


def test_the_doctor_detaches_nothing_because_it_may_not_read_a_record(denied_node: CommandNode) -> None:
    ran = run_without_rights(denied_node, "doctor", "-o", "json")
    assert ran.data["commands"] == []
    (record,) = denied_node.results.iterdir()
    assert [one["reason"] for one in ran.data["not_checked"] if one["subject"] == str(record)] == [
        "the record cannot be read: Permission denied; run this program as root"
    ]


def test_a_link_that_leads_nowhere_is_denied_to_nobody_and_repair_moves_it_aside(node: CommandNode) -> None:
    node.add("a")
    for name in ("loop", "dangling"):
        (node.results / name).symlink_to(name if name == "loop" else "missing")
    assert "root" not in node.run("attachments").err
    ran = node.run("repair", "-o", "json")
    assert sorted(one["mend"]["target"].rpartition("/")[2] for one in ran.data["outcomes"]) == ["dangling", "loop"]


def test_del_of_a_detached_container_succeeds_without_a_usable_configuration_directory(node: CommandNode) -> None:
    assert "nothing to do" in node.run("del", "a", "--conf-dir", "/etc/passwd").err


def test_tables_show_12_digits_of_a_random_id(node: CommandNode) -> None:
    other = "0123456789ab" + "c" * 52
    for container in (FIRST, other, "web-frontend-1"):
        node.add(container)
    lines = node.run("attachments").out.splitlines()[1:]
    assert [line.split()[0] for line in lines] == ["0123456789ab", "3f4c1b2a9d8e", "web-frontend-1"]
    assert node.run("attachments", "-q").out.split() == [other, FIRST, "web-frontend-1"]
    assert FIRST in node.run("attachments", "-o", "json").out
    node.add(SECOND)
    assert FIRST in node.run("attachments").out, "both begin with the same 12 digits"


def test_a_whole_id_reads_no_record_of_others_and_another_word_each_once(
    node: CommandNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All records take 0.6 s if there are 10,000."""
    for container in ("a", "b", "c"):
        node.add(container)
    read: list[str] = []
    kept = RecordStore._read

    def counted(store: RecordStore, name: str, directory: int) -> Record | None:
        read.append(name)
        return kept(store, name, directory)

    monkeypatch.setattr(RecordStore, "_read", counted)
    assert [one.container_id for one in select(node.cni, Selection("a:eth0"))] == ["a"]
    assert {*read} == {"dbnet-a-eth0"}
    read.clear()
    assert short_names(node.cni, []) == []
    assert whole_names(node.cni, ["x:eth0", "y", "z"]) == ["x:eth0", "y", "z"]
    with pytest.raises(libcni.NotAttachedError):
        select(node.cni, Selection("x"))
    assert sorted(read) == sorted(["dbnet-a-eth0", "dbnet-b-eth0", "dbnet-c-eth0"] * 2)


def test_the_start_of_an_id_is_enough(node: CommandNode) -> None:
    for container in (FIRST, SECOND):
        node.add(container)
    assert node.run("show", "3f4c1b2a9d8e7", "-o", "json").data[0]["container_id"] == FIRST
    assert [one["container_id"] for one in node.run("attachments", "3f4c1b2a9d8e1", "-o", "json").data] == [SECOND]
    ambiguous = node.run("show", FIRST[:12])
    assert ambiguous.code == 2
    assert FIRST in ambiguous.err
    assert SECOND in ambiguous.err
    assert node.run("gc", "dbnet", "--valid", "3f4c1b2a9d8e7").code == 0
    assert containers(node) == [FIRST]


@pytest.mark.parametrize("words", [["del"], ["forget", "--yes"]])
def test_fewer_digits_than_the_tables_show_are_another_container(node: CommandNode, words: list[str]) -> None:
    node.add(FIRST)
    node.add("3f4c")
    assert node.run(words[0], "3f4c", *words[1:]).code == 0
    refused = node.run(words[0], "3f4c", *words[1:])
    assert f"did you mean container {FIRST}?" in refused.err
    assert containers(node) == [FIRST]
    assert node.run(words[0], FIRST[:12], *words[1:]).code == 0
    assert containers(node) == []


def test_a_neighbour_is_not_suggested(node: CommandNode) -> None:
    node.add("p12")
    assert "p12" not in node.run("del", "p11").err
    assert "did you mean container p12?" in node.run("del", "p_12").err


def test_a_container_is_found_by_the_path_of_its_namespace(node: CommandNode) -> None:
    assert node.run("add", "dbnet", node.netns("a")).code == 0
    assert node.run("show", node.netns("a"), "-o", "json").data[0]["container_id"].startswith("cnitool-")
    assert node.run("show", node.netns("b")).code == 2
    assert node.run("del", node.netns("a")).code == 0
    assert containers(node) == []


def test_the_start_of_a_name_is_not_enough_to_remove(node: CommandNode) -> None:
    """The up-arrow key repeats a command: after web-frontend has been detached, it must not mean web-frontend-1."""
    for container in ("web-frontend", "web-frontend-1"):
        node.add(container)
    assert node.run("del", "web-frontend").code == 0
    again = node.run("del", "web-frontend")
    assert again.code == 0, "a DEL may be repeated"
    assert "there is no record of container web-frontend\n  hint  did you mean container web-frontend-1?" in again.err
    refused = node.run("forget", "web-frontend", "--yes")
    assert refused.code == 4
    assert "did you mean container web-frontend-1?" in refused.err
    assert containers(node) == ["web-frontend-1"]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("attachments a", ["eth0", "eth1"]),
        ("attachments a -i eth1", ["eth1"]),
        ("attachments a:eth1", ["eth1"]),
        ("check a -n other", ["eth1"]),
        ("show a -i eth0", ["eth0"]),
        ("forget a -n dbnet", ["eth0"]),
        ("reload a -i eth1", ["eth1"]),
    ],
)
def test_one_grammar_for_all_that_is_about_attachments(node: CommandNode, words: str, named: list[str]) -> None:
    node.add("a")
    node.add("b")
    node.write("20-other.conflist", {**DBNET, "name": "other", "plugins": DBNET["plugins"][:1]})
    node.cni.add_network_list("other", libcni.RuntimeConf("a", node.netns("a"), "eth1"))
    ran = node.run(*words.split(), "-o", "json")
    assert ran.code == 0, ran.err
    assert [(one["container_id"], one["ifname"]) for one in ran.data] == [("a", ifname) for ifname in named]


def test_del_takes_a_container_or_what_cnitool_takes(node: CommandNode) -> None:
    node.add("a")
    node.add("b")
    assert node.run("del", "a", "-n", "other").code == 0
    assert node.run("del", "a", "-i", "eth1").code == 0
    assert containers(node) == ["a", "b"]
    assert node.run("del", "a", "-n", "dbnet", "-i", "eth0").out == "detached a eth0 from dbnet\n"
    assert node.run("del", "dbnet", node.netns("b"), "-c", "b").code == 0
    assert containers(node) == []
    node.add("c")
    for verb in ("check", "del"):
        mistaken = node.run(verb, "c", "eth0")
        assert (mistaken.code, f"  type  libcni {verb} c -i eth0\n" in mistaken.err) == (2, True)
    network = node.run("del", "dbnet")
    assert (network.code, "dbnet is a network" in network.err) == (2, True)


@pytest.mark.parametrize("verb", ["add", "check", "del"])
def test_swapped_arguments_are_named_with_the_command_that_was_meant(node: CommandNode, verb: str) -> None:
    netns = node.netns("a")
    if verb != "add":
        node.add("a")
    ran = node.run(verb, netns, "dbnet", "-c", "a")
    assert (ran.code, ran.err.splitlines()) == (
        2, ["error: NETWORK and NETNS are swapped", f"  type  libcni {verb} dbnet {netns} -c a"],
    )  # fmt: skip
    assert node.run(*ran.err.split()[-5:]).code == 0
    assert f"libcni {verb} dbnet web\n" in node.run(verb, "web", "dbnet").err


def test_a_namespace_may_have_the_name_of_a_network(node: CommandNode) -> None:
    make_fake_namespace(node.root / "dbnet")
    assert node.run("add", "net.d/10-dbnet.conflist", "dbnet", "-c", "a").code == 0
    words = ["net.d/10-dbnet.conflist", "dbnet", "-c", "a", "--conf-dir", "dbnet"]
    assert node.run("del", *words).code == 0, "the configuration is a path, so the directory is not needed"


def test_owners_select_what_is_listed(node: CommandNode) -> None:
    node.add("a")
    assert node.run("add", "dbnet", node.netns("b"), "-c", "b", "--owner", "alice").code == 0
    for words in ("attachments", "check --all"):
        listed = node.run(*words.split(), "--owner", "alice", "-o", "json").data
        assert [one["container_id"] for one in listed] == ["b"]
        assert len(node.run(*words.split(), "-o", "json").data) == 2
    assert node.run("attachments", "--owner", "nobody").out == "no attachment matches; this node has 2\n"
    assert (
        node.run("attachments", "--owner", "alcie").out
        == "no attachment matches; this node has 2; did you mean alice?\n"
    )


def test_pods_are_shown_by_name_wherever_a_record_has_them(node: CommandNode) -> None:
    names = {"K8S_POD_NAMESPACE": "shop", "K8S_POD_NAME": 'a"b'}
    node.add("a", args=names)
    node.add("b", args={"K8S_POD_NAME": "alone"})
    node.add("c")
    node.change_record("a", "dbnet", bootId="another")
    assert [line.split()[-1] for line in node.run("attachments").out.splitlines()] == ["POD", 'shop/a"b', "alone", "-"]
    assert [one["pod"] for one in node.run("attachments", "-o", "json").data] == ['shop/a"b', "alone", ""]
    assert '  pod            shop/a"b' in node.run("show", "a").out
    assert '  pods     shop/a"b' in node.run("doctor").out
    [dead] = [one for one in node.run("doctor", "-o", "json").data["findings"] if one["name"] == "dead"]
    assert dead["pods"] == ['shop/a"b']
