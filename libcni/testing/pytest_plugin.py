"""Fixtures for pytest, found through the entry point ``pytest11``.

Imports are inside the fixtures: pytest loads this module in every run, before coverage is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from libcni.testing.fakes import FakePlugins
    from libcni.testing.namespaces import NetworkNamespace


@pytest.fixture
def cni_fakes(tmp_path: Path) -> FakePlugins:
    """Return a directory of fake plugins, empty so far."""
    from libcni.testing.fakes import FakePlugins

    directory = tmp_path / "cni-fakes"
    directory.mkdir()
    return FakePlugins(directory)


@pytest.fixture(scope="session")
def cni_namespaces() -> Callable[[], AbstractContextManager[NetworkNamespace]]:
    """Return a function that makes a network namespace; skip the test, with the reason, if none can be made."""
    from libcni.testing.namespaces import network_namespace, why_no_namespaces

    # Asked once for each test run, because it makes a namespace to find out.
    reason = why_no_namespaces()
    if reason is not None:
        pytest.skip(reason)
    return network_namespace


@pytest.fixture
def cni_netns(cni_namespaces: Callable[[], AbstractContextManager[NetworkNamespace]]) -> Iterator[NetworkNamespace]:
    """Make a network namespace for one test; skip the test, with the reason, if none can be made."""
    with cni_namespaces() as namespace:
        yield namespace
