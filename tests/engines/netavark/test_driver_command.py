"""The driver as a program: light, installed with its options, and with nothing left if nobody reads its answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from engines.engine_node import UNNEEDED
from libcni import RuntimeConf, __version__
from libcni.cli import main
from libcni.engines.engine_command import what_must_stay
from libcni.engines.oci import ended_containers
from libcni.engines.oci.pins import directory_for
from libcni.testing import wait_until

from .conftest import ID, DriverNode, network, request

HEAVY = {"asyncio", "concurrent.futures", "pydantic", "yaml", "shutil", "subprocess", "tempfile", "ipaddress"}
HEAVY |= {"hashlib"}  # it loads OpenSSL
VERBS = {"libcni.client", "libcni.engines.netavark.driver"}


def test_info_says_the_version_and_loads_no_verb(node: DriverNode) -> None:
    assert node.answer("info") == {"version": __version__, "api_version": "1.0.0"}
    assert node.loaded("", "info") & (HEAVY | VERBS | UNNEEDED) == set()


def test_setup_and_teardown_load_no_heavy_module(node: DriverNode) -> None:
    node.configure("front", "bridge")
    (node.cache / "results").mkdir(parents=True)  # so that setup looks for earlier records
    for verb in ("setup", "teardown"):
        document = json.dumps(request(static_ips=["10.1.0.5"]))
        assert node.loaded(document, verb, node.netns_path) & HEAVY == set()
    assert node.attached == []


@pytest.mark.parametrize("words", [[], ["setup"], ["teardown"], ["check"]])
def test_what_netavark_does_not_ask_is_a_mistake_of_usage(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["netavark-plugin", *words])
    assert ended.value.code == 2


@pytest.mark.parametrize("document", ["", "{", "[]", "{}"])
def test_every_error_is_an_object(node: DriverNode, document: str) -> None:
    assert node.run("setup", document)[0] == 1
    assert "netavark's request" in node.error("setup", document)


def test_a_full_disk_is_podmans_error(node: DriverNode) -> None:
    node.configure("front", "bridge")
    node.cache.write_text("a file where the directory should be")
    assert str(node.cache) in node.error("setup", request())
    assert node.calls("ADD") == []


def test_nobody_reads_the_answer_and_nothing_stays(node: DriverNode) -> None:
    node.configure("front", "bridge")
    reader, writer = os.pipe()
    os.close(reader)
    words, document = node.command("setup", node.netns_path), json.dumps(request())
    done = subprocess.run(words, input=document, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")
    assert (node.verbs(), node.attached) == (["ADD bridge", "DEL bridge"], [])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_rolls_the_attachment_back(node: DriverNode, number: signal.Signals) -> None:
    wait = f"for _ in $(seq 600); do [ -e {node.root}/go ] && break; sleep 0.1; done"
    script = f"[ $CNI_COMMAND != ADD ] || exec sleep 60\n[ $CNI_COMMAND != DEL ] || {{ {wait}; }}"
    node.plugin("bridge", script)
    node.configure("front", "bridge")
    words = node.command("setup", node.netns_path)
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdin is not None
        assert driver.stdout is not None
        driver.stdin.write(json.dumps(request()))
        driver.stdin.close()
        wait_until(lambda: node.calls("ADD") != [])
        driver.send_signal(number)
        wait_until(lambda: node.calls("DEL") != [])
        driver.send_signal(number)  # the roll-back goes on
        (node.root / "go").touch()
        assert json.loads(driver.stdout.read()) == {"error": "the driver was interrupted by a signal"}
    assert driver.returncode == 1
    assert (node.verbs(), node.attached) == (["ADD bridge", "DEL bridge"], [])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_netavark_ignores_stays_ignored(node: DriverNode, number: signal.Signals) -> None:
    """It ignores both while it tears down: a teardown that ends half-way is not repeated."""
    node.configure("front", "bridge")
    signal.signal(number, signal.SIG_IGN)
    node.answer("setup", request())
    assert signal.getsignal(number) is signal.SIG_IGN
    node.answer("teardown", request())
    assert (signal.getsignal(number), node.attached) == (signal.SIG_IGN, [])


@pytest.fixture
def podman(node: DriverNode, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where the program podman is looked for, and attach a container."""
    node.configure("front", "bridge")
    node.answer("setup", request())
    programs = node.root / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    return programs / "podman"


def gc(node: DriverNode, podman: Path, script: str) -> int:
    """Run ``libcni gc --runtime podman`` with a script as podman; "": without podman."""
    if script:
        podman.write_text(f"#!/bin/sh\n{script}\n")
        podman.chmod(0o755)
    return main(["gc", "--runtime", "podman", *node.words])


@pytest.mark.parametrize("script", ["echo broken >&2; exit 1", "", "exec /bin/sleep 60"])
def test_a_podman_that_lists_nothing_because_it_fails_is_no_empty_list(
    node: DriverNode, podman: Path, script: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ended_containers, "_PODMAN_SECONDS", 0.2 if "sleep" in script else 60.0)
    assert gc(node, podman, script) != 0
    assert "cannot list the containers of podman: " in capsys.readouterr().err
    assert [state for *_, state in node.attached] == ["ready"]


@pytest.mark.skipif(os.geteuid() != 0, reason="the hook's pins are below /run, where only root may write")
def test_gc_detaches_what_podman_does_not_list_and_leaves_the_hooks_containers_alone(
    node: DriverNode, podman: Path
) -> None:
    node.client(owner="oci-hook").add_network_list("front", RuntimeConf("c1", node.netns_path, "eth0"))
    pin = Path(directory_for(str(node.cache)), "c1.999999999")
    pin.parent.mkdir(parents=True, exist_ok=True)
    pin.touch()
    assert gc(node, podman, f"echo {ID}") == 0
    assert [owner for owner, *_ in node.attached] == ["oci-hook", "podman"]
    assert gc(node, podman, ":") == 0
    assert [owner for owner, *_ in node.attached] == ["oci-hook"]
    pin.unlink()  # it is still there
    pin.parent.rmdir()


def test_the_log_has_every_plugin_call(node: DriverNode) -> None:
    node.configure("front", "bridge")
    log = node.root / "log"
    node.run("setup", request(), f"--log={log}")
    assert "ADD" in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600


# --install


def test_the_installed_driver_has_the_options_and_no_variable_changes_them(
    node: DriverNode, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(node.root)
    node.configure("front", "bridge")
    directory = node.root / "drivers"
    conf = "/etc/containers" if os.geteuid() == 0 else "~/.config/containers"
    assert main(["netavark-plugin", *node.words, f"--cache-dir={node.cache.name}", f"--install={directory}"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"installed as {directory}/cni",
        f"podman does not search this directory by default. Write in {conf}/containers.conf:",
        "[network]",
        f'netavark_plugin_dirs = ["{directory}"]',
        *what_must_stay(),
        "create a network: podman network create --driver cni NETWORK",
    ]
    driver = directory / "cni"
    env = {**os.environ, **dict.fromkeys(("LIBCNI_CACHE_DIR", "NETCONFPATH", "CNI_PATH"), "/nowhere")}
    for words, document in ((["create"], network()), (["setup", node.netns_path], request())):
        run = [str(driver), *words]
        subprocess.run(run, input=json.dumps(document), env=env, check=True, capture_output=True, text=True)
    assert node.attached == [("podman", "front", "eth0", "ready")]


def test_a_directory_that_cannot_be_written_is_an_error(node: DriverNode, capsys: pytest.CaptureFixture[str]) -> None:
    (node.root / "drivers").write_text("a file")
    assert main(["netavark-plugin", *node.words, f"--install={node.root}/drivers"]) == 1
    assert "drivers/cni: cannot be written" in capsys.readouterr().err


def test_a_user_gets_directories_of_his_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "NETCONFPATH", "LIBCNI_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(["netavark-plugin", "--install"]) == 0
    driver = tmp_path / ".local/share/libcni/netavark/cni"
    said = capsys.readouterr().out
    assert said.startswith(f"installed as {driver}\n")
    assert "Write in ~/.config/containers/containers.conf" in said
    assert f"--conf-dir={tmp_path}/.config/cni/net.d " in driver.read_text()
    assert f"--cache-dir={tmp_path}/.local/share/libcni " in driver.read_text()
    assert (tmp_path / ".config/cni/net.d").is_dir()
