"""Plugins as the processes that a runtime starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest
from processes import fork, wait

from libcni.plugin import Plugin, Request
from libcni.testing import Answer, call_plugin
from libcni.testing.calling import environment
from plugin.plugins import Recorder, config, write_plugin

QUIET = "plugin.add(lambda r: None)\nplugin.delete(lambda r: None)"
DONE = '{"cniVersion": "1.1.0"}\n'


def run_forked(plugin: Plugin, verb: str = "ADD", *, closed: int = -1) -> Answer:
    """Let a forked child be the plugin's process; one of its descriptors 0 to 2 may be closed."""
    with TemporaryFile() as stdin, TemporaryFile() as stdout, TemporaryFile() as stderr:
        stdin.write(json.dumps(config()).encode())
        stdin.seek(0)

        def work() -> None:
            for number, file in enumerate((stdin, stdout, stderr)):
                os.dup2(file.fileno(), number)
            if closed >= 0:
                os.close(closed)
            os.environ.update(environment(verb, {}))
            # As the interpreter starts with them: None for a closed one.
            streams: list[Any] = [None if n == closed else os.fdopen(n, "w" if n else "r") for n in range(3)]
            sys.stdin, sys.stdout, sys.stderr = streams
            vars(sys)["__stdout__"] = sys.stdout
            try:
                plugin.run()
            except SystemExit as end:
                for stream in filter(None, (sys.stdout, sys.stderr)):
                    stream.flush()
                os._exit(int(str(end.code)))

        status = wait(fork(work))
        stdout.seek(0)
        stderr.seek(0)
        return Answer(status, stdout.read().decode(), stderr.read().decode())


def talk(request: Request) -> None:
    print("from print")  # noqa: T201 - what an author may do
    if sys.__stdout__:
        sys.__stdout__.write("from the first stdout\n")
        sys.__stdout__.flush()
    os.write(1, b"from the descriptor\n")
    subprocess.run(["echo", "from a child"], check=True)
    subprocess.run(["sh", "-c", "echo on stderr >&2"], check=False)


def broken(request: Request) -> None:
    raise ZeroDivisionError


def test_nothing_that_a_function_prints_spoils_the_document() -> None:
    answer = run_forked(Recorder(add=talk).plugin)
    assert (answer.status, answer.stdout) == (0, DONE)
    lines = {"from print", "from the first stdout", "from the descriptor", "from a child", "on stderr"}
    assert set(answer.stderr.splitlines()) == lines


def test_a_closed_stderr_does_not_matter() -> None:
    assert run_forked(Recorder(add=talk).plugin, closed=2) == Answer(0, DONE, "")
    answer = run_forked(Recorder(add=broken).plugin, closed=2)
    assert (answer.status, answer.code) == (1, 999)
    assert run_forked(Recorder().plugin, "", closed=2).status == 0


def test_a_closed_stdin_is_an_empty_one() -> None:
    assert run_forked(Recorder().plugin, closed=0).code == 6
    assert run_forked(Recorder().plugin, "VERSION", closed=0).status == 0


def test_a_closed_stdout_leaves_the_exit_status() -> None:
    assert run_forked(Recorder().plugin, closed=1) == Answer(0, "", "")


def test_a_daemon_that_a_function_leaves_does_not_hold_stdout(tmp_path: Path) -> None:
    body = "plugin.delete(lambda r: subprocess.Popen(['sleep', '60'], stderr=subprocess.DEVNULL, stdout=1) and None)"
    path = write_plugin(tmp_path, "daemon", f"plugin.add(lambda r: None)\n{body}")
    document = json.dumps(config()).encode()
    command = subprocess.Popen(
        [path], env=environment("DEL", {}), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert command.communicate(document, 20)[0] == b""


# What follows needs an interpreter that has imported nothing else.


def test_a_plugin_answers_with_one_document_and_its_exit_status(tmp_path: Path) -> None:
    path = write_plugin(tmp_path, "quiet", QUIET)
    assert call_plugin(path, "ADD", config()) == Answer(0, DONE, "")
    answer = call_plugin(path, "ADD", config("9.9.9"))
    assert (answer.status, answer.code) == (1, 1)


@pytest.mark.parametrize("document", [b'{"cniVersion": "1.1.0"', b'{"a" 1}', b""])
def test_what_is_not_json_has_its_code_where_nothing_has_imported_json(tmp_path: Path, document: bytes) -> None:
    answer = call_plugin(write_plugin(tmp_path, "quiet", QUIET), "ADD", document)
    assert (answer.status, answer.code, answer.stderr) == (1, 6, "")


def test_a_no_op_loads_no_more_than_the_import(tmp_path: Path) -> None:
    body = QUIET + "\nimport atexit; atexit.register(lambda: print(*sys.modules, file=sys.stderr))"
    path = write_plugin(tmp_path, "quiet", body)
    path.write_text(path.read_text(encoding="utf-8").replace("import os, subprocess, sys", "import os, sys"), "utf-8")
    answer = call_plugin(path, "ADD", config(prevResult={"ips": [{"address": "10.0.0.2/24"}]}))
    assert answer.status == 0
    assert "libcni.plugin.request" in answer.stderr
    for name in ("delegation", "loader", "runtime_config"):
        assert f"libcni.plugin.{name}" not in answer.stderr.split()


TYPED = """
class Settings:
    data_dir: str
    sizes: "dict[str, int | None]"
    size: int = 256
    anything: "list | dict[str, object]" = ()
@plugin.add
def add(request):
    loaded = request.load_config(Settings, "ipam")
    slow = {"typing", "dataclasses", "inspect"} & {*sys.modules}
    print(loaded.data_dir, loaded.sizes, loaded.size, loaded.anything, sorted(slow), file=sys.stderr)
plugin.delete(lambda request: None)
"""


def test_a_plain_class_is_loaded_without_slow_imports(tmp_path: Path) -> None:
    plugin = write_plugin(tmp_path, "typed", TYPED)
    ipam = {"dataDir": "/x", "sizes": {"a": 1, "b": None}, "anything": [1, "x"]}
    answer = call_plugin(plugin, "ADD", config(ipam=ipam))
    assert answer == Answer(0, '{"cniVersion": "1.1.0"}\n', "/x {'a': 1, 'b': None} 256 [1, 'x'] []\n")
    wrong = call_plugin(plugin, "ADD", config(ipam={"dataDir": "/x", "sizes": {"a": "1"}}))
    assert wrong.document["msg"] == "ipam.sizes.a: must be an integer, not '1'"


def test_version_does_not_wait_for_a_pipe_on_which_nothing_comes(tmp_path: Path) -> None:
    path = write_plugin(tmp_path, "quiet", QUIET)
    env = {"CNI_COMMAND": "VERSION"}
    with subprocess.Popen([path], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.read())["cniVersion"] == "1.1.0"
        assert process.wait(20) == 0
