"""The fake plugins, driven by hand: every knob does what plugins-fake/README.md says."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from libcni.testing import FakePlugins, wait_until

ALL_VERSIONS = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]
Log = Callable[[], list[dict[str, Any]]]


class Runner:
    """Runs a fake plugin as a runtime would."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.env = {"CNI_CONTAINERID": "c1", "CNI_NETNS": "/run/netns/x", "CNI_IFNAME": "eth0", "CNI_ARGS": ""}
        self.env |= {"CNI_PATH": directory}

    def start(self, verb: str, plugin: str = "fake", config: Any = None, **env: str) -> subprocess.Popen[bytes]:
        stdin = config if isinstance(config, bytes) else json.dumps(config or {}).encode()
        process = subprocess.Popen(
            [os.path.join(self.directory, plugin)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **self.env, "CNI_COMMAND": verb, **env},
        )
        assert process.stdin is not None
        process.stdin.write(stdin)
        process.stdin.close()
        process.stdin = None
        return process

    def __call__(
        self, verb: str, plugin: str = "fake", config: Any = None, **env: str
    ) -> subprocess.CompletedProcess[bytes]:
        with self.start(verb, plugin, config, **env) as process:
            stdout, stderr = process.communicate(timeout=20)
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


@pytest.fixture
def run(fake_path: str) -> Runner:
    return Runner(fake_path)


def conf(version: str = "1.1.0", /, **keys: Any) -> dict[str, Any]:
    return {"cniVersion": version, "name": "net", "type": "fake", **keys}


def answer(done: subprocess.CompletedProcess[bytes]) -> Any:
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def failure(done: subprocess.CompletedProcess[bytes], status: int = 1) -> Any:
    assert done.returncode == status, done
    return json.loads(done.stdout)


RESULT = {
    "cniVersion": "1.1.0",
    "interfaces": [{"name": "eth0", "mac": "00:11:22:33:44:55", "sandbox": "/run/netns/x"}],
    "ips": [{"address": "10.0.0.2/24", "gateway": "10.0.0.1", "interface": 0}],
    "vendor": {"kept": True},
}
SUBNET = {"subnet": "10.9.0.0/29", "routes": [{"dst": "0.0.0.0/0"}]}


# fake


def test_echoes_prev_result(run: Runner) -> None:
    assert answer(run("ADD", config=conf(prevResult=RESULT))) == RESULT


def test_echo_leaves_numbers_as_they_were(run: Runner) -> None:
    numbers = "[9007199254740993, 1e400, 0.10000000000000000001, -0.0, " + "7" * 5000 + "]"
    config = '{"cniVersion": "1.1.0", "name": "net", "prevResult": {"vendor": %s}}' % numbers  # noqa: UP031 - braces
    assert numbers.encode() in run("ADD", config=config.encode()).stdout


def test_answers_with_one_interface_without_prev_result(run: Runner) -> None:
    [interface] = answer(run("ADD", config=conf()))["interfaces"]
    assert (interface["name"], interface["sandbox"]) == ("eth0", "/run/netns/x")


@pytest.mark.parametrize("verb", ["DEL", "GC", "STATUS"])
def test_says_nothing_on_success(run: Runner, verb: str) -> None:
    done = run(verb, config=conf())
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_check_wants_prev_result(run: Runner) -> None:
    assert run("CHECK", config=conf(prevResult=RESULT)).returncode == 0
    assert failure(run("CHECK", config=conf()))["code"] == 7


@pytest.mark.parametrize(
    ("verb", "missing", "msg"),
    [
        ("ADD", "CNI_NETNS", "required env variables [CNI_NETNS] missing"),
        ("DEL", "CNI_CONTAINERID", "required env variables [CNI_CONTAINERID] missing"),
        ("GC", "CNI_PATH", "required env variables [CNI_PATH] missing"),
        ("", "CNI_ARGS", "required env variables [CNI_COMMAND] missing"),
        ("NOPE", "CNI_ARGS", "unknown CNI_COMMAND: NOPE"),
    ],
)
def test_refuses_a_bad_environment(run: Runner, verb: str, missing: str, msg: str) -> None:
    error = failure(run(verb, config=conf(), **{missing: ""}))
    assert (error["code"], error["msg"], error["cniVersion"]) == (4, msg, "1.1.0")


def test_del_needs_no_namespace(run: Runner) -> None:
    assert run("DEL", config=conf(), CNI_NETNS="").returncode == 0


@pytest.mark.parametrize(
    ("verb", "config", "code"),
    [
        ("ADD", b"{", 6),
        ("ADD", b"[]", 6),
        ("ADD", {"cniVersion": "1.1.0"}, 7),
        ("ADD", conf("9.9.9"), 1),
        ("CHECK", conf("0.3.1", prevResult={}), 1),
        ("GC", conf("1.0.0"), 1),
        ("STATUS", conf("1.0.0"), 1),
        ("ADD", conf("0.4.0", prevResult=RESULT), 6),
    ],
)
def test_refuses_a_bad_configuration(run: Runner, verb: str, config: Any, code: int) -> None:
    assert failure(run(verb, config=config))["code"] == code


# results in every version


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_answers_in_the_version_asked_for(run: Runner, fake_state: Path, version: str) -> None:
    ipam = {"ranges": [[{"subnet": "10.9.0.0/29"}], [{"subnet": "fd00::/64"}]], "routes": [{"dst": "0.0.0.0/0"}]}
    result = answer(run("ADD", "fake-bridge", conf(version, ipam=ipam)))
    assert result["cniVersion"] == version
    if version < "0.3":
        assert result["ip4"] == {"ip": "10.9.0.2/29", "gateway": "10.9.0.1", "routes": [{"dst": "0.0.0.0/0"}]}
        assert result["ip6"]["ip"] == "fd00::2/64"
    else:
        assert [ip["address"] for ip in result["ips"]] == ["10.9.0.2/29", "fd00::2/64"]
        assert [ip.get("version") for ip in result["ips"]] == (["4", "6"] if version < "1" else [None, None])


@pytest.mark.parametrize("version", ["0.2.0", "0.3.1", "1.0.0"])
def test_echo_keeps_the_shape(run: Runner, fake_state: Path, version: str) -> None:
    first = answer(run("ADD", "fake-bridge", conf(version, ipam={"subnet": "10.9.0.0/29"})))
    assert answer(run("ADD", config=conf(version, prevResult=first))) == first


# the named plugins and their state


def test_bridge_keeps_interface_and_address_as_files(run: Runner, fake_state: Path) -> None:
    result = answer(run("ADD", "fake-bridge", conf(ipam=SUBNET, bridge="br7")))
    assert [entry["name"] for entry in result["interfaces"]][::2] == ["br7", "eth0"]
    assert result["ips"] == [{"address": "10.9.0.2/29", "gateway": "10.9.0.1", "interface": 2}]
    assert result["routes"] == SUBNET["routes"]
    assert (fake_state / "addresses/net/10.9.0.2").read_text() == "c1\neth0\nnet\n"
    assert (fake_state / "interfaces/c1.eth0").read_text() == "c1\neth0\nnet\n"
    assert run("DEL", "fake-bridge", conf(ipam=SUBNET)).returncode == 0
    assert [path for path in fake_state.rglob("*") if path.is_file()] == []


def test_bridge_del_takes_the_interface_of_another_network(run: Runner, fake_state: Path) -> None:
    run("ADD", "fake-bridge", conf())
    assert run("DEL", "fake-bridge", {**conf(), "name": "other"}).returncode == 0
    assert list((fake_state / "interfaces").iterdir()) == []


@pytest.mark.parametrize("plugin", ["fake-bridge", "fake-ipam"])
def test_duplicate_add_fails(run: Runner, fake_state: Path, plugin: str) -> None:
    answer(run("ADD", plugin, conf(ipam=SUBNET)))
    assert failure(run("ADD", plugin, conf(ipam=SUBNET)))["code"] == 999


def test_ipam_check_sees_a_missing_address(run: Runner, fake_state: Path) -> None:
    result = answer(run("ADD", "fake-ipam", conf(ipam=SUBNET)))
    assert run("CHECK", "fake-ipam", conf(ipam=SUBNET, prevResult=result)).returncode == 0
    (fake_state / "addresses/net/10.9.0.2").unlink()
    assert "10.9.0.2/29 is not allocated" in failure(run("CHECK", "fake-ipam", conf(prevResult=result)))["msg"]


def test_bridge_check_sees_a_missing_interface(run: Runner, fake_state: Path) -> None:
    result = answer(run("ADD", "fake-bridge", conf()))
    assert run("CHECK", "fake-bridge", conf(prevResult=result)).returncode == 0
    (fake_state / "interfaces/c1.eth0").unlink()
    assert "no interface eth0" in failure(run("CHECK", "fake-bridge", conf(prevResult=result)))["msg"]


def test_subnet_runs_out_and_gateway_is_never_given(run: Runner, fake_state: Path) -> None:
    for number in range(5):
        answer(run("ADD", "fake-ipam", conf(ipam=SUBNET), CNI_CONTAINERID=f"c{number}"))
    assert sorted(path.name for path in fake_state.rglob("10.*")) == [f"10.9.0.{last}" for last in range(2, 7)]
    assert "no addresses available" in failure(run("ADD", "fake-ipam", conf(ipam=SUBNET), CNI_CONTAINERID="c9"))["msg"]


def test_state_directory_is_required(run: Runner) -> None:
    assert failure(run("ADD", "fake-ipam", conf(ipam=SUBNET)))["code"] == 7


def test_state_directory_from_the_configuration(run: Runner, tmp_path: Path) -> None:
    answer(run("ADD", "fake-ipam", conf(ipam=SUBNET, fake={"stateDir": str(tmp_path / "here")})))
    assert (tmp_path / "here/addresses/net/10.9.0.2").exists()


def test_gc_removes_what_is_not_valid(run: Runner, fake_state: Path) -> None:
    for container in ("c1", "c2"):
        answer(run("ADD", "fake-bridge", conf(ipam=SUBNET), CNI_CONTAINERID=container))
    answer(run("ADD", "fake-bridge", {**conf(ipam=SUBNET), "name": "other"}, CNI_CONTAINERID="c3"))
    valid = [{"containerID": "c2", "ifname": "eth0"}]
    assert run("GC", "fake-bridge", conf(ipam=SUBNET, **{"cni.dev/valid-attachments": valid})).returncode == 0
    left = sorted(str(path.relative_to(fake_state)) for path in fake_state.rglob("*") if path.is_file())
    assert left == ["addresses/net/10.9.0.3", "addresses/other/10.9.0.2", "interfaces/c2.eth0", "interfaces/c3.eth0"]


def test_tuning_sets_the_mac(run: Runner) -> None:
    wanted = {"runtimeConfig": {"mac": "02:00:00:00:00:07"}}
    result = answer(run("ADD", "fake-tuning", conf(prevResult=RESULT, **wanted)))
    assert result["interfaces"][0]["mac"] == "02:00:00:00:00:07"
    assert run("CHECK", "fake-tuning", conf(prevResult=result, **wanted)).returncode == 0
    assert "has MAC address 00:11" in failure(run("CHECK", "fake-tuning", conf(prevResult=RESULT, **wanted)))["msg"]
    assert answer(run("ADD", "fake-tuning", conf(prevResult=RESULT))) == RESULT


def test_tuning_wants_the_interface_in_prev_result(run: Runner) -> None:
    wanted = {"runtimeConfig": {"mac": "02:00:00:00:00:07"}}
    assert failure(run("ADD", "fake-tuning", conf(prevResult=RESULT, **wanted), CNI_IFNAME="net1"))["code"] == 7


def test_portmap_holds_host_ports(run: Runner, fake_state: Path) -> None:
    ports = [{"hostPort": 80, "containerPort": 8080}, {"hostPort": 53, "containerPort": 53, "protocol": "udp"}]
    config = conf(prevResult=RESULT, runtimeConfig={"portMappings": ports})
    assert answer(run("ADD", "fake-portmap", config)) == RESULT
    assert sorted(path.name for path in (fake_state / "ports").iterdir()) == ["53-udp", "80-tcp"]
    assert run("CHECK", "fake-portmap", config).returncode == 0
    assert failure(run("ADD", "fake-portmap", config, CNI_CONTAINERID="c2"))["msg"] == "host port 80-tcp is taken"
    assert run("DEL", "fake-portmap", config).returncode == 0
    assert list((fake_state / "ports").iterdir()) == []
    assert "not mapped" in failure(run("CHECK", "fake-portmap", config))["msg"]


def test_portmap_gc(run: Runner, fake_state: Path) -> None:
    config = conf(prevResult=RESULT, runtimeConfig={"portMappings": [{"hostPort": 80, "containerPort": 80}]})
    answer(run("ADD", "fake-portmap", config))
    assert run("GC", "fake-portmap", conf(**{"cni.dev/valid-attachments": []})).returncode == 0
    assert list((fake_state / "ports").iterdir()) == []


# VERSION, the sidecar, where knobs apply


def test_version(run: Runner) -> None:
    assert answer(run("VERSION", config={"cniVersion": "1.0.0"})) == {
        "cniVersion": "1.0.0",
        "supportedVersions": ALL_VERSIONS,
    }


def test_sidecar_beside_a_link(run: Runner, fake_path: str, tmp_path: Path) -> None:
    (tmp_path / "mine").symlink_to(Path(fake_path) / "fake")
    (tmp_path / "mine.json").write_text('{"supportedVersions": ["0.4.0"], "STATUS": {"error": {"code": 50}}}')
    run.directory = str(tmp_path)
    assert answer(run("VERSION", "mine"))["supportedVersions"] == ["0.4.0"]
    error = failure(run("ADD", "mine", conf()))
    assert (error["code"], error["details"]) == (1, 'config is "1.1.0", plugin supports ["0.4.0"]')
    wider = {"supportedVersions": ALL_VERSIONS}
    assert failure(run("STATUS", "mine", conf(fake=wider)))["code"] == 50


def test_version_can_fail(run: Runner, fake_path: str, tmp_path: Path) -> None:
    (tmp_path / "mine").symlink_to(Path(fake_path) / "fake")
    (tmp_path / "mine.json").write_text('{"VERSION": {"error": {"code": 4, "msg": "unknown CNI_COMMAND: VERSION"}}}')
    run.directory = str(tmp_path)
    assert failure(run("VERSION", "mine"))["msg"] == "unknown CNI_COMMAND: VERSION"


def test_a_verbs_own_knobs_win(run: Runner) -> None:
    config = conf(fake={"stderr": "all", "DEL": {"stderr": "only DEL"}})
    assert run("ADD", config=config).stderr == b"all"
    assert run("DEL", config=config).stderr == b"only DEL"


def test_while(run: Runner, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    config = conf(fake={"while": str(flag), "error": {"code": 11}})
    assert run("ADD", config=config).returncode == 0
    flag.touch()
    assert failure(run("ADD", config=config))["code"] == 11


# failing


def test_error_instead_of_acting(run: Runner, fake_state: Path) -> None:
    told = {"code": -11, "msg": "m", "details": "d", "more": [1]}
    error = failure(run("ADD", "fake-ipam", conf("1.0.0", ipam=SUBNET, fake={"error": told, "exit": 3})), 3)
    assert error == {"cniVersion": "1.0.0", **told}
    assert not fake_state.exists()


def test_error_after_acting_leaks(run: Runner, fake_state: Path) -> None:
    assert failure(run("ADD", "fake-ipam", conf(ipam=SUBNET, fake={"errorAfter": {}})))["msg"] == "set to fail"
    assert (fake_state / "addresses/net/10.9.0.2").exists()


def test_fails_with_nothing_on_stdout(run: Runner) -> None:
    done = run("ADD", config=conf(fake={"stdout": "", "exit": 42}))
    assert (done.returncode, done.stdout) == (42, b"")


def test_kills_itself(run: Runner) -> None:
    assert run("ADD", config=conf(fake={"signal": int(signal.SIGKILL)})).returncode == -signal.SIGKILL


# answering


@pytest.mark.parametrize("text", ["", "garbage", "[]", '{"cniVersion": "1.1', "{}{}", "\udcff"])
def test_prints_exactly_what_it_is_told(run: Runner, text: str) -> None:
    assert run("ADD", config=conf(fake={"stdout": text})).stdout == text.encode("utf-8", "surrogateescape")


def test_prints_around_its_answer(run: Runner) -> None:
    done = run("ADD", config=conf(prevResult=RESULT, fake={"before": "hello ", "after": '{"second": 2}'}))
    assert done.stdout == b"hello " + json.dumps(RESULT).encode() + b'\n{"second": 2}'


def test_answers_in_another_version(run: Runner) -> None:
    result = answer(run("ADD", config=conf(prevResult=RESULT, fake={"cniVersion": "0.4.0"})))
    assert (result["cniVersion"], result["ips"][0]["version"]) == ("0.4.0", "4")
    assert answer(run("ADD", config=conf(fake={"cniVersion": "9.9.9"})))["cniVersion"] == "9.9.9"


def test_changes_its_answer(run: Runner) -> None:
    patch = {"vendor": {"more": 0.5}, "ips": None, "cniVersion": None}
    result = answer(run("ADD", config=conf(prevResult=RESULT, fake={"merge": patch})))
    assert result == {"interfaces": RESULT["interfaces"], "vendor": {"kept": True, "more": 0.5}}
    assert answer(run("ADD", config=conf(prevResult=RESULT, fake={"result": {"a": 1}}))) == {"a": 1}


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_prints_without_end(run: Runner, stream: str) -> None:
    with run.start("ADD", config=conf(fake={"endless": stream})) as process:
        pipe = getattr(process, stream)
        assert len(pipe.read(10_000_000)) == 10_000_000
        assert process.poll() is None
        process.kill()


# time


def elapsed(call: Callable[[], object]) -> float:
    start = time.monotonic()
    call()
    return time.monotonic() - start


@pytest.mark.parametrize("knob", ["sleep", "sleepAfter", "linger"])
def test_sleeps(run: Runner, knob: str) -> None:
    assert elapsed(lambda: run("DEL", config=conf(fake={knob: 0.3}))) >= 0.3


@pytest.mark.parametrize(("knob", "acted"), [("sleep", False), ("sleepAfter", True)])
def test_sleeps_before_or_after_acting(run: Runner, fake_state: Path, knob: str, *, acted: bool) -> None:
    address = fake_state / "addresses/net/10.9.0.2"
    ready = fake_state.with_name("ready")
    with run.start("ADD", "fake-ipam", conf(ipam=SUBNET, fake={"touch": str(ready), knob: 30})) as process:
        wait_until(ready.exists)
        if acted:
            wait_until(address.exists)
        assert address.exists() is acted
        assert ready.read_text() == str(process.pid)
        process.kill()
        assert process.stdout is not None
        assert process.stdout.read() == b""


def test_lingers_after_its_answer(run: Runner) -> None:
    with run.start("ADD", config=conf(fake={"linger": 30})) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b'{"cniVersion"')
        assert process.poll() is None
        process.kill()


def test_waits_for_a_file(run: Runner, tmp_path: Path) -> None:
    go, ready = tmp_path / "go", tmp_path / "ready"
    with run.start("DEL", config=conf(fake={"waitFor": str(go), "touch": str(ready)})) as process:
        wait_until(ready.exists)
        assert process.poll() is None
        go.touch()
        assert process.wait(10) == 0


@pytest.mark.parametrize("ignore", [False, True])
def test_ignores_term(run: Runner, tmp_path: Path, *, ignore: bool) -> None:
    ready = tmp_path / "ready"
    with run.start("ADD", config=conf(fake={"ignoreTerm": ignore, "touch": str(ready), "sleep": 0.3})) as process:
        wait_until(ready.exists)
        process.terminate()
        assert process.wait(10) == (0 if ignore else -signal.SIGTERM)


@pytest.mark.parametrize(("holds", "late"), [(["stdout"], "stdout"), (["stderr"], "stderr")])
def test_grandchild_holds_a_stream(run: Runner, holds: list[str], late: str, fake_log: Log) -> None:
    with run.start("ADD", config=conf(fake={"grandchild": {"seconds": 0.5, "holds": holds}})) as process:
        assert process.wait(10) == 0
        ended = time.monotonic()
        other = "stderr" if late == "stdout" else "stdout"
        getattr(process, other).read()
        assert time.monotonic() - ended < 0.3
        getattr(process, late).read()
        assert time.monotonic() - ended >= 0.3
    [call] = fake_log()
    assert call["grandchild"] > call["pid"]


def test_grandchild_leaves_the_group_if_detached(run: Runner, fake_log: Log) -> None:
    for detach in (False, True):
        run("ADD", config=conf(fake={"grandchild": {"seconds": 1, "holds": [], "detach": detach}}))
    together, apart = fake_log()
    assert os.getpgid(together["grandchild"]) == together["pgid"]
    wait_until(lambda: os.getpgid(apart["grandchild"]) == apart["grandchild"])


# the log


def test_logs_the_call_as_it_came(run: Runner, fake_log: Log) -> None:
    before = time.monotonic()
    stdin = b'{"cniVersion":"1.1.0" ,"name":"net","x":1e400}\n'
    run("ADD", "fake-tuning", stdin, SOMETHING="other")
    [call] = fake_log()
    assert (call["plugin"], call["verb"], call["stdin"]) == ("fake-tuning", "ADD", stdin.decode())
    assert call["env"]["SOMETHING"] == "other"
    assert call["env"]["CNI_CONTAINERID"] == "c1"
    assert before <= call["start"] <= call["end"] <= time.monotonic()
    assert call["config"]["name"] == "net"
    assert call["cwd"] == os.getcwd()
    assert [number for number, _ in call["fds"]] == [0, 1, 2]


@pytest.mark.parametrize("verb", ["GC", "STATUS", "VERSION", "CHECK", "NOPE"])
def test_logs_every_verb_failed_or_not(run: Runner, fake_log: Log, verb: str) -> None:
    run(verb, config=conf())
    assert [call["verb"] for call in fake_log()] == [verb]


def test_logs_bytes_that_are_no_text(run: Runner, fake_log: Log) -> None:
    run("ADD", config=b"\xff{")
    [call] = fake_log()
    assert call["stdin"].encode("utf-8", "surrogateescape") == b"\xff{"
    assert call["config"] is None


def test_log_path_from_the_configuration(run: Runner, tmp_path: Path) -> None:
    run("DEL", config=conf(fake={"log": str(tmp_path / "own.log")}))
    assert json.loads((tmp_path / "own.log").read_text())["verb"] == "DEL"


def test_log_lines_of_calls_at_once_do_not_mix(run: Runner, fake_log: Log) -> None:
    config = conf(padding="x" * 20_000)
    processes = [run.start("DEL", config=config, CNI_CONTAINERID=f"c{number}") for number in range(12)]
    for process in processes:
        with process:
            process.communicate(timeout=20)
    assert {call["env"]["CNI_CONTAINERID"] for call in fake_log()} == {f"c{number}" for number in range(12)}
    assert all(call["config"] == config for call in fake_log())


# what they are made of


def test_they_import_neither_libcni_nor_anything_installed(fake_path: str) -> None:
    allowed = {"__future__", "os", "sys", "json", "_json", "time", "signal", "ipaddress", "collections", "fakecni"}
    names: set[str] = set()
    for path in (path for path in Path(fake_path).rglob("fake*") if path.is_file() and path.suffix != ".pyc"):
        names |= imported(path)
    for path in Path(fake_path, "fakecni").glob("*.py"):
        names |= imported(path)
    assert {"os", "json"} < names <= allowed


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(), feature_version=(3, 8))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module).partition(".")[0])
    return found


@pytest.mark.parametrize("there", ["bridge", ".bridge/precious"])
@pytest.mark.parametrize("write", ["shell", "scenario"])
def test_nothing_but_a_fake_is_replaced(tmp_path: Path, there: str, write: str) -> None:
    """A developer may give the directory of the real plugins, or the home directory."""
    path = tmp_path / there
    path.parent.mkdir(exist_ok=True)
    path.write_text("theirs", encoding="utf-8")
    with pytest.raises(FileExistsError, match="is no fake plugin"):
        getattr(FakePlugins(tmp_path), write)("bridge")
    assert path.read_text(encoding="utf-8") == "theirs"
