"""The fake plugins, driven by hand: every key of a step does what plugins-fake/README.md says."""

from __future__ import annotations

import ast
import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from libcni.config.versions import ALL_VERSIONS
from libcni.testing import Answer, FakePlugins, call_plugin

ATTACHMENT = {"container_id": "c1", "netns": "/run/netns/x", "path": "/opt/cni/bin"}


class Runner:
    """Runs the fake plugins of a directory as a runtime would."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def __call__(self, verb: str, plugin: str = "fake", config: Any = b"{}", **env: str) -> Answer:
        where: Any = ATTACHMENT
        return call_plugin(os.path.join(self.directory, plugin), verb, config, env=env, **where)


@pytest.fixture
def run(fake_path: str) -> Runner:
    return Runner(fake_path)


def conf(version: str = "1.1.0", /, **keys: Any) -> dict[str, Any]:
    return {"cniVersion": version, "name": "net", "type": "fake", **keys}


def failure(answer: Answer) -> str:
    assert answer.status == 1, answer
    return str(answer.document["msg"])


def files(directory: Path) -> list[str]:
    return sorted(
        str(path.relative_to(directory))
        for path in directory.rglob("*")
        if path.is_file() and "/." not in f"/{path.relative_to(directory)}"
    )


RESULT = {
    "cniVersion": "1.1.0",
    "interfaces": [{"name": "eth0", "mac": "00:11:22:33:44:55", "sandbox": "/run/netns/x"}],
    "ips": [{"address": "10.0.0.2/24", "gateway": "10.0.0.1", "interface": 0}],
    "vendor": {"kept": True},
}
SUBNET = {"subnet": "10.9.0.0/29", "routes": [{"dst": "0.0.0.0/0"}]}


# fake


def test_echoes_prev_result_and_answers_with_one_interface_without(run: Runner) -> None:
    assert run("ADD", config=conf(prevResult=RESULT)).document == RESULT
    [interface] = run("ADD", config=conf()).document["interfaces"]
    assert (interface["name"], interface["sandbox"]) == ("eth0", "/run/netns/x")


def test_check_wants_prev_result(run: Runner) -> None:
    assert run("CHECK", config=conf(prevResult=RESULT)).status == 0
    assert run("CHECK", config=conf()).code == 7


# the named plugins and their state


def test_bridge_keeps_interface_and_address_as_files(run: Runner, fake_state: Path) -> None:
    result = run("ADD", "fake-bridge", conf(ipam=SUBNET, bridge="br7")).document
    assert [entry["name"] for entry in result["interfaces"]][::2] == ["br7", "eth0"]
    assert result["ips"] == [{"address": "10.9.0.2/29", "gateway": "10.9.0.1", "interface": 2}]
    assert result["routes"] == SUBNET["routes"]
    assert (fake_state / "addresses/net/10.9.0.2").read_text() == "c1\neth0\nnet\n"
    assert (fake_state / "interfaces/c1.eth0").read_text() == "c1\neth0\nnet\n"
    assert run("DEL", "fake-bridge", conf(ipam=SUBNET)).status == 0
    assert files(fake_state) == []


def test_bridge_del_takes_the_interface_of_another_network(run: Runner, fake_state: Path) -> None:
    run("ADD", "fake-bridge", conf())
    assert run("DEL", "fake-bridge", {**conf(), "name": "other"}).status == 0
    assert files(fake_state) == []


@pytest.mark.parametrize("plugin", ["fake-bridge", "fake-ipam"])
def test_duplicate_add_fails(run: Runner, fake_state: Path, plugin: str) -> None:
    assert run("ADD", plugin, conf(ipam=SUBNET)).status == 0
    assert run("ADD", plugin, conf(ipam=SUBNET)).code == 999


@pytest.mark.parametrize(
    ("plugin", "file", "problem"),
    [
        ("fake-ipam", "addresses/net/10.9.0.2", "10.9.0.2/29 is not allocated"),
        ("fake-bridge", "interfaces/c1.eth0", "no interface eth0"),
    ],
)
def test_check_sees_what_is_missing(run: Runner, fake_state: Path, plugin: str, file: str, problem: str) -> None:
    config = conf(ipam=SUBNET, prevResult=run("ADD", plugin, conf(ipam=SUBNET)).document)
    assert run("CHECK", plugin, config).status == 0
    (fake_state / file).unlink()
    assert problem in failure(run("CHECK", plugin, config))


def test_subnet_runs_out_and_gateway_is_never_given(run: Runner, fake_state: Path) -> None:
    for number in range(5):
        assert run("ADD", "fake-ipam", conf(ipam=SUBNET), CNI_CONTAINERID=f"c{number}").status == 0
    assert files(fake_state / "addresses/net") == [f"10.9.0.{last}" for last in range(2, 7)]
    assert "no addresses available" in failure(run("ADD", "fake-ipam", conf(ipam=SUBNET), CNI_CONTAINERID="c9"))


def test_state_directory_is_required_and_may_be_in_the_configuration(run: Runner, tmp_path: Path) -> None:
    assert run("ADD", "fake-ipam", conf(ipam=SUBNET)).code == 7
    assert run("ADD", "fake-ipam", conf(ipam=SUBNET, fake={"stateDir": str(tmp_path)})).status == 0
    assert files(tmp_path) == ["addresses/net/10.9.0.2"]


def test_tuning_sets_the_mac_of_the_interface_in_prev_result(run: Runner) -> None:
    wanted = {"runtimeConfig": {"mac": "02:00:00:00:00:07"}}
    result = run("ADD", "fake-tuning", conf(prevResult=RESULT, **wanted)).document
    assert result["interfaces"][0]["mac"] == "02:00:00:00:00:07"
    assert run("CHECK", "fake-tuning", conf(prevResult=result, **wanted)).status == 0
    assert "has MAC address 00:11" in failure(run("CHECK", "fake-tuning", conf(prevResult=RESULT, **wanted)))
    assert run("ADD", "fake-tuning", conf(prevResult=RESULT)).document == RESULT
    assert run("ADD", "fake-tuning", conf(prevResult=RESULT, **wanted), CNI_IFNAME="net1").code == 7


@pytest.mark.parametrize("verb", ["DEL", "GC"])
def test_portmap_holds_host_ports(run: Runner, fake_state: Path, verb: str) -> None:
    ports = [{"hostPort": 80, "containerPort": 8080}, {"hostPort": 53, "containerPort": 53, "protocol": "udp"}]
    config = conf(prevResult=RESULT, runtimeConfig={"portMappings": ports})
    assert run("ADD", "fake-portmap", config).document == RESULT
    assert files(fake_state) == ["ports/53-udp", "ports/80-tcp"]
    assert run("CHECK", "fake-portmap", config).status == 0
    assert failure(run("ADD", "fake-portmap", config, CNI_CONTAINERID="c2")) == "host port 80-tcp is taken"
    assert run(verb, "fake-portmap", {**config, "cni.dev/valid-attachments": []}).status == 0
    assert files(fake_state) == []
    assert "not mapped" in failure(run("CHECK", "fake-portmap", config))


# the steps: in the configuration, and in a file beside the plugin


def test_steps_in_a_file_beside_a_link_and_over_them_those_of_the_configuration(
    run: Runner, fake_path: str, tmp_path: Path
) -> None:
    document = {"cniVersion": "1.0.0", "supportedVersions": [*ALL_VERSIONS]}
    assert run("VERSION", config={"cniVersion": "1.0.0"}).document == document
    (tmp_path / "mine").symlink_to(Path(fake_path) / "fake")
    steps = {"versions": ["0.4.0"], "kind": "ipam", "stateDir": str(tmp_path), "STATUS": {"error": {"code": 50}}}
    (tmp_path / "mine.json").write_text(json.dumps(steps))
    run.directory = str(tmp_path)
    assert run("VERSION", "mine").document["supportedVersions"] == ["0.4.0"]
    error = run("ADD", "mine", conf()).document
    assert (error["code"], error["details"]) == (1, 'config is "1.1.0", plugin supports ["0.4.0"]')
    wider = {"versions": [*ALL_VERSIONS]}
    assert run("STATUS", "mine", conf(fake=wider)).code == 50
    assert run("ADD", "mine", conf(fake=wider, ipam=SUBNET)).document["ips"][0]["address"] == "10.9.0.2/29"


def test_a_verbs_own_keys_win(run: Runner) -> None:
    config = conf(fake={"stderr": "all", "DEL": {"stderr": "only DEL"}})
    assert [run(verb, config=config).stderr for verb in ("ADD", "DEL")] == ["all", "only DEL"]


def test_a_list_of_steps_can_only_be_in_a_file(run: Runner) -> None:
    assert failure(run("DEL", config=conf(fake={"DEL": [{}]}))).startswith("a list of steps can only be")


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        ([], "the steps are an object with verbs as keys, not []"),
        ({"ADDD": {}}, "'ADDD' is no key of a step"),
        ({"ADD": {"reslut": {}}}, "ADD: 'reslut' is no key of a step"),
        ({"DEL": {"kind": "ipam"}}, "DEL: 'kind' is no key of a step"),
        ({"ADD": {"error": {"code": 11, "msg": False}}}, "ADD: error.msg cannot be False"),
        ({"ADD": {"errorAfter": {"code": "11"}}}, "ADD: errorAfter.code cannot be '11'"),
        ({"ADD": [{}, {"sleep": True}]}, "ADD: sleep cannot be True"),
        ({"ADD": {"child": 3}}, "ADD: 'child' is no key of a step"),
        ({"ADD": [3]}, "ADD: a step is an object, not 3"),
        ({"ADD": []}, "a list of steps is empty"),
        ({"kind": "bridgge"}, "kind: 'bridgge' is none of fake, bridge, ipam, portmap, tuning"),
    ],
)
def test_steps_with_a_mistake_are_refused_by_the_plugin_and_when_they_are_written(
    run: Runner, cni_fakes: FakePlugins, steps: Any, problem: str
) -> None:
    assert failure(run("STATUS", config=conf(fake=steps))) == problem
    with pytest.raises(ValueError, match=f"wrong steps of a fake plugin: {re.escape(problem)}"):
        cni_fakes.scenario("fake", steps or "[]")


# what a step does


def test_error_instead_of_acting_and_after(run: Runner, fake_state: Path) -> None:
    told = {"code": -11, "msg": "m", "details": "d", "more": [1]}
    answer = run("ADD", "fake-ipam", conf("1.0.0", ipam=SUBNET, fake={"error": told, "exit": 3}))
    assert (answer.status, answer.document) == (3, {"cniVersion": "1.0.0", **told})
    assert files(fake_state) == []
    assert failure(run("ADD", "fake-ipam", conf(ipam=SUBNET, fake={"errorAfter": {}}))) == "set to fail"
    assert files(fake_state) == ["addresses/net/10.9.0.2"]


def test_sleeps_before_acting_and_kills_itself_after(run: Runner, fake_state: Path) -> None:
    began = time.monotonic()
    config = conf(ipam=SUBNET, fake={"sleep": 0.3, "signal": 9})
    assert run("ADD", "fake-ipam", config).status == -9
    assert time.monotonic() - began > 0.3
    assert files(fake_state) == ["addresses/net/10.9.0.2"]


def test_answers_with_the_steps_result_in_the_configurations_form_or_its_own(run: Runner) -> None:
    ips = {"ips": [{"address": "10.0.0.2/24"}], "routes": [{"dst": "0.0.0.0/0"}]}
    flat = {"cniVersion": "0.2.0", "ip4": {"ip": "10.0.0.2/24", "routes": [{"dst": "0.0.0.0/0"}]}, "dns": {}}
    assert run("ADD", config=conf("0.2.0", fake={"ADD": {"result": ips}})).document == flat
    own = {"cniVersion": "1.0.0", **ips}
    assert run("ADD", config=conf("0.2.0", fake={"result": own})).document == own


# what they are made of


def test_they_import_neither_libcni_nor_anything_installed(fake_path: str) -> None:
    allowed = {"__future__", "os", "sys", "json", "time", "ipaddress", "collections", "string", "fakecni"}
    texts = [path.read_text() for path in [Path(fake_path, "fake"), *Path(fake_path).glob("fakecni/*.py")]]
    names = set(re.findall(r"^ *(?:from|import) (\w+)", "\n".join(texts), re.MULTILINE))
    assert {"os", "json"} < names <= allowed
    for text in texts:
        ast.parse(text, feature_version=(3, 8))
