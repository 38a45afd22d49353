"""The recording executors: calls are written down and answered, with no process."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from libcni import CNIConfig, Invocation, NetworkConfigList, Outcome, PluginError, PluginNotFoundError, RuntimeConf
from libcni.aio import AsyncCNIConfig
from libcni.errors import PluginTimeoutError
from libcni.testing import RecordingExecutor, error_outcome, timeout_error

RT = RuntimeConf("c1", "/run/netns/blue", "eth0", args={"A": "1"})
IPS = {"ips": [{"address": "10.0.0.2/24"}]}


@pytest.fixture
def net() -> NetworkConfigList:
    plugins = [{"type": "bridge", "keyA": 1}, {"type": "tuning"}]
    return NetworkConfigList.from_bytes(json.dumps({"cniVersion": "1.1.0", "name": "db", "plugins": plugins}))


def client(executor: RecordingExecutor, directory: Path) -> CNIConfig:
    return CNIConfig(["/opt/cni/bin"], directory, executor=executor)


def test_calls_are_written_down_and_answered(net: NetworkConfigList, tmp_path: Path) -> None:
    executor = RecordingExecutor({("bridge", "ADD"): IPS})
    result = client(executor, tmp_path).add_network_list(net, RT)
    assert [ip.address for ip in result.ips] == ["10.0.0.2/24"]
    assert executor.verbs == [("ADD", "bridge"), ("ADD", "tuning")]
    first, second = executor.calls
    assert first.config == {"type": "bridge", "keyA": 1, "cniVersion": "1.1.0", "name": "db"}
    assert second.config["prevResult"] == {"cniVersion": "1.1.0", **IPS}
    assert (first.invocation.path, first.invocation.env["CNI_ARGS"]) == ("/opt/cni/bin/bridge", "A=1")
    assert first.options.timeout is not None


def test_an_error_is_a_plugins_error(net: NetworkConfigList, tmp_path: Path) -> None:
    executor = RecordingExecutor({("tuning", "ADD"): error_outcome(11, "later", "much later", stderr="log")})
    with pytest.raises(PluginError) as caught:
        client(executor, tmp_path).add_network_list(net, RT)
    error = caught.value
    assert (error.code, error.msg, error.details, error.stderr) == (11, "later", "much later", "log")
    assert executor.verbs[2:] == [("DEL", "tuning"), ("DEL", "bridge")]


def test_answers_may_be_outcomes_exceptions_functions_and_lists(net: NetworkConfigList, tmp_path: Path) -> None:
    def by_function(invocation: Invocation) -> dict[str, Any]:
        return {"vendor": invocation.container_id}

    answers: list[Any] = [Outcome(exit_status=3), PluginTimeoutError("too long"), by_function, None]
    executor = RecordingExecutor({("*", "ADD"): Outcome(exit_status=4), ("bridge", "ADD"): answers})
    cni = client(executor, tmp_path)
    with pytest.raises(PluginError, match="exit status 3"):
        cni.add_network_list(net, RT)
    with pytest.raises(PluginTimeoutError):
        cni.add_network_list(net, RT)
    executor.answers[("*", "ADD")] = None
    cni.add_network_list(net, RT)
    assert executor.calls[-1].config["prevResult"] == {"cniVersion": "1.1.0", "vendor": "c1"}
    for _ in range(2):
        cni.del_network_list(net, RT)
        cni.add_network_list(net, RT)
        assert executor.calls[-1].config["prevResult"] == {"cniVersion": "1.1.0"}


def test_a_plugin_may_be_missing(net: NetworkConfigList, tmp_path: Path) -> None:
    executor = RecordingExecutor(plugins=["bridge"])
    with pytest.raises(PluginNotFoundError, match="tuning"):
        client(executor, tmp_path).add_network_list(net, RT)
    assert executor.calls == []


def test_a_recorded_call_is_shown_without_the_environment(
    net: NetworkConfigList, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "secret")
    executor = RecordingExecutor()
    client(executor, tmp_path).add_network_list(net, RT)
    assert (executor.calls[0].options.env or {})["TOKEN"] == "secret"
    assert "secret" not in repr(executor.calls[0])


def test_the_same_for_asyncio(net: NetworkConfigList, tmp_path: Path) -> None:
    executor = RecordingExecutor({("bridge", "ADD"): IPS, ("bridge", "DEL"): [error_outcome(1, "no"), None]})

    async def live() -> None:
        cni = AsyncCNIConfig(["/opt/cni/bin"], tmp_path, executor=executor.on_asyncio)
        await cni.add_network_list(net, RT)
        with pytest.raises(PluginError):
            await cni.del_network_list(net, RT)
        await cni.del_network_list(net, RT)

    asyncio.run(live())
    assert executor.verbs[:2] == [("ADD", "bridge"), ("ADD", "tuning")]


def test_a_timeout_is_ready_made(net: NetworkConfigList, tmp_path: Path) -> None:
    executor = RecordingExecutor({("bridge", "ADD"): timeout_error(3)})
    with pytest.raises(PluginTimeoutError, match="it did not end within 3 s") as caught:
        client(executor, tmp_path).add_network_list(net, RT)
    assert caught.value.plugin == "bridge"


def test_an_answer_on_asyncio_may_be_a_coroutine(net: NetworkConfigList, tmp_path: Path) -> None:
    async def answer(invocation: Invocation) -> dict[str, Any]:
        await asyncio.sleep(0)
        return IPS

    executor = RecordingExecutor({("bridge", "ADD"): answer})
    cni = AsyncCNIConfig(["/opt/cni/bin"], tmp_path, executor=executor.on_asyncio)
    assert asyncio.run(cni.add_network_list(net, RT)).ips[0].address == "10.0.0.2/24"
    with pytest.raises(TypeError, match="is a coroutine: use on_asyncio"):
        client(executor, tmp_path / "other").add_network_list(net, RT)
