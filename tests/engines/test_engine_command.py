"""What a program that an engine starts takes from its surroundings: variables, stdin, its log, its directory."""

from __future__ import annotations

import errno
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from libcni.cli import main
from libcni.engines import engine_command
from libcni.engines.json_request import MAX_ENTRIES, MAX_NETWORKS
from libcni.engines.log_file import LogFile
from libcni.engines.netavark.podman_request import read_request
from libcni.engines.oci.annotations import read_wanted
from libcni.engines.oci.pins import Pins
from libcni.errors import CNIError, ConfigError
from libcni.store.files import make_directory

STOPPED = json.dumps({"id": "c1", "status": "stopped"})
TEARDOWN = json.dumps({"container_id": "c1", "network": {"name": "n"}, "network_options": {"interface_name": "eth0"}})


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    logger = logging.Logger("test")  # noqa: LOG001 - no logger of another test
    yield logger
    for handler in logger.handlers:
        handler.close()


# Directories and variables.


@pytest.mark.parametrize("words", [["oci-hook"], ["netavark-plugin", "teardown", "/run/netns/x"]])
def test_installed_programs_import_nothing_from_the_current_directory_or_the_environment(
    tmp_path: Path, words: list[str]
) -> None:
    (tmp_path / "libcni").mkdir()
    (tmp_path / "libcni" / "__init__.py").write_text("raise SystemExit(77)")
    command = [*engine_command.command_line(), *words, f"--cache-dir={tmp_path}/cache", f"--conf-dir={tmp_path}"]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    document = STOPPED if words == ["oci-hook"] else TEARDOWN
    done = subprocess.run(command, input=document, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_library_that_is_found_only_here_is_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho \"No module named 'libcni'\" >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(ConfigError, match="does not run outside this directory: No module named 'libcni'"):
        engine_command.command_line()


@pytest.mark.parametrize("variable", ["NETCONFPATH", "CNI_PATH", "LIBCNI_CACHE_DIR"])
def test_an_empty_variable_counts_as_unset(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parser = engine_command.Parser("x", "about", "seconds")
    monkeypatch.delenv(variable, raising=False)
    without = vars(parser.parse_args([]))
    monkeypatch.setenv(variable, "")
    assert vars(engine_command.Parser("x", "about", "seconds").parse_args([])) == without


@pytest.mark.parametrize("umask", [0, 0o022, 0o077, 0o777])
def test_directories_have_their_mode_whatever_the_umask_is(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        make_directory(f"{tmp_path}/run/netns")
        make_directory(f"{tmp_path}/etc/cni", mode=0o755)
    finally:
        os.umask(before)
    modes = [(tmp_path / name).stat().st_mode & 0o7777 for name in ("run", "run/netns", "etc", "etc/cni")]
    assert modes == [0o700, 0o700, 0o755, 0o755]


def test_a_directory_that_others_may_change_holds_no_pin(tmp_path: Path) -> None:
    directory = tmp_path / "run" / "netns"
    make_directory(str(directory))
    directory.parent.chmod(0o777)
    with pytest.raises(CNIError, match=r"/run: other users may write to it \(mode 0777\).*find out who made it"):
        Pins(str(directory)).pin("c1", os.getpid())
    assert list(directory.iterdir()) == []


# Stdin.


@pytest.mark.parametrize("size", [engine_command.MAX_DOCUMENT_BYTES + 1, None])
@pytest.mark.parametrize("words", [["oci-hook"], ["netavark-plugin", "setup", "/run/netns/x"]])
def test_stdin_without_an_end_is_an_error(tmp_path: Path, words: list[str], size: int | None) -> None:
    command = [sys.executable, "-m", "libcni", *words, "--timeout=0.5", f"--cache-dir={tmp_path}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        if size is not None:
            running.stdin.write(b" " * size)
            running.stdin.flush()
        said = running.stdout.read().decode()
        assert ("it has more than 4,194,304 bytes" if size else "its end did not come within 0.5 seconds") in said
        assert running.wait() == 1


# The log.


def test_a_log_is_made_at_the_first_line_for_its_owner_alone(tmp_path: Path, log: logging.Logger) -> None:
    path = tmp_path / "log"
    log.addHandler(LogFile(str(path)))
    assert not path.exists()
    log.warning("one")
    log.warning("two")
    assert [line.split()[-1] for line in path.read_text().splitlines()] == ["one", "two"]
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("kind", ["fifo", "link", "directory", "missing", "full"])
def test_a_log_that_cannot_be_written_is_one_warning(
    tmp_path: Path, log: logging.Logger, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    path, victim = tmp_path / "log", tmp_path / "victim"
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "link":
            path.symlink_to(victim)
        case "directory":
            path.mkdir()
        case "missing":
            path = tmp_path / "gone" / "log"
        case "full":
            path = Path("/dev/full")
    log.addHandler(LogFile(str(path)))
    for number in range(3):
        log.warning("secret %s", number)
    assert [record.getMessage().startswith(f"log {path}: ") for record in caplog.records] == [True]
    assert "secret" not in caplog.text
    assert not victim.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file to another user")
def test_a_log_of_another_user_is_not_written(
    tmp_path: Path, log: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "log"
    path.touch()
    os.chown(path, 65534, 65534)
    log.addHandler(LogFile(str(path)))
    log.warning("secret")
    assert path.read_text() == ""
    assert "it belongs to user 65534" in caplog.text


@pytest.mark.parametrize(
    ("words", "document"), [(["oci-hook"], STOPPED), (["netavark-plugin", "teardown", "/x"], TEARDOWN)]
)
def test_a_detach_does_not_need_its_log(tmp_path: Path, words: list[str], document: str) -> None:
    command = [sys.executable, "-m", "libcni", *words, f"--log={tmp_path}/gone/log", f"--cache-dir={tmp_path}/cache"]
    done = subprocess.run(command, input=document, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


# The size of a request.


def test_a_container_may_ask_for_many_networks_and_ports_but_not_for_any_number() -> None:
    most = ",".join(f"n{number}" for number in range(MAX_NETWORKS))
    assert len(read_wanted({"libcni.networks": most}).requests or ()) == MAX_NETWORKS
    ports = ",".join(f"{number}:80" for number in range(1, MAX_ENTRIES + 1))
    assert len(read_wanted({"libcni.ports": ports}).capabilities["portMappings"]) == MAX_ENTRIES


@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        ({"networks": ",".join(["n"] * 65)}, "65 networks: one container may ask for at most 64"),
        ({"networks": ",".join(["n"] * 60_000)}, "60,000 entries"),
        ({"networks": json.dumps(["n"] * 65)}, "65 networks"),
        ({"ports": ",".join(["1:1"] * 4097)}, "4,097 entries"),
        ({"ips": ",".join(["10.0.0.1"] * 4097)}, "4,097 entries"),
        ({"capabilities": json.dumps({f"k{number}": 1 for number in range(65)})}, "65 capabilities"),
        ({"capabilities": json.dumps({"aliases": ["a"] * 4097})}, "4,097 aliases"),
        (
            {"networks": json.dumps([{"network": "n", "capabilities": {"aliases": ["a"] * 4097}}])},
            "4,097 aliases",
        ),
    ],
)
def test_a_request_without_a_bound_is_refused(annotations: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_wanted({f"libcni.{key}": text for key, text in annotations.items()})


@pytest.mark.parametrize(
    ("port", "said"),
    [
        ({"range": -5}, "range: the number -5 is not between 0"),
        ({"range": 3_000_000}, "range: the number 3000000 is not between 0 and 4,096"),
        ({"host_port": 65_000, "range": 1000}, "the range of 1000 ports from 65000 ends above 65535"),
        ({"host_port": 0}, "host_port: the number 0 is not between 1"),
        ({"container_port": 10**40}, "container_port: the number 1000"),
        ({"host_ip": "localhost"}, "host_ip 'localhost' is not an IP address"),
        ({"protocol": "tcp,icmp"}, "'icmp' is no protocol"),
        ({"range": "5"}, "range: '5' is not an integer"),
    ],
)
def test_a_published_port_of_podman_is_checked(port: dict[str, object], said: str) -> None:
    asked = {"host_port": 8080, "container_port": 80, "host_ip": "", "protocol": "tcp", "range": 1, **port}
    document = {**json.loads(TEARDOWN), "port_mappings": [asked]}
    with pytest.raises(ConfigError, match=said):
        read_request(document)


def test_ranges_and_protocols_of_ports_have_a_bound_together() -> None:
    """They would fill the memory before anybody counted them."""
    port = {"host_port": 1, "container_port": 1, "host_ip": "", "protocol": ",".join(["tcp"] * 1000), "range": 4096}
    document = {**json.loads(TEARDOWN), "port_mappings": [port]}
    assert len(read_request(document).ports) == MAX_ENTRIES
    document["port_mappings"] = [port] * MAX_ENTRIES
    with pytest.raises(ConfigError, match="8,192 ports: one container may ask for at most 4,096"):
        read_request(document)


@pytest.mark.parametrize("text", ["ingressRate=" + "9" * 5000, '{"ingressRate": ' + "9" * 5000 + "}"])
def test_a_number_of_thousands_of_digits_is_an_error(text: str) -> None:
    document = json.loads(TEARDOWN)
    document["network"]["options"] = {"bandwidth": text}
    with pytest.raises(ConfigError, match="option bandwidth"):
        read_request(document)


def test_a_teardown_reads_the_names_alone(tmp_path: Path) -> None:
    document = json.loads(TEARDOWN)
    document["port_mappings"] = [{"range": 3_000_000}]
    document["network"]["options"] = {"nonsense": "1"}
    command = [sys.executable, "-m", "libcni", "netavark-plugin", "teardown", "/x", f"--cache-dir={tmp_path}"]
    done = subprocess.run(command, input=json.dumps(document), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_lo_is_refused_by_the_driver(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conflist = {"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "bridge"}]}
    (tmp_path / "n.conflist").write_text(json.dumps(conflist))
    command = ["add", "n", "/run/netns/x", "-i", "lo", f"--conf-dir={tmp_path}", f"--cache-dir={tmp_path}/cache"]
    assert main(command) == 2
    assert "kernel's loopback interface" in capsys.readouterr().err
    document = json.loads(TEARDOWN)
    document["network_options"]["interface_name"] = "lo"
    words = ["netavark-plugin", "setup", "/run/netns/x", f"--conf-dir={tmp_path}", f"--cache-dir={tmp_path}/cache"]
    command = [sys.executable, "-m", "libcni", *words]
    done = subprocess.run(command, input=json.dumps(document), capture_output=True, text=True, check=False)
    assert "kernel's loopback interface" in json.loads(done.stdout)["error"]
    assert not (tmp_path / "cache" / "results").exists()


@pytest.mark.parametrize("columns", ["0", "1", "2", "19", "9" * 5000, "-3", "ten"])
def test_no_width_of_a_terminal_is_too_small(tmp_path: Path, columns: str) -> None:
    conflist = {"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "nothere"}]}
    (tmp_path / "n.conflist").write_text(json.dumps(conflist))
    for words in (["--help"], ["add", "--help"], ["networks"], ["networks", "--validate"], ["doctor"]):
        command = [sys.executable, "-m", "libcni", *words]
        env = {**os.environ, "COLUMNS": columns, "NETCONFPATH": str(tmp_path), "LIBCNI_CACHE_DIR": str(tmp_path)}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("open_to_others", ["file", "directory", "above"])
def test_one_file_that_others_may_replace_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_to_others: str
) -> None:
    directory = tmp_path / "a" / "b"
    directory.mkdir(parents=True)
    file = directory / "libcni.pyz"
    file.touch(0o755)
    monkeypatch.setattr(engine_command, "archive", lambda: str(file))
    path = {"file": file, "directory": directory, "above": directory.parent}[open_to_others]
    for mode in (0o775, 0o1777) if open_to_others == "above" else (0o775,):
        path.chmod(mode)
        engine_command._check_file(str(file))
    path.chmod(0o777 if open_to_others == "above" else 0o1777)
    with pytest.raises(ConfigError, match=rf"other users may change {path},.*move libcni.pyz"):
        engine_command.command_line()


def test_an_installation_names_who_else_may_change_what_the_engine_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "venv" / "libcni"
    (package / "engines").mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.setattr(engine_command, "__file__", str(package / "engines" / "engine_command.py"))
    assert engine_command.what_must_stay() == []
    for directory in (package, package.parent):
        directory.chmod(0o777)
        warning = f"warning: other users may change {directory}, and the engine will run it with your rights"
        assert engine_command.what_must_stay() == [warning]
        directory.chmod(0o755)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            PermissionError(errno.EACCES, "denied", "/b/.libcni-x/config.json"),
            "/b/c: cannot be written: denied (run it as root, or wait)",
        ),
        (PermissionError(errno.EACCES, "denied", "/b"), "/b: cannot be written: denied (run it as root, or wait)"),
        (OSError(errno.ENOSPC, "full", "/b/.libcni-x/config.json"), "/b/c: cannot be written: full"),
    ],
)
def test_a_file_that_cannot_be_written_has_its_own_name_and_a_way_for_other_users(error: OSError, text: str) -> None:
    assert str(engine_command.not_written(error, "/b/c", "wait")) == text


def test_a_device_or_pipe_is_never_replaced_by_an_installation(tmp_path: Path) -> None:
    pipe = tmp_path / "stdout"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="it is not a regular file"):
        engine_command.install_file(str(pipe), "text")
    assert pipe.is_fifo()
    assert os.listdir(tmp_path) == ["stdout"]
