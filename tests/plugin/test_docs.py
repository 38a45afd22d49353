"""The page docs/how-to/plugin.md, executed: its files under their titles, and its pieces of code."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from testing.faulty import PREVIOUS, SHELL_IPAM, write_executable

from libcni.plugin import Request
from libcni.plugin.build import build
from libcni.testing import NetworkNamespace, assert_plugin_conforms, call_plugin
from plugin.plugins import LIBRARY, PAGE, ROOT, TITLED, Recorder, config, example, source_of, write_example

TYPED = re.findall(r"^\$ \.venv/bin/python (.*)$", PAGE, re.MULTILINE)


def test_the_code_of_the_page_is_a_part_of_the_example() -> None:
    [code] = re.findall(r"^```py\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    parts = code.split("\n\n\n")
    assert len(parts) > 1
    assert [part for part in parts if part.strip() not in source_of("counter")] == []


def test_the_command_of_the_page_builds_the_plugin(tmp_path: Path) -> None:
    (command,) = TYPED
    arguments = shlex.split(command.replace("examples/", f"{ROOT}/examples/"))
    subprocess.run(
        [sys.executable, *arguments, "--python", sys.executable],
        cwd=tmp_path,
        env={"PYTHONPATH": str(LIBRARY)},
        check=True,
    )
    document = config(ipam={"dataDir": str(tmp_path / "data")})
    for container, address in (("c1", "10.77.0.2/24"), ("c2", "10.77.0.3/24")):
        answer = call_plugin(tmp_path / "counter", "ADD", document, container_id=container)
        assert answer.document["ips"] == [{"address": address, "gateway": "10.77.0.1"}]
    assert call_plugin(tmp_path / "counter", "DEL", document, container_id="c1").status == 0
    answer = call_plugin(tmp_path / "counter", "ADD", document, container_id="c3")
    assert answer.document["ips"][0]["address"] == "10.77.0.2/24"
    with ThreadPoolExecutor(8) as threads:  # of plugins that run at once, no two get one address
        add = partial(call_plugin, tmp_path / "counter", "ADD", document)
        answers = list(threads.map(lambda number: add(container_id=f"at-once-{number}"), range(24)))
    assert len({one.document["ips"][0]["address"] for one in answers}) == 24


@pytest.mark.real
@pytest.mark.slow
def test_the_network_of_the_page_goes_from_an_address_to_a_published_port(
    tmp_path: Path, cni_namespaces: Callable[[], AbstractContextManager[NetworkNamespace]]
) -> None:
    write_example(tmp_path, "counter")
    [conflist] = re.findall(r'^```json title="my.conflist"\n(.*?)^```$', PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "my.conflist").write_text(conflist.replace("/tmp/mynet", f"{tmp_path}/pool"), encoding="utf-8")
    typed = re.findall(r"^# (.*)$", PAGE[PAGE.index("# export PATH") :], re.MULTILINE)
    (paths,), (add,), (delete,) = ([line for line in typed if word in line] for word in ("export", "add ./", "del ./"))
    [(host, inside)] = re.findall(r"hostPort: (\d+), containerPort: (\d+)", add)
    with cni_namespaces() as machine, cni_namespaces() as container, machine.entered():
        machine.run("ip", "link", "set", "lo", "up")

        def run(line: str) -> None:
            line = re.sub(r"libcni (add|del)", rf"libcni \1 --cache-dir {tmp_path}/records", line)
            line = f"{paths}; {line}".replace("/run/netns/c1", container.path).replace("$PWD/.venv", sys.prefix)
            env = {**os.environ, "PYTHONPATH": str(LIBRARY)}
            subprocess.run(["bash", "-ec", line], cwd=tmp_path, check=True, env=env)

        run(add)
        with container.echo_server(int(inside)):
            assert machine.echo("127.0.0.1", int(host)) == "hello"
        assert [path.name for path in (tmp_path / "pool/mynet").iterdir()] == ["2"]
        run(delete.replace("ip netns delete c1", "true"))
        assert [*(tmp_path / "pool/mynet").iterdir()] == []
        assert [*container.interfaces()] == ["lo"]


def test_the_piece_on_settings_works() -> None:
    names: dict[str, Any] = {}

    def add(request: Request) -> None:
        exec(compile(TITLED["settings.py"], "page", "exec", dont_inherit=True), names)
        names["loaded"] = names["settings"](request)

    answer = call_plugin(Recorder(add=add).plugin, "ADD", config(ipam={"dataDir": "/x"}))
    assert answer.status == 0, answer.stderr
    assert (names["loaded"].data_dir, names["loaded"].size) == ("/x", 256)


def test_the_chained_example_says_what_cannot_work(tmp_path: Path) -> None:
    def code(verb: str, file: object, **more: Any) -> int | None:
        return call_plugin(example("hosts"), verb, config(file=str(file), **more)).code

    assert code("ADD", tmp_path / "hosts") == code("ADD", "relative", prevResult={}) == 7
    assert (code("STATUS", tmp_path / "hosts"), code("STATUS", tmp_path / "x" / "y")) == (None, 50)


@pytest.mark.real
@pytest.mark.slow
def test_the_delegating_plugin_of_the_page_conforms(
    tmp_path: Path, cni_namespaces: Callable[[], AbstractContextManager[NetworkNamespace]]
) -> None:
    write_executable(tmp_path / "pool", SHELL_IPAM)
    with cni_namespaces() as machine, cni_namespaces() as container, machine.entered():
        report = assert_plugin_conforms(
            example("uplink"),  # in this process: a start of Python for each call takes longer than the call
            {"type": "uplink", "ipam": {"type": "pool"}},
            namespace=container,
            path=str(tmp_path),
            versions=["1.1.0"],
        )
    assert "GC is forwarded to the IPAM plugin (1.1.0): passed" in map(str, report.findings)


def test_the_meta_plugin_of_the_examples_conforms(tmp_path: Path) -> None:
    write_executable(tmp_path / "pool", SHELL_IPAM)
    (tmp_path / "subnet").write_text("10.99.0.0/24\n", encoding="utf-8")
    meta: dict[str, Any] = {"subnetFile": str(tmp_path / "subnet"), "delegate": {"type": "pool"}}
    options: dict[str, Any] = {"path": str(tmp_path), "versions": ["0.4.0"], "ipam": True, "only": ["refusals", "life"]}
    assert_plugin_conforms(example("meta"), meta, **options)
    (tmp_path / "subnet").unlink()
    answer = call_plugin(example("meta"), "ADD", config(**meta))
    assert (answer.code, "cannot read" in answer.document["msg"]) == (11, True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["counter", "hosts", "meta"])
def test_calls_of_an_example_do_not_disturb_each_other(tmp_path: Path, name: str) -> None:
    write_executable(tmp_path / "pool", SHELL_IPAM)
    (tmp_path / "subnet").write_text("10.99.0.0/24\n", encoding="utf-8")
    build(ROOT / f"examples/{name}.py", tmp_path / name, python=sys.executable)
    report = assert_plugin_conforms(
        tmp_path / name,
        {"file": str(tmp_path / "hosts.txt"), "subnetFile": str(tmp_path / "subnet"), "delegate": {"type": "pool"}}
        | {"ipam": {"dataDir": str(tmp_path / "data")}},
        path=str(tmp_path),
        ipam=name != "hosts",
        prev_result=PREVIOUS if name == "hosts" else None,
        versions=["0.4.0" if name == "meta" else "1.1.0"],
        only=["several"],
    )
    assert "verbs of several containers at once" in {finding.check for finding in report.findings}


def test_the_thick_plugin_of_the_examples_works(tmp_path: Path) -> None:
    names = runpy.run_path(str(ROOT / "examples/thick/daemon.py"))
    path = tmp_path / "thick.sock"
    shim = tmp_path / "thick"
    text = (ROOT / "examples/thick/shim.py").read_text(encoding="utf-8")
    assert text.startswith("#!/usr/bin/python3 -IS\n")
    shim.write_text(
        text.replace("/run/thick.sock", str(path)).replace("/usr/bin/python3", sys.executable), encoding="utf-8"
    )
    shim.chmod(0o755)
    with names["serve"](str(path)) as server, ThreadPoolExecutor(5) as threads:
        threads.submit(server.serve_forever)
        try:
            add, delete = (partial(call_plugin, shim, verb, config()) for verb in ("ADD", "DEL"))
            answers = list(threads.map(lambda number: (add(), delete(container_id=f"c{number}")), range(4)))
        finally:
            server.shutdown()
    assert [one.document["ips"] for one, _ in answers] == [[{"address": "10.61.0.9/24"}]] * 4
    assert [(two.status, two.stderr) for _, two in answers] == [(0, f"gone: c{number}\n") for number in range(4)]
