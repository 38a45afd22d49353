"""A machine of its own for each test: a network namespace in which the plugins find nothing but what they make."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

import libcni
from libcni.testing import NetworkNamespace

from .namespaces import PLUGIN_PATH, PLUGINS, Namespace, inside

Namespaces = Callable[[], AbstractContextManager[NetworkNamespace]]


@pytest.fixture
def new_namespace(cni_namespaces: Namespaces) -> Iterator[Callable[[], Namespace]]:
    """Return a function that makes a network namespace; all are removed, whatever happens."""
    with ExitStack() as stack:
        yield lambda: Namespace(stack.enter_context(cni_namespaces()).name)


@pytest.fixture
def host(new_namespace: Callable[[], Namespace]) -> Iterator[Namespace]:
    """Play the machine in a namespace of its own.

    Bridges, veths and firewall rules are made there. They vanish with it, and none of this machine is touched.
    """
    namespace = new_namespace()
    with inside(namespace.path):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        yield namespace


@pytest.fixture
def container(host: Namespace, new_namespace: Callable[[], Namespace]) -> Namespace:
    return new_namespace()


@pytest.fixture
def other(host: Namespace, new_namespace: Callable[[], Namespace]) -> Namespace:
    return new_namespace()


@pytest.fixture
def cni(tmp_path: Path) -> libcni.CNIConfig:
    return libcni.CNIConfig(path=[PLUGINS], cache_dir=tmp_path / "cache", env={"PATH": PLUGIN_PATH})


@pytest.fixture
def leases(tmp_path: Path) -> Path:
    """Return host-local's directory."""
    return tmp_path / "leases"


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """Return the directory of the client's records."""
    return tmp_path / "cache/results"
