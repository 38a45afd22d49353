"""The plugins of examples/, alone: what each verb does to what they keep."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from libcni.plugin import ErrorCode
from libcni.testing import Answer, call_plugin
from plugin.plugins import config, example, write_example

RESULT = {"cniVersion": "1.1.0", "ips": [{"address": "10.9.0.5/24"}, {"address": "fd00::5/64"}]}


@pytest.fixture
def pool(tmp_path: Path) -> dict[str, Any]:
    ipam = {"type": "pool-ipam", "subnet": "10.9.0.0/29", "dataDir": str(tmp_path), "routes": [{"dst": "0.0.0.0/0"}]}
    return config(ipam=ipam)


def ipam(verb: str, pool: dict[str, Any], container: str = "c1", **more: Any) -> Answer:
    return call_plugin(example("pool_ipam"), verb, {**pool, **more}, container_id=container, path="/nowhere")


def addresses(answer: Answer) -> list[str]:
    return [ip["address"] for ip in answer.document["ips"]]


def test_every_container_gets_its_own_address(pool: dict[str, Any]) -> None:
    answer = ipam("ADD", pool)
    assert answer.document == {
        "cniVersion": "1.1.0",
        "ips": [{"address": "10.9.0.2/29", "gateway": "10.9.0.1"}],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    assert addresses(ipam("ADD", pool, "c2")) == ["10.9.0.3/29"]


def test_a_second_add_is_refused(pool: dict[str, Any]) -> None:
    ipam("ADD", pool)
    assert ipam("ADD", pool).code == 100


def test_a_full_pool_says_try_later_and_status_says_not_available(pool: dict[str, Any]) -> None:
    assert ipam("STATUS", pool).status == 0
    for number in range(5):
        assert ipam("ADD", pool, f"c{number}").status == 0
    assert ipam("ADD", pool, "late").code == ErrorCode.TRY_AGAIN_LATER
    assert ipam("STATUS", pool).code == ErrorCode.PLUGIN_NOT_AVAILABLE


def test_certain_addresses_can_be_asked_for(pool: dict[str, Any]) -> None:
    wanted: dict[str, Any] = {"runtimeConfig": {"ips": ["10.9.0.5/29", "10.9.0.4"]}}
    assert addresses(ipam("ADD", pool, **wanted)) == ["10.9.0.5/29", "10.9.0.4/29"]
    assert ipam("ADD", pool, "c2", **wanted).code == 101


def test_a_wrong_subnet_is_an_invalid_configuration(pool: dict[str, Any]) -> None:
    for wrong in ({}, {"subnet": "10.9.0.1/29"}, {"subnet": "x"}):
        assert ipam("ADD", {**pool, "ipam": wrong}).code == ErrorCode.INVALID_NETWORK_CONFIG


def test_processes_at_the_same_time_get_different_addresses(tmp_path: Path) -> None:
    path = write_example(tmp_path, "pool-ipam", "pool_ipam")
    pool = config(ipam={"subnet": "10.9.0.0/24", "dataDir": str(tmp_path / "data")})
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda n: call_plugin(path, "ADD", pool, container_id=f"c{n}"), range(24)))
    assert len({address for answer in answers for address in addresses(answer)}) == 24


@pytest.fixture
def hosts_file(tmp_path: Path) -> Path:
    return tmp_path / "hosts"


def hosts(verb: str, file: Path, container: str = "c1", **more: Any) -> Answer:
    document = config(file=str(file), **{"prevResult": RESULT, **more})
    return call_plugin(example("hosts"), verb, document, container_id=container, path="/nowhere")


def test_add_writes_lines_and_passes_the_result_on(hosts_file: Path) -> None:
    assert hosts("ADD", hosts_file, runtimeConfig={"aliases": ["db", "primary-db"]}).document == RESULT
    hosts("ADD", hosts_file, "c2")
    assert hosts_file.read_text(encoding="utf-8").splitlines() == [
        "10.9.0.5 db primary-db # net c1 eth0",
        "fd00::5 db primary-db # net c1 eth0",
        "10.9.0.5 c2 # net c2 eth0",
        "fd00::5 c2 # net c2 eth0",
    ]


def test_what_cannot_work_is_said(hosts_file: Path) -> None:
    assert hosts("ADD", hosts_file, prevResult=None).code == ErrorCode.INVALID_NETWORK_CONFIG
    assert hosts("ADD", Path("relative")).code == ErrorCode.INVALID_NETWORK_CONFIG
    assert hosts("STATUS", hosts_file).status == 0
    assert hosts("STATUS", hosts_file / "x" / "y").code == ErrorCode.PLUGIN_NOT_AVAILABLE
