"""Every public parameter that takes several things reads them once: a generator gives what a tuple gives."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from helpers import network
from nodes import Blocking

import libcni
import libcni.engines.oci
import libcni.executor
import libcni.manager
import libcni.plugin
import libcni.testing
from libcni.testing import RecordingExecutor

NET = network("a", cniVersion="1.1.0")


def client(tmp_path: Path, *, on_asyncio: bool) -> Any:
    """Return a client with two attachments, c1 and c2."""
    executor, cache = RecordingExecutor(), tmp_path / "cache"
    cni = libcni.CNIConfig(["/bin"], cache, executor=executor, durable=False)
    for container in ("c1", "c2"):
        cni.add_network_list(NET, libcni.RuntimeConf(container, None, "eth0"))
    return Blocking(libcni.AsyncCNIConfig(["/bin"], cache, executor=executor.on_asyncio)) if on_asyncio else cni


def left_by_gc(tmp_path: Path, once: Callable[[list[Any]], Iterable[Any]], *, on_asyncio: bool) -> object:
    cni = client(tmp_path, on_asyncio=on_asyncio)
    cni.gc_network_list(NET, once([("c1", "eth0")]))
    return [one.container_id for one in cni.get_cached_attachments()]


def left_by_del(tmp_path: Path, once: Callable[[list[Any]], Iterable[Any]], *, on_asyncio: bool) -> object:
    cni = client(tmp_path, on_asyncio=on_asyncio)
    reports = cni.del_attachments(once(cni.get_cached_attachments("c2")))
    return len(reports), [one.container_id for one in cni.get_cached_attachments()]


def refused_by_reload(tmp_path: Path, once: Callable[[list[Any]], Iterable[Any]], *, on_asyncio: bool) -> object:
    cni = client(tmp_path, on_asyncio=on_asyncio)
    with pytest.raises(libcni.CNIErrorGroup) as caught:  # the attachments have no namespace
        cni.reload_attachments(once(cni.get_cached_attachments()))
    return [error.container_id for error in caught.value.exceptions if isinstance(error, libcni.NotAttachedError)]


CALLS: dict[str, Callable[[Path, Callable[[list[Any]], Iterable[Any]]], object]] = {
    "libcni.AsyncCNIConfig.del_attachments(attachments)": lambda path, once: left_by_del(path, once, on_asyncio=True),
    "libcni.AsyncCNIConfig.gc_network_list(valid)": lambda path, once: left_by_gc(path, once, on_asyncio=True),
    "libcni.AsyncCNIConfig.reload_attachments(attachments)": lambda path, once: refused_by_reload(
        path, once, on_asyncio=True
    ),
    "libcni.CNIConfig.reload_attachments(attachments)": lambda path, once: refused_by_reload(
        path, once, on_asyncio=False
    ),
    "libcni.CNIConfig.del_attachments(attachments)": lambda path, once: left_by_del(path, once, on_asyncio=False),
    "libcni.CNIConfig.gc_network_list(valid)": lambda path, once: left_by_gc(path, once, on_asyncio=False),
    "libcni.NetworkConfigList.with_plugins(plugins)": lambda _, once: NET.with_plugins(once([*NET.plugins])),
    "libcni.NetworkConfigList.with_appended_plugins(plugins)": lambda _, once: NET.with_appended_plugins(
        once([*NET.plugins])
    ),
    "libcni.executor.PluginArgs(args)": lambda _, once: libcni.executor.PluginArgs(
        "ADD", args=once([("K", "V")])
    ).env(),
    "libcni.RuntimeConf(args)": lambda _, once: libcni.RuntimeConf("c1", None, "eth0", once([("K", "V"), ("L", "W")])),
}
ELSEWHERE = ("libcni.manager.", "libcni.engines.oci.", "libcni.testing.", "libcni.plugin.")
"""Rooms whose own tests give generators (tests/manager/test_iterables.py), or whose parameters detach nothing."""


def parameters() -> set[str]:
    """Return the public parameters whose annotation is an Iterable, such as ``libcni.RuntimeConf(args)``."""
    found: set[str] = set()
    for module in (libcni, libcni.executor, libcni.manager, libcni.engines.oci, libcni.plugin, libcni.testing):
        for name in module.__all__:
            found |= _of(f"{module.__name__}.{name}", getattr(module, name))
    return found


def _of(name: str, value: Any) -> set[str]:
    if inspect.isclass(value):
        methods = {f"{name}.{one}": getattr(value, one, None) for one in dir(value) if not one.startswith("_")}
        functions = {name: value.__init__, **methods}
    else:
        functions = {name: value}
    return {
        f"{where}({parameter.name})"
        for where, function in functions.items()
        if inspect.isroutine(function) and hasattr(function, "__code__" if inspect.isfunction(function) else "__func__")
        for parameter in inspect.signature(function).parameters.values()
        if "Iterable" in str(parameter.annotation)
    }


def test_every_such_parameter_is_called_with_a_generator() -> None:
    here = {one for one in parameters() if not one.startswith(ELSEWHERE)}
    assert here == CALLS.keys()


@pytest.mark.parametrize("parameter", CALLS)
def test_a_generator_gives_what_a_tuple_gives(parameter: str, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    given = CALLS[parameter](tmp_path / "a", tuple)
    assert str(CALLS[parameter](tmp_path / "b", iter)).replace("/b/", "/a/") == str(given)
