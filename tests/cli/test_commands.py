"""What each command does beyond its looks: cnitool's ways, data, exit codes, YAML, batches, raw calls."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.node import DBNET, CommandNode
from libcni import RuntimeConf
from libcni.cli import failures, main
from libcni.cli.failures import error_data
from libcni.cli.session import Session
from libcni.errors import PluginError
from libcni.testing import wait_until

REFUSING = {"cniVersion": "1.1.0", "name": "refusing", "plugins": [{"type": "fake", "fake": {
    "ADD": {"error": {"code": 7, "msg": "no", "details": "not today"}, "stderr": "complaint\n"}}}]}  # fmt: skip
HANGING = {"cniVersion": "1.1.0", "name": "hanging", "plugins": [{"type": "fake", "fake": {"ADD": {"sleep": 30}}}]}


# as cnitool


def test_the_container_id_is_derived_as_cnitool_does(node: CommandNode) -> None:
    netns = node.netns("a")
    assert node.run("add", "dbnet", f"{node.root}/ns/../ns/a").code == 0
    (one,) = node.cni.get_cached_attachments()
    assert one.container_id == "cnitool-" + hashlib.sha512(netns.encode()).hexdigest()[:20]
    assert one.netns == netns
    assert one.ifname == "eth0"


def test_the_documented_id_of_cnitool(node: CommandNode) -> None:
    node.run("add", "dbnet", "/var/run/netns/testing")
    assert [one.container_id for one in node.cni.get_cached_attachments()] == ["cnitool-77383ca0a0715733ca6f"]


def test_the_result_is_indented_by_four_without_a_new_line_at_the_end(node: CommandNode) -> None:
    ran = node.run("add", "dbnet", node.netns("a"))
    assert ran.out == json.dumps(json.loads(ran.out), indent=4)
    assert ran.err.splitlines()[1:] == []


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_characters_that_stdout_does_not_have_are_jsons_escapes(node: CommandNode, encoding: str) -> None:
    fake = {"ADD": {"result": {"cniVersion": "1.1.0", "dns": {"domain": "ü✓😀"}}}}
    odd = {"cniVersion": "1.1.0", "name": "odd", "plugins": [{"type": "fake", "fake": fake}]}
    node.write("odd.conflist", odd)
    ran = node.run("add", "odd", node.netns("a"), "-c", "c1", PYTHONIOENCODING=encoding)
    assert (ran.code, ran.err) == (0, "")
    assert json.loads(ran.out)["dns"] == {"domain": "ü✓😀"}


def test_cnitools_environment_is_read(node: CommandNode) -> None:
    log = str(node.root / "log")
    caps = '{"mac": "c2:11:22:33:44:55"}'
    ran = node.run(
        "add", "dbnet", node.netns("a"), CAP_ARGS=caps, CNI_ARGS="A=b;C=d", CNI_IFNAME="net7", FAKE_CNI_LOG=log
    )
    assert ran.code == 0
    call = json.loads(Path(log).read_text(encoding="utf-8").splitlines()[-1])
    assert call["env"]["CNI_ARGS"] == "A=b;C=d"
    assert call["env"]["CNI_IFNAME"] == "net7"
    assert json.loads(call["stdin"])["runtimeConfig"] == json.loads(caps)


def test_the_flag_is_stronger_than_the_variable(node: CommandNode) -> None:
    node.run("add", "dbnet", node.netns("a"), "-i", "net1", CNI_IFNAME="net7")
    assert [one.ifname for one in node.cni.get_cached_attachments()] == ["net1"]


def test_check_del_and_status_print_nothing(node: CommandNode) -> None:
    node.write("10-dbnet.conflist", {**DBNET, "plugins": DBNET["plugins"][:1]})
    netns = node.netns("a")
    node.run("add", "dbnet", netns)
    for verb in ("check", "status", "del"):
        ran = node.run(verb, "dbnet", netns)
        assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert node.cni.get_cached_attachments() == []


def test_gc_keeps_what_is_valid(node: CommandNode) -> None:
    for name in ("a", "b", "c"):
        node.add(name)
    (node.root / "valid").write_text("b:eth0\nx:eth0\n", encoding="utf-8")
    assert node.run("gc", "dbnet", "--valid", "a", "--from-file", "valid").code == 0
    assert [one.container_id for one in node.cni.get_cached_attachments()] == ["a", "b"]
    assert node.run("gc", "dbnet", "--none-valid", "--valid", "a").code == 2
    (node.root / "list").write_text('["a"]', encoding="utf-8")
    assert node.run("gc", "dbnet", "ignored", "--from-file", "list", "-o", "json").data["detached"] == [
        {"container_id": "b", "ifname": "eth0", "network": "dbnet"}
    ]
    assert node.run("gc", "dbnet", "--none-valid").code == 0
    assert node.cni.get_cached_attachments() == []


# exit codes and errors


@pytest.mark.parametrize(
    ("code", "argv"),
    [
        (0, ["networks"]),
        (1, ["add", "refusing", "/ns/a"]),
        (2, ["add"]),
        (2, ["add", "dbnet", "/ns/a", "--ifname", "a/b"]),
        (2, ["nosuchcommand"]),
        (2, ["explain", "dbnet", "--verb", "nonsense"]),
        (2, ["del"]),
        (3, ["add", "broken.yaml", "/ns/a"]),
        (3, ["add", "dbnet", "/ns/a", "--capabilities", "[1]"]),
        (4, ["add", "nothere", "/ns/a"]),
        (4, ["check", "dbnet", "/ns/a"]),
        (4, ["exec", "nosuch", "ADD"]),
        (0, ["del", "--container", "nobody", "--timeout", "5"]),
        (2, ["add", "dbnet", "/ns/a", "--batch", "batch.yaml"]),
        (2, ["del", "-c", "a", "--batch", "batch.yaml"]),
        (2, ["networks", "-o", "openmetrics"]),
        (2, ["take-over"]),
        (4, ["forget", "nobody"]),
        (5, ["add", "hanging", "/ns/a", "--timeout", "0.3"]),
    ],
)
def test_exit_codes(node: CommandNode, code: int, argv: list[str]) -> None:
    node.write("refusing.conflist", REFUSING)
    node.write("hanging.conflist", HANGING)
    (node.root / "broken.yaml").write_text("name: [", encoding="utf-8")
    ran = node.run(*argv)
    assert ran.code == code
    assert "Traceback" not in ran.err
    assert bool(ran.err) is (code != 0 or argv[0] == "del")


def test_a_lock_that_is_held_is_exit_code_5(node: CommandNode) -> None:
    node.write("hanging.conflist", HANGING)
    first = subprocess.Popen([*node.command, "add", "hanging", "/ns/a"], env=node.env)
    try:
        wait_until(node.cni.get_cached_attachments, 20)
        time.sleep(0.2)
        ran = node.run("del", "hanging", "/ns/a", "--timeout", "0.2")
        assert ran.code == 5
        assert "held the lock" in ran.err
        doctor = node.run("doctor").out
        assert f"({first.pid})" in doctor
    finally:
        first.send_signal(signal.SIGINT)
        assert first.wait(20) == 130


INTERRUPTED = """
import os, sys
class Finder:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), 2)  # SIGINT, without the module signal, which imports enum
sys.meta_path.insert(0, Finder())
sys.argv = ["libcni", {command!r}, "-h"]
from libcni.cli import run
run()
"""


@pytest.mark.parametrize("is_ignored", [False, True])
@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("enum", "doctor"),
        ("libcni.cli.app", "doctor"),
        ("libcni.cli.commands.doctor", "doctor"),
        ("libcni.oci", "oci-hook"),
    ],
)
def test_an_interrupt_while_the_program_is_imported_is_quiet(module: str, command: str, *, is_ignored: bool) -> None:
    code = INTERRUPTED.format(module=module, command=command)
    ignore = "trap '' INT; " if is_ignored else ""
    words = ["sh", "-c", f'{ignore}exec "$@"', "sh", sys.executable, "-c", code]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == ((0, "") if is_ignored else (-signal.SIGINT, ""))


def test_an_error_has_all_that_is_known(node: CommandNode) -> None:
    node.write("refusing.conflist", REFUSING)
    ran = node.run("add", "refusing", "/ns/a", "-o", "json")
    error = json.loads(ran.err)["error"]
    assert error["kind"] == "PluginError"
    assert (error["code"], error["msg"], error["details"], error["stderr"]) == (7, "no", "not today", "complaint\n")
    assert (error["plugin"], error["verb"], error["exit_status"], error["exit"]) == ("fake", "ADD", 1, 1)
    assert ran.out == ""
    assert yaml.safe_load(node.run("add", "refusing", "/ns/a", "-o", "yaml").err)["error"]["code"] == 7


def test_a_plugins_text_cannot_move_the_cursor(node: CommandNode) -> None:
    document: Any = {"error": {"code": 7, "msg": "\x1b[2Jgone"}}
    node.write("refusing.conflist", {**REFUSING, "plugins": [{"type": "fake", "fake": {"ADD": document}}]})
    assert "\x1b" not in node.run("add", "refusing", "/ns/a").err


def test_names_of_files_and_texts_of_plugins_cannot_move_the_cursor(node: CommandNode) -> None:
    name = "\x1b[2J\rnet-c1-eth0"
    for folder in ("results", "tmp"):
        (node.cache / folder).mkdir(parents=True)
        (node.cache / folder / name).touch()
    node.write(f"{name}.conflist", "{")
    node.plugin("chatty", "printf '\\033[2Jhello\\n' >&2")
    node.configure("chatty")
    for words in ("doctor", "attachments", "repair", "validate", "add chatty /ns/a"):
        ran = node.run(*words.split())
        text = ran.out + ran.err
        assert "\\x1b[2J" in text
        assert text.replace("\n", "").replace("\t", "").isprintable()


@pytest.mark.parametrize("words", ["attachments", "--version", "--help"])
def test_an_output_that_cannot_be_written_is_an_error_in_one_line(node: CommandNode, words: str) -> None:
    command = [*node.command, *words.split()]
    for env in (node.env, {**node.env, "PYTHONUNBUFFERED": "1"}):
        with open("/dev/full", "w", encoding="utf-8") as full:
            ran = subprocess.run(command, env=env, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert (ran.returncode, ran.stderr) == (1, "error: the output cannot be written: No space left on device\n")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_descriptor_is_an_empty_file(node: CommandNode, closed: str) -> None:
    command = f"{' '.join(node.command)} validate - {closed}"
    ran = subprocess.run(["bash", "-c", command], env=node.env, input="", capture_output=True, text=True, check=False)
    assert (ran.returncode, "Traceback" in ran.stderr) == (3, False)


@pytest.mark.parametrize("words", ["explain dbnet", "--version"])
def test_a_closed_pipe_is_no_trace(node: CommandNode, words: str) -> None:
    command = " ".join(node.command)
    env = {**node.env, "PYTHONUNBUFFERED": "1"}
    ran = subprocess.run(
        ["bash", "-c", f"{command} {words} | true"], env=env, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in ran.stderr
    assert "BrokenPipe" not in ran.stderr


def test_without_the_extra_one_line_says_how_to_install_it() -> None:
    code = "import sys; sys.modules['typer'] = None; from libcni.cli import main; sys.exit(main([]))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (
        2,
        "",
        "libcni: help, messages about wrong options and progress bars need: pip install 'libcni[cli]'\n",
    )


def test_main_can_be_called_from_python(node: CommandNode, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.setenv("NETCONFPATH", str(node.conf_dir))
    assert main(["networks", "-o", "json"]) == 0
    assert json.loads(capfd.readouterr().out)["default"] == "dbnet"


# yaml and definitions


def test_a_network_may_be_yaml_and_capabilities_too(node: CommandNode) -> None:
    (node.root / "net.yaml").write_text(yaml.safe_dump(DBNET), encoding="utf-8")
    (node.root / "caps.yaml").write_text("mac: c2:11:22:33:44:55\n", encoding="utf-8")
    ran = node.run("add", "./net.yaml", node.netns("a"), "--capabilities", "@caps.yaml")
    assert ran.data["interfaces"][-1]["mac"] == "c2:11:22:33:44:55"
    assert node.run("check", "net.yaml", node.netns("a")).code == 0
    assert node.run("del", "-", node.netns("a"), stdin=yaml.safe_dump(DBNET)).code == 0


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_a_definition_is_accepted_and_names_its_network(node: CommandNode, form: str) -> None:
    config = json.dumps({key: value for key, value in DBNET.items() if key != "name"})
    document = {
        "apiVersion": "k8s.cni.cncf.io/v1",
        "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": "fromnad"},
        "spec": {"config": config},
    }
    text = yaml.safe_dump(document) if form == "yaml" else json.dumps(document)
    (node.root / f"nad.{form}").write_text(text, encoding="utf-8")
    ran = node.run("explain", f"./nad.{form}", "-o", "json")
    assert ran.data["network"] == "fromnad"


def test_a_definition_without_a_configuration_says_what_to_do(node: CommandNode) -> None:
    document = {"kind": "NetworkAttachmentDefinition", "metadata": {"name": "dbnet"}, "spec": {}}
    ran = node.run("add", "-", "/ns/a", stdin=json.dumps(document))
    assert ran.code == 3
    assert "give the name of the network on this node: dbnet" in ran.err


def test_json_on_the_command_line_keeps_its_numbers(node: CommandNode) -> None:
    text = json.dumps({**DBNET, "plugins": [{"type": "fake", "big": 0}]}).replace('"big": 0', '"big": 1e400')
    ran = node.run("explain", "-", "-o", "json", stdin=text)
    assert '"big":1e400' in ran.data["verbs"][0]["calls"][0]["stdin_text"]


def test_a_number_with_thousands_of_digits_stops_no_command(node: CommandNode) -> None:
    text = json.dumps({**DBNET, "name": "long", "plugins": [{"type": "fake", "big": 0}]})
    file = node.root / "net.d/long.conflist"
    file.write_text(text.replace('"big": 0', f'"big": {"1" * 5000}'))
    rt = RuntimeConf("c", node.netns("c"), "eth0")
    node.cni.add_network_list("long", rt)
    file.write_text(text.replace('"big": 0', f'"big": {"2" * 5000}'))
    for words in ("show c", "show c -o yaml", "explain long", "explain long -o json", "diff", "diff -o yaml", "doctor"):
        ran = node.run(*words.split())
        assert ran.out
        assert "Traceback" not in ran.err


# from the records alone, batches, raw calls


def test_del_of_a_container_needs_no_configuration(node: CommandNode) -> None:
    node.add("a")
    node.write("30-front.conflist", {**DBNET, "name": "front", "plugins": [{"type": "fake"}]})
    assert node.run("add", "front", node.netns("a"), "-c", "a", "-i", "eth1").code == 0
    for path in node.conf_dir.iterdir():
        path.unlink()
    ran = node.run("del", "--container", "a", "--ifname", "eth0")
    assert ran.out == "detached a eth0 from dbnet\n"
    assert node.run("del", "-c", "a").out == "detached a eth1 from front\n"
    assert node.cni.get_cached_attachments() == []


def batch_file(node: CommandNode, **more: Any) -> str:
    node.write("refusing.conflist", REFUSING)
    entries = [{"network": "dbnet", "netns": node.netns(name), "container": name, **more} for name in ("a", "b")]
    entries += [{"network": "refusing", "container": "c", "netns": "/ns/c"}, {"network": DBNET, "netns": "/ns/d"}]
    (node.root / "batch.yaml").write_text(yaml.safe_dump(entries), encoding="utf-8")
    return "batch.yaml"


def test_a_batch_adds_and_deletes_with_a_table_and_a_report(node: CommandNode) -> None:
    ran = node.run("add", "--batch", batch_file(node), "--parallel", "2")
    assert ran.code == 1
    lines = [line.split() for line in ran.out.splitlines()]
    assert lines[0] == ["CONTAINER", "NETWORK", "INTERFACE", "ADDRESSES", "STATE"]
    assert [(line[0], line[-1]) for line in lines[1:4]] == [("a", "added"), ("b", "added"), ("c", "failed")]
    assert "not today" in ran.err
    assert ran.err.endswith("3 added, 1 failed\n")
    ran = node.run("del", "--batch", "batch.yaml", "-o", "json")
    assert ran.code == 0
    assert [one["container_id"] for one in ran.data][:3] == ["a", "b", "c"]
    assert node.cni.get_cached_attachments() == []


def test_a_batch_shows_its_progress_in_a_terminal(node: CommandNode) -> None:
    ran = node.run_in_terminal("add", "--batch", batch_file(node))
    assert "4/4" in ran.out
    assert "1 failed" in ran.out


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"network": "dbnet"}, '"netns" or "container" is missing'),
        ({"netns": "/ns/a"}, '"network" is missing'),
        ({"network": "dbnet", "netns": "/ns/a", "ifnam": "x"}, "unknown keys: ifnam"),
        ({"network": "dbnet", "netns": 7}, '"netns" must be text'),
        ({"network": "dbnet", "netns": "/ns/a", "args": 7}, '"args" must be an object'),
        ({"network": "dbnet", "netns": "/ns/a", "ifname": "a/b"}, "invalid interface name"),
        ("dbnet", "an attachment must be an object"),
    ],
)
def test_a_wrong_batch_entry_is_named_before_anything_runs(node: CommandNode, entry: Any, problem: str) -> None:
    good = {"network": "dbnet", "netns": node.netns("a")}
    (node.root / "batch").write_text(json.dumps([good, entry]), encoding="utf-8")
    ran = node.run("add", "--batch", "batch")
    assert ran.code == 3
    assert "batch: [1]: " in ran.err
    assert problem in ran.err
    assert node.cni.get_cached_attachments() == []


def test_exec_passes_stdin_byte_for_byte_and_records_nothing(node: CommandNode) -> None:
    log = node.root / "log"
    stdin = '{ "cniVersion":"1.1.0",  "name":"x", "type":"fake", "n": 1.0 }'
    ran = node.run(
        "exec", "fake", "add", "--config", "-", "-c", "c1", "--netns", "/ns", stdin=stdin, FAKE_CNI_LOG=str(log)
    )
    assert ran.data["cniVersion"] == "1.1.0"
    call = json.loads(log.read_text(encoding="utf-8"))
    assert call["stdin"] == stdin
    assert call["env"]["CNI_COMMAND"] == "ADD"
    assert not node.cache.exists()
    failed = node.run("exec", str(node.bin / "fake"), "NOPE", "-o", "json")
    assert failed.code == 1
    assert failed.data["exit_status"] == 1
    assert json.loads(failed.data["stdout"])["code"] == 4


def test_verbose_tells_each_call_as_it_happens(node: CommandNode) -> None:
    ran = node.run("add", "dbnet", node.netns("a"), "-c", "a", "--verbose")
    calls = [line for line in ran.err.splitlines() if line[:2] in {"> ", "< "}]
    assert [line.split()[:3] for line in calls] == [
        [">", "fake-bridge", "ADD"],
        ["<", "fake-bridge", "ADD"],
        [">", "fake-tuning", "ADD"],
        ["<", "fake-tuning", "ADD"],
    ]
    assert calls[1].endswith(" s")


def test_what_a_plugin_says_on_stderr_arrives(node: CommandNode) -> None:
    node.write("loud.conflist", {**DBNET, "name": "loud", "plugins": [{"type": "fake", "fake": {"stderr": "hello\n"}}]})
    assert "hello\n" in node.run("add", "loud", "/ns/a").err


# repair, doctor, completion


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


def test_repair_shows_the_files_that_it_leaves(node: CommandNode) -> None:
    path = node.cache / "tmp" / "0-directory"
    path.mkdir(parents=True)
    for words in (["repair"], ["repair", "--yes"]):
        ran = node.run(*words)
        assert ran.code == 0
        assert ran.out.splitlines()[1:] == [f"left    {path}  it is a directory, which libcni did not make"]


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


def test_the_commands_in_a_hint_have_the_directories_of_the_options(node: CommandNode) -> None:
    node.add("a")
    words = ["add", "dbnet", node.netns("a"), "-c", "a", "--cache-dir", str(node.cache)]
    hint = f"libcni del --cache-dir {node.cache} -c a -i eth0"
    assert hint in node.run(*words, LIBCNI_CACHE_DIR="").err
    assert hint in node.run(*words, "-o", "json", LIBCNI_CACHE_DIR="").err
    assert "libcni del -c a" in node.run(*words).err, "the environment names the directory already"


@pytest.mark.parametrize(("name", "code"), [("dbnet-c1-eth0", 1), ("dbnet-c2-eth0", 0)])
def test_del_from_the_records_fails_if_the_record_is_corrupt(node: CommandNode, name: str, code: int) -> None:
    node.results.mkdir(parents=True)
    (node.results / name).write_text("{", encoding="utf-8")
    ran = node.run("del", "-c", "c1")
    assert ran.code == code
    assert (str(node.results / name) in ran.err) is (code == 1)


def test_an_add_that_fails_says_that_the_namespace_does_not_exist(node: CommandNode) -> None:
    broken = {**DBNET, "name": "broken", "plugins": [{"type": "fake", "fake": {"error": {"code": 100, "msg": "no"}}}]}
    node.write("broken.conflist", broken)
    missing = node.root / "nowhere"
    assert f"the namespace {missing} does not exist\n" in node.run("add", "broken", str(missing), "-c", "a").err
    assert "does not exist" not in node.run("add", "broken", node.netns("a"), "-c", "b").err


def test_versions_says_why_a_plugin_does_not_answer(node: CommandNode) -> None:
    node.plugin("mute", 'echo "out of order" >&2; exit 3')
    assert "exit status 3" in node.run("versions", "mute").out


def test_a_missing_directory_of_configurations_is_named(node: CommandNode) -> None:
    nowhere = node.root / "nowhere"
    assert (
        node.run("networks", NETCONFPATH=str(nowhere)).out == f"no networks in {nowhere}: there is no such directory\n"
    )


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


def test_the_completion_script_works_in_bash(node: CommandNode) -> None:
    script = textwrap.dedent("""
        eval "$(libcni --show-completion bash)"
        complete() { COMP_WORDS=(libcni "$@"); COMP_CWORD=$#; _libcni_completion libcni; echo "${COMPREPLY[@]}"; }
        complete add db
    """)
    env = {**node.env, "PATH": f"{os.path.dirname(node.command[0])}:{node.env['PATH']}"}
    ran = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, check=False)
    assert ran.stdout == "dbnet\n"


def test_what_was_added_to_an_error_on_its_way_is_shown_once() -> None:
    error = PluginError("it failed", plugin="a", verb="ADD")
    error.rollback_errors = (PluginError("it failed, too", plugin="a", verb="DEL"),)
    error.add_note(f"when it was rolled back: {error.rollback_errors[0]}")
    error.add_note("ADD was detaching another one first")
    session = Session("", "", "", "", 60.0, "text", verbose=False)
    assert error_data(error, session)["notes"] == ["ADD was detaching another one first"]
    assert ("note", "ADD was detaching another one first") in failures._details(error, session)
    assert "notes" not in error_data(PluginError("it failed", plugin="a", verb="ADD"), session)


@pytest.mark.parametrize("content", ["", "\n", "[]", "null"])
def test_an_empty_file_does_not_mean_that_no_container_is_valid(node: CommandNode, content: str) -> None:
    node.add("a")
    (node.root / "valid").write_text(content, encoding="utf-8")
    for ran in (node.run("gc", "dbnet", "--from-file", "valid"), node.run("gc", "dbnet", "--from-file", "-", stdin="")):
        assert ran.code == 2
        assert "--none-valid" in ran.err
    assert len(node.cni.get_cached_attachments()) == 1
    assert node.run("gc", "dbnet", "--from-file", "valid", "--none-valid").code == 0
    assert node.cni.get_cached_attachments() == []


def test_gc_of_a_network_without_a_file_works_from_the_records(node: CommandNode) -> None:
    for name in ("a", "b"):
        node.add(name)
    (node.conf_dir / "10-dbnet.conflist").unlink()
    planned = node.run("gc", "dbnet", "--valid", "a", "--dry-run", "-o", "json").data
    assert [one["container_id"] for one in planned["stale"]] == ["b"]
    assert node.run("gc", "dbnet", "--valid", "a").code == 0
    assert [one.container_id for one in node.cni.get_cached_attachments()] == ["a"]
    assert node.run("gc", "nothere", "--none-valid").code == 4
