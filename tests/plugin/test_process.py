"""Plugins as the processes that a runtime starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from libcni.testing import call_plugin
from plugin.plugins import LIBRARY, config, write_plugin

QUIET = "plugin.add(lambda r: None)\nplugin.delete(lambda r: None)"


def test_a_plugin_answers_with_one_document_and_its_exit_status(tmp_path: Path) -> None:
    path = write_plugin(tmp_path, "quiet", QUIET)
    answer = call_plugin(path, "ADD", config())
    assert (answer.status, answer.stdout, answer.stderr) == (0, '{"cniVersion": "1.1.0"}\n', "")
    answer = call_plugin(path, "ADD", config("9.9.9"))
    assert (answer.status, answer.code) == (1, 1)


@pytest.mark.parametrize("document", [b'{"cniVersion": "1.1.0"', b'{"a" 1}', b"nope", b""])
def test_what_is_not_json_has_its_code_where_nothing_has_imported_json(tmp_path: Path, document: bytes) -> None:
    answer = call_plugin(write_plugin(tmp_path, "quiet", QUIET), "ADD", document)
    assert (answer.status, answer.code, answer.stderr) == (1, 6, "")


def test_no_command_says_what_the_plugin_is(tmp_path: Path) -> None:
    answer = call_plugin(write_plugin(tmp_path, "quiet", QUIET), "")
    assert (answer.status, answer.stdout) == (0, "")
    assert answer.stderr.startswith("CNI plugin quiet\nCNI protocol versions supported: 0.1.0, ")


TALK = """
@plugin.add
def add(request):
    print("from print")
    sys.__stdout__.write("from the first stdout\\n")
    os.write(1, b"from the descriptor\\n")
    subprocess.run(["echo", "from a child"])
    print("on stderr", file=sys.stderr)
plugin.delete(lambda r: None)
"""


def test_nothing_that_a_function_prints_spoils_the_document(tmp_path: Path) -> None:
    answer = call_plugin(write_plugin(tmp_path, "talk", TALK), "ADD", config())
    assert answer.stdout == '{"cniVersion": "1.1.0"}\n'
    lines = {"from print", "from the first stdout", "from the descriptor", "from a child", "on stderr"}
    assert set(answer.stderr.splitlines()) == lines


def test_a_daemon_that_a_function_leaves_does_not_hold_stdout(tmp_path: Path) -> None:
    body = 'plugin.add(lambda r: subprocess.Popen(["sleep", "60"], stderr=subprocess.DEVNULL).__class__ and None)'
    path = write_plugin(
        tmp_path,
        "daemon",
        body.replace("subprocess.DEVNULL", "subprocess.DEVNULL, stdout=1") + "\nplugin.delete(lambda r: None)",
    )
    read, write = os.pipe()
    env = {
        "CNI_COMMAND": "ADD",
        "CNI_CONTAINERID": "c",
        "CNI_NETNS": "/x",
        "CNI_IFNAME": "eth0",
        "PATH": os.environ["PATH"],
    }
    stdin = b'{"cniVersion": "1.1.0", "name": "net"}'
    subprocess.run([path], env=env, input=stdin, stdout=write, stderr=subprocess.DEVNULL, check=True)
    os.close(write)
    with os.fdopen(read) as stdout:
        assert stdout.read() == '{"cniVersion": "1.1.0"}\n'  # ends although the daemon lives


def test_a_closed_stderr_does_not_matter(tmp_path: Path) -> None:
    path = write_plugin(tmp_path, "talk", TALK.replace('echo", "from a child"', 'sh", "-c", "echo from a child >&2"'))
    done = closed("2>&-", path, "ADD")
    assert (done.returncode, done.stdout) == (0, '{"cniVersion": "1.1.0"}\n')
    broken = write_plugin(tmp_path, "broken", "plugin.add(lambda r: 1 / 0)\nplugin.delete(lambda r: None)")
    done = closed("2>&-", broken, "ADD")
    assert (done.returncode, json.loads(done.stdout)["code"]) == (1, 999)
    assert closed("2>&-", path, "").returncode == 0


def test_a_closed_stdin_is_an_empty_one(tmp_path: Path) -> None:
    path = write_plugin(tmp_path, "quiet", QUIET)
    assert json.loads(closed("<&-", path, "ADD").stdout)["code"] == 6
    assert closed("<&-", path, "VERSION").returncode == 0


def test_a_closed_stdout_leaves_the_exit_status(tmp_path: Path) -> None:
    path = write_plugin(tmp_path, "quiet", QUIET)
    done = closed(">&-", path, "ADD")
    assert (done.returncode, done.stderr) == (0, "")


def closed(redirection: str, path: Path, verb: str) -> subprocess.CompletedProcess[str]:
    env = {
        "CNI_COMMAND": verb,
        "CNI_CONTAINERID": "c",
        "CNI_NETNS": "/x",
        "CNI_IFNAME": "eth0",
        "PATH": os.environ["PATH"],
    }
    command = ["sh", "-c", f"exec {path} {redirection}"]
    text = json.dumps(config())
    return subprocess.run(command, env=env, input=text, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("error", "msg"), [("1 / 0", "division by zero"), ("sys.exit(3)", "called sys.exit(3)")])
def test_a_function_that_breaks_off_still_answers(tmp_path: Path, error: str, msg: str) -> None:
    body = f"@plugin.add\ndef add(request):\n    {error}\nplugin.delete(lambda r: None)"
    answer = call_plugin(write_plugin(tmp_path, "broken", body), "ADD", config())
    assert (answer.status, answer.code) == (1, 999)
    assert msg in answer.document["msg"]
    assert "Traceback" in answer.stderr


HEAVY = ("pydantic", "dataclasses", "pathlib", "subprocess", "traceback", "ipaddress", "yaml", "filelock")


def test_importing_the_plugin_side_loads_next_to_nothing() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(LIBRARY)!r}); before = set(sys.modules)\n"
        "import json; import libcni.plugin\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "libcni.plugin.dispatch" in loaded
    assert loaded.isdisjoint(HEAVY)
    foreign = {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names - {"libcni"}
    assert foreign == set()


def test_a_no_op_loads_no_more_than_the_import(tmp_path: Path) -> None:
    body = QUIET + "\nimport atexit; atexit.register(lambda: print(*sys.modules, file=sys.stderr))"
    path = write_plugin(tmp_path, "quiet", body)
    path.write_text(path.read_text(encoding="utf-8").replace("import os, subprocess, sys", "import os, sys"), "utf-8")
    answer = call_plugin(path, "ADD", config(prevResult={"ips": [{"address": "10.0.0.2/24"}]}))
    assert answer.status == 0
    assert "libcni.plugin.request" in answer.stderr
    for name in ("delegation", "arguments", "runtime_config"):
        assert f"libcni.plugin.{name}" not in answer.stderr.split()


def test_version_does_not_wait_for_a_pipe_on_which_nothing_comes(tmp_path: Path) -> None:
    path = write_plugin(tmp_path, "quiet", QUIET)
    env = {"CNI_COMMAND": "VERSION"}
    with subprocess.Popen([path], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.read())["cniVersion"] == "1.1.0"
        assert process.wait(20) == 0
