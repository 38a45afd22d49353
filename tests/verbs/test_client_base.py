"""What the constructors and verbs of both clients refuse before they write or run anything."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest

import libcni
from libcni import AsyncCNIConfig, CNIConfig, InvalidIdentifierError
from libcni.executor.async_process import AsyncProcessExecutor
from libcni.executor.process import ProcessExecutor
from libcni.observe import Observer
from libcni.testing import RecordingExecutor

CLIENTS: tuple[Any, ...] = (CNIConfig, AsyncCNIConfig)
NET = libcni.NetworkConfigList.from_dict({"name": "net", "cniVersion": "1.0.0", "plugins": [{"type": "a"}]})
RT = libcni.RuntimeConf("c1", None, "eth0")


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    ("env", "text"),
    [
        ("PATH", "env must be a mapping of variables, or a list of names such as .'PATH'., not 'PATH'"),
        (b"PATH", "not b'PATH'"),
        (5, "not 5"),
        ({"A": 1}, "names and values must be strings, not 'A': 1"),
        ({1: "A"}, "not 1: 'A'"),
        ([1], "not 1$"),
    ],
)
def test_an_environment_of_another_type_is_refused(client: Any, env: object, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        client(["/bin"], env=env)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("owner", [5, None, b"me", "a\nb", "a\x1b[1m", "\0", "\udcff", "\u202e"])
def test_an_owner_that_no_record_can_show_is_refused(client: Any, owner: object) -> None:
    with pytest.raises(InvalidIdentifierError, match="invalid owner"):
        client(["/bin"], owner=owner)


@pytest.mark.parametrize("executor", [AsyncProcessExecutor(), RecordingExecutor().on_asyncio])
def test_a_blocking_client_refuses_an_executor_of_coroutines(executor: Any) -> None:
    with pytest.raises(TypeError, match=r"CNIConfig needs an Executor, .*: _?Async.*Executor.execute is a"):
        CNIConfig(["/bin"], executor=executor)


@pytest.mark.parametrize("executor", [ProcessExecutor(), RecordingExecutor()])
def test_an_asyncio_client_refuses_an_executor_that_blocks(executor: Any) -> None:
    with pytest.raises(TypeError, match=r"AsyncCNIConfig needs an AsyncExecutor, .*Executor.execute is no"):
        AsyncCNIConfig(["/bin"], executor=executor)


@pytest.mark.parametrize("client", CLIENTS)
def test_an_object_without_the_methods_is_no_executor(client: Any) -> None:
    with pytest.raises(TypeError, match="methods find and execute"):
        client(["/bin"], executor=object())


def call(client: Any, method: str, *arguments: object, **options: object) -> None:
    answer = getattr(client, method)(*arguments, **options)
    if inspect.isawaitable(answer):
        asyncio.run(_wait(answer))


async def _wait(answer: Any) -> None:
    await answer


@pytest.mark.parametrize("client", CLIENTS)
def test_an_argument_of_another_type_is_named(client: Any, tmp_path: Path) -> None:
    executor = RecordingExecutor()
    cni = client(["/bin"], tmp_path, executor=executor if client is CNIConfig else executor.on_asyncio)
    for verb in ("add", "check", "del"):
        with pytest.raises(TypeError, match="rt must be a RuntimeConf, not None"):
            call(cni, f"{verb}_network_list", NET, None)
        with pytest.raises(TypeError, match="plugin must be a PluginConfig, not None"):
            call(cni, f"{verb}_network", None, RT)
    with pytest.raises(TypeError, match="rt must be a RuntimeConf, not 'c1'"):
        cni.get_network_list_cached_result(NET, "c1")
    for method, about in (("del_network_list", RT), ("gc_network_list", [])):
        with pytest.raises(TypeError, match="policy must be a DelPolicy, not 'x'"):
            call(cni, method, NET, about, policy="x")
    with pytest.raises(TypeError, match="plugin must be a PluginConfig, not None"):
        call(cni, "validate_network", None)
    for method in ("del_attachment", "forget_attachment", "take_over_attachment"):
        with pytest.raises(TypeError, match="attachment must be an Attachment, not 'c1'"):
            call(cni, method, "c1")
    assert executor.calls == []
    assert cni.get_cached_attachments() == []


@pytest.mark.parametrize("given", [print, Observer])
def test_something_that_is_no_observer_is_refused_at_once(tmp_path: Path, given: Any) -> None:
    with pytest.raises(TypeError, match="observer must be an Observer"):
        CNIConfig([], tmp_path, observer=given)


def test_paths_may_be_path_objects(tmp_path: Path) -> None:
    assert CNIConfig(tmp_path, tmp_path, conf_dir=tmp_path).path == (str(tmp_path),)
    assert libcni.RuntimeConf("c1", tmp_path, "eth0").netns == str(tmp_path)
